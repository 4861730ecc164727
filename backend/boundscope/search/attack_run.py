"""One attack from its start to its end: samples, walks by gradients from the best of them, walks to single clauses, and
blocks thrown where gradients lead nowhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.monitor import Monitor
from boundscope.search.attack_found import Accept, Candidate, Findings, Seen
from boundscope.search.attack_free import CHILDREN, MOST_ROUNDS, grid, throw_blocks
from boundscope.search.attack_gradient import NEAREST, Pace, Walked, Walks, descend
from boundscope.search.attack_side import Side, Sides
from boundscope.search.regions import Region, Start

SAMPLED = 512  # points of a case at most
SAMPLE_OPERATIONS = 4e7  # spent on sampling, about, but for a few points of each case
WALK_OPERATIONS = 1e9  # spent on each of the two quick walks, about
BLOCK_OPERATIONS = 4e9  # spent on throwing blocks, about, but for a few rounds of each case
LEAST_ROUNDS = 5
BACKWARD_COST = 3  # of a step with its gradient, in evaluations
KEPT = 8  # best samples of a case, from which walks start
QUICK = Pace(steps=12, first=0.5, decay=0.75)
TARGETED = Pace(steps=20, first=0.25, decay=0.85)
THOROUGH = (Pace(20, 0.5, 0.85), Pace(40, 0.25, 0.93), Pace(60, 0.1, 0.95), Pace(80, 0.5, 0.94))
JUDGING = Pace(steps=5, first=0.5, decay=0.6)
THOROUGH_STARTS = 8
QUICK_TARGETS = 3
QUICK_STARTS = 4
# Shares of the walks that go on, and the pace before.
HALVING = ((1 / 8, Pace(20, 0.05, 0.95)), (1 / 8, Pace(20, 0.03, 0.9)), (0.0, Pace(40, 0.01, 0.9)))
HALVING_MOST = 4096
HALVING_OPERATIONS = 4e9

# Outputs [B, outputs] float64 of points [B, inputs] at which our own evaluation has none; NaN where it has none either.
Fallback = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def walks_from(points: Tensor, cases: Tensor, clauses: Tensor | None = None) -> Walks:
    """Walks of which every other one goes along the gradient, and three of four sum what fails."""
    row = torch.arange(len(points))
    return Walks(
        points=points,
        case=cases,
        clause=torch.full_like(cases, NEAREST) if clauses is None else clauses,
        plain=row % 2 == 1,
        summed=row % 4 != 3,
    )


class AttackRun:
    """One run: what is open, what was found, and how much time is left."""

    def __init__(
        self,
        sides: Sides,
        seen: Seen,
        monitor: Monitor,
        seconds: float,
        accept: Accept,
        open_clauses: Tensor,
        seed: int,
        fallback: Fallback | None,
    ) -> None:
        """`open_clauses` [cases, clauses] booleans are attacked; the rest as `Attack` has it."""
        self._sides, self._seen, self._monitor = sides, seen, monitor
        self._end = monitor.elapsed_s + seconds
        self._open, self._seed, self._fallback = open_clauses, seed, fallback
        self._cases = open_clauses.any(1).nonzero()[:, 0]
        self._generator = torch.Generator().manual_seed(seed)
        self._findings = Findings(sides, seen, open_clauses, accept)

    def go_on(self) -> bool:
        self._monitor.check()
        return self._monitor.elapsed_s < self._end

    # ------------------------------------------------------------ plans

    def quick(self) -> Candidate | None:
        if not len(self._cases):
            return None
        side = self._sides.main
        points, cases = self._sample(side)
        if (accepted := self._findings.judged()) is not None:
            return accepted
        most = int(WALK_OPERATIONS / (BACKWARD_COST * QUICK.steps * self._sides.operations))
        rows = self._first_rows(side, points, cases, max(QUICK_STARTS, most))
        led = self._walk_all(side, walks_from(points[rows], cases[rows]), QUICK)
        if (accepted := self._findings.judged()) is not None:
            return accepted
        self._seen.led = led or not self._sides.jumps
        if not self._seen.led and (accepted := self._without_gradients(side)) is not None:
            return accepted
        if (accepted := self._targeted(side, QUICK_TARGETS, QUICK_STARTS, TARGETED)) is not None:
            return accepted
        return self._as_judged(points[rows[:QUICK_STARTS]], cases[rows[:QUICK_STARTS]])

    def _as_judged(self, points: Tensor, cases: Tensor) -> Candidate | None:
        """A few short walks in the judging dtype, for networks in which the main one loses what matters."""
        side = self._sides.judging
        if side is self._sides.main or not self.go_on():
            return None
        self._walk_all(side, walks_from(points.to(side.dtype), cases), JUDGING)
        return self._findings.judged()

    def rounds(self, count: int) -> Candidate | None:
        """From many points of all cases, then to every open clause, short walks before long ones, so that none of them
        waits for the time of the others; and so on."""
        if not len(self._cases):
            return None
        sides = list(dict.fromkeys((self._sides.main, self._sides.judging)))
        for number in range(count):
            side = sides[number // 2 % len(sides)]
            self._generator.manual_seed(self._seed + 1 + number)
            accepted = None
            if not self._seen.led:
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

    def _halved(self, side: Side) -> Candidate | None:
        """Short walks from as many points as can be afforded; longer ones from the best of them."""
        most = int(HALVING_OPERATIONS / (BACKWARD_COST * HALVING[0][1].steps * self._sides.operations))
        most = min(most, HALVING_MOST)
        cases = self._cases
        if most < len(cases):
            margins = torch.where(self._open, self._seen.margins, torch.inf).amin(1)
            cases = cases[margins[cases].argsort()[: max(1, most)]]
        cases = cases.repeat_interleave(max(1, most // len(cases)))
        points: Tensor | None = None
        for share, pace in HALVING:
            points, margins = self._walked(side, points, cases, pace)
            if (accepted := self._findings.judged()) is not None or not self.go_on():
                return accepted
            best = margins.topk(max(1, int(len(margins) * share)), largest=False).indices
            points, cases = points[best], cases[best]
        return None

    def _walked(self, side: Side, points: Tensor | None, cases: Tensor, pace: Pace) -> tuple[Tensor, Tensor]:
        """Where walks to the nearest clauses got to, and their margins; from anywhere where no points are given."""
        reached, margins = [], []
        for rows in side.groups(cases):
            region = side.regions.rows(cases[rows])
            if points is None:
                start = region.starts(torch.full((len(rows),), Start.UNIFORM), self._generator)
            else:
                start = points[rows]
            walked = self._walk_in(region, side, walks_from(start, cases[rows]), pace)
            reached.append(walked.points)
            margins.append(walked.margins)
            if len(self._findings):
                break
        return torch.cat(reached), torch.cat(margins)

    def _targeted(self, side: Side, targets: int | None, starts: int, pace: Pace) -> Candidate | None:
        """Walks to single clauses, the nearest ones first."""
        margins = torch.where(self._open, self._seen.margins, torch.inf)
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
            self._walk_in(region, side, walks_from(points, cases[rows], clauses[rows]), pace)
            if (accepted := self._findings.judged()) is not None:
                return accepted
        return None

    # ------------------------------------------------------------ steps

    def _sample(self, side: Side) -> tuple[Tensor, Tensor]:
        """The best samples of every open case, [cases · kept, inputs], and the case of each."""
        affordable = int(SAMPLE_OPERATIONS / (self._sides.operations * len(self._cases)))
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
                self._findings.note(own, table, points)
                nearest = torch.where(self._open[own], table, torch.inf).amin(1).reshape(-1, each)
                best = nearest.topk(kept, largest=False).indices + torch.arange(len(nearest))[:, None] * each
                chosen.append(points[best.flatten()])
                places.append(own[best.flatten()])
        return torch.cat(chosen), torch.cat(places)

    def _first_rows(self, side: Side, points: Tensor, cases: Tensor, most: int) -> Tensor:
        """The samples to walk from: those of the nearest cases, as many of each as there is room for."""
        kept = len(points) // len(set(cases.tolist()))
        each = max(1, min(kept, QUICK_STARTS, most * kept // len(points)))
        margins = torch.where(self._open, self._seen.margins, torch.inf).amin(1)
        blocks = margins[cases[::kept]].argsort()[: max(1, most // each)]
        return (blocks[:, None] * kept + torch.arange(each)).flatten()

    def _walk_all(self, side: Side, walks: Walks, pace: Pace) -> bool:
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
            if len(self._findings):
                return True
        return led

    def walk(self, side: Side, walks: Walks, pace: Pace) -> Walked:
        return self._walk_in(side.regions.rows(walks.case), side, walks, pace)

    def _walk_in(self, region: Region, side: Side, walks: Walks, pace: Pace) -> Walked:
        free = side.regions.free[sorted(set(walks.case.tolist()))].any(0)
        return descend(
            side.network,
            side.objectives,
            region,
            walks,
            pace,
            self._open,
            free,
            self._findings.note,
            self.go_on,
        )

    def _without_gradients(self, side: Side, start_kind: Start = Start.CENTRE) -> Candidate | None:
        """Cell by cell or block by block, case after case."""
        affordable = int(BLOCK_OPERATIONS / (CHILDREN * self._sides.operations * len(self._cases)))
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
            if (accepted := self._findings.judged()) is not None or not self.go_on():
                return accepted
        return None

    def _rate(self, side: Side, case: int, points: Tensor) -> Tensor:
        cases = torch.full((len(points),), case)
        table = side.table(points, cases)
        self._findings.note(cases, table, points)
        return torch.where(self._open[cases], table, torch.inf).amin(1)

    def _cells(self, side: Side, case: int, lower: Tensor, upper: Tensor, free: Tensor) -> Candidate | None:
        blocks = grid(lower, upper, free, side.most_points)
        unknown: list[Tensor] = []
        for points in blocks or ():
            if not self.go_on():
                return None
            values = self._rate(side, case, points)
            unknown.append(points[torch.isinf(values)])
            if (accepted := self._findings.judged()) is not None:
                return accepted
        return self._by_fallback(side, case, torch.cat(unknown)) if unknown else None

    def _by_fallback(self, side: Side, case: int, points: Tensor) -> Candidate | None:
        fallback = self._fallback
        if fallback is None:
            return None
        for point in points:
            if not self.go_on():
                return None
            outputs = torch.from_numpy(fallback(point[None].to(torch.float64).numpy())).to(side.dtype)
            cases = torch.tensor([case])
            self._findings.note(cases, side.objectives.margins(point[None], outputs, cases), point[None])
            if (accepted := self._findings.judged()) is not None:
                return accepted
        return None
