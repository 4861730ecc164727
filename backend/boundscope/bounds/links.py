"""Products with constant matrices that follow each other in a network, and the sums that belong to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boundscope.network.graph import Network, Node
from boundscope.network.operators.arithmetic import Add, Sub
from boundscope.network.operators.linear import Gemm, MatMul


@dataclass(frozen=True)
class Link:
    """A product with a constant matrix on its right, and the sum that adds a constant to it and alone reads it."""

    node: Node
    added: Node | None

    @property
    def output(self) -> str:
        return (self.node if self.added is None else self.added).outputs[0]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node,) if self.added is None else (self.node, self.added)


def links(network: Network) -> dict[str, Link]:
    """By the name of the product's node; of others than those with a constant on the left, the sums alone."""
    readers = _readers(network)
    outputs = {info.name for info in network.outputs}
    found = {}
    for node in network.nodes:
        if not isinstance(node.op, MatMul | Gemm):
            continue
        name = node.outputs[0]
        added = None
        if name not in outputs and len(readers.get(name, [])) == 1:
            (reader,) = readers[name]
            others = [other for other in reader.inputs if other != name]
            fits = network.tensors[name].shape == network.tensors[reader.outputs[0]].shape
            ordered = isinstance(reader.op, Add) or (isinstance(reader.op, Sub) and reader.inputs[0] == name)
            if fits and ordered and len(others) == 1 and others[0] in network.constants:
                added = reader
        found[node.name] = Link(node, added)
    return found


def rows_of_links(network: Network, found: Mapping[str, Link]) -> list[list[Link]]:
    """Links in rows: each alone reads what the one before gives, and multiplies its last axis by a plain matrix."""
    readers = _readers(network)
    outputs = {info.name for info in network.outputs}
    taken: set[str] = set()
    rows = []
    for name, link in found.items():
        if name in taken or not _multiplies_last(network, link.node):
            continue
        row = [link]
        while True:
            output = row[-1].output
            mine = readers.get(output, [])
            following = found.get(mine[0].name) if len(mine) == 1 else None
            if output in outputs or following is None or not _multiplies_last(network, following.node):
                break
            row.append(following)
        taken |= {one.node.name for one in row}
        rows.append(row)
    return rows


def _readers(network: Network) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in network.nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    return readers


def _multiplies_last(network: Network, node: Node) -> bool:
    constant = network.constants.get(node.inputs[1])
    transposed = isinstance(node.op, Gemm) and node.op.transpose_a
    return (
        node.inputs[0] not in network.constants
        and constant is not None
        and constant.ndim == 2
        and not transposed
    )
