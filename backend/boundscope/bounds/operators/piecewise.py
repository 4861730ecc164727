"""Piecewise linear functions with at most one kink that bends up and one that bends down.

Below a kink that bends up lie the lines through it whose slope is between those of the chords to the two ends of
the interval; above a kink that bends down likewise. θ is the place in that range: the rectifier's α (Zhang et al.
2018) for Abs, LeakyRelu, PRelu, Clip and HardSigmoid alike. The default leaves the smallest area.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.relaxation import Lines, Parts, Relaxation
from boundscope.network.graph import Operator
from boundscope.network.operators.activation import Abs, Clip, HardSigmoid, LeakyRelu, PRelu
from boundscope.network.operators.fused import LeakySum

Op = TypeVar("Op", bound=Operator)


@dataclass(frozen=True)
class Fan:
    """The lines on one side of a function: those through a pivot, from one slope to another.

    Where not `free`, both slopes are the same and θ has no effect.
    """

    pivot: Tensor
    value: Tensor
    first: Tensor
    last: Tensor
    default: Tensor  # θ
    free: Tensor

    @classmethod
    def single(cls, pivot: Tensor, value: Tensor, slope: Tensor) -> Fan:
        never = torch.zeros_like(pivot, dtype=torch.bool)
        return cls(pivot, value, slope, slope, torch.zeros_like(pivot), never)

    def where(self, condition: Tensor, other: Fan) -> Fan:
        """This fan where the condition holds, elsewhere the other."""
        names = ("pivot", "value", "first", "last", "default", "free")
        return Fan(*(torch.where(condition, getattr(self, name), getattr(other, name)) for name in names))

    def line(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Slope and intercept."""
        slope = self.first + (self.last - self.first) * theta
        return slope, self.value - slope * self.pivot

    @property
    def steepest(self) -> Tensor:
        return torch.maximum(self.first.abs(), self.last.abs())


class FanRule(Rule[Op], Generic[Op]):
    """θ, [2, *S], chooses in the fans below and above."""

    relaxed = True
    kinked = True
    by_element = True
    tall = True

    def fans(self, view: NodeView[Op]) -> tuple[Fan, Fan]:
        """The lines below and the lines above."""
        raise NotImplementedError

    def reach(self, view: NodeView[Op]) -> Tensor:
        """The largest absolute value that appears while a value or a pivot is computed, [*S]."""
        raise NotImplementedError

    def theta(self, view: NodeView[Op]) -> Tensor:
        return torch.stack([fan.default for fan in self.fans(view)])

    def theta_matters(self, view: NodeView[Op]) -> Tensor:
        return torch.stack([fan.free for fan in self.fans(view)])

    def relax(self, view: NodeView[Op], theta: Tensor | None = None) -> Relaxation:
        below, above = self.fans(view)
        if theta is None:
            theta = torch.stack([below.default, above.default])
        axis = theta.dim() - below.pivot.dim() - 1
        lower, upper = below.line(theta.select(axis, 0)), above.line(theta.select(axis, 1))
        return Lines(*lower, *upper, view.perturbed[0], len(view.inputs))

    def relax_magnitude(self, view: NodeView[Op], relaxation: Relaxation) -> Tensor:
        steepest = torch.maximum(*(fan.steepest for fan in self.fans(view)))
        return 4.0 * (steepest * view.interval(view.perturbed[0]).magnitude + self.reach(view))


class KinkedRule(FanRule[Op], Generic[Op]):
    """Functions that are continuous, with kinks at fixed places."""

    def value(self, view: NodeView[Op], x: Tensor) -> Tensor:
        raise NotImplementedError

    def kinks(self, view: NodeView[Op]) -> tuple[float | Tensor, float | Tensor]:
        """Where the slope grows, and where it falls; infinite where it never does."""
        raise NotImplementedError

    def bends(self, view: NodeView[Op]) -> tuple[float, ...]:
        kinks = (float(one) for one in self.kinks(view) if not isinstance(one, Tensor))
        return (0.0, *(one for one in kinks if math.isfinite(one)))

    def steepest_piece(self, view: NodeView[Op]) -> Tensor:
        """Largest slope of a piece in absolute value; broadcasts to *S."""
        return torch.ones_like(view.interval(0).lower)

    def interval(self, view: NodeView[Op]) -> tuple[Interval, ...]:
        x = view.interval(0)
        ends = [self.value(view, end) for end in (x.lower, x.upper)]
        ends += [self.value(view, self._place(kink, x).clamp(x.lower, x.upper)) for kink in self.kinks(view)]
        values = torch.stack(ends)
        return (Interval(values.amin(0), values.amax(0)),)

    def magnitude(self, view: NodeView[Op]) -> tuple[Tensor, ...]:
        return (self.reach(view),)

    def reach(self, view: NodeView[Op]) -> Tensor:
        return torch.maximum(self.interval(view)[0].magnitude, view.interval(0).magnitude)

    def fans(self, view: NodeView[Op]) -> tuple[Fan, Fan]:
        up, down = self.kinks(view)
        return self._fan(view, up, rising=True), self._fan(view, down, rising=False)

    @staticmethod
    def _place(kink: float | Tensor, x: Interval) -> Tensor:
        return torch.as_tensor(kink, dtype=x.lower.dtype, device=x.lower.device).expand_as(x.lower)

    def _fan(self, view: NodeView[Op], kink: float | Tensor, *, rising: bool) -> Fan:
        x = view.interval(0)
        lower, upper = x.lower, x.upper
        place = self._place(kink, x)
        inside = (lower < place) & (place < upper)
        pivot = torch.where(inside, place, lower)
        start, middle, stop = (self.value(view, point) for point in (lower, pivot, upper))
        steepest = self.steepest_piece(view)

        def chord(rise: Tensor, run: Tensor) -> Tensor:
            # Rounding spoils the quotient where the run is tiny; no chord is steeper than every piece.
            slope = rise / torch.where(run > 0, run, 1.0)
            return torch.where(run > 0, slope, 0.0).clamp(-steepest, steepest)

        left, right = chord(middle - start, pivot - lower), chord(stop - middle, upper - pivot)
        # Off the kink the function bends the other way or not at all: one line, through the ends.
        whole = chord(stop - start, upper - lower)
        # The line passes the far end on the right side, whatever rounding did to its slope.
        at_start = start + whole * (pivot - lower)
        at_stop = stop - whole * (upper - pivot)
        through = torch.minimum(at_start, at_stop) if rising else torch.maximum(at_start, at_stop)
        default = ((lower + upper) / 2.0 >= pivot).to(lower.dtype)
        fan = Fan(pivot, middle, left, right, default, left != right)
        return fan.where(inside, Fan.single(pivot, through, whole))


class _TwoSlopesRule(KinkedRule[Op], Generic[Op]):
    """x where x ≥ 0, slope·x elsewhere."""

    def slope(self, view: NodeView[Op]) -> Tensor:
        """Broadcasts to *S."""
        raise NotImplementedError

    def wanted(self, op: Op, position: int, interval: Interval) -> Tensor:
        return (interval.lower < 0) & (interval.upper > 0)

    def value(self, view: NodeView[Op], x: Tensor) -> Tensor:
        return torch.where(x >= 0, x, x * self.slope(view))

    def kinks(self, view: NodeView[Op]) -> tuple[float | Tensor, float | Tensor]:
        slope = self.slope(view)
        return torch.where(slope <= 1, 0.0, math.inf), torch.where(slope > 1, 0.0, math.inf)

    def steepest_piece(self, view: NodeView[Op]) -> Tensor:
        return self.slope(view).abs().clamp(min=1.0)


@bounds(Abs)
class AbsRule(_TwoSlopesRule[Abs]):
    exact = True

    def slope(self, view: NodeView[Abs]) -> Tensor:
        return torch.full_like(view.interval(0).lower, -1.0)


@bounds(LeakyRelu)
class LeakyReluRule(_TwoSlopesRule[LeakyRelu]):
    def slope(self, view: NodeView[LeakyRelu]) -> Tensor:
        return torch.full_like(view.interval(0).lower, view.op.alpha)


@bounds(PRelu)
class PReluRule(_TwoSlopesRule[PRelu]):
    def supports(self, view_perturbed: Sequence[bool], op: PRelu) -> str | None:
        return "slopes that depend on the network's input" if view_perturbed[1] else None

    def constant_error(self, view: NodeView[PRelu]) -> Tensor | None:
        return self.slope(view) * view.interval(0).magnitude

    def slope(self, view: NodeView[PRelu]) -> Tensor:
        slope = view.constant(1)
        assert slope is not None
        return slope.to(view.interval(0).lower.dtype)


@bounds(LeakySum)
class LeakySumRule(Rule[LeakySum]):
    """slope·x + (1 − slope)·max(x, 0), slope in 0 … 1. Its interval is that of the one function of x, which rises."""

    def _slope(self, view: NodeView[LeakySum]) -> Tensor:
        return view.op.left_slope(view.constants).to(view.interval(0).lower)

    def interval(self, view: NodeView[LeakySum]) -> tuple[Interval, ...]:
        x, slope = view.interval(0), self._slope(view)
        lower, upper = (torch.where(end >= 0, end, end * slope) for end in (x.lower, x.upper))
        return (Interval(lower, upper),)

    def backward_terms(self, view: NodeView[LeakySum]) -> int:
        return 3  # 1 − slope, too, is rounded

    def magnitude(self, view: NodeView[LeakySum]) -> tuple[Tensor, ...]:
        slope = self._slope(view)
        parts = view.interval(0).magnitude * slope.abs() + view.interval(1).magnitude * (1.0 - slope).abs()
        return (parts,)

    def constant_error(self, view: NodeView[LeakySum]) -> Tensor | None:
        return None if view.constant(2) is None else self._slope(view) * view.interval(0).magnitude

    def backward(self, view: NodeView[LeakySum], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        slope = self._slope(view)
        weights = (slope.to(coefficients.dtype), (1.0 - slope).to(coefficients.dtype))
        parts: list[Tensor | None] = [coefficients * weight for weight in weights]
        return (*parts, *([None] * (len(view.inputs) - 2)))


@bounds(Clip)
class ClipRule(KinkedRule[Clip]):
    exact = True

    @staticmethod
    def _limits(op: Clip) -> tuple[float, float]:
        """Where the lower limit is above the upper one, the upper one is the only value."""
        upper = math.inf if op.upper is None else op.upper
        return min(-math.inf if op.lower is None else op.lower, upper), upper

    def wanted(self, op: Clip, position: int, interval: Interval) -> Tensor:
        low, high = self._limits(op)
        return _between(interval, low) | _between(interval, high)

    def value(self, view: NodeView[Clip], x: Tensor) -> Tensor:
        low, high = self._limits(view.op)
        return x.clamp(low, high)

    def kinks(self, view: NodeView[Clip]) -> tuple[float | Tensor, float | Tensor]:
        return self._limits(view.op)


@bounds(HardSigmoid)
class HardSigmoidRule(KinkedRule[HardSigmoid]):
    """alpha·x + beta kept within [0, 1]; a negative alpha falls."""

    terms_of_line = 2

    def terms(self, view: NodeView[HardSigmoid]) -> int:
        return self.terms_of_line

    def wanted(self, op: HardSigmoid, position: int, interval: Interval) -> Tensor:
        up, down = self._kinks(op)
        return _between(interval, up) | _between(interval, down)

    def value(self, view: NodeView[HardSigmoid], x: Tensor) -> Tensor:
        return (x * view.op.alpha + view.op.beta).clamp(0.0, 1.0)

    @staticmethod
    def _kinks(op: HardSigmoid) -> tuple[float, float]:
        if op.alpha == 0:
            return math.inf, math.inf
        return -op.beta / op.alpha, (1.0 - op.beta) / op.alpha

    def kinks(self, view: NodeView[HardSigmoid]) -> tuple[float | Tensor, float | Tensor]:
        return self._kinks(view.op)

    def steepest_piece(self, view: NodeView[HardSigmoid]) -> Tensor:
        return torch.full_like(view.interval(0).lower, abs(view.op.alpha))

    def reach(self, view: NodeView[HardSigmoid]) -> Tensor:
        op = view.op
        # The line alone; beyond the kinks its rounding is cut off together with it.
        return (view.interval(0).magnitude * abs(op.alpha)).clamp(max=abs(op.beta) + 1.0) + abs(op.beta) + 1.0


def _between(interval: Interval, kink: float) -> Tensor:
    return (interval.lower < kink) & (kink < interval.upper)
