"""Cases that share a context, the parts of their boxes that wait, and what is settled of their clauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boundscope.search.checkpoint import SearchState
from boundscope.search.input_bounds import PartBounder
from boundscope.search.input_clauses import Bounded
from boundscope.search.input_halving import RESOLUTION, halved
from boundscope.search.input_layout import HIDDEN, Floats, Rows, without_hidden
from boundscope.search.pool import Column, DomainPool
from boundscope.search.spread import SpreadPool, Taken
from boundscope.search.sweeps import SweepBounder
from boundscope.search.task import Key, SearchTask

SLICE = 128  # parts bounded together, at most
SLICE_ELEMENTS = 1 << 21  # of their tensors that non-linear nodes read
LARGEST_BATCH = 2048
LEAST_BATCH = 64  # few parts are split several times at once, up to about so many
# Elements that non-linear nodes read, in all parts of a batch, and of one that is filled up by more splits.
BATCH_ELEMENTS, LEAST_BATCH_ELEMENTS = 1 << 22, 1 << 18
PART_TENSORS = 16  # float64 values that bounding a part takes for each element that a non-linear node reads
MOVED = 4096  # parts of a restored pool at a time
FEWEST_ROWS = 2  # carried together


@dataclass(frozen=True)
class Batch:
    """Parts to bound: what every rank knows of them, and the parents, among those `taken`, whose hidden bounds hold for
    them; None: nothing is known of hidden elements."""

    rows: Rows
    taken: Taken | None = None
    parent: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.rows["place"])


@dataclass
class Group:
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
        self.fresh = [without_hidden(rows) for _, rows in sorted(found.items(), key=lambda one: int(one[0]))]
        saved = state.pools[self.name]
        if np.array_equal(state.arrays[f"{self.name} hidden"], layout.kept_elements):
            self._pool.close()
            self._pool = self._spread(saved)
            return
        # The root's bounds are others by now: what parts know of hidden elements does not fit.
        assert isinstance(saved, DomainPool)
        while len(saved):
            rows, priority = saved.pop(MOVED)
            self._pool.push(without_hidden(rows), priority, self._nothing(len(priority)))
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

    def next_batch(self) -> Batch | None:
        """Parts to bound now: boxes that never were, or halves of the worst."""
        assert self._pool is not None
        if self.fresh:
            rows = self.fresh.pop()
            if len(rows["place"]) > self.batch:
                self.fresh.append({name: array[self.batch :] for name, array in rows.items()})
                rows = {name: array[: self.batch] for name, array in rows.items()}
            self._forget(rows)
            return Batch(rows)
        while len(self._pool):
            taken = self._pool.pop(max(1, self.batch // 2))
            self._forget(taken.small)
            halves = self._halves({**taken.small, "parent": np.arange(len(taken))})
            if halves is not None:
                parent = halves.pop("parent")
                return Batch(halves, taken, parent)
        return None

    def hidden(self, batch: Batch, wanted: Sequence[NDArray[np.int64]]) -> Rows:
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
        wanted = min(self.least_batch, self.batch) // 2
        while True:
            rows, whole = halved(rows, self._resolution)
            if len(whole["place"]):
                self._give_up(whole)
            if not len(rows["place"]):
                return None
            if len(rows["place"]) >= wanted:
                return {name: array for name, array in rows.items() if name != "score"}

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


def groups_as_rows(groups: Iterable[Group]) -> NDArray[np.int64]:
    """[clauses, 4]: of each clause of some groups the number of its group, whether that is swept, case and clause."""
    rows = [
        (number, int(group.swept), case, clause)
        for number, group in enumerate(groups)
        for mine in group.keys
        for case, clause in mine
    ]
    return np.array(rows, np.int64).reshape(-1, 4)


def groups_of_rows(rows: NDArray[np.int64]) -> list[Group]:
    """The groups, which have not begun."""
    groups: dict[int, Group] = {}
    for number, swept, case, clause in rows.tolist():
        group = groups.setdefault(number, Group([], bool(swept)))
        if not group.keys or group.keys[-1][0][0] != case:
            group.keys.append([])
        group.keys[-1].append((case, clause))
    return list(groups.values())
