"""Where an attack may walk: a box, or a ball cut by its box. Both start points and steps stay inside."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.norms import BallSet
from boundscope.properties.types import Box
from boundscope.protocol import Norm

MOMENTUM = 0.7  # of the direction in which an L0 attack chooses its inputs


class Region(Protocol):
    """A set of inputs; points are [B, inputs], all of the attack's dtype."""

    def starts(self, clauses: int, each: int, generator: torch.Generator) -> Tensor:
        """[clauses · each, inputs]: for every clause the centre, then random points."""
        ...

    def step(self, points: Tensor, gradient: Tensor, step: float) -> Tensor:
        """The points moved against the gradient by a share of the set's size."""
        ...


def region_of(box: Box, dtype: torch.dtype) -> Region:
    """The part of a box, and of its ball where it has one, in which an attack looks."""
    lower, upper = inner_float(box, np.float32 if dtype == torch.float32 else np.float64)
    if box.ball is None:
        return BoxRegion(torch.from_numpy(lower).to(dtype), torch.from_numpy(upper).to(dtype))
    ball = BallSet.of(box.ball, torch.from_numpy(lower), torch.from_numpy(upper))
    return BallRegion(ball, torch.from_numpy(lower), torch.from_numpy(upper), dtype)


class BoxRegion:
    """Sign steps, clipped to the box."""

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        self._lower, self._upper, self._width = lower, upper, upper - lower

    def starts(self, clauses: int, each: int, generator: torch.Generator) -> Tensor:
        """The centre, then uniform points, then corners."""
        shape = (clauses * each, len(self._lower))
        share = torch.rand(shape, generator=generator, dtype=self._lower.dtype)
        share[0::each] = 0.5
        for corner in range(each // 2, each):
            share[corner::each] = share[corner::each].round()
        return self._lower + share * self._width

    def step(self, points: Tensor, gradient: Tensor, step: float) -> Tensor:
        return torch.clamp(points - step * self._width * gradient.sign(), self._lower, self._upper)


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

    def starts(self, clauses: int, each: int, generator: torch.Generator) -> Tensor:
        """The centre, then points on the way to the boundary in random directions."""
        shape = (clauses * each, len(self._centre))
        directions = torch.randn(shape, generator=generator, dtype=self._centre.dtype)
        share = torch.rand((len(directions), 1), generator=generator, dtype=self._centre.dtype)
        share[0::each] = 0.0
        self._velocity = None
        return self._within(self._centre + share * (self._ball.lowest(directions) - self._centre))

    def step(self, points: Tensor, gradient: Tensor, step: float) -> Tensor:
        if self._ball.norm is Norm.L0:
            return self._sparse_step(points, gradient, step)
        towards = self._ball.lowest(gradient)
        moved = points + min(1.0, 2.0 * step) * (towards - points)
        return self._within(torch.where(gradient.abs().amax(1, keepdim=True) > 0, moved, points))

    def _sparse_step(self, points: Tensor, gradient: Tensor, step: float) -> Tensor:
        size = gradient.abs().sum(1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
        before = 0.0 if self._velocity is None else MOMENTUM * self._velocity
        self._velocity = gradient / size + before
        best = self._ball.lowest(self._velocity)
        near = points + min(1.0, 2.0 * step) * (best - points) - self._centre
        kept = near.abs().topk(int(min(self._ball.radius, near.shape[1]))).indices
        sparse = torch.zeros_like(near).scatter(1, kept, near.gather(1, kept))
        best[1::2] = self._centre + sparse[1::2]
        return self._within(best)

    def _within(self, points: Tensor) -> Tensor:
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
