"""Looking for a violation before proving that there is none, and while it is being proven.

Points are sampled first; the best ones are walked from by gradients (`attack_gradient`), and where these lead nowhere
the search goes on without (`attack_free`). Nothing that is found here counts before it has been replayed.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Property
from boundscope.search.attack_found import Accept, Candidate, Seen
from boundscope.search.attack_gradient import Pace
from boundscope.search.attack_run import AttackRun, Fallback, walks_from
from boundscope.search.attack_side import Side, Sides

REFINING = Pace(steps=10, first=0.05, decay=0.7)


class Effort(enum.Enum):
    """QUICK: a fraction of a second for a network of everyday size, whatever the number of cases. NORMAL: that, then
    some walks to every open clause. THOROUGH: such walks again and again, with other starts, steps and precisions."""

    QUICK = enum.auto()
    NORMAL = enum.auto()
    THOROUGH = enum.auto()


ROUNDS = {Effort.QUICK: 0, Effort.NORMAL: 2, Effort.THOROUGH: 12}


@dataclass(frozen=True)
class Judged:
    """The margins of every clause at the points given, [N, clauses] float64 (∞ beyond the clauses of its case, and
    where the network has no finite value), and those points that violate, best first."""

    margins: NDArray[np.float64]
    candidates: tuple[Candidate, ...]


class Attack:
    """Attacks a property on one network. Keeps copies of the network's constants: let go of it when they must go.

    Args:
        judging: the dtype in which violations count first: float64 stands for the reals.
        own: the network's own dtype, in which most walks are done.
        fallback: evaluates where the network, as it was read, has no value.
    """

    def __init__(
        self,
        network: Network,
        prop: Property,
        *,
        judging: torch.dtype = torch.float64,
        own: torch.dtype = torch.float32,
        seed: int = 0,
        fallback: Fallback | None = None,
    ) -> None:
        self._property = prop
        self._seed = seed
        self._fallback = fallback
        self._sides = Sides(network, prop, own, judging)
        self._seen = Seen(len(prop.cases), self._sides.own.objectives.columns)

    @property
    def margins(self) -> NDArray[np.float64]:
        """Least margin seen of every clause, [cases, clauses]; ∞ where none was tried or a case has fewer clauses."""
        return self._seen.margins.numpy()

    # ------------------------------------------------------------ the attack

    def run(
        self,
        monitor: Monitor,
        seconds: float,
        accept: Accept,
        *,
        effort: Effort = Effort.QUICK,
        open_clauses: Collection[tuple[int, int]] | None = None,
    ) -> Candidate | None:
        """Attack the open clauses (case, clause) of all cases together, for at most `seconds`.

        The same seed, effort and open clauses walk the same ways, unless time ends them.

        Args:
            accept: judges a candidate for good, such as by a replay; the attack goes on where it says no.

        Returns:
            The candidate that was accepted; None where none was.

        Raises:
            CancelledError, DeadlineError: from the monitor, between steps.
        """
        search = self._begun(monitor, seconds, accept, open_clauses)
        if effort is not Effort.THOROUGH and (accepted := search.quick()) is not None:
            return accepted
        return search.rounds(ROUNDS[effort])

    def judge(self, points: NDArray[np.float64], cases: NDArray[np.int64]) -> Judged:
        """Evaluate points of these cases, moved into their boxes: [N, inputs] float64 and [N]."""
        side = self._sides.judging
        where = torch.from_numpy(cases)
        inside = self._moved_inside(side, torch.from_numpy(points).to(side.dtype), where)
        table = side.table(inside, where)
        self._seen.keep(where, table)
        return Judged(table.to(torch.float64).numpy(), self._violations(side, inside, where, table))

    def refine(
        self, points: NDArray[np.float64], cases: NDArray[np.int64], monitor: Monitor, pace: Pace = REFINING
    ) -> Judged:
        """Walk a few steps from each point towards the clause that is nearest, and judge the best points reached."""
        side = self._sides.own
        where = torch.from_numpy(cases)
        search = self._begun(monitor, float("inf"), lambda _: False, None)
        reached = points.copy()
        for rows in side.groups(where):
            start = self._moved_inside(
                side, torch.from_numpy(points[rows.numpy()]).to(side.dtype), where[rows]
            )
            walked = search.walk(side, walks_from(start, where[rows]), pace)
            reached[rows.numpy()] = walked.points.to(torch.float64).numpy()
        return self.judge(reached, cases)

    def _begun(
        self,
        monitor: Monitor,
        seconds: float,
        accept: Accept,
        open_clauses: Collection[tuple[int, int]] | None,
    ) -> AttackRun:
        chosen = self._open(open_clauses)
        return AttackRun(
            self._sides, self._seen, monitor, seconds, accept, chosen, self._seed, self._fallback
        )

    def _open(self, chosen: Collection[tuple[int, int]] | None) -> Tensor:
        table = torch.zeros(self._seen.margins.shape, dtype=torch.bool)
        for number, case in enumerate(self._property.cases):
            table[number, : len(case.clauses)] = chosen is None
        for number, clause in chosen or ():
            table[number, clause] = True
        return table

    def _moved_inside(self, side: Side, points: Tensor, cases: Tensor) -> Tensor:
        moved = torch.empty_like(points)
        for rows in side.groups(cases, limited=False):
            moved[rows] = side.regions.rows(cases[rows]).within(points[rows])
        return moved

    def _violations(self, side: Side, points: Tensor, cases: Tensor, table: Tensor) -> tuple[Candidate, ...]:
        values, slots = table.min(1)
        rows = side.holds(values).nonzero()[:, 0]
        order = rows[values[rows].argsort()]
        return tuple(
            Candidate(
                int(cases[row]),
                int(slots[row]),
                points[row].to(torch.float64).numpy().copy(),
                float(values[row]),
            )
            for row in order.tolist()
        )
