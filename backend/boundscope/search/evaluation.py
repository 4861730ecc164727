"""A network at many points at once: every node over a leading batch axis, for searches that prove nothing.

Tensors of the graph gain an axis in front. Most operators take it as it is, with their own axes moved by one; the rest
go through torch.vmap, or point by point. What is found here is judged elsewhere, so speed may be sought; before the
first batch is trusted, it is compared with the plain evaluation all the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from boundscope.network.arrays import as_tensor
from boundscope.network.graph import Network, Node, Operator, TensorInfo
from boundscope.network.operators import (
    activation,
    arithmetic,
    linear,
    logic,
    movement,
    normalization,
    pooling,
    reduction,
    shape,
)
from boundscope.network.products import WideProduct, read_whole
from boundscope.search.surrogates import surrogate_of

BATCH_ELEMENTS = 1 << 24  # elements of all tensors of all points that are evaluated together
# What an operator raises at a point that it cannot take, such as an index beyond the end.
POINT_ERRORS = (RuntimeError, ValueError, LookupError)

Values = list[Tensor | None]
Step = Callable[[Values, int, set[int]], Sequence[Tensor]]  # of values, points, and the points that failed

_POINTWISE = (
    activation.Exact,
    activation.OfUnitScale,
    activation.OfLibrary,
    activation.LeakyRelu,
    activation.Sqrt,
    activation.Reciprocal,
    logic.Not,
    shape.Cast,
)
_BROADCAST = (
    activation.PRelu,
    arithmetic.Add,
    arithmetic.Sub,
    arithmetic.Mul,
    arithmetic.Div,
    arithmetic.Pow,
    arithmetic.Min,
    arithmetic.Max,
    arithmetic.Sum,
    logic.Equal,
    logic.Less,
    logic.LessOrEqual,
    logic.Greater,
    logic.GreaterOrEqual,
    logic.And,
    logic.Or,
    logic.Where,
)
_ROWWISE = (  # on [N, C, *S], every element of the first axis for itself
    linear.Conv,
    linear.ConvTranspose,
    normalization.BatchNormalization,
    pooling.AveragePool,
    pooling.GlobalAveragePool,
    pooling.GlobalMaxPool,
    pooling.MaxPool,
)
_WITH_AXIS = (
    movement.Concat,
    movement.Split,
    movement.Gather,
    reduction.ArgMax,
    normalization.LayerNormalization,
    logic.OneHot,
)
_WITH_AXES = (activation.Softmax, activation.LogSoftmax, movement.Slice, reduction.Reduction)
_RESHAPED = (shape.Flatten, shape.Reshape, shape.Squeeze, shape.Unsqueeze, shape.Identity)


class BatchedNetwork:
    """One network in a floating dtype.

    `surrogate`: operators that jump, such as Sign, keep their values and gain the gradient of a smooth neighbour.
    """

    def __init__(self, network: Network, dtype: torch.dtype, *, surrogate: bool = False) -> None:
        self.network = network
        self.dtype = dtype
        self._constants: dict[str, Tensor] = {}
        self._outputs = {info.name for info in network.outputs}
        whole = read_whole(network) | self._outputs
        for name, array in network.constants.items():
            if name in whole:
                tensor = as_tensor(array)
                self._constants[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        self._steps = [_step_of(network, node, surrogate) for node in network.nodes]
        self._last_use = {name: i for i, node in enumerate(network.nodes) for name in node.inputs}
        self._batched: bool | None = None  # None: not compared yet
        elements = sum(info.size for name, info in network.tensors.items() if name not in network.constants)
        self.most_points = max(1, BATCH_ELEMENTS // max(1, elements))

    def outputs(self, points: Tensor) -> Tensor:
        """[B, outputs] at points [B, inputs], differentiable; NaN at a point that the network cannot take."""
        if self._batched is None:
            self._batched = self._agrees(points.detach())
        if self._batched:
            return self._all(points)
        return torch.stack([self._one(point) for point in points])

    def values(self, points: Tensor) -> Tensor:
        """The same without gradients, at any number of points, a part after the other."""
        with torch.no_grad():
            return torch.cat([self.outputs(part) for part in torch.split(points, self.most_points)])

    def _agrees(self, points: Tensor) -> bool:
        """Whether batches give what the plain evaluation gives, at the first and the last point."""
        try:
            with torch.no_grad():
                together = self._all(points)
        except POINT_ERRORS:
            return False
        near = math.sqrt(torch.finfo(self.dtype).eps)
        ends = sorted({0, len(points) - 1})
        with torch.no_grad():
            alone = torch.stack([self._one(points[end]) for end in ends])
        return any(
            torch.allclose(a, b, rtol=near, atol=near, equal_nan=True)
            for a, b in zip(together[ends], alone, strict=True)
        )

    def _all(self, points: Tensor) -> Tensor:
        values: dict[str, Tensor] = {}
        failed: set[int] = set()
        position = 0
        for info in self.network.inputs:
            part = points[:, position : position + info.size]
            values[info.name] = part.reshape(len(points), *info.shape)
            position += info.size
        for number, (node, step) in enumerate(zip(self.network.nodes, self._steps, strict=True)):
            arguments = [values.get(name, self._constants.get(name)) for name in node.inputs]
            results = step(arguments, len(points), failed)
            for name, result in zip(node.outputs, results, strict=False):
                if name:
                    values[name] = result.to(self.dtype) if result.is_floating_point() else result
            for name in node.inputs:
                if name not in self._outputs and self._last_use[name] == number:
                    values.pop(name, None)
        flat = []
        for info in self.network.outputs:
            value = values.get(info.name)
            if value is None:
                value = self._constants[info.name].expand(len(points), *info.shape)
            flat.append(value.reshape(len(points), -1).to(self.dtype))
        outputs = torch.cat(flat, dim=1)
        if failed:
            taken = torch.ones(len(points), 1, dtype=torch.bool)
            taken[sorted(failed)] = False
            outputs = torch.where(taken, outputs, math.nan)
        return outputs

    def _one(self, point: Tensor) -> Tensor:
        inputs: dict[str, Tensor] = {}
        position = 0
        for info in self.network.inputs:
            inputs[info.name] = point[position : position + info.size].reshape(info.shape)
            position += info.size
        try:
            values = self.network.evaluate(inputs, constants=self._constants, lean=True)
        except POINT_ERRORS:
            return point.new_full((self.network.output_count,), math.nan)
        return torch.cat([values[info.name].reshape(-1).to(self.dtype) for info in self.network.outputs])


def operations(network: Network) -> int:
    """Multiplications of one evaluation, and an operation for every other element: what a point costs."""
    total = 0
    for node in network.nodes:
        size = sum(network.tensors[name].size for name in node.outputs if name)
        terms = 1
        if isinstance(node.op, linear.Gemm | linear.MatMul):
            first = network.tensors.get(node.inputs[0])
            shape_of = first.shape if first is not None else network.constants[node.inputs[0]].shape
            terms = shape_of[-1] if shape_of else 1
        elif isinstance(node.op, linear.Conv | linear.ConvTranspose):
            weight = network.constants.get(node.inputs[1])
            terms = math.prod(weight.shape[1:]) if weight is not None else 1
        total += size * terms
    return max(1, total)


# ------------------------------------------------------------ steps


def _step_of(network: Network, node: Node, surrogate: bool) -> Step:
    """How a node is applied to tensors with a batch axis in front."""
    op = node.op
    if op.only_rounds:
        return lambda values, count, failed: (_present(values[0]),)
    if surrogate and (smooth := surrogate_of(op)) is not None:
        return lambda values, count, failed: (smooth(_present(values[0])),)
    batched = [bool(name) and name not in network.constants for name in node.inputs]
    ranks = [_rank(network, name) for name in node.inputs]
    wide = WideProduct.of(network, node)
    if (
        wide is not None
    ):  # what it adds has the output's own axes, or fewer, and goes with any number of points
        return lambda values, count, failed: (wide.evaluate(values),)
    direct = _direct(network, node, batched, ranks)
    return direct or _by_vmap(network, node, batched)


def _direct(network: Network, node: Node, batched: list[bool], ranks: list[int]) -> Step | None:
    op = node.op
    only_first = batched[0] and not any(batched[1:])
    if isinstance(op, _WITH_AXES) and only_first:
        axes = tuple(axis + 1 for axis in op.axes)
        return _plain(dataclasses.replace(op, axes=axes) if axes else op)
    if isinstance(op, _RESHAPED):
        target = network.tensors[node.outputs[0]].shape
        return lambda values, count, failed: (_present(values[0]).reshape(count, *target),)
    if isinstance(op, _POINTWISE) and only_first:
        return _plain(op)
    if isinstance(op, _BROADCAST):
        return _aligned(op, batched, ranks, max(ranks))
    if isinstance(op, shape.Transpose):
        return _plain(shape.Transpose((0, *(axis + 1 for axis in op.permutation))))
    if isinstance(op, _ROWWISE) and only_first:
        return _rowwise(op)
    if isinstance(op, linear.Gemm):
        return _aligned(op, batched, ranks, 2)
    if isinstance(op, linear.MatMul) and min(ranks) >= 2:
        return _aligned(op, batched, ranks, max(ranks))
    if isinstance(op, linear.MatMul) and only_first and ranks == [1, 2]:
        return _plain(op)
    if isinstance(op, _WITH_AXIS):
        moved = dataclasses.replace(op, axis=op.axis + 1)
        if isinstance(op, movement.Concat):
            return _joined(moved, batched)
        return _plain(moved) if only_first else None
    return None


def _plain(op: Operator) -> Step:
    return lambda values, count, failed: op.evaluate(values)


def _aligned(op: Operator, batched: list[bool], ranks: list[int], rank: int) -> Step:
    """Broadcasting counts axes from the last one: ones are put between the batch axis and a tensor of fewer axes."""
    missing = [rank - own if is_batched else 0 for own, is_batched in zip(ranks, batched, strict=True)]

    def step(values: Values, count: int, failed: set[int]) -> Sequence[Tensor]:
        arguments = [
            value.reshape(count, *(1,) * more, *value.shape[1:]) if more and value is not None else value
            for value, more in zip(values, missing, strict=True)
        ]
        return op.evaluate(arguments)

    return step


def _rowwise(op: Operator) -> Step:
    def step(values: Values, count: int, failed: set[int]) -> Sequence[Tensor]:
        x = _present(values[0])
        results = op.evaluate([x.flatten(0, 1), *values[1:]])
        return [result.reshape(count, -1, *result.shape[1:]) for result in results]

    return step


def _joined(op: Operator, batched: list[bool]) -> Step:
    def step(values: Values, count: int, failed: set[int]) -> Sequence[Tensor]:
        parts = [
            value if own else _present(value).expand(count, *_present(value).shape)
            for value, own in zip(values, batched, strict=True)
        ]
        return op.evaluate(parts)

    return step


def _by_vmap(network: Network, node: Node, batched: list[bool]) -> Step:
    """By torch.vmap where it can; else point by point, where points without a value of the graph's shape fail."""
    infos = [network.tensors[name] for name in node.outputs if name]
    refused = [False]

    def step(values: Values, count: int, failed: set[int]) -> Sequence[Tensor]:
        if not refused[0]:
            dims = tuple(0 if own else None for own in batched)
            try:
                return torch.vmap(lambda *args: node.op.evaluate(args), in_dims=dims)(*values)
            except RuntimeError:
                refused[0] = True
        rows: list[Sequence[Tensor] | None] = []
        for index in range(count):
            arguments = [
                value[index] if own and value is not None else value
                for value, own in zip(values, batched, strict=True)
            ]
            row = None if index in failed else _row(node, arguments, infos)
            if row is None:
                failed.add(index)
            rows.append(row)
        zeros = [torch.from_numpy(np.zeros(info.shape, info.dtype)) for info in infos]
        known = next((row for row in rows if row is not None), zeros)
        empty = [torch.zeros_like(value) for value in known]
        filled = [empty if row is None else row for row in rows]
        return [torch.stack(column) for column in zip(*filled, strict=True)]

    return step


def _row(node: Node, arguments: Values, infos: Sequence[TensorInfo]) -> Sequence[Tensor] | None:
    """The outputs at one point; None where there are none, or none of the shapes of the graph."""
    try:
        row = node.op.evaluate(arguments)
    except POINT_ERRORS:
        return None
    if any(value.shape != info.shape for value, info in zip(row, infos, strict=False)):
        return None
    return row


def _rank(network: Network, name: str) -> int:
    if not name:
        return 0
    info = network.tensors.get(name)
    return len(info.shape) if info is not None else network.constants[name].ndim


def _present(value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError("an input that the operator cannot do without was left out")
    return value
