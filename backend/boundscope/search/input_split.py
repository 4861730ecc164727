"""Branch and bound by splitting the input box (for few free inputs): thousands of parts at a time, worst first.

A part is settled once each clause has a constraint, or a mixture of its constraints, whose margin is proven positive
all over it, or is cut away where that is so; what is left is halved where that moves the worst margin most. Hidden
bounds of a part hold for its halves.

With several ranks all keep the ends of all parts and take the same decisions; each bounds some slices of a batch, and
what is known of hidden elements lies on one rank. Slices are the same whatever the number of ranks, and so are the
bounds, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.errors import BoundError
from boundscope.protocol import Counterexample, Method
from boundscope.search.checkpoint import SearchState
from boundscope.search.input_bounds import PartBounder
from boundscope.search.input_clauses import ClauseTable
from boundscope.search.input_group import Group, groups_as_rows, groups_of_rows
from boundscope.search.input_layout import Floats, PartLayout, Rows, without_hidden
from boundscope.search.input_rounds import Found, bound_batch
from boundscope.search.sweeps import SweepBounder, hull, sweeps_pay
from boundscope.search.task import Key, SearchOutcome, SearchTask, Standing

# More boxes than these share one context over all of them.
FEW_CASES = 4
TURN = 64  # batches of one context before the next gets its turn
JUDGED = 16  # points of a batch that are looked at for a counterexample
JUDGED_ALWAYS = 8  # batches whose points are looked at; later ones one in so many
REPORT_EVERY_S = 0.3


def split_inputs(
    task: SearchTask,
    state: SearchState | None = None,
    between: Callable[[InputSplit], None] | None = None,
) -> SearchOutcome:
    """Search until every open clause is proven, one is violated, or nothing can be split.

    Args:
        task: what to search.
        state: of a search of the same task, which goes on.
        between: called between batches, when `state` may be asked for.

    Raises:
        DeadlineError, CancelledError: from the monitor; the standing was reported before.
        BoundError: a bound is not finite, or bounds cross.
    """
    with torch.no_grad():
        return InputSplit(task, state, between).run()


class InputSplit:
    """One search: its contexts, each with a pool of parts."""

    def __init__(
        self,
        task: SearchTask,
        state: SearchState | None = None,
        between: Callable[[InputSplit], None] | None = None,
    ) -> None:
        self._task, self._state, self._between = task, state, between
        self.proven: set[Key] = set()
        self._done, self._depth, self._batches = 0, 0, 0
        self._in_hand = 0  # domains that are being bounded
        self._stuck: list[str] = []
        self._reported_s = task.monitor.now_s
        self._waiting: deque[Group] = deque()

    def run(self) -> SearchOutcome:
        task = self._task
        try:
            for key in sorted(task.open):
                if not task.cases[key[0]].clauses[key[1]].constraints:
                    return self._outcome(stuck=f"clause {key[1]} of case {key[0]} has no constraint")
            if self._state is None:
                self._waiting.extend(self._groups())
            else:
                self._go_on_from(self._state)
            while self._waiting:
                group = self._waiting[0]
                found = self._turn(group)
                if found is not None:
                    return self._outcome(found)
                self._waiting.rotate(-1)
                if group.over:
                    self._close(self._waiting.pop())
            return self._outcome(stuck="; ".join(dict.fromkeys(self._stuck)))
        finally:
            self._report(always=True)

    # ------------------------------------------------------------ contexts

    def _groups(self) -> list[Group]:
        task = self._task
        keys: dict[int, list[Key]] = {}
        for key in sorted(task.open):
            keys.setdefault(key[0], []).append(key)
        mine = list(keys.values())
        cases = [task.cases[case] for case in keys]
        if cases and sweeps_pay(task.engine, cases):
            swept = Group(mine, swept=True)
            self._open(swept)
            return [swept]
        return self._bounded_groups(mine)

    def _bounded_groups(self, keys: list[list[Key]]) -> list[Group]:
        """Groups whose parts are bounded by CROWN."""
        if len(keys) > FEW_CASES:
            shared = Group(keys)
            try:
                self._open(shared)
                return [shared]
            except BoundError:
                pass  # too wide for some operator; every box is then searched by itself
        return [Group([mine]) for mine in keys]

    def _open(self, group: Group) -> None:
        """Make what bounds the group's parts, and its first parts."""
        task = self._task
        boxes = [task.cases[mine[0][0]] for mine in group.keys]
        bounder: PartBounder | SweepBounder
        if group.swept:
            bounder = SweepBounder(task.engine.inputs_of(hull(boxes)), task.cases, group.keys, task.monitor)
        else:
            alone = len(boxes) == 1
            context = (
                task.root(group.keys[0][0][0]) if alone else task.engine.context(hull(boxes), Method.IBP)
            )
            table = ClauseTable.of(context, task.cases, group.keys)
            bounder = PartBounder(PartLayout(context), table, task.monitor)
        layout, places = bounder.layout, np.arange(len(boxes))
        group.begin(bounder, task, len(self._waiting) + 1)
        start = layout.start(
            np.array([one.box.lower for one in boxes]), np.array([one.box.upper for one in boxes])
        )
        rows = {
            **without_hidden(start),
            "place": places.astype(np.int32),
            "depth": np.zeros(len(places), np.int32),
        }
        group.fresh.append({**rows, "open": bounder.table.there.copy()})

    def _close(self, group: Group) -> None:
        group.take_stock()
        self.proven |= group.settled
        if group.stuck and group.swept:
            left = [[key for key in mine if key not in self.proven] for mine in group.keys]
            self._waiting.extend(self._bounded_groups([mine for mine in left if mine]))
        elif group.stuck:
            self._stuck.append(group.stuck)
        group.end()

    # ------------------------------------------------------------ going on later

    def state(self) -> SearchState:
        """What is left to do, between batches; pools in it are the search's own."""
        found = SearchState(counters={"done": self._done, "depth": self._depth, "batches": self._batches})
        found.arrays["proven"] = np.array(sorted(self.proven), np.int64).reshape(-1, 2)
        found.arrays["stuck"] = np.frombuffer("\n".join(self._stuck).encode(), np.uint8).copy()
        found.arrays["groups"] = groups_as_rows(self._waiting)
        for group in self._waiting:
            group.save(found)
        return found

    def _go_on_from(self, state: SearchState) -> None:
        """With the groups that there were: what sweeps have given up is not swept again."""
        self._done, self._depth = int(state.counters["done"]), int(state.counters["depth"])
        self._batches = int(state.counters["batches"])
        self.proven |= {(int(case), int(clause)) for case, clause in state.arrays["proven"]}
        self._stuck += state.arrays["stuck"].tobytes().decode().splitlines()
        for group in groups_of_rows(state.arrays["groups"]):
            if not {key for mine in group.keys for key in mine} <= self.proven:
                self._waiting.append(group)
        for group in self._waiting:
            if group.name in state.pools:
                self._open(group)
                group.restore(state)

    # ------------------------------------------------------------ rounds

    def _turn(self, group: Group) -> Counterexample | None:
        if group.bounder is None:
            self._open(group)
        for _ in range(TURN):
            batch = group.next_batch()
            if batch is None:
                break
            self._in_hand = len(batch)
            found = bound_batch(self._task, group, batch, self._report)
            self._in_hand = 0
            witness = self._keep(group, batch.rows, found)
            group.take_stock()
            self.proven |= group.settled
            if witness is not None:
                return witness
            self._report()
            if self._between is not None:
                self._between(self)
        return None

    def _keep(self, group: Group, rows: Rows, found: Found) -> Counterexample | None:
        """Put what is still open into the pool; look for a counterexample among the worst."""
        count, bounded = len(rows["place"]), found.bounded
        self._done += count
        self._batches += 1
        self._depth = max(self._depth, int(rows["depth"].max(initial=0)))
        is_left = np.asarray(bounded.open.any(1))
        left = np.flatnonzero(is_left)
        priority = bounded.lower[left].min(1)
        kept = {name: array[left] for name, array in bounded.rows.items()}
        kept |= {
            "place": rows["place"][left],
            "depth": rows["depth"][left],
            "open": bounded.open[left],
            "score": bounded.score[left].astype(np.float32),
        }
        made = found.made
        here = is_left if made is None else is_left[made == self._task.ranks.rank]
        hidden = {name: array[here] for name, array in found.hidden.items()}
        group.push(kept, priority, hidden, None if made is None else made[left])
        if len(left) and (self._batches <= JUDGED_ALWAYS or self._batches % JUDGED_ALWAYS == 0):
            worst = np.argsort(priority, kind="stable")[:JUDGED]
            centre = kept["lower"][worst] / 2 + kept["upper"][worst] / 2
            return self._judged(
                group, kept["place"][worst], np.stack([bounded.worst[left][worst], centre], 1)
            )
        return None

    def _judged(self, group: Group, place: NDArray[Any], points: Floats) -> Counterexample | None:
        """Points [N, 2, free inputs] of parts at these places."""
        task, found = self._task, None
        if task.ranks.rank == 0:
            assert group.bounder is not None
            for one in np.unique(place):
                mine = points[place == one]
                whole = group.bounder.layout.points(np.concatenate([mine[:, 0], mine[:, 1]]))
                found = task.judge(group.keys[int(one)][0][0], whole)
                if found is not None:
                    break
        return task.ranks.of_rank_0(found)

    # ------------------------------------------------------------ telling

    def _outcome(self, counterexample: Counterexample | None = None, *, stuck: str = "") -> SearchOutcome:
        return SearchOutcome(frozenset(self.proven), self._lower(), counterexample, stuck)

    def _lower(self) -> dict[Key, float]:
        lower: dict[Key, float] = {}
        for group in self._waiting:
            lower |= group.lower
        return {key: value for key, value in lower.items() if key not in self.proven}

    def _report(self, *, always: bool = False) -> None:
        now_s = self._task.monitor.now_s
        if not always and now_s - self._reported_s < REPORT_EVERY_S:
            return
        self._reported_s = now_s
        waiting = sum(group.waiting for group in self._waiting) + self._in_hand
        self._task.report(Standing(self._lower(), frozenset(self.proven), self._done, waiting, self._depth))
