"""Sin and Cos. An interval shorter than a period has at most three bends; on longer ones the lines are −1 and 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, bounds
from boundscope.bounds.operators.curve_rule import CurveRule
from boundscope.bounds.operators.envelope import Curve, Pieces
from boundscope.network.operators.activation import Cos, Sin

# Beyond this, multiples of π are off by too much to tell where the function bends.
LARGEST_ANGLE = 1e7


@dataclass(frozen=True)
class WaveCurve(Curve):
    """sin(x + shift)."""

    shift: float  # 0, or π/2 for the cosine

    def value(self, x: Tensor) -> Tensor:
        return torch.cos(x) if self.shift else torch.sin(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return -torch.sin(x) if self.shift else torch.cos(x)

    def _unknown(self, x: Interval) -> Tensor:
        return (x.upper - x.lower >= 2.0 * math.pi) | (x.magnitude > LARGEST_ANGLE)

    def pieces(self, x: Interval) -> Pieces:
        """The first bend after the lower end is at a multiple of π; from there sin is concave where that is even."""
        count = torch.floor((x.lower + self.shift) / math.pi) + 1.0
        left = count * math.pi - self.shift
        right = left + math.pi
        sign = torch.where(torch.remainder(count, 2.0) == 0, -1.0, 1.0).to(left.dtype)
        return Pieces(
            sign,
            left,
            right,
            left - math.pi / 2.0,
            right + math.pi / 2.0,
            torch.zeros_like(left, dtype=torch.bool),
            self._unknown(x),
        )

    def range(self, x: Interval) -> Interval:
        one, other = self.value(x.lower), self.value(x.upper)
        lowest, highest = torch.minimum(one, other), torch.maximum(one, other)
        unknown = self._unknown(x)
        return Interval(
            torch.where(self._reaches(x, -math.pi / 2.0) | unknown, -1.0, lowest),
            torch.where(self._reaches(x, math.pi / 2.0) | unknown, 1.0, highest),
        )

    def _reaches(self, x: Interval, angle: float) -> Tensor:
        """Whether x + shift passes angle + 2πk."""
        period = 2.0 * math.pi
        start, stop = ((end + (self.shift - angle)) / period for end in (x.lower, x.upper))
        return torch.floor(stop) >= torch.ceil(start)

    def magnitude(self, x: Interval) -> Tensor:
        return torch.ones_like(x.lower)


@bounds(Sin)
class SinRule(CurveRule[Sin]):
    def curve(self, view: NodeView[Sin]) -> Curve:
        return WaveCurve(0.0)


@bounds(Cos)
class CosRule(CurveRule[Cos]):
    def curve(self, view: NodeView[Cos]) -> Curve:
        return WaveCurve(math.pi / 2.0)
