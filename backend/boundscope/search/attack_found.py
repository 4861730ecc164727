"""What an attack has seen and found: least margins, and points that violate, which are judged for good elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.search.attack_side import Sides

NOTED = 4  # violations noted at a step
JUDGED = 8  # candidates handed over after some walks
MOST_JUDGED = 24  # in all: a replay costs more than a walk


@dataclass(frozen=True)
class Candidate:
    """A point at which the attack saw a clause hold: input [inputs] float64, inside the case's box (and its ball)."""

    case: int
    clause: int
    point: NDArray[np.float64]
    margin: float


Accept = Callable[[Candidate], bool]


class Seen:
    """What all attacks on a property have seen.

    Attributes:
        margins: [cases, clauses] float64 the least of each; ∞ where none was tried or a case has fewer clauses.
        led: whether gradients lead anywhere.
    """

    def __init__(self, cases: int, clauses: int) -> None:
        self.margins = torch.full((cases, clauses), torch.inf, dtype=torch.float64)
        self.led = True

    def keep(self, cases: Tensor, table: Tensor) -> None:
        """The margins [B, clauses] of points of these cases [B]."""
        index = cases[:, None].expand(table.shape)
        self.margins.scatter_reduce_(0, index, table.to(torch.float64), "amin")


class Findings:
    """What one attack has found and not been refused."""

    def __init__(self, sides: Sides, seen: Seen, open_clauses: Tensor, accept: Accept) -> None:
        """`open_clauses` [cases, clauses]: those that count."""
        self._sides, self._seen, self._open, self._accept = sides, seen, open_clauses, accept
        self._found: list[Candidate] = []
        self._refused: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._found)

    def note(self, cases: Tensor, table: Tensor, points: Tensor) -> bool:
        """Keep least margins, and what violates and was not refused before."""
        self._seen.keep(cases, table)
        values, slots = torch.where(self._open[cases], table, torch.inf).min(1)
        rows = self._sides.own.holds(values).nonzero()[:, 0]
        if not len(rows):
            return False
        noted = False
        for row in rows[values[rows].argsort()][:NOTED].tolist():
            case, clause, value = int(cases[row]), int(slots[row]), float(values[row])
            point = points[row].to(torch.float64).numpy().copy()
            if len(self._refused) < MOST_JUDGED and point.tobytes() not in self._refused:
                self._found.append(Candidate(case, clause, point, value))
                noted = True
        return noted

    def judged(self) -> Candidate | None:
        """Hand over what was found, what violates in the judging dtype first."""
        if not self._found:
            return None
        found, self._found = self._found, []
        side = self._sides.judging
        found = sorted(found, key=lambda one: one.margin)[: 4 * JUDGED]
        points = torch.from_numpy(np.stack([one.point for one in found])).to(side.dtype)
        table = side.table(points, torch.tensor([one.case for one in found]))
        judged = []
        for one, margins in zip(found, table.to(torch.float64), strict=True):
            value = float(margins[one.clause])
            judged.append(Candidate(one.case, one.clause, one.point, value if value < np.inf else one.margin))
        judged.sort(key=lambda one: one.margin)
        for one in judged[:JUDGED]:
            if one.point.tobytes() in self._refused:
                continue
            if self._accept(one):
                return one
            self._refused.add(one.point.tobytes())
        return None
