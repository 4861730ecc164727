"""Lines around a smooth function of one variable: the supporting lines of its convex and concave envelopes.

On an interval the best line below a function supports its convex envelope, and each abscissa has one: a tangent
where the envelope touches a curved part, or the chord between two touching points. The envelope of a function of at
most three pieces of constant curvature has at most two such curved arcs, whose ends are found by bisection; θ walks
along them. This is the S-shape treatment of CROWN (Zhang et al. 2018, arXiv 1811.00866, §3.2) for any order of
curvatures. θ's default is the supporting line at the middle of the interval, which leaves the smallest area.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.relaxation import Lines

BISECTIONS = 50
# A tangent at the very edge of a domain, where a slope may be infinite, is moved inwards by this share of the width.
EDGE_SHARE = 2.0**-10
STEP, STEP_OF_SINGLE = 2.0**-16, 2.0**-9  # for the derivative of a slope, relative


@dataclass(frozen=True)
class Pieces:
    """Where sign·f bends on an interval, tensors of the interval's shape.

    sign·f is concave below `left`, convex between `left` and `right`, and concave above (infinite ends allowed).
    `left_peak` and `right_peak` are where one line touches both concave pieces; −∞ and +∞ say that tangents of
    the left piece never lie above the right piece, nor the other way round.
    """

    sign: Tensor
    left: Tensor
    right: Tensor
    left_peak: Tensor
    right_peak: Tensor
    steep: Tensor  # the slope may be infinite at an end of the interval; there is only one piece
    unknown: Tensor  # nothing is known of the bends

    @classmethod
    def of(cls, lower: Tensor, left: float | Tensor, right: float | Tensor, *, steep: bool = False) -> Pieces:
        def full(value: float | Tensor) -> Tensor:
            return torch.as_tensor(value, dtype=lower.dtype, device=lower.device).expand_as(lower)

        flag = torch.zeros_like(lower, dtype=torch.bool)
        infinite = full(math.inf)
        return cls(full(1.0), full(left), full(right), -infinite, infinite, flag | steep, flag)


class Curve:
    """A function of one variable, element by element, with what its envelopes need. All tensors are float64.

    `value` and `slope` take tensors whose last axes are the node's own shape.
    """

    kinked: bool = False  # the slope jumps at an end of the convex piece
    terms: int = 8  # units in the last place of `magnitude` by which implementations may differ

    def value(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        """Derivative; at a kink, that of the convex piece of sign·f (`inner`), or of a concave one."""
        raise NotImplementedError

    def pieces(self, x: Interval) -> Pieces:
        raise NotImplementedError

    def reason_outside(self, x: Interval) -> str | None:
        """Why the interval is not in the function's domain, or None."""
        return None

    def range(self, x: Interval) -> Interval:
        """Image of an interval, up to rounding. Here: of a monotone function."""
        one, other = self.value(x.lower), self.value(x.upper)
        return Interval(torch.minimum(one, other), torch.maximum(one, other))

    def magnitude(self, x: Interval) -> Tensor:
        """What the rounding of any implementation is relative to."""
        return self.range(x).magnitude

    def some(self, mask: Tensor) -> Curve:
        """The same for some of the elements, of which there is one axis."""
        return self


@dataclass(frozen=True)
class Side:
    """Supporting lines on one side of the function: tangents along up to two arcs, or one fixed line.

    θ·length walks along the first arc, then turns about the start of the second one (a kink, where the slope exceeds
    the second arc's by `turn_first` … `turn_last`), then along the second arc.
    """

    tangent: Tensor  # where false, the fixed line
    first: Tensor
    first_length: Tensor
    second: Tensor
    second_length: Tensor
    turn_length: Tensor
    turn_first: Tensor
    turn_last: Tensor
    default: Tensor  # θ
    slope: Tensor  # of the fixed line

    @cached_property
    def length(self) -> Tensor:
        return self.first_length + self.turn_length + self.second_length

    @cached_property
    def turns(self) -> bool:
        return bool((self.turn_length != 0).any())

    def touching(self, theta: Tensor) -> tuple[Tensor, Tensor | float]:
        """Abscissa of the touching point, and what the slope has in excess of the tangent's."""
        walk = theta * self.length
        beyond = walk - self.first_length
        if not self.turns:
            along = torch.minimum(beyond.clamp(min=0), self.second_length)
            return torch.where(beyond < 0, self.first + walk, self.second + along), 0.0
        along = torch.minimum((beyond - self.turn_length).clamp(min=0), self.second_length)
        point = torch.where(beyond < 0, self.first + walk, self.second + along)
        turned = (beyond / torch.where(self.turn_length > 0, self.turn_length, 1.0)).clamp(0.0, 1.0)
        return point, self.turn_first + (self.turn_last - self.turn_first) * turned


@dataclass(frozen=True)
class Envelope:
    """Both sides of a function on an interval, and what lines are checked against."""

    below: Side
    above: Side
    ends: tuple[Tensor, Tensor, Tensor, Tensor]  # l, u, f(l), f(u)
    range: Interval
    steepest: Tensor  # no supporting line's slope is larger in absolute value

    @property
    def theta(self) -> Tensor:
        """[2, *S]: of the line below and of the line above."""
        return torch.stack([self.below.default, self.above.default])

    @property
    def theta_matters(self) -> Tensor:
        return torch.stack([side.tangent & (side.length > 0) for side in (self.below, self.above)])

    def lines(self, curve: Curve, theta: Tensor, position: int, arity: int) -> Lines:
        """Supporting lines at θ, [2, *S] or [R, 2, *S]."""
        axis = theta.dim() - self.below.first.dim() - 1
        below, above = theta.select(axis, 0), theta.select(axis, 1)
        of = self.single if theta.dtype == torch.float32 else self
        if theta.requires_grad and torch.is_grad_enabled():
            low = _Line.apply(below, of, curve, False)  # type: ignore[no-untyped-call]
            high = _Line.apply(above, of, curve, True)  # type: ignore[no-untyped-call]
        else:
            low, high = of.line(curve, below, upper=False), of.line(curve, above, upper=True)
        return Lines(low[0], low[1], high[0], high[1], position, arity)

    @cached_property
    def single(self) -> Envelope:
        """The same in float32, for what proves nothing."""

        def side(one: Side) -> Side:
            return Side(*(_single(getattr(one, field.name)) for field in fields(Side)))

        low, high, at_low, at_high = (end.float() for end in self.ends)
        return Envelope(
            side(self.below),
            side(self.above),
            (low, high, at_low, at_high),
            Interval(self.range.lower.float(), self.range.upper.float()),
            self.steepest.float(),
        )

    def line(self, curve: Curve, theta: Tensor, *, upper: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Slope, intercept and touching point. The line is moved outwards until it passes the function's ends on the
        right side, so that a slope that rounding has spoilt does no harm."""
        side = self.above if upper else self.below
        start, stop, at_start, at_stop = self.ends
        point, excess = side.touching(theta)
        slope = torch.where(side.tangent, curve.slope(point, inner=not upper) + excess, side.slope)
        outermost = torch.maximum if upper else torch.minimum
        ends = outermost(at_start - slope * start, at_stop - slope * stop)
        touching = outermost(curve.value(point) - slope * point, ends)
        intercept = torch.where(side.tangent, touching, ends)
        fixed = self.range.upper if upper else self.range.lower
        usable = torch.isfinite(slope) & torch.isfinite(intercept)
        usable = usable & ((slope != 0) | side.tangent)
        return torch.where(usable, slope, 0.0), torch.where(usable, intercept, fixed), point


class _Line(torch.autograd.Function):
    """A supporting line at θ for a search, in fewer steps than autograd takes: where θ walks, the line turns about its
    touching point, so that its intercept changes by minus the abscissa times what the slope changes by."""

    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, envelope: Envelope, curve: Curve, upper: bool
    ) -> tuple[Tensor, Tensor]:
        slope, intercept, point = envelope.line(curve, theta, upper=upper)
        ctx.save_for_backward(theta, point)
        ctx.side, ctx.curve, ctx.upper = envelope.above if upper else envelope.below, curve, upper
        return slope, intercept

    @staticmethod
    def backward(ctx: Any, of_slope: Tensor, of_intercept: Tensor) -> tuple[Tensor, None, None, None]:
        theta, point = ctx.saved_tensors
        side, curve = ctx.side, ctx.curve
        near = (STEP_OF_SINGLE if theta.dtype == torch.float32 else STEP) * (1.0 + point.abs())
        rise = curve.slope(point + near, inner=not ctx.upper) - curve.slope(point - near, inner=not ctx.upper)
        rate = rise / (2.0 * near)
        if side.turns:
            beyond = theta * side.length - side.first_length
            turning = (beyond >= 0) & (beyond < side.turn_length)
            whole = torch.where(side.turn_length > 0, side.turn_length, 1.0)
            rate = torch.where(turning, (side.turn_last - side.turn_first) / whole, rate)
        rate = torch.where(side.tangent, rate * side.length, 0.0)
        of_theta = rate * (of_slope - point * of_intercept)
        return torch.nan_to_num(of_theta, posinf=0.0, neginf=0.0), None, None, None


def _single(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value


# Lower ends of an interval -> {node: (upper ends, envelope)}; gone with the interval.
_KNOWN: MutableMapping[Tensor, dict[str, Any]] = WeakTensorKeyDictionary()


def envelope_of(
    curve: Curve, name: str, key: Interval, x: Interval, beside: tuple[Interval, Envelope] | None = None
) -> Envelope:
    """The envelope of a curve on `x`, computed once for each node `name` and interval `key` that `x` came from.

    `beside`: an interval [*S] that most of `x` [D, *S] equals, with its envelope.
    """
    known = _KNOWN.get(key.lower)
    if known is None:
        known = {}
        _KNOWN[key.lower] = known
    entry = known.get(name)
    if entry is not None and entry[0]() is key.upper:
        found: Envelope = entry[1]
        return found
    with torch.no_grad():
        envelope = _envelope(curve, x) if beside is None else _envelope_beside(curve, x, *beside)
    known[name] = (weakref.ref(key.upper), envelope)
    return envelope


def _envelope(curve: Curve, x: Interval) -> Envelope:
    lower, upper = x.lower.clone(), x.upper.clone()
    pieces = curve.pieces(Interval(lower, upper))
    at_lower, at_upper = curve.value(lower), curve.value(upper)
    known = (lower < upper) & ~pieces.unknown
    chord = _chord(curve, pieces, lower, upper, at_upper - at_lower)
    chord = torch.where(known, chord, 0.0)
    search = _Search(curve, pieces, lower, upper, known, chord)
    convex, concave = search.convex_arc(), search.concave_arcs()
    below = _choose(pieces.sign > 0, convex, concave)
    above = _choose(pieces.sign > 0, concave, convex)
    return Envelope(
        below,
        above,
        (lower, upper, at_lower, at_upper),
        curve.range(Interval(lower, upper)),
        _steepest(curve, below, above),
    )


def _envelope_beside(curve: Curve, x: Interval, most: Interval, envelope: Envelope) -> Envelope:
    """The same, taken from an envelope wherever the interval is that one's."""
    own = (x.lower != most.lower) | (x.upper != most.upper)
    few = _envelope(curve.some(own), Interval(x.lower[own], x.upper[own]))

    def joined(whole: Tensor, part: Tensor) -> Tensor:
        tall = whole.expand(own.shape).clone()
        tall[own] = part
        return tall

    def side(whole: Side, part: Side) -> Side:
        return Side(*(joined(getattr(whole, one.name), getattr(part, one.name)) for one in fields(Side)))

    ends = tuple(joined(whole, part) for whole, part in zip(envelope.ends, few.ends, strict=True))
    return Envelope(
        side(envelope.below, few.below),
        side(envelope.above, few.above),
        (ends[0], ends[1], ends[2], ends[3]),
        Interval(
            joined(envelope.range.lower, few.range.lower), joined(envelope.range.upper, few.range.upper)
        ),
        joined(envelope.steepest, few.steepest),
    )


def _chord(curve: Curve, pieces: Pieces, lower: Tensor, upper: Tensor, rise: Tensor) -> Tensor:
    """Slope between the ends, kept among the slopes on the way (where rounding of a tiny width has spoilt it)."""
    chord = rise / torch.where(lower < upper, upper - lower, 1.0)
    points = [lower, upper, *(torch.clamp(at, lower, upper) for at in (pieces.left, pieces.right))]
    slopes = torch.stack([curve.slope(point, inner=inner) for point in points for inner in (True, False)])
    return chord.clamp(slopes.amin(0), slopes.amax(0))


def _choose(first: Tensor, one: Side, other: Side) -> Side:
    names = [one_field.name for one_field in fields(Side)]
    return Side(*(torch.where(first, getattr(one, name), getattr(other, name)) for name in names))


def _steepest(curve: Curve, below: Side, above: Side) -> Tensor:
    """Along an arc the slope is monotone, so that its ends have the extremes."""
    steepest = torch.maximum(below.slope.abs(), above.slope.abs())
    for side, inner in ((below, True), (above, False)):
        turn = torch.maximum(side.turn_first.abs(), side.turn_last.abs())
        for point in (
            side.first,
            side.first + side.first_length,
            side.second,
            side.second + side.second_length,
        ):
            slope = curve.slope(point, inner=inner).abs() + turn
            steepest = torch.maximum(steepest, torch.where(side.tangent, slope, 0.0))
    return torch.nan_to_num(steepest, nan=0.0, posinf=0.0)


@dataclass(frozen=True)
class _Search:
    """The arcs of sign·f on one interval. Of the two ends of a bisection, the one that is certainly on the envelope is
    kept."""

    curve: Curve
    pieces: Pieces
    lower: Tensor
    upper: Tensor
    known: Tensor
    chord: Tensor

    def convex_arc(self) -> Side:
        """Where the convex envelope touches the convex piece: tangents there stay below both ends."""
        start = torch.maximum(self.lower, self.pieces.left)
        stop = torch.minimum(self.upper, self.pieces.right)
        there = self.known & (start < stop)
        middle = (self.lower + self.upper) / 2
        start, stop = torch.where(there, start, middle), torch.where(there, stop, middle)

        def below(end: Tensor) -> Callable[[Tensor], Tensor]:
            return lambda point: self._gap(point, end, inner=True) <= 0

        first, found = self._boundary(stop, start, below(self.lower), start <= self.lower)
        last, found_too = self._boundary(start, stop, below(self.upper), stop >= self.upper)
        tangent = there & found & found_too & (first <= last)
        never = torch.zeros_like(tangent)
        side = self._side(never, first, first, tangent, first, last)
        return self._turning(side, tangent & (first == self.pieces.left), self.lower, rising=True)

    def concave_arcs(self) -> Side:
        """Where the concave envelope touches the two concave pieces: tangents there stay above everything else."""
        pieces, lower, upper = self.pieces, self.lower, self.upper
        middle = (lower + upper) / 2
        stop = torch.minimum(upper, pieces.left)
        left = self.known & (lower < stop)
        beyond = upper > pieces.right_peak
        start = torch.maximum(lower, pieces.right)
        right = self.known & (start < upper)
        before = lower < pieces.left_peak

        safe_stop = torch.where(left, stop, middle)
        safe_lower = torch.where(left, lower, middle)
        last, found = self._boundary(
            safe_lower, safe_stop, lambda t: self._gap(t, upper, inner=False) >= 0, stop >= upper
        )
        last = torch.where(left & beyond, torch.minimum(pieces.left_peak, safe_stop), last)
        left = left & torch.where(beyond, lower <= pieces.left_peak, found)

        safe_start = torch.where(right, start, middle)
        safe_upper = torch.where(right, upper, middle)
        first, found = self._boundary(
            safe_upper, safe_start, lambda t: self._gap(t, lower, inner=False) >= 0, start <= lower
        )
        first = torch.where(right & before, torch.maximum(pieces.right_peak, safe_start), first)
        right = right & torch.where(before, upper >= pieces.right_peak, found)
        side = self._side(left, safe_lower, last, right, first, safe_upper)
        side = self._turning(side, right & ~left & (first == pieces.right), lower, rising=False)
        return self._turning(side, left & ~right & (last == pieces.left), upper, rising=False)

    def _gap(self, point: Tensor, end: Tensor, *, inner: bool) -> Tensor:
        """sign · (tangent at `point`, read at `end`, minus f there)."""
        curve = self.curve
        line = curve.value(point) + curve.slope(point, inner=inner) * (end - point)
        return self.pieces.sign * (line - curve.value(end))

    def _boundary(
        self, good: Tensor, goal: Tensor, holds: Callable[[Tensor], Tensor], all_good: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The last point that holds on the way from `good`, which must hold, to `goal`; and whether `good` does.

        Where `all_good`, that is `goal` itself.
        """
        found = holds(good) | all_good
        reached = holds(goal) | all_good
        if bool((reached | ~found).all()):
            return torch.where(reached & found, goal, good), found
        bad = goal
        for _ in range(BISECTIONS):
            between = good + (bad - good) / 2
            fine = holds(between)
            good, bad = torch.where(fine, between, good), torch.where(fine, bad, between)
        return torch.where(reached & found, goal, good), found

    def _side(
        self, left: Tensor, start: Tensor, last: Tensor, right: Tensor, first: Tensor, stop: Tensor
    ) -> Side:
        """Arcs start … last (where `left`) and first … stop (where `right`)."""
        inset = torch.where(self.pieces.steep, (self.upper - self.lower) * EDGE_SHARE, 0.0)
        start, first = (torch.maximum(point, self.lower + inset) for point in (start, first))
        last, stop = (torch.minimum(point, self.upper - inset) for point in (last, stop))
        middle = (self.lower + self.upper) / 2
        tangent = left | right
        first_length = torch.where(left, (last - start).clamp(min=0), 0.0)
        second_length = torch.where(right, (stop - first).clamp(min=0), 0.0)
        second = torch.where(right, first, start + first_length)
        start = torch.where(left, start, second)
        length = first_length + second_length
        zero = torch.zeros_like(length)
        # The walk at the middle; over a gap between the arcs, at its edge.
        walk = torch.where(
            right & (middle >= second),
            first_length + torch.minimum(middle - second, second_length),
            torch.minimum((middle - start).clamp(min=0), first_length),
        )
        default = torch.where(length > 0, walk / torch.where(length > 0, length, 1.0), 0.0).clamp(0.0, 1.0)
        point = torch.where(tangent, start, middle)
        second = torch.where(tangent, second, middle)
        return Side(
            tangent, point, first_length, second, second_length, zero, zero, zero, default, self.chord
        )

    def _turning(self, side: Side, at_kink: Tensor, end: Tensor, *, rising: bool) -> Side:
        """Add the lines through a kink at the edge of the convex piece, up to the chord to that `end`.

        The default, at the middle of the interval, is in an arc or at the chord.
        """
        pivot = side.second
        run = end - pivot
        if not self.curve.kinked or not bool((at_kink & (run != 0)).any()):
            return side
        curve, sign = self.curve, self.pieces.sign
        chord = (curve.value(end) - curve.value(pivot)) / torch.where(run != 0, run, 1.0)
        excess = (chord - curve.slope(pivot, inner=rising)) * sign
        # Lines above steepen towards a lower end and flatten towards an upper one; lines below do the opposite.
        before = run < 0
        excess = torch.where(before ^ rising, excess.clamp(min=0), excess.clamp(max=0)) * sign
        at_kink = at_kink & (excess != 0) & (run != 0)
        turn = torch.where(at_kink, run.abs(), 0.0)
        length = side.length + turn
        middle = (self.lower + self.upper) / 2
        walked = side.default * side.length + torch.where(before & (middle >= pivot), turn, 0.0)
        walked = torch.where(~before & (middle > pivot), side.first_length + turn, walked)
        default = walked / torch.where(length > 0, length, 1.0)
        return replace(
            side,
            turn_length=side.turn_length + turn,
            turn_first=torch.where(at_kink & before, excess, side.turn_first),
            turn_last=torch.where(at_kink & ~before, excess, side.turn_last),
            default=torch.where(at_kink, default.clamp(0.0, 1.0), side.default),
        )
