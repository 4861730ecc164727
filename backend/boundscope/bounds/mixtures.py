"""Mixtures of a clause's constraints on parts of a box, with slopes of each row's own.

A clause holds at no point where a sum of its constraints, none weighed negatively, is positive: min over the part of
Σ λ_i·margin_i > 0 excludes it though each constraint may hold somewhere. Weights λ and the lower slopes of rectifiers
(Xu et al. 2021, arXiv 2011.13824) are ascended together in float32; a float64 pass proves what they give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.constraints import Constraints
from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains
from boundscope.bounds.operators.relaxation import Lines, per_row
from boundscope.bounds.parts import ROWS, PartMargins
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.errors import BoundError
from boundscope.monitor import Monitor

LEAST_WEIGHT = 2.0**-20  # smaller ones are none, so that no product underflows unseen
SPREAD_WEIGHT = (
    0.05  # of a search's start lies equally on all constraints, since weights that are zero stay so
)
RATE, DECAY = 0.4, 0.75
MOMENT, SQUARES = 0.7, 0.9


@dataclass(frozen=True)
class Mixtures:
    """R mixtures of T constraints at most: their numbers [R, T], and weights [R, T] float64, zero where there is
    none; not negative, and never all zero."""

    index: Tensor
    weight: Tensor

    @classmethod
    def of(cls, index: Tensor, weight: Tensor) -> Mixtures:
        """Of any weights, with those that are next to nothing left out; `index` is −1 where there is none, though
        not everywhere. Where no weight is left, the first constraint that there is stands alone."""
        there = (index >= 0) & torch.isfinite(weight)
        weight = torch.where(there, weight, 0.0).clamp(min=0)
        weight = weight / weight.amax(1, keepdim=True).clamp(min=LEAST_WEIGHT)
        weight = torch.where(weight < LEAST_WEIGHT, 0.0, weight)
        nothing = (weight == 0).all(1, keepdim=True)
        place = (index >= 0).to(torch.int8).argmax(1, keepdim=True)
        first = torch.zeros_like(weight).scatter(1, place, 1.0)
        return cls(index.clamp(min=0), torch.where(nothing, first, weight))

    def some(self, chosen: slice | Tensor) -> Mixtures:
        return Mixtures(self.index[chosen], self.weight[chosen])

    def rows(self, constraints: Constraints) -> dict[str, Tensor]:
        """Coefficients [R, *S] by tensor, of the weights' dtype; differentiable in the weights."""
        found: dict[str, Tensor] = {}
        for name, whole in constraints.rows.items():
            flat = per_row(whole).to(self.weight.dtype)
            mixed = (flat[self.index] * self.weight[:, :, None]).sum(1)
            found[name] = mixed.reshape(-1, *whole.shape[1:])
        return found

    def goals(self, context: BoxContext, constraints: Constraints) -> Tensor:
        """What the left sides must exceed, [R] float64, with what mixing rounds in coefficients and goals."""
        terms = self.index.shape[1]
        parts = constraints.goals[self.index] * self.weight
        lost = parts.abs().sum(1)
        reached = torch.zeros_like(lost)
        if bool(((self.weight != 0).sum(1) > 1).any()):
            for name, whole in constraints.rows.items():
                reach = context.intervals[name].magnitude.flatten().to(torch.float64)
                met = per_row(whole).abs() @ reach  # [C]
                lost = lost + (met[self.index] * self.weight).sum(1)
                reached = reached + reach.sum()
        mixed = (self.weight != 0).sum(1) > 1
        exact = ~mixed & (self.weight.amax(1) == 1.0)
        error = lost * (gamma(terms + 4, ENGINE.unit) * INFLATION) + ENGINE.absolute(terms) * (reached + 1.0)
        goal = parts.sum(1) + torch.where(exact, 0.0, error)
        above = torch.nextafter(goal, torch.full_like(goal, torch.inf))
        return torch.where(exact, goal, above)


@dataclass(frozen=True)
class MixedMargins:
    """Proven margins of mixtures, and the mixtures that gave them."""

    margins: PartMargins
    mixtures: Mixtures


def mixed_margins(
    domains: Domains,
    constraints: Constraints,
    part: Tensor,
    mixtures: Mixtures,
    monitor: Monitor,
    *,
    steps: int = 0,
    rows: int = ROWS,
) -> MixedMargins:
    """Lower bounds of Σ λ_i·margin_i of mixtures [R] on parts [R], after so many steps of ascent on λ and slopes.

    Raises:
        BoundError: a margin is NaN.
    """
    found: list[MixedMargins] = []
    for first in range(0, len(part), rows):
        monitor.check()
        chosen = slice(first, first + rows)
        mine, slopes = mixtures.some(chosen), None
        if steps:
            mine, slopes = _ascended(domains, constraints, part[chosen], mine, steps, monitor)
        found.append(_proven(domains, constraints, part[chosen], mine, slopes))
    names = found[0].margins.at_inputs.keys()
    return MixedMargins(
        PartMargins(
            torch.cat([one.margins.lower for one in found]),
            {name: torch.cat([one.margins.at_inputs[name] for one in found]) for name in names},
        ),
        Mixtures(
            torch.cat([one.mixtures.index for one in found]),
            torch.cat([one.mixtures.weight for one in found]),
        ),
    )


def _proven(
    domains: Domains,
    constraints: Constraints,
    part: Tensor,
    mixtures: Mixtures,
    slopes: Mapping[str, Tensor] | None,
) -> MixedMargins:
    one = BackwardPass(domains.context, domains=domains, which=part, keep=True, slopes=slopes)
    lower = one.lower(mixtures.rows(constraints), len(part))
    if bool(torch.isnan(lower).any()):
        raise BoundError("the margin of a part of the box is NaN")
    goals = mixtures.goals(domains.context, constraints)
    moved = lower - goals
    below = torch.nextafter(moved, torch.full_like(moved, -torch.inf))
    return MixedMargins(PartMargins(torch.where(goals == 0, moved, below), one.at_inputs), mixtures)


# ------------------------------------------------------------ the search for weights and slopes


def _ascended(
    domains: Domains, constraints: Constraints, part: Tensor, start: Mixtures, steps: int, monitor: Monitor
) -> tuple[Mixtures, dict[str, Tensor]]:
    """The best weights and slopes that were met; by estimates in float32, of which nothing is proven."""
    slopes = _first_slopes(domains, part)
    there = start.weight.sum(0) > 0
    mixes = bool(there.sum() > 1)
    weight = _normal(start.weight).float()
    goals = constraints.goals[start.index].float()
    ascent = {name: _Ascent(values) for name, values in slopes.items()}
    best = torch.full((len(part),), -torch.inf, dtype=torch.float64, device=part.device)
    best_weight = weight
    for step in range(steps + 1):
        monitor.check()
        with torch.enable_grad():
            leaf = weight.detach().requires_grad_(mixes)
            leaves = {name: one.values.detach().requires_grad_() for name, one in ascent.items()}
            one = BackwardPass(domains.context, slopes=leaves, search=True, domains=domains, which=part)
            lower = one.lower(Mixtures(start.index, leaf).rows(constraints), len(part))
            lower = lower - (leaf * goals).sum(1)
            wanted = [*leaves.values(), *([leaf] if mixes else [])]
            gradients = (
                torch.autograd.grad(lower.sum(), wanted, allow_unused=True)
                if step < steps and lower.requires_grad
                else [None] * len(wanted)
            )
        seen = lower.detach()
        improved = seen > best
        best = torch.where(improved, seen, best)
        best_weight = torch.where(improved[:, None], weight, best_weight)
        rate = RATE * DECAY**step
        for ascending, gradient in zip(ascent.values(), gradients, strict=False):
            ascending.keep(improved)
            if gradient is not None:
                ascending.step(gradient, rate, step + 1)
        if mixes and gradients[-1] is not None:
            weight = _moved(weight, gradients[-1], rate)
    index = torch.where(start.weight > 0, start.index, -1)
    return (
        Mixtures.of(index, best_weight.double()),
        {name: one.best.double() for name, one in ascent.items()},
    )


def _first_slopes(domains: Domains, part: Tensor) -> dict[str, Tensor]:
    """Slopes of the parts' own lines, [R, n] float32, of nodes where rows may choose others."""
    found: dict[str, Tensor] = {}
    context = domains.context
    for node in context.network.nodes:
        if not context.rule(node).slope_free:
            continue
        facts = domains.facts(node)
        if facts is not None and isinstance(facts.relaxation, Lines) and isinstance(facts.local, Lines):
            slopes = per_row(facts.relaxation.lower_slope).float()
            found[node.name] = slopes.index_select(0, part)
    return found


def _normal(weight: Tensor) -> Tensor:
    """Weights that sum to one, with some of each constraint that there is."""
    there = (weight > 0).to(weight.dtype)
    weight = weight / weight.sum(1, keepdim=True)
    return (1.0 - SPREAD_WEIGHT) * weight + SPREAD_WEIGHT * there / there.sum(1, keepdim=True)


def _moved(weight: Tensor, gradient: Tensor, rate: float) -> Tensor:
    """Exponentiated ascent on the simplex."""
    gradient = torch.where(weight > 0, torch.nan_to_num(gradient), 0.0)
    mean = (gradient * weight).sum(1, keepdim=True)
    off = torch.where(weight > 0, gradient - mean, 0.0)
    scale = off.abs().amax(1, keepdim=True).clamp(min=1e-30)
    moved = weight * torch.exp(rate * off / scale)
    return moved / moved.sum(1, keepdim=True)


class _Ascent:
    """Slopes in [0, 1] of R rows as Adam moves them, and the best of each row."""

    def __init__(self, start: Tensor) -> None:
        self.values = start
        self.best = start
        self._mean = torch.zeros_like(start)
        self._square = torch.zeros_like(start)

    def keep(self, improved: Tensor) -> None:
        self.best = torch.where(improved[:, None], self.values, self.best)

    def step(self, gradient: Tensor, rate: float, count: int) -> None:
        gradient = torch.nan_to_num(gradient)
        self._mean = MOMENT * self._mean + (1.0 - MOMENT) * gradient
        self._square = SQUARES * self._square + (1.0 - SQUARES) * gradient * gradient
        mean = self._mean / (1.0 - MOMENT**count)
        size = (self._square / (1.0 - SQUARES**count)).sqrt()
        self.values = (self.values + rate * mean / (size + 1e-12)).clamp(0.0, 1.0)
