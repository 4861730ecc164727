"""Operators that only move, select, sum or average values: linear, with coefficients that are never negative.

Their intervals are the operator itself on the lower and on the upper ends; their backward step is the transpose
that PyTorch's autograd knows. Fixed values that they bring along (padding, a constant part of a Concat) become
the row's constant.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.relaxation import Parts
from boundscope.network.graph import Operator
from boundscope.network.operators import movement, pooling, reduction, resize, shape
from boundscope.network.operators.base import OnnxOperator


def _operands(view: NodeView[Operator], which: str) -> list[Tensor | None]:
    values: list[Tensor | None] = []
    for constant, interval in zip(view.constants, view.inputs, strict=True):
        values.append(constant if interval is None else getattr(interval, which))
    return values


class _Monotone(Rule[Operator]):
    """The operator itself, on ends of intervals forward and transposed backward."""

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        lower = view.op.evaluate(_operands(view, "lower"))
        upper = view.op.evaluate(_operands(view, "upper"))
        return tuple(Interval(low, high) for low, high in zip(lower, upper, strict=True))

    def magnitude(self, view: NodeView[Operator]) -> tuple[Tensor, ...]:
        values = [
            (None if constant is None else constant.abs()) if interval is None else interval.magnitude
            for constant, interval in zip(view.constants, view.inputs, strict=True)
        ]
        return view.op.evaluate(values)

    def terms(self, view: NodeView[Operator]) -> int:
        return max(view.interval(index).lower.numel() for index in view.perturbed)

    def backward_terms(self, view: NodeView[Operator]) -> int:
        return sum(int(torch.Size(one).numel()) for one in view.output_shapes)

    def backward(self, view: NodeView[Operator], rows: tuple[Tensor | None, ...]) -> Parts:
        values = _operands(view, "lower")
        dtype = next(row.dtype for row in rows if row is not None)
        points = {
            index: torch.zeros_like(view.interval(index).lower, dtype=dtype).requires_grad_()
            for index in view.perturbed
        }
        at_zero = [points.get(index, value) for index, value in enumerate(values)]
        with torch.enable_grad():
            outputs = view.op.evaluate(at_zero)
        used = [(out, row) for out, row in zip(outputs, rows, strict=True) if row is not None]
        parts = torch.autograd.grad(
            [out for out, _ in used],
            list(points.values()),
            [row for _, row in used],
            is_grads_batched=True,
            allow_unused=True,
            create_graph=any(row.requires_grad for _, row in used),
        )
        carried = dict(zip(points, parts, strict=True))
        return tuple(carried.get(index) for index in range(len(values)))


@bounds(
    movement.Slice,
    movement.Split,
    movement.Gather,
    movement.Pad,
    movement.Concat,
    shape.Expand,
    resize.Upsample,
    resize.Resize,
)
class MoveRule(_Monotone):
    """Exact: no value changes."""

    exact = True


@bounds(shape.Flatten, shape.Reshape, shape.Squeeze, shape.Unsqueeze)
class ReshapeRule(_Monotone):
    exact = True
    silent = True

    def backward(self, view: NodeView[Operator], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        inner = view.interval(0).lower.shape
        carried: list[Tensor | None] = [None] * len(view.inputs)
        carried[0] = coefficients.reshape(coefficients.shape[0], *inner)
        return tuple(carried)


@bounds(shape.Transpose)
class TransposeRule(_Monotone):
    exact = True
    silent = True


@bounds(pooling.AveragePool, pooling.GlobalAveragePool, reduction.ReduceSum, reduction.ReduceMean)
class SumRule(_Monotone):
    """Sums and averages: several elements mix, and floating-point sums round."""

    mixing = True

    def never_negative(self, view: NodeView[Operator]) -> Tensor:
        negative = [None if low is None else (low < 0).to(torch.float64) for low in _operands(view, "lower")]
        return view.op.evaluate(negative)[0] == 0

    def terms(self, view: NodeView[Operator]) -> int:
        assert isinstance(view.op, OnnxOperator)
        return view.op.term_count(_operands(view, "lower")) + 1
