"""ONNX Runtime on a file of large weights, piece by piece: no more of the weights is in memory than one piece reads.

A piece is some nodes of the file as a model of their own. Large initializers are inputs of it, fed as views of the
file; the matrix of a wide product is fed in blocks of output elements, and the blocks of the output are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from boundscope.network.arrays import Array, bands, drop_pages
from boundscope.network.file import open_model
from boundscope.network.operators.base import Array as Value
from boundscope.network.products import WIDE_BYTES
from boundscope.network.runtime import Session
from boundscope.network.source import DEFAULT_DOMAINS
from boundscope.network.stored import Place

PIECES_FROM_BYTES = 16 << 20  # of large initializers; a file with fewer runs in one piece
PIECE_BYTES = 8 << 20  # of large initializers of a piece of several nodes
MOST_BLOCKS = 16  # of columns: each reads the whole matrix


@dataclass
class Piece:
    """Some nodes of a file, with what they read of its initializers."""

    name: str
    opsets: Sequence[onnx.OperatorSetIdProto]
    ir_version: int
    nodes: list[onnx.NodeProto]
    outputs: tuple[str, ...]
    small: list[onnx.TensorProto]
    large: dict[str, Place]
    threads: int
    _session: Session | None = field(default=None, repr=False)

    def run(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Outputs by name, of the values of what the nodes read.

        Raises:
            NetworkError: ONNX Runtime refuses or fails.
        """
        read = {name for node in self.nodes for name in node.input if name in values}
        given = {name: values[name] for name in read}
        wide = self._wide()
        if wide is None:
            arrays = {name: place.array for name, place in self.large.items()}
            found = self._run({**given, **arrays})
            for array in arrays.values():
                drop_pages(array)
            return found
        parts = [self._run({**given, **block}) for block in wide.blocks(self.small)]
        return {name: np.concatenate([part[name] for part in parts], axis=-1) for name in self.outputs}

    def _wide(self) -> _WideBlocks | None:
        if len(self.nodes) != 1:
            return None
        return _WideBlocks.of(self.nodes[0], self.large, {tensor.name for tensor in self.small})

    def _run(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        feeds = {name: np.require(value, requirements=["C", "A"]) for name, value in feeds.items()}
        if self._session is None:
            self._session = Session(
                self._model(feeds).SerializeToString(),
                self.name,
                optimized=False,
                threads=self.threads,
                keeps_memory=False,
            )
        return dict(zip(self._session.outputs, self._session.run(feeds), strict=True))

    def _model(self, feeds: Mapping[str, Value]) -> onnx.ModelProto:
        helper = onnx.helper
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim
            )
            for name, value in feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        small = [tensor for tensor in self.small if tensor.name not in feeds]
        graph = helper.make_graph(self.nodes, "piece", inputs, outputs, small)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=max(4, self.ir_version))


@dataclass(frozen=True)
class _WideBlocks:
    """A product of a moving operand with a wide matrix, by blocks of output elements."""

    matrix: str
    place: Place
    turned: bool
    added: str
    added_place: Place | None  # None: what is added is small, or nothing

    @classmethod
    def of(cls, node: onnx.NodeProto, large: Mapping[str, Place], small: set[str]) -> _WideBlocks | None:
        inputs = list(node.input)
        if node.op_type not in ("Gemm", "MatMul") or inputs.count(inputs[1]) > 1:
            return None
        name, place = inputs[1], large.get(inputs[1])
        if place is None or inputs[0] in large:
            return None
        if any(one and one not in small and one not in large for one in inputs[2:]):
            return None
        if len(place.shape) != 2 or place.nbytes < WIDE_BYTES:
            return None
        turned = any(one.name == "transB" and one.i for one in node.attribute)
        added = inputs[2] if len(inputs) > 2 else ""
        return cls(name, place, turned, added, large.get(added))

    def blocks(self, small: Sequence[onnx.TensorProto]) -> Iterator[dict[str, Value]]:
        matrix = self.place.array
        width = len(matrix) if self.turned else matrix.shape[1]
        count = -(-matrix.nbytes // WIDE_BYTES)
        if not self.turned:
            count = min(MOST_BLOCKS, count)
        step = -(-width // count)
        if self.added_place is not None:
            added: Value | None = self.added_place.array
        else:
            added = next((onnx.numpy_helper.to_array(one) for one in small if one.name == self.added), None)
        for first in range(0, width, step):
            part = slice(first, min(first + step, width))
            block = matrix[part] if self.turned else _columns(matrix, part)
            fed: dict[str, Value] = {self.matrix: block}
            if added is not None:
                fed[self.added] = added[..., part] if added.ndim and added.shape[-1] == width else added
            yield fed
            if self.turned:
                drop_pages(block)


def _columns(matrix: Array, part: slice) -> Array:
    found = np.empty((len(matrix), part.stop - part.start), matrix.dtype)
    for rows, band in bands(matrix):
        found[rows] = band[:, part]
    return found


def _cut(
    model: onnx.ModelProto, places: Mapping[str, Place], wanted: set[str], name: str, threads: int
) -> list[Piece] | None:
    """The file's nodes in pieces; None where one of them holds a graph, or their order cannot be told."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    known = {value.name for value in model.graph.input} | set(tensors) | {""}
    needed = _needed_after(model)
    pieces: list[Piece] = []
    held = 0
    for index, node in enumerate(model.graph.node):
        if node.domain not in DEFAULT_DOMAINS or not all(one in known for one in node.input):
            return None
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            return None
        known.update(node.output)
        large = {one: places[one] for one in node.input if one in places}
        size = sum(place.nbytes for place in large.values())
        if not pieces or held + size > PIECE_BYTES:
            pieces.append(Piece(name, model.opset_import, model.ir_version, [], (), [], {}, threads))
            held = 0
        piece = pieces[-1]
        held += size
        piece.nodes.append(node)
        piece.large.update(large)
        held_names = {tensor.name for tensor in piece.small}
        piece.small += [
            tensors[one]
            for one in dict.fromkeys(node.input)
            if one in tensors and one not in places and one not in held_names
        ]
        piece.outputs += tuple(one for one in node.output if one in wanted or needed.get(one, -1) > index)
    return pieces


def _needed_after(model: onnx.ModelProto) -> dict[str, int]:
    """The last node, by number, that reads each tensor."""
    return {name: index for index, node in enumerate(model.graph.node) for name in node.input}


class Pieces:
    """A file in ONNX Runtime, so that values of tensors come piece by piece."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self.outputs = tuple(name for piece in pieces for name in piece.outputs)

    def run(self, feeds: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
        """Values of tensors, those of the nodes' inputs before those of their outputs."""
        values = dict(feeds)
        for piece in self._pieces:
            found = piece.run(values)
            values.update(found)
            yield found


def in_pieces(path: str | Path, wanted: set[str], name: str, threads: int) -> Pieces | None:
    """A file of large weights, with the `wanted` tensors among the outputs; None for a file that runs whole."""
    with open_model(path, mapped=True) as opened:
        places = opened.places
        if sum(place.nbytes for place in places.values()) < PIECES_FROM_BYTES:
            return None
        for place in places.values():
            _ = place.array  # maps its file, which stays mapped
        wanted = wanted | {value.name for value in opened.model.graph.output}
        pieces = _cut(opened.model, places, wanted, name, threads)
    return None if pieces is None else Pieces(pieces)
