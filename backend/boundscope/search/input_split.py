"""Branch and bound by splitting the input box (for few free inputs): thousands of parts at a time, worst first.

A part is settled once each clause has a constraint, or a mixture of its constraints, whose margin is proven positive
all over it, or is cut away where that is so; what is left is halved where that moves the worst margin most. Hidden
bounds of a part hold for its halves.

With several ranks all keep the ends of all parts and take the same decisions; each bounds some slices of a batch, and
what is known of hidden elements lies on one rank. Slices are the same whatever the number of ranks, and so are the
bounds, bit for bit.
"""

from __future__ import annotations

import dataclasses
import gc
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.bounds.context import BoxContext
from boundscope.errors import BoundError, BoundscopeError, OutOfMemoryError
from boundscope.protocol import Counterexample, Method
from boundscope.search.checkpoint import SearchState
from boundscope.search.input_bounds import PartBounder
from boundscope.search.input_clauses import Bounded, ClauseTable
from boundscope.search.input_layout import HIDDEN, Floats, PartLayout, Rows
from boundscope.search.pool import Column, DomainPool
from boundscope.search.spread import SpreadPool, Taken
from boundscope.search.sweeps import SweepBounder, hull, sweeps_pay
from boundscope.search.task import Key, SearchOutcome, SearchTask, Standing

# More boxes than these share one context over all of them.
FEW_CASES = 4
SLICE = 128  # parts bounded together, at most
SLICE_ELEMENTS = 1 << 21  # of their tensors that non-linear nodes read
LARGEST_BATCH = 2048
LEAST_BATCH = 64  # few parts are split several times at once, up to about so many
# Elements that non-linear nodes read, in all parts of a batch, and of one that is filled up by more splits.
BATCH_ELEMENTS, LEAST_BATCH_ELEMENTS = 1 << 22, 1 << 18
PART_TENSORS = 16  # float64 values that bounding a part takes for each element that a non-linear node reads
TURN = 64  # batches of one context before the next gets its turn
JUDGED = 16  # points of a batch that are looked at for a counterexample
JUDGED_ALWAYS = 8  # batches whose points are looked at; later ones one in so many
REPORT_EVERY_S = 0.3
MOVED = 4096  # parts of a restored pool at a time
FEWEST_ROWS = 2  # carried together
RESOLUTION = 2.0**-50  # of an input's largest absolute value: parts are not split more finely


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
        self._waiting: deque[_Group] = deque()

    def run(self) -> SearchOutcome:
        task = self._task
        try:
            for key in sorted(task.open):
                if not task.cases[key[0]].clauses[key[1]].constraints:
                    return self._outcome(stuck=f"clause {key[1]} of case {key[0]} has no constraint")
            self._waiting.extend(self._groups())
            if self._state is not None:
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

    def _groups(self) -> list[_Group]:
        task = self._task
        keys: dict[int, list[Key]] = {}
        for key in sorted(task.open):
            keys.setdefault(key[0], []).append(key)
        mine = list(keys.values())
        cases = [task.cases[case] for case in keys]
        if cases and sweeps_pay(task.engine, cases):
            swept = _Group(mine, swept=True)
            self._open_swept(swept)
            return [swept]
        return self._bounded_groups(mine)

    def _bounded_groups(self, keys: list[list[Key]]) -> list[_Group]:
        """Groups whose parts are bounded by CROWN."""
        task = self._task
        if len(keys) > FEW_CASES:
            shared = _Group(keys)
            try:
                box = hull([task.cases[mine[0][0]] for mine in keys])
                self._open(shared, task.engine.context(box, Method.IBP))
                return [shared]
            except BoundError:
                pass  # too wide for some operator; every box is then searched by itself
        return [_Group([mine]) for mine in keys]

    def _open_swept(self, group: _Group) -> None:
        task = self._task
        context = task.engine.inputs_of(hull([task.cases[mine[0][0]] for mine in group.keys]))
        self._begin(group, SweepBounder(context, task.cases, group.keys, task.monitor))

    def _open(self, group: _Group, context: BoxContext) -> None:
        table = ClauseTable.of(context, self._task.cases, group.keys)
        self._begin(group, PartBounder(PartLayout(context), table, self._task.monitor))

    def _begin(self, group: _Group, bounder: PartBounder | SweepBounder) -> None:
        task, layout, table = self._task, bounder.layout, bounder.table
        group.begin(bounder, task, len(self._waiting) + 1)
        places = np.arange(len(group.keys))
        boxes = [task.cases[mine[0][0]].box for mine in group.keys]
        start = layout.start(np.array([box.lower for box in boxes]), np.array([box.upper for box in boxes]))
        rows = {**_told(start), "place": places.astype(np.int32), "depth": np.zeros(len(places), np.int32)}
        group.fresh.append({**rows, "open": table.there.copy()})

    def _close(self, group: _Group) -> None:
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
        for group in self._waiting:
            group.save(found)
        return found

    def _go_on_from(self, state: SearchState) -> None:
        self._done, self._depth = int(state.counters["done"]), int(state.counters["depth"])
        self._batches = int(state.counters["batches"])
        self.proven |= {(int(case), int(clause)) for case, clause in state.arrays["proven"]}
        for group in list(self._waiting):
            if {key for mine in group.keys for key in mine} <= self.proven:
                self._waiting.remove(group)
            elif group.name in state.pools:
                if group.bounder is None:
                    self._open(group, self._task.root(group.keys[0][0][0]))
                group.restore(state)

    # ------------------------------------------------------------ rounds

    def _turn(self, group: _Group) -> Counterexample | None:
        if group.bounder is None:
            self._open(group, self._task.root(group.keys[0][0][0]))
        for _ in range(TURN):
            batch = group.next_batch()
            if batch is None:
                break
            self._in_hand = len(batch)
            found = self._bound(group, batch)
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

    def _bound(self, group: _Group, batch: _Batch) -> _Found:
        """Bounds of all parts of a batch, equal on every rank; fewer parts at a time from when memory runs short.

        Raises:
            OutOfMemoryError: not even one part fits, or a rank has given up.
        """
        while True:
            try:
                return self._bound_at_once(group, batch)
            except OutOfMemoryError as error:
                if error.final or self._task.force_synchronous or not group.take_less():
                    raise
            gc.collect()  # what the failed attempt's frames hold

    def _bound_at_once(self, group: _Group, batch: _Batch) -> _Found:
        ranks, count = self._task.ranks, len(batch)
        slices = [np.arange(first, min(first + group.slice, count)) for first in range(0, count, group.slice)]
        together = ranks.size == 1 or self._task.engine.weights.collective
        dealt = np.arange(len(slices)) % ranks.size
        wanted = [np.arange(count)] * ranks.size
        if not together:
            wanted = [
                np.concatenate([wanted[0][:0], *slices[rank :: ranks.size]]) for rank in range(ranks.size)
            ]
        hidden = group.hidden(batch, wanted)
        mine: list[tuple[int, Bounded]] = []
        first = 0
        for number in range(0, len(slices), 1 if together else ranks.size):
            chosen = number if together else number + ranks.rank
            error: BoundscopeError | None = None
            try:
                self._task.monitor.check()
                if chosen < len(slices):
                    rows = {name: array[slices[chosen]] for name, array in batch.rows.items()}
                    last = first + len(slices[chosen])
                    rows |= {name: array[first:last] for name, array in hidden.items()}
                    first = last
                    mine.append((chosen, group.bound(rows)))
            except BoundscopeError as caught:
                error = caught
            except (torch.OutOfMemoryError, MemoryError) as caught:
                error = OutOfMemoryError(str(caught))
            ranks.agree(error)
            self._report()
        wide = {
            name: np.concatenate([hidden[name][:0], *(one.rows[name] for _, one in mine)]) for name in HIDDEN
        }
        told = [(chosen, dataclasses.replace(one, rows=_told(one.rows))) for chosen, one in mine]
        every = [told] if together else ranks.gather(told)
        bounded = _joined([one for _, one in sorted((p for part in every for p in part), key=lambda p: p[0])])
        made = None if together else np.repeat(dealt, [len(one) for one in slices])
        return _Found(bounded, wide, made)

    def _keep(self, group: _Group, rows: Rows, found: _Found) -> Counterexample | None:
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

    def _judged(self, group: _Group, place: NDArray[Any], points: Floats) -> Counterexample | None:
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


@dataclass(frozen=True)
class _Batch:
    """Parts to bound: what every rank knows of them, and the parents, among those `taken`, whose hidden bounds hold for
    them; None: nothing is known of hidden elements."""

    rows: Rows
    taken: Taken | None = None
    parent: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.rows["place"])


@dataclass(frozen=True)
class _Found:
    """What every rank knows of parts; hidden bounds of those that this rank has, in order. `made` is the rank of each
    part that has them; None: every rank has all."""

    bounded: Bounded
    hidden: Rows
    made: NDArray[np.int64] | None


@dataclass
class _Group:
    """Cases that share a context, the parts of their boxes that wait, and what is settled of their clauses."""

    keys: list[list[Key]]
    swept: bool = False

    def __post_init__(self) -> None:
        self.bounder: PartBounder | SweepBounder | None = None
        self.fresh: list[Rows] = []  # boxes that were never bounded
        self.stuck = ""
        self.settled: set[Key] = set()
        self.lower: dict[Key, float] = {}
        self._pool: SpreadPool | None = None
        self._counts = np.zeros((0, 0), np.int64)

    def begin(self, bounder: PartBounder | SweepBounder, task: SearchTask, groups: int) -> None:
        layout, clauses = bounder.layout, bounder.table.there.shape[1]
        self.bounder = bounder
        columns = {
            **layout.columns(),
            "place": Column(np.int32),
            "depth": Column(np.int32),
            "open": Column(np.bool_, (clauses,)),
            "score": Column(np.float32, (layout.inputs,)),
        }
        hidden = {name: columns.pop(name) for name in HIDDEN}
        limit_bytes, device = task.memory_bytes // (2 * groups), layout.context.device
        self._pool = SpreadPool(
            task.ranks, columns, hidden, limit_bytes=limit_bytes, folder=task.folder, device=device
        )
        self._spread: Callable[[DomainPool | SpreadPool], SpreadPool] = lambda pool: SpreadPool.of(
            pool, task.ranks, columns, hidden, limit_bytes=limit_bytes, folder=task.folder, device=device
        )
        self._ledger, self._rank = task.engine.ledger, task.ranks.rank
        self._counts = bounder.table.there.astype(np.int64)
        self._resolution = layout.largest * RESOLUTION
        self.slice = max(1, min(SLICE, SLICE_ELEMENTS // max(1, layout.elements)))
        elements = max(1, layout.elements)
        self.least_batch = max(2, min(LEAST_BATCH, LEAST_BATCH_ELEMENTS // elements))
        part_bytes = 8 * PART_TENSORS * elements
        fitting = BATCH_ELEMENTS // elements
        if not task.force_synchronous:
            fitting = min(fitting, task.memory_bytes // (2 * part_bytes))
        most = max(2, min(LARGEST_BATCH, fitting))
        if isinstance(bounder, SweepBounder):
            self.slice, self.least_batch = bounder.slice, min(LEAST_BATCH, bounder.slice)
            most = min(LARGEST_BATCH, 2 * bounder.slice)
        self.batch = most if task.batch is None else max(2, task.batch)

    def take_less(self) -> bool:
        """Bound half as many parts, and carry half as many rows, at a time; False where that is nothing less."""
        assert self.bounder is not None
        layout = self.bounder.layout
        if self.slice <= 1 and layout.rows <= FEWEST_ROWS:
            return False
        self.slice, layout.rows = max(1, self.slice // 2), max(FEWEST_ROWS, layout.rows // 2)
        return True

    @property
    def name(self) -> str:
        """The same for the same clauses."""
        kind = "swept parts" if self.swept else "parts"
        return f"{kind} {self.keys[0][0][0]}.{self.keys[0][0][1]} {sum(len(mine) for mine in self.keys)}"

    def save(self, state: SearchState) -> None:
        """Add what is left to do to a state; nothing where it has not begun."""
        if self._pool is None or self.bounder is None:
            return
        state.pools[self.name] = self._pool
        state.arrays[f"{self.name} counts"] = self._counts.copy()
        state.arrays[f"{self.name} stuck"] = np.frombuffer(self.stuck.encode(), np.uint8).copy()
        state.arrays[f"{self.name} hidden"] = self.bounder.layout.kept_elements
        for number, rows in enumerate(self.fresh):
            state.arrays |= {f"{self.name} fresh {number} {name}": array for name, array in rows.items()}

    def restore(self, state: SearchState) -> None:
        """Take up what a state says is left to do."""
        assert self.bounder is not None
        assert self._pool is not None
        layout = self.bounder.layout
        self._counts = state.arrays[f"{self.name} counts"].copy()
        self.stuck = state.arrays[f"{self.name} stuck"].tobytes().decode()
        fresh = f"{self.name} fresh "
        found: dict[str, Rows] = {}
        for name, array in state.arrays.items():
            if name.startswith(fresh):
                number, column = name.removeprefix(fresh).split(" ")
                found.setdefault(number, {})[column] = array
        self.fresh = [_told(rows) for _, rows in sorted(found.items(), key=lambda one: int(one[0]))]
        saved = state.pools[self.name]
        if np.array_equal(state.arrays[f"{self.name} hidden"], layout.kept_elements):
            self._pool.close()
            self._pool = self._spread(saved)
            return
        # The root's bounds are others by now: what parts know of hidden elements does not fit.
        assert isinstance(saved, DomainPool)
        while len(saved):
            rows, priority = saved.pop(MOVED)
            self._pool.push(_told(rows), priority, self._nothing(len(priority)))
        saved.close()

    def _nothing(self, count: int) -> Rows:
        assert self.bounder is not None
        return {
            name: end.cpu().numpy()
            for name, end in zip(HIDDEN, self.bounder.layout.nothing(count), strict=True)
        }

    def end(self) -> None:
        """Let go of what only a search needs."""
        if self._pool is not None:
            self._pool.close()
            self._note(0, 0)
        self.bounder = self._pool = None

    def _note(self, payload_bytes: int, key_bytes: int) -> None:
        self._ledger.note("workspace", self.name, payload_bytes)
        self._ledger.note("other", self.name, key_bytes)

    @property
    def waiting(self) -> int:
        return sum(len(rows["place"]) for rows in self.fresh) + (0 if self._pool is None else len(self._pool))

    @property
    def over(self) -> bool:
        return self.bounder is not None and not self.waiting

    def bound(self, rows: Rows) -> Bounded:
        assert self.bounder is not None
        return self.bounder.bound(rows, rows["place"], rows["open"])

    def next_batch(self) -> _Batch | None:
        """Parts to bound now: boxes that never were, or halves of the worst."""
        assert self._pool is not None
        if self.fresh:
            rows = self.fresh.pop()
            if len(rows["place"]) > self.batch:
                self.fresh.append({name: array[self.batch :] for name, array in rows.items()})
                rows = {name: array[: self.batch] for name, array in rows.items()}
            self._forget(rows)
            return _Batch(rows)
        while len(self._pool):
            taken = self._pool.pop(max(1, self.batch // 2))
            self._forget(taken.small)
            halves = self._halves({**taken.small, "parent": np.arange(len(taken))})
            if halves is not None:
                parent = halves.pop("parent")
                return _Batch(halves, taken, parent)
        return None

    def hidden(self, batch: _Batch, wanted: Sequence[NDArray[np.int64]]) -> Rows:
        """What is known of the hidden elements of those parts of a batch that this rank wants; all ranks call together,
        with what each wants."""
        if batch.taken is None or batch.parent is None:
            return self._nothing(len(wanted[self._rank]))
        return batch.taken.bring([batch.parent[one] for one in wanted])

    def _forget(self, rows: Rows) -> None:
        np.subtract.at(self._counts, rows["place"], rows["open"].astype(np.int64))

    def push(self, rows: Rows, priority: Floats, hidden: Rows, made: NDArray[np.int64] | None) -> None:
        """Parts that wait; `hidden` of those that `made` says this rank has, of all where that is None."""
        assert self._pool is not None
        np.add.at(self._counts, rows["place"], rows["open"].astype(np.int64))
        self._pool.push(rows, priority, hidden, made)
        self._note(self._pool.payload_bytes, self._pool.key_bytes)

    def _halves(self, rows: Rows) -> Rows | None:
        """Each part halved, and halved again where there are few."""
        halved = self._halved(rows)
        while halved is not None and len(halved["place"]) < min(self.least_batch, self.batch) // 2:
            halved = self._halved(halved)
        if halved is None:
            return None
        return {name: array for name, array in halved.items() if name != "score"}

    def _halved(self, rows: Rows) -> Rows | None:
        lower, upper = rows["lower"], rows["upper"]
        middle = lower / 2 + upper / 2
        divides = (middle > lower) & (middle < upper) & (upper - lower > self._resolution)
        able = divides.any(1)
        if not able.all():
            self._give_up({name: array[~able] for name, array in rows.items()})
            rows = {name: array[able] for name, array in rows.items()}
            lower, upper, middle, divides = lower[able], upper[able], middle[able], divides[able]
        if not len(lower):
            return None
        width = np.where(divides, upper - lower, 0.0)
        score = np.where(divides, rows["score"], -1.0)
        axis = np.where(score.max(1) > 0, score.argmax(1), width.argmax(1))
        each = np.arange(len(axis))
        below, above = upper.copy(), lower.copy()
        below[each, axis] = above[each, axis] = middle[each, axis]
        halved = {name: np.concatenate([array, array]) for name, array in rows.items()}
        halved["lower"], halved["upper"] = np.concatenate([lower, above]), np.concatenate([below, upper])
        halved["depth"] = halved["depth"] + 1
        both = np.concatenate([each, each + len(axis)])
        halved["score"][both, np.concatenate([axis, axis])] /= 2
        return halved

    def _give_up(self, rows: Rows) -> None:
        """Parts that cannot be split: their clauses stay open for good."""
        np.add.at(self._counts, rows["place"], rows["open"].astype(np.int64))
        point = rows["lower"][0]
        shown = ", ".join(f"{value:.9g}" for value in point[:8]) + (", …" if len(point) > 8 else "")
        self.stuck = (
            f"near the point ({shown}) of case {self.keys[int(rows['place'][0])][0][0]} the margin is too "
            "close to zero to be decided, and the inputs cannot be split further"
        )

    def take_stock(self) -> None:
        """Between batches, when every part is accounted for: which clauses no part has open, and the least bounds."""
        self.settled = {
            key
            for place, mine in enumerate(self.keys)
            for local, key in enumerate(mine)
            if not self._counts[place, local]
        }
        least = None if self._pool is None or self.fresh else self._pool.least()
        if least is not None and not self.stuck:
            self.lower = {key: least for mine in self.keys for key in mine}


def _told(rows: Rows) -> Rows:
    """What every rank knows of parts."""
    return {name: array for name, array in rows.items() if name not in HIDDEN}


def _joined(parts: Sequence[Bounded]) -> Bounded:
    return Bounded(
        {name: np.concatenate([part.rows[name] for part in parts]) for name in parts[0].rows},
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("open", "lower", "score", "worst")
        ),
    )
