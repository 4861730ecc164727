"""Relu, bounded by two lines on intervals that straddle zero.

The upper line joins the ends; the lower line is the one of the two pieces that leaves the smaller area
(CROWN's adaptive choice, Zhang et al. 2018). Rectifiers with another left slope are in `piecewise`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.relaxation import Lines, Relaxation
from boundscope.network.operators.activation import Relu


@bounds(Relu)
class ReluRule(Rule[Relu]):
    """θ is the lower line's slope on unstable elements."""

    exact = True
    relaxed = True
    kinked = True
    elementwise = True
    slope_free = True
    by_element = True
    tall = True
    covers_parts = True

    def wanted(self, op: Relu, position: int, interval: Interval) -> Tensor:
        return (interval.lower < 0) & (interval.upper > 0)

    def interval(self, view: NodeView[Relu]) -> tuple[Interval, ...]:
        x = view.interval(0)
        return (Interval(x.lower.clamp(min=0), x.upper.clamp(min=0)),)

    def relax(self, view: NodeView[Relu], theta: Tensor | None = None) -> Relaxation:
        interval = view.interval(0)
        lower, upper = interval.lower, interval.upper
        straddles = self.wanted(view.op, 0, interval)
        stable_slope = (lower >= 0).to(lower.dtype)
        width = torch.where(straddles, upper - lower, torch.ones_like(lower))
        free = self.theta(view) if theta is None else theta
        return Lines(
            lower_slope=torch.where(straddles, free, stable_slope),
            lower_intercept=None,
            upper_slope=torch.where(straddles, upper / width, stable_slope),
            upper_intercept=torch.where(straddles, -lower * (upper / width), torch.zeros_like(lower)),
        )

    def theta(self, view: NodeView[Relu]) -> Tensor:
        interval = view.interval(0)
        return (interval.upper >= -interval.lower).to(interval.lower.dtype)

    def theta_matters(self, view: NodeView[Relu]) -> Tensor:
        return self.wanted(view.op, 0, view.interval(0))

    def relax_magnitude(self, view: NodeView[Relu], relaxation: Relaxation) -> Tensor:
        # No slope is above 1, and no intercept above the interval's upper end.
        return 2.0 * view.interval(0).magnitude
