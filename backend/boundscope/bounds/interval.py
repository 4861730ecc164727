"""Intervals of tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.errors import BoundError


@dataclass(frozen=True)
class Interval:
    """Element-wise bounds of a tensor: `lower` and `upper` of the tensor's own shape."""

    lower: Tensor
    upper: Tensor

    @classmethod
    def point(cls, value: Tensor) -> Interval:
        return cls(value, value)

    @property
    def magnitude(self) -> Tensor:
        """Largest absolute value inside, element by element."""
        return torch.maximum(self.lower.abs(), self.upper.abs())

    @property
    def ball(self) -> tuple[Tensor, Tensor]:
        """Centre and radius such that centre ± radius covers the interval; the radius is 0 where the ends meet."""
        centre = (self.lower + self.upper) / 2
        radius = torch.maximum(centre - self.lower, self.upper - centre)
        infinity = torch.full((), float("inf"), dtype=radius.dtype, device=radius.device)
        return centre, torch.where(radius > 0, torch.nextafter(radius, infinity), radius)

    def widened(self, slack: Tensor) -> Interval:
        """Both ends moved outwards by `slack`, rounded outwards; ends with no slack stay as they are."""
        if not bool((slack > 0).any()):
            return self
        down, up = self.lower - slack, self.upper + slack
        infinity = torch.full((), float("inf"), dtype=down.dtype, device=down.device)
        moved = slack > 0
        return Interval(
            torch.where(moved, torch.nextafter(down, -infinity), self.lower),
            torch.where(moved, torch.nextafter(up, infinity), self.upper),
        )

    def intersected(self, other: Interval, name: str) -> Interval:
        """Where both hold. Two sound enclosures always meet, so a crossing is an error that names the tensor."""
        lower = torch.maximum(self.lower, other.lower)
        upper = torch.minimum(self.upper, other.upper)
        crossed = (lower > upper).flatten().nonzero()
        if len(crossed):
            index = int(crossed[0])
            raise BoundError(
                f"bounds of tensor '{name}' cross at element {index}: "
                f"{lower.flatten()[index].item()!r} > {upper.flatten()[index].item()!r}"
            )
        return Interval(lower, upper)

    def require_finite(self, name: str) -> Interval:
        """This interval; raises BoundError, naming the tensor, where a bound is NaN or infinite."""
        if math.isfinite(float((self.upper - self.lower).sum())):
            return self
        for which, bound in (("lower", self.lower), ("upper", self.upper)):
            bad = (~torch.isfinite(bound)).flatten().nonzero()
            if len(bad):
                index = int(bad[0])
                value = bound.flatten()[index].item()
                raise BoundError(f"the {which} bound of tensor '{name}' is {value} at element {index}")
        return self
