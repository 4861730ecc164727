"""Operators whose values jump: comparisons, choices, indices, casts to integers. Sound, and exact where the bounds
decide; else the interval alone goes back, without a slope. Truth values are 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.relaxation import Backward, Constants, Lines, Relaxation, dot, sum_to
from boundscope.errors import BoundError
from boundscope.network.graph import Operator
from boundscope.network.operators.arithmetic import IntegerDiv
from boundscope.network.operators.logic import (
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    OneHot,
    Where,
)
from boundscope.network.operators.reduction import ArgMax, ReduceProd
from boundscope.network.operators.shape import CastToInteger


def operand(view: NodeView[Any], index: int) -> Interval:
    """An input's interval, of no width where it is constant; float64."""
    constant = view.constant(index)
    return view.interval(index) if constant is None else Interval.point(constant.to(torch.float64))


def whole(interval: Interval) -> Interval:
    """Of a tensor of integers: no further than the integers inside."""
    return Interval(interval.lower.ceil(), interval.upper.floor())


class CoarseRule(Rule[Operator]):
    """The interval and nothing else."""

    exact = True
    mixing = True
    relaxed = True

    def relax(self, view: NodeView[Operator], theta: Tensor | None = None) -> Relaxation:
        (interval,) = self.interval(view)
        return Constants(interval.lower, interval.upper, len(view.inputs))

    def relax_magnitude(self, view: NodeView[Operator], relaxation: Relaxation) -> Tensor:
        (interval,) = self.interval(view)
        return interval.magnitude


def _truth(surely: Tensor, possibly: Tensor) -> tuple[Interval, ...]:
    return (Interval(surely.to(torch.float64), possibly.to(torch.float64)),)


@bounds(Equal)
class EqualRule(CoarseRule):
    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        x, y = operand(view, 0), operand(view, 1)
        meet = (x.lower <= y.upper) & (y.lower <= x.upper)
        surely = (x.lower == x.upper) & (y.lower == y.upper) & (x.lower == y.lower)
        return _truth(surely, meet)


@bounds(Less, LessOrEqual, Greater, GreaterOrEqual)
class OrderRule(CoarseRule):
    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        x, y = operand(view, 0), operand(view, 1)
        if isinstance(view.op, Greater | GreaterOrEqual):
            x, y = y, x
        before = torch.lt if isinstance(view.op, Less | Greater) else torch.le
        return _truth(before(x.upper, y.lower), before(x.lower, y.upper))


@bounds(ArgMax)
class ArgMaxRule(CoarseRule):
    """Between the first and the last index whose element can be the largest."""

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        op = view.op
        assert isinstance(op, ArgMax)
        x = view.interval(0)
        able = x.upper >= x.lower.amax(op.axis, keepdim=True)
        count = able.shape[op.axis]
        index = torch.arange(count, dtype=torch.float64, device=able.device)
        index = index.reshape(-1, *[1] * (able.dim() - op.axis - 1))
        first = torch.where(able, index, float(count)).amin(op.axis, keepdim=op.keepdims)
        last = torch.where(able, index, -1.0).amax(op.axis, keepdim=op.keepdims)
        return (Interval(first, last),)


@bounds(OneHot)
class OneHotRule(CoarseRule):
    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        op = view.op
        assert isinstance(op, OneHot)
        index = view.interval(0)
        low, high = index.lower.trunc().unsqueeze(op.axis), index.upper.trunc().unsqueeze(op.axis)
        place = torch.arange(op.depth, dtype=torch.float64, device=low.device)
        place = place.reshape(-1, *[1] * (low.dim() - op.axis - 1))
        possibly = torch.zeros(1, dtype=torch.bool, device=low.device)
        surely = possibly
        for hit in (place, place - op.depth):  # an index below zero counts from the end
            possibly = possibly | ((low <= hit) & (hit <= high))
            surely = surely | ((low == hit) & (hit == high))
        bottom, top = min(op.on, op.off), max(op.on, op.off)
        lower = torch.where(surely, op.on, torch.where(possibly, bottom, op.off)).to(torch.float64)
        upper = torch.where(surely, op.on, torch.where(possibly, top, op.off)).to(torch.float64)
        return (Interval(lower, upper),)


@bounds(ReduceProd)
class ReduceProdRule(CoarseRule):
    """Interval products, one factor after another."""

    exact = False

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        lower, upper = (
            self._factors(view, view.interval(0).lower),
            self._factors(view, view.interval(0).upper),
        )
        low = high = torch.ones_like(lower[0])
        for factor_low, factor_high in zip(lower, upper, strict=True):
            ends = torch.stack([low * factor_low, low * factor_high, high * factor_low, high * factor_high])
            low, high = ends.amin(0), ends.amax(0)
        shape = view.output_shapes[0]
        return (Interval(low.reshape(shape), high.reshape(shape)),)

    def _factors(self, view: NodeView[Operator], x: Tensor) -> Tensor:
        op = view.op
        assert isinstance(op, ReduceProd)
        kept = [axis for axis in range(x.dim()) if axis not in op.axes]
        return x.permute(*op.axes, *kept).reshape(-1, *(x.shape[axis] for axis in kept))

    def terms(self, view: NodeView[Operator]) -> int:
        return len(self._factors(view, view.interval(0).lower))

    def magnitude(self, view: NodeView[Operator]) -> tuple[Tensor, ...]:
        # Factors below one count as one, so that an underflow half-way is covered as well.
        factors = self._factors(view, view.interval(0).magnitude.clamp(min=1.0))
        return (factors.prod(0).reshape(view.output_shapes[0]),)


@bounds(IntegerDiv)
class IntegerDivRule(CoarseRule):
    """Towards zero. The quotient is monotone in either operand as long as the divisor keeps its sign."""

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        x, y = (self._whole(view, index) for index in (0, 1))
        if bool(((y.lower == 0) & (y.upper == 0)).any()):
            raise BoundError(f"node '{view.node.name}' divides by zero")
        lower: Tensor | None = None
        upper: Tensor | None = None
        for divisor in (y.lower, y.upper, torch.ones_like(y.lower), -torch.ones_like(y.lower)):
            inside = (y.lower <= divisor) & (divisor <= y.upper) & (divisor != 0)
            used = torch.where(inside, divisor, torch.where(y.lower != 0, y.lower, y.upper))
            one, other = (x.lower / used).trunc(), (x.upper / used).trunc()
            low, high = torch.minimum(one, other), torch.maximum(one, other)
            lower = low if lower is None else torch.minimum(lower, low)
            upper = high if upper is None else torch.maximum(upper, high)
        assert lower is not None
        assert upper is not None
        return (Interval(lower, upper),)

    def _whole(self, view: NodeView[Operator], index: int) -> Interval:
        return whole(operand(view, index))


@bounds(CastToInteger)
class CastToIntegerRule(Rule[CastToInteger]):
    """Towards zero, so less than one away; true where not zero. Values that the type does not hold become any."""

    exact = True
    relaxed = True

    def interval(self, view: NodeView[CastToInteger]) -> tuple[Interval, ...]:
        x, to = view.interval(0), view.op.to
        if to == torch.bool:
            never_zero = (x.lower > 0) | (x.upper < 0)
            return _truth(never_zero, (x.lower != 0) | (x.upper != 0))
        held = torch.iinfo(to)
        lower, upper = x.lower.trunc(), x.upper.trunc()
        fits = (lower >= held.min) & (upper <= held.max)
        return (
            Interval(torch.where(fits, lower, float(held.min)), torch.where(fits, upper, float(held.max))),
        )

    def wanted(self, op: CastToInteger, position: int, interval: Interval) -> Tensor:
        return interval.lower.trunc() != interval.upper.trunc()

    def relax(self, view: NodeView[CastToInteger], theta: Tensor | None = None) -> Relaxation:
        """x − 1 … x above zero, x … x + 1 below, where that is narrower than the interval."""
        x = view.interval(0)
        (interval,) = self.interval(view)
        drop, rise = (x.upper > 0).to(torch.float64), (x.lower < 0).to(torch.float64)
        held = (interval.lower == x.lower.trunc()) & (interval.upper == x.upper.trunc())
        sloped = held & (interval.upper - interval.lower > drop + rise)
        if view.op.to == torch.bool:
            sloped = torch.zeros_like(sloped)
        slope = sloped.to(torch.float64)
        return Lines(
            slope,
            torch.where(sloped, -drop, interval.lower),
            slope,
            torch.where(sloped, rise, interval.upper),
        )

    def relax_magnitude(self, view: NodeView[CastToInteger], relaxation: Relaxation) -> Tensor:
        (interval,) = self.interval(view)
        return torch.maximum(view.interval(0).magnitude + 1, interval.magnitude)


@dataclass(frozen=True)
class Choice(Relaxation):
    """The first branch where `first`, the second where `second`, else between `lower` and `upper`; all [*S_out].

    A branch is the shape of a perturbed tensor, or a constant one.
    """

    first: Tensor
    second: Tensor
    lower: Tensor
    upper: Tensor
    branches: tuple[tuple[int, ...] | Tensor, tuple[int, ...] | Tensor]

    def through(self, rows: Tensor) -> Backward:
        negative = rows.clamp(max=0)
        constant = dot(rows - negative, self.lower) + dot(negative, self.upper)
        parts: list[Tensor | None] = [None]
        for branch, mask in zip(self.branches, (self.first, self.second), strict=True):
            chosen = rows * mask
            if isinstance(branch, Tensor):
                constant = constant + dot(chosen, branch)
                parts.append(None)
            else:
                parts.append(sum_to(chosen, (len(rows), *branch)))
        return tuple(parts), constant

    def to(self, dtype: torch.dtype) -> Choice:
        first, second = (b.to(dtype) if isinstance(b, Tensor) else b for b in self.branches)
        return Choice(
            self.first.to(dtype),
            self.second.to(dtype),
            self.lower.to(dtype),
            self.upper.to(dtype),
            (first, second),
        )


class ChoiceRule(Rule[Where]):
    """Where whose condition depends on the input: the branch that is sure, else the hull of both."""

    exact = True
    mixing = True
    relaxed = True

    def _decided(self, view: NodeView[Where]) -> tuple[Tensor, Tensor]:
        condition = operand(view, 0)
        shape = view.output_shapes[0]
        return (condition.lower > 0).expand(shape), (condition.upper < 1).expand(shape)

    def _pick(self, view: NodeView[Where], which: str, joined: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        first, second = self._decided(view)
        x, y = getattr(operand(view, 1), which), getattr(operand(view, 2), which)
        return torch.where(first, x, torch.where(second, y, joined(x, y)))

    def interval(self, view: NodeView[Where]) -> tuple[Interval, ...]:
        return (Interval(self._pick(view, "lower", torch.minimum), self._pick(view, "upper", torch.maximum)),)

    def backward_terms(self, view: NodeView[Where]) -> int:
        sizes = [view.interval(index).lower.numel() for index in view.perturbed if index]
        return int(torch.Size(view.output_shapes[0]).numel()) // max(min(sizes, default=1), 1)

    def relax(self, view: NodeView[Where], theta: Tensor | None = None) -> Relaxation:
        first, second = self._decided(view)
        (interval,) = self.interval(view)
        open_ = ~(first | second)
        branches: list[tuple[int, ...] | Tensor] = []
        for index in (1, 2):
            constant = view.constant(index)
            branches.append(
                tuple(view.interval(index).lower.shape) if constant is None else constant.to(torch.float64)
            )
        return Choice(
            first.to(torch.float64),
            second.to(torch.float64),
            torch.where(open_, interval.lower, 0.0),
            torch.where(open_, interval.upper, 0.0),
            (branches[0], branches[1]),
        )

    def relax_magnitude(self, view: NodeView[Where], relaxation: Relaxation) -> Tensor:
        return self._pick(view, "magnitude", torch.maximum)
