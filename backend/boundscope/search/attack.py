"""Looking for a violation before proving that there is none, and while it is being proven.

Points are sampled first; the best ones are walked from by gradients (`attack_gradient`), and where these lead nowhere
the search goes on without (`attack_free`). Nothing that is found here counts before it has been replayed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Property
from boundscope.search.attack_free import CHILDREN, MOST_ROUNDS, grid, throw_blocks
from boundscope.search.attack_gradient import NEAREST, Pace, Walked, Walks, descend
from boundscope.search.evaluation import BatchedNetwork, operations
from boundscope.search.objectives import Objectives
from boundscope.search.regions import Region, Regions, Start
from boundscope.search.surrogates import jumps

SAMPLED = 512  # points of a case at most
SAMPLE_OPERATIONS = 4e7  # spent on sampling, about, but for a few points of each case
WALK_OPERATIONS = 1e9  # spent on each of the two quick walks, about
BLOCK_OPERATIONS = 4e9  # spent on throwing blocks, about, but for a few rounds of each case
LEAST_ROUNDS = 5
BACKWARD_COST = 3  # of a step with its gradient, in evaluations
KEPT = 8  # best samples of a case, from which walks start
TABLE_ELEMENTS = 1 << 24
NOTED = 4  # violations noted at a step
JUDGED = 8  # candidates handed over after some walks
MOST_JUDGED = 24  # in all: a replay costs more than a walk
QUICK = Pace(steps=12, first=0.5, decay=0.75)
TARGETED = Pace(steps=20, first=0.25, decay=0.85)
THOROUGH = (Pace(20, 0.5, 0.85), Pace(40, 0.25, 0.93), Pace(60, 0.1, 0.95), Pace(80, 0.5, 0.94))
JUDGING = Pace(steps=5, first=0.5, decay=0.6)
REFINING = Pace(steps=10, first=0.05, decay=0.7)
THOROUGH_STARTS = 8
QUICK_TARGETS = 3
QUICK_STARTS = 4


class Effort(enum.Enum):
    """QUICK: a fraction of a second for a network of everyday size, whatever the number of cases. NORMAL: that, then
    some walks to every open clause. THOROUGH: such walks again and again, with other starts, steps and precisions."""

    QUICK = enum.auto()
    NORMAL = enum.auto()
    THOROUGH = enum.auto()


# Shares of the walks that go on, and the pace before.
HALVING = ((1 / 8, Pace(20, 0.05, 0.95)), (1 / 8, Pace(20, 0.03, 0.9)), (0.0, Pace(40, 0.01, 0.9)))
HALVING_MOST = 4096
HALVING_OPERATIONS = 4e9
ROUNDS = {Effort.QUICK: 0, Effort.NORMAL: 2, Effort.THOROUGH: 12}


@dataclass(frozen=True)
class Candidate:
    """A point at which the attack saw a clause hold: input [inputs] float64, inside the case's box (and its ball)."""

    case: int
    clause: int
    point: NDArray[np.float64]
    margin: float


@dataclass(frozen=True)
class Judged:
    """The margins of every clause at the points given, [N, clauses] float64 (∞ beyond the clauses of its case, and
    where the network has no finite value), and those points that violate, best first."""

    margins: NDArray[np.float64]
    candidates: tuple[Candidate, ...]


Accept = Callable[[Candidate], bool]
# Outputs [B, outputs] float64 of points [B, inputs] at which our own evaluation has none; NaN where it has none either.
Fallback = Callable[[NDArray[np.float64]], NDArray[np.float64]]


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
        self._network = network
        self._property = prop
        self._seed = seed
        self._fallback = fallback
        self._sides = {
            dtype: _Side(network, prop, dtype) for dtype in dict.fromkeys((own, torch.float64, judging))
        }
        self._judge_side = self._sides[judging]
        self._own_side = self._sides[own]
        self._jumps = jumps(network)
        self._led = True  # whether gradients lead anywhere
        columns = self._own_side.objectives.columns
        self._margins = torch.full((len(prop.cases), columns), torch.inf, dtype=torch.float64)

    @property
    def margins(self) -> NDArray[np.float64]:
        """Least margin seen of every clause, [cases, clauses]; ∞ where none was tried or a case has fewer clauses."""
        return self._margins.numpy()

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
        search = _Search(self, monitor, seconds, accept, self._open(open_clauses))
        if effort is not Effort.THOROUGH and (accepted := search.quick()) is not None:
            return accepted
        return search.rounds(ROUNDS[effort])

    def judge(self, points: NDArray[np.float64], cases: NDArray[np.int64]) -> Judged:
        """Evaluate points of these cases, moved into their boxes: [N, inputs] float64 and [N]."""
        side = self._judge_side
        where = torch.from_numpy(cases)
        inside = self._moved_inside(side, torch.from_numpy(points).to(side.dtype), where)
        table = side.table(inside, where)
        self._keep(where, table)
        return Judged(table.to(torch.float64).numpy(), self._violations(side, inside, where, table))

    def refine(
        self, points: NDArray[np.float64], cases: NDArray[np.int64], monitor: Monitor, pace: Pace = REFINING
    ) -> Judged:
        """Walk a few steps from each point towards the clause that is nearest, and judge the best points reached."""
        side = self._own_side
        where = torch.from_numpy(cases)
        search = _Search(self, monitor, float("inf"), lambda _: False, self._open(None))
        reached = points.copy()
        for rows in side.groups(where):
            start = self._moved_inside(
                side, torch.from_numpy(points[rows.numpy()]).to(side.dtype), where[rows]
            )
            walked = search.walk(side, _walks(start, where[rows]), pace)
            reached[rows.numpy()] = walked.points.to(torch.float64).numpy()
        return self.judge(reached, cases)

    def _keep(self, cases: Tensor, table: Tensor) -> None:
        """The least margins seen, with those of points of these cases."""
        index = cases[:, None].expand(table.shape)
        self._margins.scatter_reduce_(0, index, table.to(torch.float64), "amin")

    def _open(self, chosen: Collection[tuple[int, int]] | None) -> Tensor:
        table = torch.zeros(self._margins.shape, dtype=torch.bool)
        for number, case in enumerate(self._property.cases):
            table[number, : len(case.clauses)] = chosen is None
        for number, clause in chosen or ():
            table[number, clause] = True
        return table

    def _moved_inside(self, side: _Side, points: Tensor, cases: Tensor) -> Tensor:
        moved = torch.empty_like(points)
        for rows in side.groups(cases, limited=False):
            moved[rows] = side.regions.rows(cases[rows]).within(points[rows])
        return moved

    def _violations(self, side: _Side, points: Tensor, cases: Tensor, table: Tensor) -> tuple[Candidate, ...]:
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


class _Side:
    """What an attack holds in one dtype."""

    def __init__(self, network: Network, prop: Property, dtype: torch.dtype) -> None:
        self._source = network
        self._property = prop
        self.dtype = dtype

    @cached_property
    def network(self) -> BatchedNetwork:
        return BatchedNetwork(self._source, self.dtype, surrogate=True)

    @cached_property
    def objectives(self) -> Objectives:
        return Objectives(
            self._property.cases, self._source.input_count, self._source.output_count, self.dtype
        )

    @cached_property
    def regions(self) -> Regions:
        return Regions([case.box for case in self._property.cases], self.dtype)

    @cached_property
    def most_points(self) -> int:
        """Evaluated together."""
        return max(1, min(self.network.most_points, TABLE_ELEMENTS // self.objectives.elements))

    def table(self, points: Tensor, cases: Tensor) -> Tensor:
        """Margins [B, clauses] without gradients."""
        parts = []
        with torch.no_grad():
            most = self.most_points
            for part, own in zip(torch.split(points, most), torch.split(cases, most), strict=True):
                parts.append(self.objectives.margins(part, self.network.outputs(part), own))
        return torch.cat(parts)

    def groups(self, cases: Tensor, *, limited: bool = True) -> Iterator[Tensor]:
        """Rows that may walk together: not too many, and those in a ball apart from other cases."""
        most = self.most_points if limited else max(1, len(cases))
        own = sorted(set(cases.tolist()))
        if not any(self.regions.is_ball(case) for case in own):
            yield from torch.split(torch.arange(len(cases)), most)
            return
        for case in own:
            yield from torch.split((cases == case).nonzero()[:, 0], most)

    def holds(self, margins: Tensor) -> Tensor:
        return margins < 0 if self.objectives.strict else margins <= 0


def _walks(points: Tensor, cases: Tensor, clauses: Tensor | None = None) -> Walks:
    """Walks of which every other one goes along the gradient, and three of four sum what fails."""
    row = torch.arange(len(points))
    return Walks(
        points=points,
        case=cases,
        clause=torch.full_like(cases, NEAREST) if clauses is None else clauses,
        plain=row % 2 == 1,
        summed=row % 4 != 3,
    )


class _Search:
    """One run: what is open, what was found, and how much time is left."""

    def __init__(
        self, attack: Attack, monitor: Monitor, seconds: float, accept: Accept, open_clauses: Tensor
    ) -> None:
        self._attack = attack
        self._monitor = monitor
        self._end = monitor.elapsed_s + seconds
        self._accept = accept
        self._open = open_clauses
        self._cases = open_clauses.any(1).nonzero()[:, 0]
        self._generator = torch.Generator().manual_seed(attack._seed)
        self._found: list[Candidate] = []
        self._refused: set[bytes] = set()
        own = attack._own_side
        wide = attack._sides[torch.float64]
        self._main = wide if own.regions.coarse else own
        self._operations = operations(attack._network)

    def go_on(self) -> bool:
        self._monitor.check()
        return self._monitor.elapsed_s < self._end

    # ------------------------------------------------------------ plans

    def quick(self) -> Candidate | None:
        if not len(self._cases):
            return None
        side = self._main
        points, cases = self._sample(side)
        if (accepted := self._judged()) is not None:
            return accepted
        most = int(WALK_OPERATIONS / (BACKWARD_COST * QUICK.steps * self._operations))
        rows = self._first_rows(side, points, cases, max(QUICK_STARTS, most))
        led = self._walk_all(side, _walks(points[rows], cases[rows]), QUICK)
        if (accepted := self._judged()) is not None:
            return accepted
        self._attack._led = led or not self._attack._jumps
        led = self._attack._led
        if not led and (accepted := self._without_gradients(side)) is not None:
            return accepted
        if (accepted := self._targeted(side, QUICK_TARGETS, QUICK_STARTS, TARGETED)) is not None:
            return accepted
        return self._as_judged(points[rows[:QUICK_STARTS]], cases[rows[:QUICK_STARTS]])

    def _as_judged(self, points: Tensor, cases: Tensor) -> Candidate | None:
        """A few short walks in the judging dtype, for networks in which the main one loses what matters."""
        side = self._attack._judge_side
        if side is self._main or not self.go_on():
            return None
        self._walk_all(side, _walks(points.to(side.dtype), cases), JUDGING)
        return self._judged()

    def rounds(self, count: int) -> Candidate | None:
        """From many points of all cases, then to every open clause, short walks before long ones, so that none of them
        waits for the time of the others; and so on."""
        if not len(self._cases):
            return None
        sides = list(dict.fromkeys((self._main, self._attack._judge_side)))
        for number in range(count):
            side = sides[number // 2 % len(sides)]
            self._generator.manual_seed(self._attack._seed + 1 + number)
            accepted = None
            if not self._attack._led:
                accepted = self._without_gradients(side, Start.UNIFORM)
            if accepted is not None:
                return accepted
            if number % 2 == 0:
                accepted = self._halved(side)
            else:
                accepted = self._targeted(side, None, THOROUGH_STARTS, THOROUGH[number // 2 % len(THOROUGH)])
            if accepted is not None or not self.go_on():
                return accepted
        return None

    def _halved(self, side: _Side) -> Candidate | None:
        """Short walks from as many points as can be afforded; longer ones from the best of them."""
        most = int(HALVING_OPERATIONS / (BACKWARD_COST * HALVING[0][1].steps * self._operations))
        most = min(most, HALVING_MOST)
        cases = self._cases
        if most < len(cases):
            margins = torch.where(self._open, self._attack._margins, torch.inf).amin(1)
            cases = cases[margins[cases].argsort()[: max(1, most)]]
        cases = cases.repeat_interleave(max(1, most // len(cases)))
        points: Tensor | None = None
        for share, pace in HALVING:
            points, margins = self._walked(side, points, cases, pace)
            if (accepted := self._judged()) is not None or not self.go_on():
                return accepted
            best = margins.topk(max(1, int(len(margins) * share)), largest=False).indices
            points, cases = points[best], cases[best]
        return None

    def _walked(self, side: _Side, points: Tensor | None, cases: Tensor, pace: Pace) -> tuple[Tensor, Tensor]:
        """Where walks to the nearest clauses got to, and their margins; from anywhere where no points are given."""
        reached, margins = [], []
        for rows in side.groups(cases):
            region = side.regions.rows(cases[rows])
            if points is None:
                start = region.starts(torch.full((len(rows),), Start.UNIFORM), self._generator)
            else:
                start = points[rows]
            walked = self._walk_in(region, side, _walks(start, cases[rows]), pace)
            reached.append(walked.points)
            margins.append(walked.margins)
            if self._found:
                break
        return torch.cat(reached), torch.cat(margins)

    def _targeted(self, side: _Side, targets: int | None, starts: int, pace: Pace) -> Candidate | None:
        """Walks to single clauses, the nearest ones first."""
        margins = torch.where(self._open, self._attack._margins, torch.inf)
        order = margins.flatten().argsort()[: int(self._open.sum())][:targets]
        cases = (order // margins.shape[1]).repeat_interleave(starts)
        clauses = (order % margins.shape[1]).repeat_interleave(starts)
        kinds = torch.tensor([Start.CENTRE, Start.UNIFORM, Start.CORNER, Start.UNIFORM]).repeat(
            len(cases) // 4 + 1
        )
        for rows in side.groups(cases):
            if not self.go_on():
                break
            region = side.regions.rows(cases[rows])
            points = region.starts(kinds[: len(rows)], self._generator)
            self._walk_in(region, side, _walks(points, cases[rows], clauses[rows]), pace)
            if (accepted := self._judged()) is not None:
                return accepted
        return None

    # ------------------------------------------------------------ steps

    def _sample(self, side: _Side) -> tuple[Tensor, Tensor]:
        """The best samples of every open case, [cases · kept, inputs], and the case of each."""
        affordable = int(SAMPLE_OPERATIONS / (self._operations * len(self._cases)))
        each = min(SAMPLED, max(4, affordable))
        kept = min(KEPT, each)
        kinds = torch.tensor([Start.CENTRE, Start.UNIFORM, Start.CORNER, Start.UNIFORM])
        chosen: list[Tensor] = []
        places: list[Tensor] = []
        together = max(1, side.most_points // each)
        for cases in torch.split(self._cases, together):
            for rows in side.groups(cases.repeat_interleave(each), limited=False):
                if chosen and not self.go_on():
                    return torch.cat(chosen), torch.cat(places)
                own = cases.repeat_interleave(each)[rows]
                region = side.regions.rows(own)
                pattern = torch.cat([kinds, kinds[1:].repeat(each)])[:each]
                points = region.starts(pattern.repeat(len(own) // each), self._generator)
                table = side.table(points, own)
                self._note(own, table, points)
                nearest = torch.where(self._open[own], table, torch.inf).amin(1).reshape(-1, each)
                best = nearest.topk(kept, largest=False).indices + torch.arange(len(nearest))[:, None] * each
                chosen.append(points[best.flatten()])
                places.append(own[best.flatten()])
        return torch.cat(chosen), torch.cat(places)

    def _first_rows(self, side: _Side, points: Tensor, cases: Tensor, most: int) -> Tensor:
        """The samples to walk from: those of the nearest cases, as many of each as there is room for."""
        kept = len(points) // len(set(cases.tolist()))
        each = max(1, min(kept, QUICK_STARTS, most * kept // len(points)))
        margins = torch.where(self._open, self._attack._margins, torch.inf).amin(1)
        blocks = margins[cases[::kept]].argsort()[: max(1, most // each)]
        return (blocks[:, None] * kept + torch.arange(each)).flatten()

    def _walk_all(self, side: _Side, walks: Walks, pace: Pace) -> bool:
        """Whether gradients led anywhere."""
        led = False
        for rows in side.groups(walks.case):
            if not self.go_on():
                break
            part = Walks(
                walks.points[rows],
                walks.case[rows],
                walks.clause[rows],
                walks.plain[rows],
                walks.summed[rows],
            )
            led |= self.walk(side, part, pace).led
            if self._found:
                return True
        return led

    def walk(self, side: _Side, walks: Walks, pace: Pace) -> Walked:
        return self._walk_in(side.regions.rows(walks.case), side, walks, pace)

    def _walk_in(self, region: Region, side: _Side, walks: Walks, pace: Pace) -> Walked:
        free = side.regions.free[sorted(set(walks.case.tolist()))].any(0)
        return descend(
            side.network, side.objectives, region, walks, pace, self._open, free, self._note, self.go_on
        )

    def _note(self, cases: Tensor, table: Tensor, points: Tensor) -> bool:
        """Keep least margins, and what violates and was not refused before."""
        attack = self._attack
        attack._keep(cases, table)
        values, slots = torch.where(self._open[cases], table, torch.inf).min(1)
        rows = attack._own_side.holds(values).nonzero()[:, 0]
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

    def _judged(self) -> Candidate | None:
        """Hand over what was found, what violates in the judging dtype first."""
        if not self._found:
            return None
        found, self._found = self._found, []
        side = self._attack._judge_side
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

    def _without_gradients(self, side: _Side, start_kind: Start = Start.CENTRE) -> Candidate | None:
        """Cell by cell or block by block, case after case."""
        affordable = int(BLOCK_OPERATIONS / (CHILDREN * self._operations * len(self._cases)))
        rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, affordable))
        for case in self._cases.tolist():
            lower, upper = side.regions.lower[case], side.regions.upper[case]
            free = side.regions.free[case].nonzero()[:, 0]
            if (accepted := self._cells(side, case, lower, upper, free)) is not None:
                return accepted
            where = torch.tensor([case])
            region = side.regions.rows(where)
            start = region.starts(torch.tensor([start_kind]), self._generator)[0]

            def rate(points: Tensor, case: int = case) -> Tensor:
                return self._rate(side, case, points)

            throw_blocks(start, lower, upper, free, region, rate, rounds, self.go_on, self._generator)
            if (accepted := self._judged()) is not None or not self.go_on():
                return accepted
        return None

    def _rate(self, side: _Side, case: int, points: Tensor) -> Tensor:
        cases = torch.full((len(points),), case)
        table = side.table(points, cases)
        self._note(cases, table, points)
        return torch.where(self._open[cases], table, torch.inf).amin(1)

    def _cells(self, side: _Side, case: int, lower: Tensor, upper: Tensor, free: Tensor) -> Candidate | None:
        blocks = grid(lower, upper, free, side.most_points)
        unknown: list[Tensor] = []
        for points in blocks or ():
            if not self.go_on():
                return None
            values = self._rate(side, case, points)
            unknown.append(points[torch.isinf(values)])
            if (accepted := self._judged()) is not None:
                return accepted
        return self._by_fallback(side, case, torch.cat(unknown)) if unknown else None

    def _by_fallback(self, side: _Side, case: int, points: Tensor) -> Candidate | None:
        fallback = self._attack._fallback
        if fallback is None:
            return None
        for point in points:
            if not self.go_on():
                return None
            outputs = torch.from_numpy(fallback(point[None].to(torch.float64).numpy())).to(side.dtype)
            cases = torch.tensor([case])
            self._note(cases, side.objectives.margins(point[None], outputs, cases), point[None])
            if (accepted := self._judged()) is not None:
                return accepted
        return None
