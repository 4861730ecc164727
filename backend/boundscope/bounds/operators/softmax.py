"""Softmax and LogSoftmax: ranges in closed form, and planes from bounds that are convex or concave in all logits.

Wei et al. 2023, "Convex Bounds on the Softmax Function with Applications to Robustness Verification" (AISTATS):
with chords C_j above e^x_j, e^x_i / ΣC_j is convex and below softmax_i; the chord of the exponential over the range
of log softmax_i = x_i − LSE(x) is concave and above it. Their tangents are planes that hold everywhere in the box,
and the points where they touch are the free parameters. All outputs of a group share them, so that a relaxation
has as many numbers as there are logits, and not their square.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.bilinear import parts_of
from boundscope.bounds.operators.relaxation import Backward, Relaxation, dot
from boundscope.bounds.rounding import UNIT_FLOAT64
from boundscope.network.operators.activation import LogSoftmax, Softmax

EDGE = 1 / 16  # tangents below touch at least this share of the width away from the lower ends


@dataclass(frozen=True)
class Groups:
    """How a tensor [*S] falls into groups that are normalised together: [*P, n, *Q], n at `axis` (negative)."""

    shape: tuple[int, ...]
    axis: int

    @classmethod
    def of(cls, shape: tuple[int, ...], axes: tuple[int, ...]) -> Groups:
        together = math.prod(shape[axis] for axis in axes)
        after = shape[axes[-1] + 1 :]
        return cls((*shape[: axes[0]], together, *after), -1 - len(after))

    @property
    def count(self) -> int:
        """n, the logits of a group."""
        return self.shape[self.axis]

    def sum(self, values: Tensor) -> Tensor:
        return values.sum(self.axis, keepdim=True)

    def max(self, values: Tensor) -> Tensor:
        return values.amax(self.axis, keepdim=True)

    @property
    def doubt(self) -> float:
        """Relative error of a sum over a group in the engine's float64, with its exponentials and quotients."""
        return (4 * self.count + 64) * UNIT_FLOAT64


def log_share(groups: Groups, own: Tensor, others: Tensor) -> Tensor:
    """log(e^own_i / (e^own_i + Σ_{j≠i} e^others_j)), [*S], without overflow or cancellation.

    The largest of the others is taken out of its own group's sum apart; any other is at most half of its sum.
    """
    if groups.count == 1:
        return torch.zeros_like(own)
    axis = groups.axis
    top, where = others.max(axis, keepdim=True)
    is_top = torch.zeros_like(others, dtype=torch.bool).scatter(
        axis, where, torch.ones_like(where, dtype=torch.bool)
    )
    parts = torch.exp(others - top)
    without_top = others.masked_fill(is_top, -math.inf)
    second = groups.max(without_top)
    rest = torch.where(is_top, groups.sum(torch.exp(without_top - second)), groups.sum(parts) - parts)
    rest_top = torch.where(is_top, second, top)
    largest = torch.maximum(own, rest_top)
    return own - largest - torch.log(torch.exp(own - largest) + rest * torch.exp(rest_top - largest))


def log_range(groups: Groups, x: Interval) -> Interval:
    """Enclosure of log softmax over a box: the least at own l and others' u, the largest at the opposite."""
    low, high = log_share(groups, x.lower, x.upper), log_share(groups, x.upper, x.lower)
    return Interval(low - groups.doubt * (1 - low), torch.clamp(high + groups.doubt * (1 - high), max=0.0))


def exp_chord(shift: Tensor, x: Interval) -> Tensor:
    """Slope of the chord of e^(x − shift) over an interval, shift ≥ its upper end."""
    width = x.upper - x.lower
    share = torch.where(width > 0, -torch.expm1(-width) / width, 1.0)
    return torch.exp(x.upper - shift) * share


@dataclass(frozen=True)
class GroupPlanes(Relaxation):
    """scale_i·(x_i − Σ_j ratio_j·x_j) + intercept_i below and above each output i, the sum over i's group.

    Tensors [*P, n, *Q], or [R, *P, n, *Q] of each row's own.
    """

    groups: Groups
    own_shape: tuple[int, ...]
    lower: tuple[Tensor, Tensor, Tensor]  # scale, ratio, intercept
    upper: tuple[Tensor, Tensor, Tensor]

    def through(self, rows: Tensor) -> Backward:
        count = rows.shape[0]
        rows = rows.reshape(count, *self.groups.shape)
        negative = rows.clamp(max=0)
        positive = rows - negative
        below, above = positive * self.lower[0], negative * self.upper[0]
        carried = (
            below + above - self.groups.sum(below) * self.lower[1] - self.groups.sum(above) * self.upper[1]
        )
        constant = dot(positive, self.lower[2]) + dot(negative, self.upper[2])
        return (carried.reshape(count, *self.own_shape),), constant

    def losses(
        self, rows: Tensor, inputs: tuple[Tensor | None, ...] | None
    ) -> tuple[Tensor | None, ...] | None:
        """Of Softmax: half of what an output loses is laid to its own logit, half to those with most of the sum."""
        if inputs is None:
            return None
        (x,) = inputs
        assert x is not None
        shape = x.shape
        rows, x = (one.reshape(len(one), *self.groups.shape) for one in (rows, x))
        value = torch.softmax(x, self.groups.axis)
        below, above = (
            scale * (x - self.groups.sum(ratio * x)) + intercept
            for scale, ratio, intercept in (self.lower, self.upper)
        )
        negative = rows.clamp(max=0)
        lost = (rows - negative) * (value - below).clamp(min=0) - negative * (above - value).clamp(min=0)
        return ((lost / 2 + value * self.groups.sum(lost) / 2).reshape(shape),)

    def to(self, dtype: torch.dtype) -> GroupPlanes:
        lower, upper = (tuple(part.to(dtype) for part in plane) for plane in (self.lower, self.upper))
        return dataclasses.replace(
            self, lower=(lower[0], lower[1], lower[2]), upper=(upper[0], upper[1], upper[2])
        )


class _GroupRule(Rule[Softmax | LogSoftmax]):
    relaxed = True
    mixing = True

    def _groups(self, view: NodeView[Softmax | LogSoftmax]) -> tuple[Groups, Interval]:
        x = view.interval(0)
        first = x.lower.shape[: 0 if view.boxes is None else 1]
        groups = Groups.of(tuple(x.lower.shape[len(first) :]), view.op.axes)
        shape = (*first, *groups.shape)
        return groups, Interval(x.lower.reshape(shape), x.upper.reshape(shape))

    def _shares(self, view: NodeView[Softmax | LogSoftmax], theta: Tensor | None) -> tuple[Tensor, ...]:
        """The parameters [k, *S], or [R, k, *S], one by one and in groups."""
        theta = self.theta(view) if theta is None else theta
        assert theta is not None
        shape = self._groups(view)[0].shape
        axes = view.interval(0).lower.dim()
        inner = axes if view.boxes is None else axes - 1
        return tuple(one.reshape(*one.shape[: one.dim() - inner], *shape) for one in parts_of(theta, axes))

    def terms(self, view: NodeView[Softmax | LogSoftmax]) -> int:
        # Two roundings a logit, one of them for kernels that rescale as they go, and those of exp, log, division.
        count = self._groups(view)[0].count
        return 2 * count + 2 * math.ceil(math.log2(count + 1)) + 24

    def backward_terms(self, view: NodeView[Softmax | LogSoftmax]) -> int:
        return self._groups(view)[0].count + 4

    def theta_matters(self, view: NodeView[Softmax | LogSoftmax]) -> Tensor:
        groups, x = self._groups(view)
        default = self.theta(view)
        assert default is not None
        wide = groups.max(x.upper - x.lower) > 0
        return wide.expand(len(default), *x.lower.shape).reshape(default.shape)

    def _tangent_point(self, x: Interval, share: Tensor) -> Tensor:
        return x.lower + share * (x.upper - x.lower)


@bounds(Softmax)
class SoftmaxRule(_GroupRule):
    """θ [4, *S]: where the planes below and above touch, and how much of each slope is kept (a plane times
    θ plus the constant bound times 1 − θ)."""

    limits = (0.0, 1.0)
    tall = True

    def interval(self, view: NodeView[Softmax | LogSoftmax]) -> tuple[Interval, ...]:
        groups, x = self._groups(view)
        log = log_range(groups, x)
        shape = view.output_shapes[0]
        return (Interval(torch.exp(log.lower).reshape(shape), torch.exp(log.upper).reshape(shape)),)

    def magnitude(self, view: NodeView[Softmax | LogSoftmax]) -> tuple[Tensor, ...]:
        # e^(x_i − max) is off by x_i's distance from the maximum times a rounding, which is at most −log softmax_i.
        groups, x = self._groups(view)
        log = log_range(groups, x).upper
        return ((torch.exp(log) * (1 - log)).reshape(view.output_shapes[0]),)

    def theta(self, view: NodeView[Softmax | LogSoftmax]) -> Tensor:
        default = view.interval(0).lower.new_full((4, *view.output_shapes[0]), 0.5)
        default[0], default[2:] = 0.4, 1.0  # the chords bend the function below towards the lower ends
        return default

    def relax(self, view: NodeView[Softmax | LogSoftmax], theta: Tensor | None = None) -> Relaxation:
        groups, x = self._groups(view)
        shares = self._shares(view, theta)
        log = log_range(groups, x)
        lower = self._below(groups, x, EDGE + (1 - EDGE) * shares[0])
        upper = self._above(groups, x, log, shares[1])
        return GroupPlanes(
            groups,
            tuple(view.interval(0).lower.shape[0 if view.boxes is None else 1 :]),
            _mixed(lower, torch.exp(log.lower) * (1 - groups.doubt), shares[2]),
            _mixed(upper, torch.exp(log.upper) * (1 + groups.doubt), shares[3]),
        )

    def _below(self, groups: Groups, x: Interval, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tangent of e^x_i / ΣC_j at the point that `share` gives."""
        shift = groups.max(x.upper)
        chord = exp_chord(shift, x)
        point = self._tangent_point(x, share)
        total = groups.sum(torch.exp(x.lower - shift) + chord * (point - x.lower))
        scale, ratio = torch.exp(point - shift) / total, chord / total
        intercept = scale * (1 - point + groups.sum(ratio * point))
        far = 1 + x.magnitude + groups.sum(ratio * x.magnitude)
        return scale, ratio, intercept - 4 * groups.doubt * scale * (1 + shift - point) * far

    def _above(
        self, groups: Groups, x: Interval, log: Interval, share: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Chord of the exponential over the range of x_i − LSE(x), with LSE(x) ≥ σ·x + entropy(σ) for any shares σ."""
        shares = torch.log_softmax(self._tangent_point(x, share), groups.axis)
        ratio = torch.exp(shares)
        entropy = -groups.sum(ratio * shares)
        low, high, width = torch.exp(log.lower), torch.exp(log.upper), log.upper - log.lower
        scale = high * torch.where(width > 0, -torch.expm1(-width) / width, 1.0)
        intercept = low - scale * (entropy + log.lower)
        far = x.magnitude + groups.sum(ratio * x.magnitude) + entropy - log.lower
        return scale, ratio, intercept + 4 * groups.doubt * (high + scale * far)

    def relax_magnitude(self, view: NodeView[Softmax | LogSoftmax], relaxation: Relaxation) -> Tensor:
        groups, x = self._groups(view)
        log = log_range(groups, x)
        shift = groups.max(x.upper)
        chord = exp_chord(shift, x)
        least = groups.sum(torch.exp(x.lower - shift) + chord * (EDGE * (x.upper - x.lower)))
        reach = torch.maximum(groups.sum(chord * x.magnitude) / least, groups.max(x.magnitude))
        # Scales are at most the largest softmax; the chord's part of the intercept at most p·(1 − log p).
        whole = torch.exp(log.upper) * (3 - log.upper + 2 * (x.magnitude + reach) + math.log(groups.count))
        return whole.reshape(view.output_shapes[0])


def _mixed(
    plane: tuple[Tensor, Tensor, Tensor], constant: Tensor, share: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    scale, ratio, intercept = plane
    return scale * share, ratio, constant + share * (intercept - constant)


@bounds(LogSoftmax)
class LogSoftmaxRule(_GroupRule):
    """θ [2, *P, n, *Q]: where the plane below, x_i − log q − (ΣC_j(x) − q)/q, takes q = ΣC_j; where that above,
    x_i − σ·x − entropy(σ), takes σ."""

    limits = (-math.inf, 0.0)

    def interval(self, view: NodeView[Softmax | LogSoftmax]) -> tuple[Interval, ...]:
        groups, x = self._groups(view)
        log = log_range(groups, x)
        shape = view.output_shapes[0]
        return (Interval(log.lower.reshape(shape), log.upper.reshape(shape)),)

    def magnitude(self, view: NodeView[Softmax | LogSoftmax]) -> tuple[Tensor, ...]:
        groups, x = self._groups(view)
        far = groups.max(x.magnitude) + 1
        return ((log_range(groups, x).magnitude + far).reshape(view.output_shapes[0]),)

    def theta(self, view: NodeView[Softmax | LogSoftmax]) -> Tensor:
        groups, x = self._groups(view)
        return x.lower.new_full((2, *groups.shape), 0.5)

    def relax(self, view: NodeView[Softmax | LogSoftmax], theta: Tensor | None = None) -> Relaxation:
        groups, x = self._groups(view)
        below, above = parts_of(self.theta(view) if theta is None else theta, len(groups.shape))
        shift = groups.max(x.upper)
        chord = exp_chord(shift, x)
        point = self._tangent_point(x, EDGE + (1 - EDGE) * below)
        fixed = groups.sum(torch.exp(x.lower - shift))
        total = fixed + groups.sum(chord * (point - x.lower))
        ratio = chord / total
        far = 2 + x.magnitude + shift.abs() + groups.sum(ratio * x.magnitude) + torch.log(total).abs()
        intercept = 1 - shift - torch.log(total) - fixed / total + groups.sum(ratio * x.lower)
        shares = torch.log_softmax(self._tangent_point(x, above), groups.axis)
        sigma = torch.exp(shares)
        entropy = -groups.sum(sigma * shares)
        far_above = 1 + x.magnitude + groups.sum(sigma * x.magnitude) + entropy
        one = torch.ones_like(x.lower)
        return GroupPlanes(
            groups,
            tuple(view.interval(0).lower.shape),
            (one, ratio, intercept - 4 * groups.doubt * far),
            (one, sigma, 4 * groups.doubt * far_above - entropy),
        )

    def relax_magnitude(self, view: NodeView[Softmax | LogSoftmax], relaxation: Relaxation) -> Tensor:
        groups, x = self._groups(view)
        shift = groups.max(x.upper)
        chord = exp_chord(shift, x)
        fixed = groups.sum(torch.exp(x.lower - shift))
        least = fixed + groups.sum(chord * (EDGE * (x.upper - x.lower)))
        reach = torch.maximum(groups.sum(chord * x.magnitude) / least, groups.max(x.magnitude))
        whole = 4 + x.magnitude + 2 * reach + shift.abs() + torch.log(least).abs() + math.log(groups.count)
        return whole.expand(groups.shape).reshape(view.output_shapes[0])
