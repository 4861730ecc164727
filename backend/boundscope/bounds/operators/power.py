"""Pow with a constant exponent: even, odd, negative or real (on positive bases)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, bounds
from boundscope.bounds.operators.curve_rule import CurveRule
from boundscope.bounds.operators.envelope import Curve, Pieces
from boundscope.network.operators.arithmetic import Pow


@dataclass(frozen=True)
class PowerCurve(Curve):
    """x^r, with an exponent [*S] for each element."""

    exponent: Tensor

    @property
    def _integer(self) -> Tensor:
        return self.exponent == torch.round(self.exponent)

    @property
    def _even(self) -> Tensor:
        return torch.remainder(self.exponent, 2.0) == 0

    def value(self, x: Tensor) -> Tensor:
        return torch.pow(x, self.exponent)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return self.exponent * torch.pow(x, self.exponent - 1.0)

    def pieces(self, x: Interval) -> Pieces:
        r = self.exponent
        odd = self._integer & ~self._even
        # Concave everywhere: roots, and odd negative powers left of zero. Odd positive powers only left of zero.
        concave = ((r > 0) & (r < 1)) | (odd & (r < 0) & (x.upper < 0))
        left = torch.where(concave, math.inf, torch.where(odd & (r > 1), 0.0, -math.inf)).to(x.lower.dtype)
        pieces = Pieces.of(x.lower, left, math.inf)
        steep = (r < 1) | (~self._integer & (r < 2))
        return Pieces(
            pieces.sign,
            pieces.left,
            pieces.right,
            pieces.left_peak,
            pieces.right_peak,
            steep.expand_as(x.lower),
            (r == 0).expand_as(x.lower),
        )

    def some(self, mask: Tensor) -> PowerCurve:
        return PowerCurve(self.exponent[mask])

    def reason_outside(self, x: Interval) -> str | None:
        if bool(((x.lower < 0) & ~self._integer).any()):
            return "reaches below zero, where a real power has no value"
        if bool(((self.exponent < 0) & (x.lower <= 0) & (x.upper >= 0)).any()):
            return "contains zero, where a negative power has no value"
        return None

    def range(self, x: Interval) -> Interval:
        one, other = self.value(x.lower), self.value(x.upper)
        straddles = self._even & (self.exponent > 0) & (x.lower < 0) & (x.upper > 0)
        lowest = torch.minimum(one, other)
        return Interval(torch.where(straddles, 0.0, lowest), torch.maximum(one, other))


@bounds(Pow)
class PowRule(CurveRule[Pow]):
    def supports(self, view_perturbed: Sequence[bool], op: Pow) -> str | None:
        return "an exponent that depends on the network's input" if view_perturbed[1] else None

    def never_negative(self, view: NodeView[Pow]) -> Tensor | None:
        exponent = view.constant(1)
        assert exponent is not None
        even = torch.remainder(exponent.to(torch.float64), 2.0) == 0
        return (even | (self._input(view).lower >= 0)).expand(view.output_shapes[0])

    def curve(self, view: NodeView[Pow]) -> Curve:
        exponent = view.constant(1)
        assert exponent is not None
        x = view.interval(0).lower
        return PowerCurve(exponent.to(x.dtype).expand(view.output_shapes[0]))
