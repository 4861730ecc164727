"""Rectifiers: Relu and LeakyRelu, bounded by two lines on intervals that straddle zero.

The upper line joins the ends; the lower line is the one of the two pieces that leaves the smaller area
(CROWN's adaptive choice, Zhang et al. 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.relaxation import Lines, Relaxation
from boundscope.network.operators.activation import LeakyRelu, Relu

Rectifier = Relu | LeakyRelu


def _slope_below(op: Rectifier) -> float:
    return op.alpha if isinstance(op, LeakyRelu) else 0.0


class _RectifierRule(Rule[Rectifier]):
    """θ is the lower line's slope on unstable elements, between the two pieces' slopes."""

    relaxed = True
    kinked = True

    def wanted(self, op: Rectifier, position: int, interval: Interval) -> Tensor:
        return (interval.lower < 0) & (interval.upper > 0)

    def relax(self, view: NodeView[Rectifier], theta: Tensor | None = None) -> Relaxation:
        interval = view.interval(0)
        lower, upper = interval.lower, interval.upper
        below = _slope_below(view.op)
        straddles = self.wanted(view.op, 0, interval)
        stable_slope = torch.where(lower >= 0, 1.0, below).to(lower.dtype)
        width = torch.where(straddles, upper - lower, torch.ones_like(lower))
        # f(x) = below·x + (1 − below)·relu(x); the chord of relu has slope u/(u−l) and meets zero at l.
        chord = below + (1.0 - below) * upper / width
        intercept = (1.0 - below) * (-lower) * upper / width
        free = below + (1.0 - below) * (self.theta(view) if theta is None else theta)
        return Lines(
            lower_slope=torch.where(straddles, free, stable_slope),
            lower_intercept=None,
            upper_slope=torch.where(straddles, chord, stable_slope),
            upper_intercept=torch.where(straddles, intercept, torch.zeros_like(lower)),
        )

    def theta(self, view: NodeView[Rectifier]) -> Tensor:
        interval = view.interval(0)
        return (interval.upper >= -interval.lower).to(interval.lower.dtype)

    def theta_matters(self, view: NodeView[Rectifier]) -> Tensor:
        return self.wanted(view.op, 0, view.interval(0))

    def relax_magnitude(self, view: NodeView[Rectifier], relaxation: Relaxation) -> Tensor:
        # No slope is above 1, and no intercept above the interval's upper end.
        return 2.0 * view.interval(0).magnitude


@bounds(Relu)
class ReluRule(_RectifierRule):
    exact = True

    def interval(self, view: NodeView[Rectifier]) -> tuple[Interval, ...]:
        x = view.interval(0)
        return (Interval(x.lower.clamp(min=0), x.upper.clamp(min=0)),)


@bounds(LeakyRelu)
class LeakyReluRule(_RectifierRule):
    def supports(self, view_perturbed: object, op: Rectifier) -> str | None:
        slope = _slope_below(op)
        return None if 0 <= slope <= 1 else f"slope {slope:g} is outside 0 … 1"

    def interval(self, view: NodeView[Rectifier]) -> tuple[Interval, ...]:
        x = view.interval(0)
        slope = _slope_below(view.op)
        return (Interval(torch.maximum(x.lower, slope * x.lower), torch.maximum(x.upper, slope * x.upper)),)

    def magnitude(self, view: NodeView[Rectifier]) -> tuple[Tensor, ...]:
        return (view.interval(0).magnitude,)
