"""Smooth element-wise functions with at most three bends, each by the supporting lines of its envelopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, bounds
from boundscope.bounds.operators.curve_rule import CurveRule
from boundscope.bounds.operators.envelope import Curve, Pieces
from boundscope.network.graph import Operator
from boundscope.network.operators.activation import (
    Elu,
    Erf,
    Exp,
    Gelu,
    HardSwish,
    Log,
    Mish,
    Reciprocal,
    Sigmoid,
    Softplus,
    Sqrt,
    Tanh,
)
from boundscope.network.operators.fused import Silu

INFINITY = math.inf


class _UnitScale(Curve):
    """Computed by approximations whose error is absolute, near one ulp of 1."""

    def magnitude(self, x: Interval) -> Tensor:
        return self.range(x).magnitude.clamp(min=1.0)


class _Saturating(_UnitScale):
    """Convex below zero, concave above."""

    def pieces(self, x: Interval) -> Pieces:
        return Pieces.of(x.lower, -INFINITY, 0.0)


class SigmoidCurve(_Saturating):
    def value(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return torch.sigmoid(x) * torch.sigmoid(-x)


class TanhCurve(_Saturating):
    def value(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        # 1 − tanh² without its cancellation.
        return 4.0 * torch.sigmoid(2.0 * x) * torch.sigmoid(-2.0 * x)


class ErfCurve(_Saturating):
    def value(self, x: Tensor) -> Tensor:
        return torch.erf(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return torch.exp(-x * x) * (2.0 / math.sqrt(math.pi))


class SoftplusCurve(_UnitScale):
    def value(self, x: Tensor) -> Tensor:
        return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return torch.sigmoid(x)

    def pieces(self, x: Interval) -> Pieces:
        return Pieces.of(x.lower, -INFINITY, INFINITY)


class _Valley(Curve):
    """Falls to one lowest point and rises from there."""

    bottom: float

    def range(self, x: Interval) -> Interval:
        one, other = self.value(x.lower), self.value(x.upper)
        lowest = self.value(torch.full_like(x.lower, self.bottom).clamp(x.lower, x.upper))
        return Interval(torch.minimum(torch.minimum(one, other), lowest), torch.maximum(one, other))


@dataclass(frozen=True)
class EluCurve(_Valley):
    """Its kink at 0 is convex where alpha ≤ 1, concave above; a negative alpha bends the left side down."""

    alpha: float

    bottom = 0.0
    kinked = True

    def value(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, self.alpha * torch.expm1(x.clamp(max=0)))

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        at_kink = max(self.alpha, 1.0) if inner else min(self.alpha, 1.0)
        left = self.alpha * torch.exp(x.clamp(max=0))
        return torch.where(x < 0, left, torch.where(x > 0, 1.0, at_kink))

    def pieces(self, x: Interval) -> Pieces:
        left = 0.0 if self.alpha < 0 else -INFINITY
        return Pieces.of(x.lower, left, 0.0 if self.alpha > 1 else INFINITY)

    def magnitude(self, x: Interval) -> Tensor:
        return self.range(x).magnitude.clamp(min=max(1.0, abs(self.alpha)))


class _Gated(_Valley):
    """x times a gate that opens from 0 to 1: concave, convex around zero, concave.

    Left of the convex piece the function falls, right of it the slope is 1 or more, so that no line touches both
    concave pieces.
    """

    left: float
    right: float

    def pieces(self, x: Interval) -> Pieces:
        return Pieces.of(x.lower, self.left, self.right)

    def magnitude(self, x: Interval) -> Tensor:
        return x.magnitude


def _normal(x: Tensor) -> Tensor:
    """The normal distribution function, without cancellation on the left."""
    value: Tensor = torch.special.erfc(x * -math.sqrt(0.5))
    return 0.5 * value


class GeluCurve(_Gated):
    left, right, bottom = -math.sqrt(2.0), math.sqrt(2.0), -0.7517915246935645

    def value(self, x: Tensor) -> Tensor:
        return x * _normal(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        density = torch.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
        return _normal(x) + x * density


class TanhGeluCurve(_Gated):
    left, right, bottom = -1.4185040087908284, 1.4185040087908284, -0.7524614220710163

    SCALE = 2.0 * math.sqrt(2.0 / math.pi)
    CUBE = 0.044715

    def _gate(self, x: Tensor) -> Tensor:
        return self.SCALE * (x + self.CUBE * x * x * x)

    def value(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self._gate(x))

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        near = x.clamp(-40.0, 40.0)  # the gate is shut or open to the last bit long before
        gate = self._gate(near)
        opening = self.SCALE * (1.0 + 3.0 * self.CUBE * near * near)
        return torch.sigmoid(gate) + near * torch.sigmoid(gate) * torch.sigmoid(-gate) * opening


class MishCurve(_Gated):
    left, right, bottom = -2.25637639636079312, 1.4905711794854284, -1.1924312145154952

    def value(self, x: Tensor) -> Tensor:
        return x * torch.tanh(x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())))

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        # tanh(ln(1 + w)) = n / (n + 2) with n = w² + 2w; exp is kept from overflowing.
        near = x.clamp(max=170.0)
        w = torch.exp(near)
        n = w * (w + 2.0)
        return n / (n + 2.0) + near * torch.sigmoid(near) * 4.0 * ((n + 1.0) / (n + 2.0)) / (n + 2.0)


class SiluCurve(_Gated):
    left, right, bottom = -2.3993572805154677, 2.3993572805154677, -1.2784645427610738
    terms = 12  # those of the sigmoid, and the product

    def value(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return torch.sigmoid(x) * (1.0 + x * torch.sigmoid(-x))


class HardSwishCurve(_Gated):
    """x·max(0, min(1, x/6 + 1/2)): a parabola between the kinks at −3 and 3, which both bend down."""

    left, right, bottom = -3.0, 3.0, -1.5
    kinked = True

    def value(self, x: Tensor) -> Tensor:
        return x * (x / 6.0 + 0.5).clamp(0.0, 1.0)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        if inner:
            return x.clamp(-3.0, 3.0) / 3.0 + 0.5
        return torch.where(x.abs() < 3.0, x / 3.0 + 0.5, (x > 0).to(x.dtype))


class ExpCurve(Curve):
    def value(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return torch.exp(x)

    def pieces(self, x: Interval) -> Pieces:
        return Pieces.of(x.lower, -INFINITY, INFINITY)


class LogCurve(Curve):
    def value(self, x: Tensor) -> Tensor:
        return torch.log(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return 1.0 / x

    def pieces(self, x: Interval) -> Pieces:
        return Pieces.of(x.lower, INFINITY, INFINITY, steep=True)

    def reason_outside(self, x: Interval) -> str | None:
        return "reaches zero or below" if bool((x.lower <= 0).any()) else None


class SqrtCurve(Curve):
    terms = 1

    def value(self, x: Tensor) -> Tensor:
        return torch.sqrt(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return 0.5 / torch.sqrt(x)

    def pieces(self, x: Interval) -> Pieces:
        return Pieces.of(x.lower, INFINITY, INFINITY, steep=True)

    def reason_outside(self, x: Interval) -> str | None:
        return "reaches below zero" if bool((x.lower < 0).any()) else None


class ReciprocalCurve(Curve):
    terms = 1

    def value(self, x: Tensor) -> Tensor:
        return torch.reciprocal(x)

    def slope(self, x: Tensor, *, inner: bool) -> Tensor:
        return -torch.reciprocal(x) / x

    def pieces(self, x: Interval) -> Pieces:
        left = torch.where(x.lower > 0, -INFINITY, INFINITY).to(x.lower.dtype)
        return Pieces.of(x.lower, left, INFINITY, steep=True)

    def reason_outside(self, x: Interval) -> str | None:
        return "contains zero" if bool(((x.lower <= 0) & (x.upper >= 0)).any()) else None


_CURVES: Mapping[type[Operator], Callable[[], Curve]] = {
    Sigmoid: SigmoidCurve,
    Tanh: TanhCurve,
    Erf: ErfCurve,
    Mish: MishCurve,
    HardSwish: HardSwishCurve,
    Log: LogCurve,
    Reciprocal: ReciprocalCurve,
    Silu: SiluCurve,
}
_NEVER_NEGATIVE: Mapping[type[Operator], Callable[[], Curve]] = {
    Exp: ExpCurve,
    Softplus: SoftplusCurve,
    Sqrt: SqrtCurve,
}


@bounds(*_CURVES)
class SmoothRule(CurveRule[Operator]):
    def curve(self, view: NodeView[Operator]) -> Curve:
        return _CURVES[type(view.op)]()


@bounds(*_NEVER_NEGATIVE)
class NeverNegativeRule(CurveRule[Operator]):
    limits = (0.0, math.inf)

    def curve(self, view: NodeView[Operator]) -> Curve:
        return _NEVER_NEGATIVE[type(view.op)]()


@bounds(Elu)
class EluRule(CurveRule[Elu]):
    def curve(self, view: NodeView[Elu]) -> Curve:
        return EluCurve(view.op.alpha)


@bounds(Gelu)
class GeluRule(CurveRule[Gelu]):
    def curve(self, view: NodeView[Gelu]) -> Curve:
        return TanhGeluCurve() if view.op.approximate == "tanh" else GeluCurve()
