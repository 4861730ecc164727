"""Greatest and least of several values: MaxPool, GlobalMaxPool, ReduceMax, ReduceMin, Max, Min, and so And and Or.

For candidates x_k in [l_k, u_k], w_k = u_k − l_k:

- below: every convex combination Σ v_k·x_k is at most the maximum;
- above: for slopes a_k in 0 … 1, Σ a_k·(x_k − l_k) + max_k (u_k − a_k·w_k) is at least the maximum, since the
  largest violation lies at the corner where one x_k is at its upper end and all others are at their lower ends.
  No plane with these slopes is lower. For a level t of that last term the least slopes are
  a_k = clamp((u_k − t)/w_k, 0, 1), so one number t describes every plane that is worth having.

The minimum is the negated maximum of the negated candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.candidates import Candidates, Operands, Reduced, Windowed
from boundscope.bounds.operators.relaxation import Backward, Relaxation, dot
from boundscope.network.graph import Operator
from boundscope.network.operators.arithmetic import Max, Min
from boundscope.network.operators.logic import And, Or
from boundscope.network.operators.pooling import GlobalMaxPool, MaxPool
from boundscope.network.operators.reduction import ReduceMax, ReduceMin, Reduction


@dataclass(frozen=True)
class CandidatePlanes(Relaxation):
    """Planes in the K candidates of each output: Σ_k lower[k]·x_k + lower_intercept ≤ y, and the same above.

    Slopes are [K, *S_out], or [R, K, *S_out] of each row's own; intercepts [*S_out] or [R, *S_out] (None: zero).
    """

    candidates: Candidates
    lower: Tensor
    lower_intercept: Tensor | None
    upper: Tensor
    upper_intercept: Tensor | None
    sign: float = 1.0  # −1 of a minimum

    def with_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> CandidatePlanes:
        return dataclasses.replace(self, candidates=self.candidates.with_shapes(shapes))

    def losses(
        self, rows: Tensor, inputs: tuple[Tensor | None, ...] | None
    ) -> tuple[Tensor | None, ...] | None:
        """Laid to the candidates that have a slope, in proportion to it."""
        if inputs is None:
            return None
        values = [one for one in inputs if one is not None]
        stacked = self.candidates.ends(values, values).lower.movedim(0, 1)
        value = stacked.amax(1) if self.sign > 0 else stacked.amin(1)
        below, above = (self.lower * stacked).sum(1), (self.upper * stacked).sum(1)
        below = below if self.lower_intercept is None else below + self.lower_intercept
        above = above if self.upper_intercept is None else above + self.upper_intercept
        negative = rows.clamp(max=0)
        lost = (rows - negative) * (value - below).clamp(min=0) - negative * (above - value).clamp(min=0)
        slopes = self.lower + self.upper
        axis = slopes.dim() - rows.dim()
        share = slopes / slopes.sum(axis, keepdim=True).clamp(min=1e-30)
        return self.candidates.carry(lost, share, torch.zeros_like(lost), share)

    def through(self, rows: Tensor) -> Backward:
        negative = rows.clamp(max=0)
        positive = rows - negative
        parts = self.candidates.carry(positive, self.lower, negative, self.upper)
        constant = rows.new_zeros(len(rows))
        if self.lower_intercept is not None:
            constant = constant + dot(positive, self.lower_intercept)
        if self.upper_intercept is not None:
            constant = constant + dot(negative, self.upper_intercept)
        return parts, constant

    def to(self, dtype: torch.dtype) -> CandidatePlanes:
        below, above = self.lower_intercept, self.upper_intercept
        return CandidatePlanes(
            self.candidates,
            self.lower.to(dtype),
            None if below is None else below.to(dtype),
            self.upper.to(dtype),
            None if above is None else above.to(dtype),
            self.sign,
        )


@dataclass(frozen=True)
class _Ends:
    """Ends of the candidates [K, *S_out] (negated and swapped for a minimum), and what follows from them."""

    lower: Tensor
    upper: Tensor

    @property
    def floor(self) -> Tensor:
        """The greatest lower end, [*S_out]: the maximum is never below."""
        return self.lower.amax(0)

    @property
    def able(self) -> Tensor:
        """Candidates that can be the maximum: [K, *S_out]."""
        return (self.upper > self.floor) | (self.lower == self.floor)

    @property
    def open(self) -> Tensor:
        """Those of them where it is not settled which one it is, nor what it is."""
        able = self.able
        return able & (able.sum(0) > 1) & (self.upper.amax(0) > self.floor)

    @property
    def best(self) -> Tensor:
        """One-hot along K: the candidate whose mean over the box is greatest, of those that can be the maximum."""
        centre = torch.where(self.able, self.lower / 2 + self.upper / 2, -torch.inf)
        return torch.zeros_like(self.lower).scatter(0, centre.argmax(0, keepdim=True), 1.0)

    def level(self) -> Tensor:
        """The level t of least mean over the box, [*S_out]. Every t between the second and the third largest upper
        end has it; taken is that whose slopes add up to one, or the nearest to it."""
        floor = self.floor
        count = min(3, len(self.upper))
        top, index = self.upper.topk(count, 0)
        if count == 1:
            return floor
        width = (top - self.lower.gather(0, index))[:2]
        even = (top[0] * width[1] + top[1] * width[0] - width[0] * width[1]) / (width[0] + width[1])
        third = torch.maximum(top[2], floor) if count == 3 else floor
        level = torch.minimum(torch.maximum(torch.nan_to_num(even), third), top[1])
        return torch.maximum(level, floor)


def _ends_of(view: NodeView[Operator], candidates: Candidates) -> Interval:
    lowers: list[Tensor] = []
    uppers: list[Tensor] = []
    for constant, interval in zip(view.constants, view.inputs, strict=True):
        if interval is not None:
            lowers.append(interval.lower)
            uppers.append(interval.upper)
        else:
            assert constant is not None
            lowers.append(constant.to(torch.float64))
            uppers.append(lowers[-1])
    return candidates.ends(lowers, uppers)


class _ExtremumRule(Rule[Operator]):
    """θ[:K] are weights of the candidates in the plane of combinations, θ[K] is the level of the other plane."""

    exact = True
    mixing = True
    relaxed = True
    tall = True
    sign = 1.0

    def candidates(self, view: NodeView[Operator]) -> Candidates:
        raise NotImplementedError

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        stacked = _ends_of(view, self.candidates(view))
        if self.sign > 0:
            return (Interval(stacked.lower.amax(0), stacked.upper.amax(0)),)
        return (Interval(stacked.lower.amin(0), stacked.upper.amin(0)),)

    def _ends(self, view: NodeView[Operator]) -> _Ends:
        return self._oriented(_ends_of(view, self.candidates(view)))

    def _oriented(self, ends: Interval) -> _Ends:
        return _Ends(ends.lower, ends.upper) if self.sign > 0 else _Ends(-ends.upper, -ends.lower)

    def theta(self, view: NodeView[Operator]) -> Tensor:
        ends = self._ends(view)
        floor = ends.floor
        span = ends.upper.amax(0) - floor
        level = torch.where(span > 0, (ends.level() - floor) / span, torch.zeros_like(span))
        return torch.cat([ends.best, level.clamp(0, 1)[None]])

    def theta_matters(self, view: NodeView[Operator]) -> Tensor:
        matters = self._ends(view).open
        return torch.cat([matters, matters.any(0)[None]])

    def relax(self, view: NodeView[Operator], theta: Tensor | None = None) -> Relaxation:
        ends = self._ends(view)
        best, floor = ends.best, ends.floor
        axis = -floor.dim() - 1  # of the candidates
        if theta is None:
            weights, level = best, ends.level()
        else:
            free = theta.narrow(axis, 0, len(best)) * ends.able
            total = free.sum(axis, keepdim=True)
            usable = total > 1e-6
            weights = torch.where(usable, free / torch.where(usable, total, 1.0), best)
            share = theta.select(axis, len(best))
            level = floor + share * (ends.upper.amax(0) - floor)
        width = ends.upper - ends.lower
        rise = (ends.upper - level.unsqueeze(axis)).clamp(min=0)
        slopes = torch.where(rise > 0, rise / torch.where(rise > 0, width, 1.0), 0.0).clamp(max=1)
        # The level anew, from the slopes as they were rounded: sound whatever they are.
        level = (ends.upper * (1 - slopes) + ends.lower * slopes).amax(axis)
        intercept = level - (slopes * ends.lower).sum(axis)
        # Constant candidates have no slope above, and below they count by their value.
        fixed = [index for index, value in enumerate(view.inputs) if value is None]
        part = (
            (weights.index_select(axis, torch.tensor(fixed, device=weights.device)) * ends.lower[fixed]).sum(
                axis
            )
            if fixed
            else None
        )
        if view.boxes is not None:
            weights, slopes = weights.movedim(0, 1), slopes.movedim(0, 1)
        candidates = self.candidates(view)
        if self.sign > 0:
            return CandidatePlanes(candidates, weights, part, slopes, intercept)
        part = None if part is None else -part
        return CandidatePlanes(candidates, slopes, -intercept, weights, part, self.sign)

    def backward_terms(self, view: NodeView[Operator]) -> int:
        return self.candidates(view).overlap

    def relax_magnitude(self, view: NodeView[Operator], relaxation: Relaxation) -> Tensor:
        # Combinations have slopes that add up to one; those of the other plane are at most one each, and its
        # intercept is at most the level and the slopes times the lower ends. The view may hold wider intervals.
        ends = self._ends(view)
        able = ends.upper >= ends.floor
        magnitude = torch.where(able, torch.maximum(ends.lower.abs(), ends.upper.abs()), 0.0)
        sloped = torch.where(ends.lower < ends.upper, magnitude, 0.0)
        long = 2.0 + len(magnitude) / 4  # sums over the candidates round as often as they are long
        return long * (magnitude.amax(0) + sloped.sum(0))


class _WindowRule(_ExtremumRule):
    def _layout(self, op: Operator, shape: Sequence[int]) -> Candidates:
        raise NotImplementedError

    def candidates(self, view: NodeView[Operator]) -> Candidates:
        shape = view.interval(0).lower.shape
        return self._layout(view.op, shape if view.boxes is None else shape[1:])

    def wanted(self, op: Operator, position: int, interval: Interval) -> Tensor:
        """Elements that can be the extremum of a window in which others can be it too."""
        layout = self._layout(op, interval.lower.shape)
        stacked = layout.ends([interval.lower], [interval.upper])
        ends = self._oriented(stacked)
        matters = ends.open.to(interval.lower.dtype)
        ones = torch.ones(1, *matters.shape[1:], dtype=matters.dtype, device=matters.device)
        (counted,) = layout.carry(ones, matters, torch.zeros_like(ones), matters)
        assert counted is not None
        return (counted[0] > 0) & (interval.lower < interval.upper)


@bounds(MaxPool)
class MaxPoolRule(_WindowRule):
    def _layout(self, op: Operator, shape: Sequence[int]) -> Candidates:
        assert isinstance(op, MaxPool)
        return Windowed(tuple(shape), op.kernel_shape, op.strides, op.pads, op.dilations)


@bounds(GlobalMaxPool)
class GlobalMaxPoolRule(_WindowRule):
    def _layout(self, op: Operator, shape: Sequence[int]) -> Candidates:
        return Reduced(tuple(shape), tuple(range(2, len(shape))), True)


@bounds(ReduceMax)
class ReduceMaxRule(_WindowRule):
    def _layout(self, op: Operator, shape: Sequence[int]) -> Candidates:
        assert isinstance(op, Reduction)
        return Reduced(tuple(shape), op.axes, op.keepdims)


@bounds(ReduceMin)
class ReduceMinRule(ReduceMaxRule):
    sign = -1.0


@bounds(Max)
class MaxRule(_ExtremumRule):
    """Of operands that broadcast, perturbed or constant."""

    def candidates(self, view: NodeView[Operator]) -> Candidates:
        first = 0 if view.boxes is None else 1
        shapes = (None if x is None else tuple(x.lower.shape[first:]) for x in view.inputs)
        return Operands(view.output_shapes[0][first:], tuple(shapes))


@bounds(Min)
class MinRule(MaxRule):
    sign = -1.0


@bounds(Or)
class OrRule(MaxRule):
    """Of truth values 0 and 1, of which a range is either known or no narrower than it was."""

    tall = False


@bounds(And)
class AndRule(MinRule):
    tall = False
