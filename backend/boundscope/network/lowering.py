"""Networks rewritten for bounds: what several nodes share is lost where each is bounded alone.

An ArgMax is decided by the differences of what it compares: bounds of two elements one by one forget what the elements
have in common; the bound of their difference does not. A Softmax in between is left out, for it keeps the order. A
product of x and sigmoid(x) becomes one function of x. A LeakyRelu becomes a sum of its input and a Relu, whose pieces
branch and bound can hold.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch

from boundscope.network.graph import Network, Node, TensorInfo
from boundscope.network.operators.activation import LeakyRelu, LogSoftmax, PRelu, Relu, Sigmoid, Softmax
from boundscope.network.operators.arithmetic import Mul
from boundscope.network.operators.fused import LeakySum, Silu
from boundscope.network.operators.movement import Gather, Slice
from boundscope.network.operators.order import ArgMaxOfDifferences, Differences
from boundscope.network.operators.reduction import ArgMax
from boundscope.network.operators.shape import Flatten, Identity, Reshape, Squeeze, Transpose, Unsqueeze

MOST_ELEMENTS = 32  # compared by one ArgMax: pairs grow with the square
_MOVES = (Flatten, Gather, Identity, Reshape, Slice, Squeeze, Transpose, Unsqueeze)
# A float32 Softmax of logits further apart than this, times 1 + log of how many there are, keeps their order: near the
# largest logit each exponential is off by a few tens of units in the last place (2⁻²⁴) at most.
ORDER_GAP = 2.0**-16


def lowered(network: Network) -> Network:
    """The same network with every ArgMax of up to MOST_ELEMENTS elements in two nodes, the differences of all pairs
    and what they decide, and every x·sigmoid(x) in one. Names of tensors stay; nodes that nothing reads any more are
    gone."""
    tensors = dict(network.tensors)
    nodes: list[Node] = []
    for node in network.nodes:
        if isinstance(node.op, ArgMax):
            nodes += _decided_by_differences(network, node, tensors)
        elif isinstance(node.op, LeakyRelu | PRelu):
            nodes += _as_leaky_sum(network, node, tensors)
        else:
            nodes.append(_as_silu(network, node) or node)
    if nodes == list(network.nodes):
        return network
    live = _live(nodes, {info.name for info in network.outputs})
    by_output = {name: node for node in live for name in node.outputs if name}
    return dataclasses.replace(network, nodes=tuple(live), tensors=tensors, node_by_output=by_output)


def _as_silu(network: Network, node: Node) -> Node | None:
    """A product of a tensor and its own sigmoid as one node."""
    if not isinstance(node.op, Mul):
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        producer = network.node_by_output.get(gate)
        if producer is not None and isinstance(producer.op, Sigmoid) and producer.inputs == (x,):
            return Node(node.name, Silu(), (x,), node.outputs)
    return None


def _as_leaky_sum(network: Network, node: Node, tensors: dict[str, TensorInfo]) -> list[Node]:
    """A rectifier with a constant left slope in 0 … 1 as a Relu and a sum, whose lines are the same. With other slopes
    the parts of the sum go against each other, and a pass that takes them one by one is looser."""
    x, *slope = node.inputs
    if any(name not in network.constants for name in slope) or x in network.constants:
        return [node]
    values = network.constants[slope[0]] if slope else np.array(getattr(node.op, "alpha", math.nan))
    if not bool(((values >= 0) & (values <= 1)).all()):
        return [node]
    rectified = f"{node.outputs[0]} (rectified)"
    tensors[rectified] = TensorInfo(rectified, tensors[x].shape, tensors[x].dtype)
    alpha = node.op.alpha if isinstance(node.op, LeakyRelu) else None
    return [
        Node(f"{node.name} (rectified)", Relu(), (x,), (rectified,)),
        Node(node.name, LeakySum(alpha), (x, rectified, *slope), node.outputs),
    ]


def _decided_by_differences(network: Network, node: Node, tensors: dict[str, TensorInfo]) -> list[Node]:
    op, (name,) = node.op, node.inputs
    assert isinstance(op, ArgMax)
    info = tensors[name]
    count = info.shape[op.axis]
    if name in network.constants or info.dtype.kind != "f" or not 2 <= count <= MOST_ELEMENTS:
        return [node]
    moved, gap = _before_softmax(network, node, tensors)
    if moved:
        name = moved[-1].outputs[0]
    differences = Differences(op.axis, count)
    shape = list(info.shape)
    shape[op.axis] = len(differences.pairs[0])
    between = f"{node.outputs[0]} (differences)"
    tensors[between] = TensorInfo(between, tuple(shape), info.dtype)
    return [
        *moved,
        Node(f"{node.name} (differences)", differences, (name,), (between,)),
        Node(node.name, ArgMaxOfDifferences(differences, op.keepdims, gap), (between,), node.outputs),
    ]


def _before_softmax(network: Network, node: Node, tensors: dict[str, TensorInfo]) -> tuple[list[Node], float]:
    """Copies of the nodes that move a Softmax's outputs to an ArgMax, on its logits, and the gap that its rounding
    needs; nothing where there is no Softmax, or where the ArgMax compares elements of different groups."""
    producers = network.node_by_output
    chain: list[Node] = []
    found = producers.get(node.inputs[0])
    while found is not None and isinstance(found.op, _MOVES) and found.inputs[1:] == ():
        chain.append(found)
        found = producers.get(found.inputs[0])
    if found is None or not isinstance(found.op, Softmax | LogSoftmax):
        return [], 0.0
    chain.reverse()
    shape = tensors[found.inputs[0]].shape
    axes = found.op.axes
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    labels = torch.arange(math.prod(kept), dtype=torch.float64).reshape(kept).expand(shape)
    for one in chain:
        (labels,) = one.op.evaluate([labels])
    axis = node.op.axis if isinstance(node.op, ArgMax) else 0
    if not bool((labels == labels.narrow(axis, 0, 1)).all()):
        return [], 0.0
    name = found.inputs[0]
    copies = []
    for one in chain or [Node(found.name, Identity(), found.inputs, found.outputs)]:
        output = f"{one.outputs[0]} (logits of {node.name})"
        tensors[output] = TensorInfo(output, tensors[one.outputs[0]].shape, tensors[name].dtype)
        copies.append(Node(f"{one.name} (logits)", one.op, (name,), (output,)))
        name = output
    group = math.prod(shape[axis] for axis in axes)
    return copies, ORDER_GAP * (1.0 + math.log(group))


def _live(nodes: list[Node], outputs: set[str]) -> list[Node]:
    """The nodes that some output depends on."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(name in wanted for name in node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]
