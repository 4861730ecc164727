"""Which nodes carry a tensor's split over ranks on, and how: one small rule an operator family."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from boundscope.errors import BoundscopeError
from boundscope.network.graph import Network, Node, Operator
from boundscope.network.operators import activation, arithmetic, fused, pooling
from boundscope.network.operators.linear import Conv, Gemm, MatMul
from boundscope.network.operators.normalization import BatchNormalization
from boundscope.network.operators.shape import Flatten, Identity, Reshape, Squeeze, Transpose, Unsqueeze

_ELEMENTWISE = (
    activation.Relu,
    activation.LeakyRelu,
    activation.Elu,
    activation.Clip,
    activation.Neg,
    activation.Abs,
    activation.Sigmoid,
    activation.Tanh,
    activation.Erf,
    activation.Gelu,
    activation.Softplus,
    activation.HardSigmoid,
    activation.HardSwish,
    activation.Mish,
    activation.Exp,
    activation.Log,
    activation.Sqrt,
    activation.Reciprocal,
    activation.Sin,
    activation.Cos,
    fused.Silu,
    Identity,
)
_BROADCAST = (
    arithmetic.Add,
    arithmetic.Sub,
    arithmetic.Mul,
    arithmetic.Div,
    activation.PRelu,
    fused.LeakySum,
)
_POOLING = (pooling.MaxPool, pooling.AveragePool, pooling.GlobalAveragePool, pooling.GlobalMaxPool)


class CannotSplitError(BoundscopeError):
    """A zone cannot go on here; with parts of multiples of `grain` elements it could."""

    def __init__(self, grain: int = 0) -> None:
        super().__init__("a split cannot be carried on")
        self.grain = grain


@dataclass(frozen=True)
class Split:
    """A tensor's axis in consecutive parts: `sizes[r]` elements on rank r."""

    axis: int
    sizes: tuple[int, ...]

    def part(self, rank: int) -> slice:
        start = sum(self.sizes[:rank])
        return slice(start, start + self.sizes[rank])

    def local_shape(self, shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
        return (*shape[: self.axis], self.sizes[rank], *shape[self.axis + 1 :])


@dataclass(frozen=True)
class Step:
    """What becomes of a node in a zone: its output's split (None: the zone begins or ends here), and how constants
    among its inputs are cut, by position."""

    output: Split | None
    cuts: Mapping[int, Split] = field(default_factory=dict)


def propagated(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    """The step of a node whose inputs at these positions are split.

    Raises:
        CannotSplitError: it can neither carry the split on nor end it by a sum.
    """
    if len(node.outputs) != 1:
        raise CannotSplitError
    if isinstance(node.op, _ELEMENTWISE):
        return Step(inputs[0])
    for kinds, rule in _RULES:
        if isinstance(node.op, kinds):
            return rule(network, node, inputs)
    raise CannotSplitError


def _shape(network: Network, name: str) -> tuple[int, ...]:
    return network.tensors[name].shape


def _alone(network: Network, node: Node, inputs: Mapping[int, Split]) -> Split:
    """The split of the first input, the only one that is not constant."""
    if set(inputs) != {0} or any(name and name not in network.constants for name in node.inputs[1:]):
        raise CannotSplitError
    return inputs[0]


def _broadcast(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    """Operands of equal splits, and constants, which are cut where they run along the split axis."""
    out = _shape(network, node.outputs[0])
    cuts: dict[int, Split] = {}
    first = next(iter(inputs))
    output = Split(
        inputs[first].axis + len(out) - len(_shape(network, node.inputs[first])), inputs[first].sizes
    )
    for index, name in enumerate(node.inputs):
        shape = _shape(network, name)
        axis = output.axis - len(out) + len(shape)
        if index in inputs:
            if inputs[index] != Split(axis, output.sizes):
                raise CannotSplitError
        elif name not in network.constants:
            raise CannotSplitError
        elif axis >= 0 and shape[axis] != 1:
            cuts[index] = Split(axis, output.sizes)
    return Step(output, cuts)


def _normalized(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    split = _alone(network, node, inputs)
    cuts = {index: Split(0, split.sizes) for index in range(1, 5)} if split.axis == 1 else {}
    return Step(split, cuts)


def _pooled(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    split = _alone(network, node, inputs)
    if split.axis > 1:
        raise CannotSplitError
    return Step(split)


def _reshaped(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    """The split axis joined with later ones, or taken apart with the ranks' parts along the first of the new axes."""
    split = _alone(network, node, inputs)
    before, after = _shape(network, node.inputs[0]), _shape(network, node.outputs[0])
    lead = math.prod(before[: split.axis])
    for axis, size in enumerate(after):
        if math.prod(after[:axis]) != lead or size == 1:
            continue
        count = before[split.axis]
        if size % count == 0:
            return Step(Split(axis, tuple(one * (size // count) for one in split.sizes)))
        if count % size == 0:
            inner = count // size
            if any(one % inner for one in split.sizes):
                # In elements of the zone's first axis: what joined axes have added to a part is no matter of it.
                raise CannotSplitError(grain=inner)
            return Step(Split(axis, tuple(one // inner for one in split.sizes)))
    raise CannotSplitError


def _transposed(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    split = _alone(network, node, inputs)
    assert isinstance(node.op, Transpose)
    return Step(Split(node.op.permutation.index(split.axis), split.sizes))


def _softmax(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    split = _alone(network, node, inputs)
    assert isinstance(node.op, activation.Softmax | activation.LogSoftmax)
    if split.axis in node.op.axes:
        raise CannotSplitError
    return Step(split)


def _matmul(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    left, right = (_shape(network, name) for name in node.inputs)
    if len(inputs) == 2:  # batched over what is split, as over attention's heads
        if inputs[0] != inputs[1] or len(left) != len(right) or inputs[0].axis >= len(left) - 2:
            raise CannotSplitError
        return Step(inputs[0])
    split = _alone(network, node, inputs)
    if len(right) != 2 or len(left) < 2:
        raise CannotSplitError
    return (
        _contracted(network, node, {1: Split(0, split.sizes)}) if split.axis == len(left) - 1 else Step(split)
    )


def _gemm(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    split, op = _alone(network, node, inputs), node.op
    assert isinstance(op, Gemm)
    if op.transpose_a or split.axis != 1:
        raise CannotSplitError
    return _contracted(network, node, {1: Split(1 if op.transpose_b else 0, split.sizes)})


def _conv(network: Network, node: Node, inputs: Mapping[int, Split]) -> Step:
    split, op = _alone(network, node, inputs), node.op
    assert isinstance(op, Conv)
    channels = _shape(network, node.inputs[0])[1]
    if split.axis != 1:
        raise CannotSplitError
    if op.group == channels == _shape(network, node.inputs[1])[0]:  # each channel by itself
        return Step(split, {index: Split(0, split.sizes) for index in range(1, len(node.inputs))})
    if op.group != 1:
        raise CannotSplitError
    return _contracted(network, node, {1: Split(1, split.sizes)})


def _contracted(network: Network, node: Node, cuts: Mapping[int, Split]) -> Step:
    """The end of a zone. Constants that were rounded at load stay whole: ranks must agree on what that adds."""
    if any(name in network.rounded_constants for name in node.inputs):
        raise CannotSplitError
    return Step(None, cuts)


_Rule = Callable[[Network, Node, Mapping[int, Split]], Step]
_RULES: tuple[tuple[type[Operator] | tuple[type[Operator], ...], _Rule], ...] = (
    (_BROADCAST, _broadcast),
    (BatchNormalization, _normalized),
    (_POOLING, _pooled),
    ((Flatten, Reshape, Squeeze, Unsqueeze), _reshaped),
    (Transpose, _transposed),
    ((activation.Softmax, activation.LogSoftmax), _softmax),
    (MatMul, _matmul),
    (Gemm, _gemm),
    (Conv, _conv),
)
