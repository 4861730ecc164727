"""The domains of branch and bound that wait: a best-first pool in bounded memory that goes on on disk.

Domains are rows of arrays, one array a column; there is no Python object per domain. Where memory is used up, the
least urgent half of it is written to disk in sorted runs, which come back in the order of their turn: what is taken
does not depend on the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boundscope.errors import BoundError
from boundscope.search.pool_disk import LENGTH, PRIORITY, URGENCY, Rows, link
from boundscope.search.pool_memory import Column
from boundscope.search.pool_order import Floats, Numbers
from boundscope.search.pool_saving import Order, PoolImage, stored
from boundscope.search.pool_store import Mask, SpillingRows

__all__ = ["Column", "DomainPool"]


class DomainPool:
    """Domains with the priorities by which they wait.

    Order "best" takes the smallest priority first; "depth" takes the newest push first, and of that the smallest
    priority. Ties go by age, the older first. `limit_bytes` is for everything in memory (None: no limit); `folder` is
    where a private folder for the rest is made (None: where temporary files go).

    Methods that may write to disk raise OutOfMemoryError where that is full; the pool is then as it was before.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        limit_bytes: int | None,
        folder: Path | None = None,
        order: Order = "best",
    ) -> None:
        if wrong := [name for name in columns if name.startswith(".")]:
            raise ValueError(f"names with a dot are of the pool's own columns: {', '.join(wrong)}")
        self.columns = dict(columns)
        self.order = order
        self._growing = [name for name, column in columns.items() if column.grows]
        own = {LENGTH: Column(np.int32)} if self._growing else {}
        own |= {PRIORITY: Column(np.float64)} if order == "depth" else {}
        self._store = SpillingRows({**columns, **own}, limit_bytes=limit_bytes, folder=folder)
        self._number = 0  # of the next domain
        self._pushes = 0

    # ------------------------------------------------------------ what there is

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return self._store.nbytes

    def bytes_of(self, names: Iterable[str]) -> int:
        """Bytes held in memory by these columns."""
        return sum(self._store.rows[name].nbytes for name in names)

    @property
    def next_number(self) -> int:
        """The age of the next domain that is pushed: the older, the smaller."""
        return self._number

    @next_number.setter
    def next_number(self, number: int) -> None:
        self._number = number

    @property
    def disk_bytes(self) -> int:
        return sum(segment.nbytes for segment in self._store.segments)

    def least(self) -> float | None:
        """The smallest priority of all that wait, in memory and on disk; None for an empty pool."""
        queue = self._store.queue
        found = [segment.least for segment in self._store.segments]
        if self.order == "depth":
            if len(queue):
                found.append(float(self._store.rows[PRIORITY][queue.slots()].min()))
        elif (first := queue.first()) is not None:
            found.append(first[0])
        return min(found, default=None)

    # ------------------------------------------------------------ in

    def push(
        self, batch: Mapping[str, ArrayLike], priority: ArrayLike, number: Numbers | None = None
    ) -> None:
        """Add domains: of each column [D, *shape], and their priorities [D]; `number` [D] where their ages are settled
        elsewhere (order "best"), which must differ from those of all others.

        Raises:
            BoundError: a priority is NaN.
            OutOfMemoryError: the disk is full; none of the batch was taken.
        """
        priorities = np.asarray(priority, np.float64)
        rows = self._checked(batch, priorities)
        if not len(priorities):
            return
        urgency = priorities
        if self.order == "depth":
            first = np.argsort(priorities, kind="stable")
            rows = {name: array[first] for name, array in rows.items()}
            rows[PRIORITY] = priorities[first]
            urgency = np.full(len(priorities), -float(self._pushes))
        numbers = np.arange(self._number, self._number + len(priorities)) if number is None else number
        self._store.insert(rows, urgency, numbers)
        self._number = max(self._number, int(numbers.max()) + 1)
        self._pushes += 1

    def _checked(self, batch: Mapping[str, ArrayLike], priority: Floats) -> Rows:
        """The batch as arrays, with growing columns trimmed to the longest."""
        if priority.ndim != 1:
            raise ValueError(f"priorities have shape {priority.shape}, not [domains]")
        if bad := np.count_nonzero(np.isnan(priority)):
            raise BoundError(f"{bad} of the bounds of {len(priority)} domains are NaN")
        if batch.keys() != self.columns.keys():
            raise ValueError(f"a batch has columns {sorted(batch)}; the pool has {sorted(self.columns)}")
        rows: Rows = {}
        for name, column in self.columns.items():
            array = rows[name] = np.asarray(batch[name])
            depth = array.shape[1] if column.grows and array.ndim > 1 else 0
            if array.shape != (len(priority), *column.shape_of(depth)) or array.dtype != column.dtype:
                raise ValueError(
                    f"column {name!r} of a batch is {array.dtype} {array.shape}; it should be "
                    f"{np.dtype(column.dtype)} [{len(priority)}, {', '.join(map(str, column.shape_of(depth)))}]"
                )
        if self._growing:
            lengths = [self.columns[name].lengths(rows[name]) for name in self._growing]
            rows[LENGTH] = np.maximum.reduce(lengths)
        return rows

    # ------------------------------------------------------------ out

    def pop(self, count: int) -> tuple[dict[str, NDArray[Any]], Floats]:
        """Remove the next domains, at most `count`, in order; growing columns are as long as the longest of them.

        It gives fewer where the pool holds fewer, or where the disk is full when others should come back from it;
        the error is raised once there is nothing else to give.
        """
        parts: list[tuple[Rows, Floats]] = []
        for rows, urgency in self._store.take(count):
            priority = rows.pop(PRIORITY) if self.order == "depth" else urgency
            rows.pop(LENGTH, None)
            parts.append((rows, priority))
        return self._joined(parts)

    def _joined(self, parts: list[tuple[Rows, Floats]]) -> tuple[Rows, Floats]:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return {
                name: np.empty((0, *c.shape_of(0)), c.dtype) for name, c in self.columns.items()
            }, np.empty(0)
        depth = 0
        if self._growing:
            depth = max(rows[self._growing[0]].shape[1] for rows, _ in parts)
        joined = {
            name: np.concatenate([column.padded(rows[name], depth) for rows, _ in parts])
            for name, column in self.columns.items()
        }
        return joined, np.concatenate([priority for _, priority in parts])

    # ------------------------------------------------------------ what is settled elsewhere

    def filter(self, column: str, values: ArrayLike) -> int:
        """Drop the domains whose value in this column (whole numbers, one a domain) is one of `values`; how many."""
        settled = np.unique(np.asarray(values))
        known = frozenset(settled.tolist())
        before = len(self)
        slots = self._store.queue.slots()
        self._store.keep_in_memory(slots, ~np.isin(self._store.rows[column][slots], settled))
        for segment in list(self._store.segments):
            there = segment.values.get(column)
            if there is None:
                kept = ~np.isin(segment.read(0, len(segment), (column,))[column], settled)
            elif there <= known:
                kept = np.zeros(len(segment), np.bool_)
            elif there & known:
                kept = ~np.isin(segment.read(0, len(segment), (column,))[column], settled)
            else:
                continue
            self._store.keep_on_disk(segment, kept)
        return before - len(self)

    def drop(self, keep: Callable[[Mapping[str, NDArray[Any]], Floats], Mask]) -> int:
        """Drop the domains that `keep(columns, priority)`, asked of some at a time, does not mark; how many went."""
        before = len(self)
        keys, step = self._store.queue.all_sorted(), self._store.block_rows()
        marks = [
            self._asked(keep, self._store.rows.copies(part.slot), part.urgency)
            for part in (keys[begin : begin + step] for begin in range(0, len(keys), step))
        ]
        if marks:
            self._store.keep_in_memory(keys.slot, np.concatenate(marks))
        for segment in list(self._store.segments):
            rows = segment.read(0, len(segment))
            self._store.keep_on_disk(segment, self._asked(keep, rows, rows[URGENCY]))
        return before - len(self)

    def _asked(
        self, keep: Callable[[Mapping[str, NDArray[Any]], Floats], Mask], rows: Rows, urgency: Floats
    ) -> Mask:
        priority = rows[PRIORITY] if self.order == "depth" else urgency
        mark = np.asarray(keep({name: rows[name] for name in self.columns}, priority))
        if mark.dtype != np.bool_ or mark.shape != priority.shape:
            raise ValueError(f"marks are {mark.dtype} {mark.shape}, not bool [{len(priority)}]")
        return mark

    # ------------------------------------------------------------ saving

    def block_sizes(self) -> list[int]:
        """How many rows each of `blocks` will have."""
        return self._store.block_sizes()

    def blocks(self) -> Iterator[Rows]:
        """All that waits, some rows at a time, with the keys of their turn; the pool stays as it is meanwhile.

        Raises:
            BoundscopeError: a file is gone or unreadable.
        """
        return self._store.blocks()

    def save(self, file: IO[bytes], beside: Path) -> frozenset[str]:
        """Write the pool to a binary file; runs on disk are linked into the folder `beside` (made where it is needed),
        not copied. Gives their names there, which the saved pool needs.

        Raises:
            OSError: the disk is full or failing.
        """
        parts = self._store.parts_in_memory()
        segments = self._store.segments
        PoolImage(
            self.order,
            stored(self.columns),
            number=self._number,
            pushes=self._pushes,
            blocks=tuple((len(part), depth) for part, depth in parts),
            segments=tuple(segment.image for segment in segments),
        ).write(file)
        for part, depth in parts:
            for column in self._store.rows.file_columns(part, depth).values():
                for array in column.parts(len(part)):
                    file.write(array.tobytes())
        if segments:
            beside.mkdir(exist_ok=True)
        for segment in segments:
            segment.sync()
            link(segment.path, beside / segment.path.name)
        return frozenset(segment.path.name for segment in segments)

    @classmethod
    def load(
        cls, file: IO[bytes], beside: Path, *, limit_bytes: int | None, folder: Path | None = None
    ) -> DomainPool:
        """A saved pool, under any limit.

        Raises:
            ValueError: the file is damaged, or a run that it needs is missing or damaged; with what is wrong.
            OutOfMemoryError: the disk is full.
        """
        image = PoolImage.read(file)
        pool = cls(image.pool_columns, limit_bytes=limit_bytes, folder=folder, order=image.order)
        pool._number, pool._pushes = image.number, image.pushes
        try:
            for rows, depth in image.blocks:
                pool._store.load_block(file, rows, depth)
            for segment in image.segments:
                pool._store.adopt(segment, beside)
        except BaseException:
            pool.close()
            raise
        return pool

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Give everything back, on disk too."""
        self._store.close()

    def __enter__(self) -> DomainPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
