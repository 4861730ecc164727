"""Functions that jump: Floor, Ceil and Sign."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, bounds
from boundscope.bounds.operators.piecewise import Fan, FanRule
from boundscope.network.graph import Operator
from boundscope.network.operators.activation import Ceil, Floor, Sign

Op = TypeVar("Op", bound=Operator)

# The line from the foot of a jump to a value right after it is steep; beyond this slope it is of no use.
STEEPEST = 1e6


def _rise(height: Tensor | float, run: Tensor) -> Tensor:
    """height / run, at most STEEPEST."""
    return torch.as_tensor(height / run.clamp(min=1.0 / STEEPEST)).clamp(max=STEEPEST)


class _StepRule(FanRule[Op], Generic[Op]):
    exact = True

    def value(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def wanted(self, op: Op, position: int, interval: Interval) -> Tensor:
        return self.value(interval.lower) != self.value(interval.upper)

    def interval(self, view: NodeView[Op]) -> tuple[Interval, ...]:
        x = view.interval(0)
        return (Interval(self.value(x.lower), self.value(x.upper)),)

    def reach(self, view: NodeView[Op]) -> Tensor:
        return self.interval(view)[0].magnitude + 1.0

    def _level(self, view: NodeView[Op]) -> tuple[Fan, Fan]:
        """The lines without slope."""
        lower = view.interval(0).lower
        (y,) = self.interval(view)
        zero = torch.zeros_like(lower)
        return Fan.single(zero, y.lower, zero), Fan.single(zero, y.upper, zero)


class _RoundingRule(_StepRule[Op], Generic[Op]):
    """Below: x − 1 touches the foot of each jump; above: x touches the head of each (for Floor; Ceil is one higher).

    On an interval with one jump only, lines through its foot may be as steep as the way to the upper end; with
    more, as steep as 1.
    """

    foot: float  # value just left of a jump at k, minus k

    def fans(self, view: NodeView[Op]) -> tuple[Fan, Fan]:
        x = view.interval(0)
        (y,) = self.interval(view)
        first, last = y.lower - self.foot, y.upper - self.foot - 1.0  # places of the jumps
        jumps, single = y.lower < y.upper, last == first
        middle = (x.lower + x.upper) / 2.0
        one = torch.ones_like(middle)
        zero = torch.zeros_like(middle)
        after = torch.where(single, _rise(1.0, x.upper - last), one)
        before = torch.where(single, _rise(1.0, first - x.lower), one)
        below = Fan(first, y.lower, zero, after, (middle > first).to(one.dtype), jumps)
        above = Fan(last, y.upper, before, zero, (middle >= last).to(one.dtype), jumps)
        level_below, level_above = self._level(view)
        return below.where(jumps, level_below), above.where(jumps, level_above)


@bounds(Floor)
class FloorRule(_RoundingRule[Floor]):
    foot = -1.0

    def value(self, x: Tensor) -> Tensor:
        return torch.floor(x)


@bounds(Ceil)
class CeilRule(_RoundingRule[Ceil]):
    foot = 0.0

    def value(self, x: Tensor) -> Tensor:
        return torch.ceil(x)


@bounds(Sign)
class SignRule(_StepRule[Sign]):
    """Where zero is inside; at an end, where the function takes three values, only the interval is used."""

    def value(self, x: Tensor) -> Tensor:
        return torch.sign(x)

    def fans(self, view: NodeView[Sign]) -> tuple[Fan, Fan]:
        x = view.interval(0)
        zero, one = torch.zeros_like(x.lower), torch.ones_like(x.lower)
        jumps = (x.lower < 0) & (x.upper > 0)
        right = (x.upper > -x.lower).to(one.dtype)
        below = Fan(zero, -one, zero, _rise(2.0, x.upper), right, jumps)
        above = Fan(zero, one, _rise(2.0, -x.lower), zero, right, jumps)
        level_below, level_above = self._level(view)
        return below.where(jumps, level_below), above.where(jumps, level_above)
