"""The domains of branch and bound that wait: a best-first pool in bounded memory that goes on on disk.

Domains are rows of arrays, one array a column; there is no Python object per domain. Where memory is used up, the
least urgent half of it is written to disk in sorted runs, which come back in the order of their turn: what is taken
does not depend on the limit.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from boundscope.errors import BoundError, BoundscopeError
from boundscope.search import pool_disk
from boundscope.search.pool_disk import (
    LENGTH,
    NUMBER,
    PRIORITY,
    URGENCY,
    Rows,
    Segment,
    SegmentImage,
    SpillFolder,
    write_segment,
)
from boundscope.search.pool_memory import LEAST_CAPACITY, Column, RowStore
from boundscope.search.pool_order import Floats, Keys, Numbers, TurnQueue

SEGMENT_BYTES = 32 << 20
GROWTH = 1.25  # of the room for rows, where there is not enough
FETCH_BYTES = 256 << 10  # read back at a time at least
__all__ = ["Column", "DomainPool"]

Mask = NDArray[np.bool_]


class _Image(msgspec.Struct, frozen=True):
    """The head of a saved pool; blocks of rows that were in memory follow it."""

    order: Literal["best", "depth"]
    columns: dict[str, tuple[str, tuple[int, ...], bool, int | float]]
    number: int
    pushes: int
    blocks: tuple[tuple[int, int], ...]  # rows and depth of each
    segments: tuple[SegmentImage, ...]


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
        order: Literal["best", "depth"] = "best",
    ) -> None:
        if wrong := [name for name in columns if name.startswith(".")]:
            raise ValueError(f"names with a dot are of the pool's own columns: {', '.join(wrong)}")
        self.columns = dict(columns)
        self.order = order
        self.limit_bytes = limit_bytes
        self._growing = [name for name, column in columns.items() if column.grows]
        own = {LENGTH: Column(np.int32)} if self._growing else {}
        own |= {PRIORITY: Column(np.float64)} if order == "depth" else {}
        self._rows = RowStore({**columns, **own})
        self._queue = TurnQueue()
        self._segments: list[Segment] = []
        self._spill = SpillFolder(folder)
        self._number = 0  # of the next domain
        self._pushes = 0

    # ------------------------------------------------------------ what there is

    def __len__(self) -> int:
        return len(self._queue) + sum(len(segment) for segment in self._segments)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return self._rows.nbytes + self._queue.nbytes

    def bytes_of(self, names: Iterable[str]) -> int:
        """Bytes held in memory by these columns."""
        return sum(self._rows[name].nbytes for name in names)

    @property
    def next_number(self) -> int:
        """The age of the next domain that is pushed: the older, the smaller."""
        return self._number

    @next_number.setter
    def next_number(self, number: int) -> None:
        self._number = number

    @property
    def disk_bytes(self) -> int:
        return sum(segment.nbytes for segment in self._segments)

    def least(self) -> float | None:
        """The smallest priority of all that wait, in memory and on disk; None for an empty pool."""
        found = [segment.least for segment in self._segments]
        if self.order == "depth":
            if len(self._queue):
                found.append(float(self._rows[PRIORITY][self._queue.slots()].min()))
        elif (first := self._queue.first()) is not None:
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
        self._insert(rows, urgency, numbers)
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

    def _insert(self, rows: Rows, urgency: Floats, number: Numbers) -> None:
        """Put rows where there is room for them: in memory, or all of them on disk."""
        count = len(urgency)
        depth = int(rows[LENGTH].max()) if self._growing and count else 0
        if depth > self._rows.depth:
            self._deepen(depth)
        most = self._most(self._rows.depth)
        if len(self._queue) + count > most and count > most // 2:
            keys = Keys(urgency, number, np.arange(count)).sorted()
            padded = {name: self._rows.columns[name].padded(array, depth) for name, array in rows.items()}
            self._segments += self._written(keys, depth, padded)
            return
        self._make_room(count)
        self._queue.push(Keys(urgency, number, self._rows.place(rows, count)))

    # ------------------------------------------------------------ room in memory

    def _most(self, depth: int) -> int:
        """Rows that memory may hold."""
        if self.limit_bytes is None:
            return sys.maxsize
        return max(1, self.limit_bytes // self._rows.row_bytes(depth))

    def _make_room(self, count: int) -> None:
        """Have `count` free slots, at most half of what memory may hold where it is full."""
        most = self._most(self._rows.depth)
        if len(self._queue) + count > most:
            self._evict(min(most // 2, most - count))
        if self._rows.free_count < count:
            self._rows.grow(
                min(most, max(int(GROWTH * self._rows.capacity), len(self._queue) + count, LEAST_CAPACITY))
            )

    def _deepen(self, needed: int) -> None:
        """Give growing columns more rows, packing all domains closely together."""
        depth = max(needed, self._rows.depth + self._rows.depth // 2, 4)
        most = self._most(depth)
        if len(self._queue) > most // 2:
            self._evict(most // 2)
        keys = self._queue.all_sorted()
        self._rows.deepen(depth, keys.slot, max(len(keys), min(self._rows.capacity, most)))
        self._queue.reset(Keys(keys.urgency, keys.number, np.arange(len(keys))))

    def _evict(self, keep: int) -> None:
        """Write all but the `keep` most urgent domains in memory to disk."""
        keys = self._queue.all_sorted()
        if len(keys) <= keep:
            return
        leaving = keys[keep:]
        self._segments += self._written(leaving, self._rows.depth_of(leaving.slot))
        self._queue.reset(keys[:keep])
        self._rows.release(leaving.slot)

    def _written(self, keys: Keys, depth: int, rows: Rows | None = None) -> list[Segment]:
        """Write the rows that sorted keys point at, in memory or in `rows`, whole or not at all."""
        step = max(1, SEGMENT_BYTES // self._rows.row_bytes(depth))
        done: list[Segment] = []
        try:
            for begin in range(0, len(keys), step):
                part = keys[begin : begin + step]
                columns = self._rows.file_columns(part, depth, rows)
                done.append(write_segment(self._spill.new_path(), len(part), depth, columns))
        except BaseException:
            for segment in done:
                segment.path.unlink(missing_ok=True)
            raise
        return done

    # ------------------------------------------------------------ out

    def pop(self, count: int) -> tuple[dict[str, NDArray[Any]], Floats]:
        """Remove the next domains, at most `count`, in order; growing columns are as long as the longest of them.

        It gives fewer where the pool holds fewer, or where the disk is full when others should come back from it;
        the error is raised once there is nothing else to give.
        """
        parts: list[tuple[Rows, Floats]] = []
        left = count
        while left > 0:
            nearest = min(self._segments, key=lambda segment: segment.first, default=None)
            keys = self._queue.take(left, None if nearest is None else nearest.first)
            if len(keys):
                parts.append(self._given(keys))
                left -= len(keys)
            elif nearest is None:
                break
            else:
                try:
                    self._fetch(left)
                except BoundscopeError:
                    if not parts:
                        raise
                    break
        return self._joined(parts)

    def _given(self, keys: Keys) -> tuple[Rows, Floats]:
        """Copies of rows, whose slots are free from now on."""
        rows = self._rows.copies(keys.slot)
        self._rows.release(keys.slot)
        priority = rows.pop(PRIORITY) if self.order == "depth" else keys.urgency.copy()
        rows.pop(LENGTH, None)
        return rows, priority

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

    def _fetch(self, wanted: int) -> None:
        """Bring back the next rows of the segment whose turn is next."""
        depth = self._rows.depth
        most = self._most(depth)
        count = max(1, min(max(wanted, FETCH_BYTES // self._rows.row_bytes(depth)), most // 2))
        self._make_room(count)
        segment = min(self._segments, key=lambda one: one.first)
        count = min(count, len(segment))
        rows = segment.read(0, count)
        urgency, number = rows.pop(URGENCY), rows.pop(NUMBER)
        if count < len(segment):
            segment.advance(count)
        else:
            self._segments.remove(segment)
            segment.path.unlink(missing_ok=True)
        self._queue.push(Keys(urgency, number, self._rows.place(rows, count)))

    # ------------------------------------------------------------ what is settled elsewhere

    def filter(self, column: str, values: ArrayLike) -> int:
        """Drop the domains whose value in this column (whole numbers, one a domain) is one of `values`; how many."""
        settled = np.unique(np.asarray(values))
        known = frozenset(settled.tolist())
        before = len(self)
        slots = self._queue.slots()
        self._keep_in_memory(slots, ~np.isin(self._rows[column][slots], settled))
        for segment in list(self._segments):
            there = segment.values.get(column)
            if there is None:
                kept = ~np.isin(segment.read(0, len(segment), (column,))[column], settled)
            elif there <= known:
                kept = np.zeros(len(segment), np.bool_)
            elif there & known:
                kept = ~np.isin(segment.read(0, len(segment), (column,))[column], settled)
            else:
                continue
            self._keep_on_disk(segment, kept)
        return before - len(self)

    def drop(self, keep: Callable[[Mapping[str, NDArray[Any]], Floats], Mask]) -> int:
        """Drop the domains that `keep(columns, priority)`, asked of some at a time, does not mark; how many went."""
        before = len(self)
        keys, step = self._queue.all_sorted(), self._block_rows()
        marks = [
            self._asked(keep, self._rows.copies(part.slot), part.urgency)
            for part in (keys[begin : begin + step] for begin in range(0, len(keys), step))
        ]
        if marks:
            self._keep_in_memory(keys.slot, np.concatenate(marks))
        for segment in list(self._segments):
            rows = segment.read(0, len(segment))
            self._keep_on_disk(segment, self._asked(keep, rows, rows[URGENCY]))
        return before - len(self)

    def _asked(
        self, keep: Callable[[Mapping[str, NDArray[Any]], Floats], Mask], rows: Rows, urgency: Floats
    ) -> Mask:
        priority = rows[PRIORITY] if self.order == "depth" else urgency
        mark = np.asarray(keep({name: rows[name] for name in self.columns}, priority))
        if mark.dtype != np.bool_ or mark.shape != priority.shape:
            raise ValueError(f"marks are {mark.dtype} {mark.shape}, not bool [{len(priority)}]")
        return mark

    def _keep_in_memory(self, slots: Numbers, kept: Mask) -> None:
        if kept.all():
            return
        marked = np.zeros(self._rows.capacity, np.bool_)
        marked[slots[kept]] = True
        keys = self._queue.all_sorted()
        self._queue.reset(keys[marked[keys.slot]])
        self._rows.release(slots[~kept])

    def _keep_on_disk(self, segment: Segment, kept: Mask) -> None:
        """Segments are never changed (a checkpoint may share them): one that loses rows is written anew."""
        if kept.all():
            return
        replacement: list[Segment] = []
        if kept.any():
            rows = segment.read(0, len(segment))
            at = np.flatnonzero(kept)
            keys = Keys(rows.pop(URGENCY)[at], rows.pop(NUMBER)[at], at)
            replacement = self._written(keys, segment.depth, rows)
        place = self._segments.index(segment)
        self._segments[place : place + 1] = replacement
        segment.path.unlink(missing_ok=True)

    # ------------------------------------------------------------ saving

    def block_sizes(self) -> list[int]:
        """How many rows each of `blocks` will have."""
        step = self._block_rows()
        parts = [len(self._queue), *(len(segment) for segment in self._segments)]
        return [min(step, size - begin) for size in parts for begin in range(0, size, step)]

    def _block_rows(self) -> int:
        return max(1, pool_disk.SLICE_BYTES // self._rows.row_bytes(self._rows.depth))

    def blocks(self) -> Iterator[Rows]:
        """All that waits, some rows at a time, with the keys of their turn; the pool stays as it is meanwhile.

        Raises:
            BoundscopeError: a file is gone or unreadable.
        """
        keys, step = self._queue.all_sorted(), self._block_rows()
        for begin in range(0, len(keys), step):
            part = keys[begin : begin + step]
            yield {URGENCY: part.urgency, NUMBER: part.number, **self._rows.copies(part.slot)}
        for segment in self._segments:
            for begin in range(0, len(segment), step):
                yield segment.read(begin, min(begin + step, len(segment)))

    def save(self, file: IO[bytes], beside: Path) -> frozenset[str]:
        """Write the pool to a binary file; runs on disk are linked into the folder `beside` (made where it is needed),
        not copied. Gives their names there, which the saved pool needs.

        Raises:
            OSError: the disk is full or failing.
        """
        keys = self._queue.all_sorted()
        step = self._block_rows()
        parts = [keys[begin : begin + step] for begin in range(0, len(keys), step)]
        depths = [self._rows.depth_of(part.slot) for part in parts]
        image = _Image(
            order=self.order,
            columns={
                name: (np.dtype(c.dtype).str, c.shape, c.grows, c.fill) for name, c in self.columns.items()
            },
            number=self._number,
            pushes=self._pushes,
            blocks=tuple((len(part), depth) for part, depth in zip(parts, depths, strict=True)),
            segments=tuple(segment.image for segment in self._segments),
        )
        head = msgspec.msgpack.encode(image)
        file.write(len(head).to_bytes(8, "little") + head)
        for part, depth in zip(parts, depths, strict=True):
            for column in self._rows.file_columns(part, depth).values():
                for array in column.parts(len(part)):
                    file.write(array.tobytes())
        if self._segments:
            beside.mkdir(exist_ok=True)
        for segment in self._segments:
            segment.sync()
            _link(segment.path, beside / segment.path.name)
        return frozenset(segment.path.name for segment in self._segments)

    @classmethod
    def load(
        cls, file: IO[bytes], beside: Path, *, limit_bytes: int | None, folder: Path | None = None
    ) -> DomainPool:
        """A saved pool, under any limit.

        Raises:
            ValueError: the file is damaged, or a run that it needs is missing or damaged; with what is wrong.
            OutOfMemoryError: the disk is full.
        """
        try:
            image = msgspec.msgpack.decode(
                _exactly(file, int.from_bytes(_exactly(file, 8), "little")), type=_Image
            )
        except msgspec.DecodeError as error:
            raise ValueError(f"the head of a pool cannot be read: {error}") from error
        columns = {
            name: Column(np.dtype(dtype), tuple(shape), grows, fill)
            for name, (dtype, shape, grows, fill) in image.columns.items()
        }
        pool = cls(columns, limit_bytes=limit_bytes, folder=folder, order=image.order)
        pool._number, pool._pushes = image.number, image.pushes
        try:
            for rows, depth in image.blocks:
                pool._load_block(file, rows, depth)
            for segment in image.segments:
                pool._adopt(segment, beside)
        except BaseException:
            pool.close()
            raise
        return pool

    def _load_block(self, file: IO[bytes], count: int, depth: int) -> None:
        rows = {
            name: np.frombuffer(_exactly(file, count * layout.row_bytes), layout.dtype).reshape(
                (count, *layout.shape)
            )
            for name, layout in self._rows.layouts(depth).items()
        }
        self._insert(rows, rows.pop(URGENCY), rows.pop(NUMBER))

    def _adopt(self, image: SegmentImage, beside: Path) -> None:
        source = beside / image.name
        if image.depth > self._rows.depth:
            self._deepen(image.depth)
        segment = Segment(
            path=self._spill.new_path().with_name(image.name),
            rows=image.rows,
            depth=image.depth,
            layouts=self._rows.layouts(image.depth),
            crc32=image.crc32,
            first=image.first,
            least=image.least,
            start=image.start,
            synced=True,
        )
        try:
            damaged = source.stat().st_size != segment.nbytes or pool_disk.crc_of(source) != image.crc32
            if not damaged:
                _link(source, segment.path)
        except OSError as error:
            raise ValueError(
                f"{source}, which belongs to it, cannot be read: {error.strerror or error}"
            ) from error
        if damaged:
            raise ValueError(f"{source}, which belongs to it, is damaged")
        self._segments.append(segment)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Give everything back, on disk too."""
        self._spill.close()
        self._segments = []
        self._queue = TurnQueue()
        self._rows = RowStore(self._rows.columns)

    def __enter__(self) -> DomainPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_pool(
    file: IO[bytes], like: DomainPool, sizes: Sequence[int], number: int, blocks: Iterable[Rows]
) -> None:
    """Write rows as a pool with the columns of `like`, none of which grows, that has everything in memory.

    Args:
        sizes: how many rows each of `blocks` has; `number` is of the next domain.
    """
    image = _Image(
        order=like.order,
        columns={n: (np.dtype(c.dtype).str, c.shape, c.grows, c.fill) for n, c in like.columns.items()},
        number=number,
        pushes=0,
        blocks=tuple((size, 0) for size in sizes),
        segments=(),
    )
    head = msgspec.msgpack.encode(image)
    file.write(len(head).to_bytes(8, "little") + head)
    for rows in blocks:
        for name in (URGENCY, NUMBER, *like.columns):
            file.write(np.ascontiguousarray(rows[name]).tobytes())


def _link(source: Path, target: Path) -> None:
    """One file under a second name; a copy where the file system cannot."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        # Under another name first: what has its name is whole.
        part = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, target)


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("it ends too early")
    return data
