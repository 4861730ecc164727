"""Where an attack may walk: a box, or a ball cut by its box. Both start points and steps stay inside."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.norms import BallSet
from boundscope.properties.types import Box
from boundscope.protocol import Norm

MOMENTUM = 0.7  # of the direction in which an L0 attack chooses its inputs
MANY_STEPS = 64  # numbers of a dtype in an interval that is worth walking in
FEW_UNITS = 4  # in the last place: such an interval only encloses a decimal


class Start(enum.IntEnum):
    """Where a walk begins."""

    CENTRE = 0
    UNIFORM = 1
    CORNER = 2


class Region(Protocol):
    """The sets of inputs of some walks; points are [B, inputs], all of the attack's dtype."""

    def starts(self, kinds: Tensor, generator: torch.Generator) -> Tensor:
        """[B, inputs]: for every walk a point of its `kind` [B] (values of Start)."""
        ...

    def step(self, points: Tensor, gradient: Tensor, step: float, plain: Tensor) -> Tensor:
        """The points moved against the gradient by a share of the set's size.

        `plain` [B]: in the direction of the gradient itself (in units of the box's widths), else of its signs.
        """
        ...

    def within(self, points: Tensor) -> Tensor:
        """The points of any set, moved into this one."""
        ...


class Regions:
    """The boxes of all cases, rounded into themselves. `lower` and `upper` are [cases, inputs]."""

    def __init__(self, boxes: Sequence[Box], dtype: torch.dtype) -> None:
        self._boxes = boxes
        self._dtype = dtype
        ends = [inner_float(box, _numpy_type(dtype)) for box in boxes]
        self.lower = torch.from_numpy(np.stack([lower for lower, _ in ends])).to(dtype)
        self.upper = torch.from_numpy(np.stack([upper for _, upper in ends])).to(dtype)

    def rows(self, cases: Tensor) -> Region:
        """The regions of walks in these cases [B]; walks in a ball are all in the same case."""
        box = self._boxes[int(cases[0])]
        if box.ball is None:
            alike = bool((cases == cases[0]).all())
            chosen = cases[:1] if alike else cases  # one row broadcasts to all
            return BoxRegion(self.lower[chosen], self.upper[chosen])
        lower, upper = inner_float(box, _numpy_type(self._dtype))
        ball = BallSet.of(box.ball, torch.from_numpy(lower), torch.from_numpy(upper))
        return BallRegion(ball, torch.from_numpy(lower), torch.from_numpy(upper), self._dtype)

    @cached_property
    def free(self) -> Tensor:
        """[cases, inputs]: those whose interval is more than the rounding of a decimal."""
        size = torch.maximum(self.lower.abs(), self.upper.abs())
        return (self.upper - self.lower) > FEW_UNITS * torch.finfo(self._dtype).eps * size

    def is_ball(self, case: int) -> bool:
        return self._boxes[case].ball is not None

    @property
    def coarse(self) -> bool:
        """Whether some input's interval holds fewer than MANY_STEPS numbers of the dtype, but is not one point."""
        written = np.stack([box.upper - box.lower for box in self._boxes])
        size = torch.maximum(self.lower.abs(), self.upper.abs()).to(torch.float64).numpy()
        step = np.maximum(size * torch.finfo(self._dtype).eps, torch.finfo(self._dtype).tiny)
        return bool(
            ((written > FEW_UNITS * np.finfo(np.float64).eps * size) & (written < MANY_STEPS * step)).any()
        )


def _numpy_type(dtype: torch.dtype) -> type[np.float32] | type[np.float64]:
    return np.float32 if dtype == torch.float32 else np.float64


class BoxRegion:
    """Steps of signs or along the gradient, clipped to the box. Bounds are [B, inputs] or [1, inputs]."""

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        self._lower, self._upper, self._width = lower, upper, upper - lower

    def starts(self, kinds: Tensor, generator: torch.Generator) -> Tensor:
        shape = (len(kinds), self._lower.shape[1])
        share = torch.rand(shape, generator=generator, dtype=self._lower.dtype)
        share[kinds == Start.CENTRE] = 0.5
        corners = kinds == Start.CORNER
        share[corners] = share[corners].round()
        return self.within(self._lower + share * self._width)

    def step(self, points: Tensor, gradient: Tensor, step: float, plain: Tensor) -> Tensor:
        direction = gradient.sign()
        if bool(plain.any()):
            gain = gradient[plain] * self._width_of(plain)
            largest = gain.abs().amax(1, keepdim=True).clamp(min=torch.finfo(gain.dtype).tiny)
            direction[plain] = gain / largest
        return self.within(points - step * self._width * direction)

    def within(self, points: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(points, self._lower), self._upper)

    def _width_of(self, rows: Tensor) -> Tensor:
        return self._width if len(self._width) == 1 else self._width[rows]


class BallRegion:
    """Conditional gradient (Frank and Wolfe 1956): towards the point of the set that is best for the gradient.

    What lies between two points of an L2 or L1 ball lies in it. An L0 ball is not convex: there half of the walks
    jump to the best point for a gradient with momentum, and half step towards it and keep the largest changes.
    """

    def __init__(self, ball: BallSet, lower: Tensor, upper: Tensor, dtype: torch.dtype) -> None:
        centre = (ball.centre_lower + ball.centre_upper) / 2
        if ball.norm is not Norm.L0:  # leave room for the rounding of points to the attack's dtype
            size = ball.scale * torch.maximum(lower.abs(), upper.abs())
            room = float(torch.linalg.vector_norm(size, 2 if ball.norm is Norm.L2 else 1)) * 2.0
            radius = max(ball.radius - room * torch.finfo(dtype).eps, ball.radius / 2)
            ball = dataclasses.replace(ball, radius=radius)
        self._ball = ball.to(dtype)
        self._lower, self._upper, self._centre = lower.to(dtype), upper.to(dtype), centre.to(dtype)
        self._velocity: Tensor | None = None

    def starts(self, kinds: Tensor, generator: torch.Generator) -> Tensor:
        """The centre, or points on the way to the boundary in random directions."""
        shape = (len(kinds), len(self._centre))
        directions = torch.randn(shape, generator=generator, dtype=self._centre.dtype)
        share = torch.rand((len(directions), 1), generator=generator, dtype=self._centre.dtype)
        share[kinds == Start.CENTRE] = 0.0
        share[kinds == Start.CORNER] = 1.0
        self._velocity = None
        return self._inside_box(self._centre + share * (self._ball.lowest(directions) - self._centre))

    def step(self, points: Tensor, gradient: Tensor, step: float, plain: Tensor) -> Tensor:
        if self._ball.norm is Norm.L0:
            return self._sparse_step(points, gradient, step)
        towards = self._ball.lowest(gradient)
        moved = points + min(1.0, 2.0 * step) * (towards - points)
        return self._inside_box(torch.where(gradient.abs().amax(1, keepdim=True) > 0, moved, points))

    def within(self, points: Tensor) -> Tensor:
        """The largest changes (L0), or the whole change made smaller."""
        change = self._inside_box(points) - self._centre
        if self._ball.norm is Norm.L0:
            return self._inside_box(self._centre + self._largest(change))
        order = 2 if self._ball.norm is Norm.L2 else 1
        size = torch.linalg.vector_norm(self._ball.scale * change, order, dim=1, keepdim=True)
        share = torch.where(size > self._ball.radius, self._ball.radius / size, 1.0)
        return self._inside_box(self._centre + share * change)

    def _sparse_step(self, points: Tensor, gradient: Tensor, step: float) -> Tensor:
        size = gradient.abs().sum(1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
        before = 0.0 if self._velocity is None else MOMENTUM * self._velocity
        self._velocity = gradient / size + before
        best = self._ball.lowest(self._velocity)
        near = points + min(1.0, 2.0 * step) * (best - points) - self._centre
        best[1::2] = self._centre + self._largest(near)[1::2]
        return self._inside_box(best)

    def _largest(self, changes: Tensor) -> Tensor:
        kept = changes.abs().topk(int(min(self._ball.radius, changes.shape[1]))).indices
        return torch.zeros_like(changes).scatter(1, kept, changes.gather(1, kept))

    def _inside_box(self, points: Tensor) -> Tensor:
        return torch.clamp(points, self._lower, self._upper)


def inner_float(
    box: Box, dtype: type[np.float32] | type[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of a box rounded into it, to numbers of `dtype`, as float64 [inputs] each.

    Where no number of `dtype` lies inside, both ends are the one nearest to the interval.
    """
    lower: NDArray[np.floating] = box.lower.astype(dtype)
    upper: NDArray[np.floating] = box.upper.astype(dtype)
    infinity = dtype(np.inf)
    lower = np.where(lower < box.lower, np.nextafter(lower, infinity), lower)
    upper = np.where(upper > box.upper, np.nextafter(upper, -infinity), upper)
    nearest = ((box.lower + box.upper) / 2).astype(dtype)
    empty = lower > upper
    return (
        np.where(empty, nearest, lower).astype(np.float64),
        np.where(empty, nearest, upper).astype(np.float64),
    )
