"""What rows of branch and bound have to pass: the clauses of a case, each a mixture of its constraints."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.constraints import Constraints
from boundscope.bounds.context import BoxContext
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.properties.types import Clause


class Aims:
    """The clauses of one case as rows: of a conjunction, any mixture of its constraints with weights ≥ 0 must pass the
    mixture of their goals for the conjunction to be excluded, and where all neurons are held the best mixture does."""

    def __init__(self, context: BoxContext, clauses: Sequence[Clause]) -> None:
        self._constraints = Constraints.of(context, [one for clause in clauses for one in clause.constraints])
        self.width = max((len(clause.constraints) for clause in clauses), default=1)
        index = torch.zeros(len(clauses), self.width, dtype=torch.int64)
        self.filled = torch.zeros(len(clauses), self.width, dtype=torch.bool)
        first = 0
        for number, clause in enumerate(clauses):
            size = len(clause.constraints)
            index[number, :size] = torch.arange(first, first + size)
            self.filled[number, :size] = True
            first += size
        self._index = index.to(context.device)
        self.filled = self.filled.to(context.device)
        self._magnitudes = {
            name: context.intervals[name].magnitude.flatten() for name in self._constraints.rows
        }

    def margin(self, one: BackwardPass, which: Tensor, weights: Tensor) -> Tensor:
        """Lower bounds [R] of the mixtures of clauses `which` [R] with `weights` [R, width], less their goals: float64,
        rounded down unless the pass is a search."""
        if self.width == 1:
            index = self._index[which, 0]
            lower = one.lower(self._constraints.of_rows(index), len(which))
            return _less(lower, self._constraints.goals[index], one)
        chosen = self._index[which]
        weights = (weights * self.filled[which]).double()
        goals = (weights * self._constraints.goals[chosen]).sum(1)
        rows: dict[str, Tensor] = {}
        error = torch.zeros_like(goals)
        count = self.width + 8
        for name, all_rows in self._constraints.rows.items():
            each = all_rows.reshape(len(all_rows), -1)[chosen]
            rows[name] = (weights[:, :, None] * each).sum(1).reshape(len(which), *all_rows.shape[1:])
            if not one.searches:
                size = (weights[:, :, None] * each.abs()).sum(1) @ self._magnitudes[name]
                error = error + size
        lower = one.lower(rows, len(which))
        if one.searches:
            return lower - goals
        size = error + (weights * self._constraints.goals[chosen].abs()).sum(1)
        several = (weights > 0).sum(1) > 1  # a single weight of 1 rounds nothing
        rounded = size * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(count)
        exact = ~several & (weights.max(1).values == 1.0)
        return _less(lower - torch.where(exact, 0.0, rounded), goals, one)

    def alone(self) -> tuple[Tensor, Tensor]:
        """Every constraint of every clause for itself: clauses [C] and weights [C, width]."""
        which, place = self.filled.nonzero(as_tuple=True)
        return which, torch.nn.functional.one_hot(place, self.width).float()

    def project(self, weights: Tensor, which: Tensor) -> Tensor:
        """Weights of sum 1, at least 0."""
        kept = weights.clamp(min=0) * self.filled[which]
        total = kept.sum(1, keepdim=True)
        even = self.filled[which] / self.filled[which].sum(1, keepdim=True)
        return torch.where(total > 0, kept / total.clamp(min=1e-30), even)


def _less(lower: Tensor, goals: Tensor, one: BackwardPass) -> Tensor:
    moved = lower - goals
    if one.searches:
        return moved
    exact = goals == 0
    down = torch.nextafter(moved, torch.full_like(moved, -torch.inf))
    return torch.where(exact, moved, down)
