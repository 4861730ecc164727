"""Affine forms of tensors on many boxes at once (affine arithmetic), and what they say of constraints."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.constraints import Constraints
from boundscope.bounds.interval import Interval
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma

LEAST = 2.0**-1000  # of a sum of sizes that is divided by


@dataclass(frozen=True)
class Forms:
    """A tensor [*S] on D boxes as a function of z in [−1, 1]^K, the K inputs that are free there.

    Attributes:
        moved: [K + 1, D, *S], the centre, then the slope of each z.
        loose: [K, D, *S], what the tensor may differ from that by, in parts charged to each input.
        ends: its interval, [D, *S].
    """

    moved: Tensor
    loose: Tensor
    ends: Interval

    @property
    def reach(self) -> Tensor:
        """No less than any absolute value, [D, *S]."""
        return sum_of_sizes(self.moved).add_(sum_of(self.loose))

    def hull(self) -> Interval:
        """What the form takes on its box, with the rounding of these sums."""
        centre = self.moved[0]
        radius = sum_of_sizes(self.moved[1:]).add_(sum_of(self.loose))
        error = gamma(2 * len(self.moved) + 16, ENGINE.unit) * INFLATION
        radius += (centre.abs() + radius).mul_(error) + ENGINE.absolute(8)
        return Interval(centre - radius, centre + radius)

    def within(self, ends: Interval, name: str) -> Forms:
        """The same with the interval that the form and `ends` together say of tensor `name`.

        Raises:
            BoundError: they do not meet.
        """
        return Forms(self.moved, self.loose, self.hull().intersected(ends, name))


@dataclass(frozen=True)
class SweptMargins:
    """Of R constraints on each of D boxes: `least` [D, R] is below the margin all over the box, which is at least that
    and Σ |slope_k| for each unit of x_k away from the end that makes it least; `loose` [D, R, K] is what relaxing cost,
    by input. Where nothing was proven, `least` is −∞."""

    least: Tensor
    slope: Tensor
    loose: Tensor


@dataclass(frozen=True)
class Swept:
    """Forms of a network's inputs and outputs on D boxes.

    `finite` [D]: boxes on which all went well; `radius` [D, K] of the free inputs.
    """

    forms: dict[str, Forms]
    finite: Tensor
    radius: Tensor

    def margins(self, constraints: Constraints, index: Tensor) -> SweptMargins:
        """Of the constraints with these numbers, [D, R], on each box; any where a number is negative."""
        free = self.radius.shape[1]
        number = index.clamp(min=0)
        moved = self.radius.new_zeros(free + 1, *index.shape)
        loose = self.radius.new_zeros(free, *index.shape)
        size = self.radius.new_zeros(index.shape)
        terms = 8
        for name, rows in constraints.rows.items():
            form = self.forms[name]
            rows = rows.reshape(len(rows), -1)[number]  # [D, R, m]
            sizes = rows.abs()
            moved += torch.einsum("drm,kdm->kdr", rows, form.moved.flatten(2))
            loose += torch.einsum("drm,kdm->kdr", sizes, form.loose.flatten(2))
            size += torch.einsum("drm,dm->dr", sizes, form.reach.flatten(1))
            terms += rows.shape[2] + 2
        error = size * ((free + 4) * gamma(terms + free, ENGINE.unit) * INFLATION) + ENGINE.absolute(terms)
        goals = constraints.goals[number]
        error += (goals.abs() + moved.abs().sum(0) + loose.sum(0)) * gamma(4 * free + 16, ENGINE.unit)
        least = moved[0] - moved[1:].abs().sum(0) - loose.sum(0) - error - goals
        # A slope that is not a number of float64 says nothing.
        slope = moved[1:].permute(1, 2, 0) / self.radius[:, None].clamp(min=LEAST)
        slope = torch.where(self.radius[:, None] > LEAST, slope, 0.0)
        sound = self.finite[:, None] & torch.isfinite(least) & torch.isfinite(slope).all(2)
        return SweptMargins(
            torch.where(sound, least, -torch.inf),
            torch.where(sound[:, :, None], slope, 0.0),
            torch.nan_to_num(loose.permute(1, 2, 0), nan=0.0),
        )


def sum_of(parts: Tensor) -> Tensor:
    """Σ over the first axis, which is short."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def sum_of_sizes(parts: Tensor) -> Tensor:
    total = parts[0].abs()
    for part in parts[1:]:
        total += part.abs()
    return total


def both_ends(interval: Interval) -> tuple[Tensor, Tensor]:
    return interval.lower, interval.upper
