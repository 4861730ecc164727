"""The clauses that are open on parts of a box: what linear bounds of their constraints prove of them and cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.constraints import Constraints
from boundscope.bounds.context import BoxContext
from boundscope.errors import BoundError
from boundscope.properties.types import Case, LinearConstraint
from boundscope.search.clipping import Boxes, LinearRows, clipped
from boundscope.search.input_layout import Floats, Rows
from boundscope.search.task import Key


@dataclass(frozen=True)
class ClauseTable:
    """The constraints of the clauses that a search has to exclude, of all of its cases.

    Attributes:
        keys: of the clauses, by place and then by number: `keys[place][k]`; a place is one of the search's cases.
        constraints: all of them, in one row block.
        of_place: [places, R] number of each place's constraints, −1 beyond the last.
        clause: [places, R] which of the place's clauses each belongs to, −1 beyond the last.
        there: [places, K] whether there is a clause of that number.
    """

    keys: tuple[tuple[Key, ...], ...]
    constraints: Constraints
    of_place: Tensor
    clause: Tensor
    there: NDArray[np.bool_]

    @property
    def joint(self) -> bool:
        """Whether some clause has several constraints."""
        clause = self.clause
        return bool(((clause[:, 1:] == clause[:, :-1]) & (clause[:, 1:] >= 0)).any())

    @classmethod
    def of(cls, context: BoxContext, cases: Sequence[Case], keys: Sequence[Sequence[Key]]) -> ClauseTable:
        """`keys[p]` are the open clauses of the case at place p; `cases` are all of the property."""
        flat: list[LinearConstraint] = []
        numbers: list[list[int]] = []
        clauses: list[list[int]] = []
        for mine in keys:
            number, clause = [], []
            for local, (case, index) in enumerate(mine):
                for constraint in cases[case].clauses[index].constraints:
                    number.append(len(flat))
                    clause.append(local)
                    flat.append(constraint)
            numbers.append(number)
            clauses.append(clause)
        most = max(1, *(len(number) for number in numbers)) if numbers else 1
        there = np.zeros((len(keys), max(len(mine) for mine in keys)), np.bool_)
        for place, mine in enumerate(keys):
            there[place, : len(mine)] = True
        return cls(
            tuple(tuple(mine) for mine in keys),
            Constraints.of(context, flat),
            torch.tensor([row + [-1] * (most - len(row)) for row in numbers], device=context.device),
            torch.tensor([row + [-1] * (most - len(row)) for row in clauses], device=context.device),
            there,
        )


@dataclass
class Bounded:
    """D parts after they were bounded.

    `rows` as in a pool, shrunk to where open clauses may hold; `open` [D, K]; `lower` [D, K] of the margin of each
    clause on the part (∞ of those that are not open); `score` [D, F] of what each input's width costs the worst row;
    `worst` [D, F] the point where that row is least.
    """

    rows: Rows
    open: NDArray[np.bool_]
    lower: Floats
    score: Floats
    worst: Floats


def beside(rows: LinearRows, more: LinearRows) -> LinearRows:
    """Rows of the same boxes, with more of them behind."""
    return LinearRows(
        torch.cat([rows.least, more.least], 1),
        torch.cat([rows.slope, more.slope], 1),
        torch.cat([rows.clause, more.clause], 1),
    )


class PartsInHand:
    """D parts while they are bounded: what is left of their boxes, their open clauses, and their last rows."""

    def __init__(self, boxes: Boxes, place: Tensor, open_: Tensor, constraints: int) -> None:
        self.boxes, self.place, self.open = boxes, place, open_
        count, inputs = boxes.lower.shape
        self.lower = torch.full(open_.shape, -torch.inf, dtype=torch.float64, device=place.device)
        self.score = torch.zeros(count, inputs, dtype=torch.float64, device=place.device)
        self.worst = boxes.lower.clone()
        # How that row mixes the constraints of its part's place, [D, R].
        self.weight = torch.zeros(count, constraints, dtype=torch.float64, device=place.device)

    def cut(self, parts: Tensor, start: Boxes, rows: LinearRows, weight: Tensor) -> None:
        """Take off some parts what rows on `start` cut off, and keep what they say; `weight` [D, rows, R] tells how
        each mixes constraints.

        Raises:
            BoundError: a row's bound is NaN or ∞, which would cut off everything.
        """
        if bool(((rows.clause >= 0) & ~(rows.least < torch.inf)).any()):
            raise BoundError("the margin of a part of the box is not a finite number")
        cut = clipped(start, rows, self.open[parts])
        lower = torch.maximum(self.boxes.lower[parts], cut.boxes.lower)
        upper = torch.minimum(self.boxes.upper[parts], cut.boxes.upper)
        # Both hold what is left; where that is nothing, they need not meet.
        self.open[parts] = cut.open & (lower <= upper).all(1, keepdim=True)
        meet = lower <= upper
        self.boxes.lower[parts] = torch.where(meet, lower, cut.boxes.lower)
        self.boxes.upper[parts] = torch.where(meet, upper, cut.boxes.upper)
        self._note(parts, LinearRows(cut.least, rows.slope, rows.clause), weight)

    def _note(self, parts: Tensor, rows: LinearRows, weight: Tensor) -> None:
        """Keep the bounds of clauses, and the row by which the worst of them is the least bad."""
        open_ = self.open[parts]
        there = rows.clause >= 0
        number = rows.clause.clamp(min=0)
        least = torch.where(there, rows.least, -torch.inf)
        of_clause = torch.full(open_.shape, -torch.inf, dtype=torch.float64, device=least.device)
        of_clause = of_clause.scatter_reduce(1, number, least, "amax")
        # What was cut off has a positive margin.
        self.lower[parts] = torch.maximum(self.lower[parts], of_clause.clamp(max=0.0))
        worst = torch.where(open_, of_clause, torch.inf).argmin(1, keepdim=True)
        row = torch.where(there & (number == worst), least, -torch.inf).argmax(1)
        self.weight[parts] = weight[torch.arange(len(parts), device=row.device), row]
        slope = rows.slope[torch.arange(len(parts), device=row.device), row]
        low, high = self.boxes.lower[parts], self.boxes.upper[parts]
        self.score[parts] = slope.abs() * (high - low)
        self.worst[parts] = torch.where(slope > 0, low, high)

    def result(self, hidden: tuple[Tensor, ...]) -> Bounded:
        lower = torch.where(self.open, self.lower, torch.inf)
        return Bounded(
            {
                "lower": self.boxes.lower.cpu().numpy(),
                "upper": self.boxes.upper.cpu().numpy(),
                "hidden_lower": hidden[0].cpu().numpy(),
                "hidden_upper": hidden[1].cpu().numpy(),
            },
            self.open.cpu().numpy(),
            lower.cpu().numpy(),
            self.score.cpu().numpy(),
            self.worst.cpu().numpy(),
        )
