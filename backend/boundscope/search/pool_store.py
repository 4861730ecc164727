"""Rows of domains in the order of their turn: in memory the most urgent ones, and on disk, in sorted runs, what is too
much for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import BoundscopeError
from boundscope.search import pool_disk
from boundscope.search.pool_disk import (
    LENGTH,
    NUMBER,
    URGENCY,
    Rows,
    Segment,
    SegmentImage,
    SpillFolder,
    exactly,
    link,
    write_segment,
)
from boundscope.search.pool_memory import LEAST_CAPACITY, Column, RowStore
from boundscope.search.pool_order import Floats, Keys, Numbers, TurnQueue

SEGMENT_BYTES = 32 << 20
GROWTH = 1.25  # of the room for rows, where there is not enough
FETCH_BYTES = 256 << 10  # read back at a time at least

Mask = NDArray[np.bool_]


class SpillingRows:
    """All of a pool's rows. Methods that may write to disk raise OutOfMemoryError where that is full; all is then as it
    was before.

    Attributes:
        rows: those in memory.
        queue: their keys, which point at them.
        segments: the runs on disk.
    """

    def __init__(
        self, columns: Mapping[str, Column], *, limit_bytes: int | None, folder: Path | None
    ) -> None:
        self._limit_bytes = limit_bytes
        self._grows = any(column.grows for column in columns.values())
        self.rows = RowStore(columns)
        self.queue = TurnQueue()
        self.segments: list[Segment] = []
        self._spill = SpillFolder(folder)

    def __len__(self) -> int:
        return len(self.queue) + sum(len(segment) for segment in self.segments)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return self.rows.nbytes + self.queue.nbytes

    # ------------------------------------------------------------ in

    def insert(self, rows: Rows, urgency: Floats, number: Numbers) -> None:
        """Put rows where there is room for them: in memory, or all of them on disk."""
        count = len(urgency)
        depth = int(rows[LENGTH].max()) if self._grows and count else 0
        if depth > self.rows.depth:
            self._deepen(depth)
        most = self._most(self.rows.depth)
        if len(self.queue) + count > most and count > most // 2:
            keys = Keys(urgency, number, np.arange(count)).sorted()
            padded = {name: self.rows.columns[name].padded(array, depth) for name, array in rows.items()}
            self.segments += self._written(keys, depth, padded)
            return
        self._make_room(count)
        self.queue.push(Keys(urgency, number, self.rows.place(rows, count)))

    # ------------------------------------------------------------ room in memory

    def _most(self, depth: int) -> int:
        """Rows that memory may hold."""
        if self._limit_bytes is None:
            return sys.maxsize
        return max(1, self._limit_bytes // self.rows.row_bytes(depth))

    def _make_room(self, count: int) -> None:
        """Have `count` free slots, at most half of what memory may hold where it is full."""
        most = self._most(self.rows.depth)
        if len(self.queue) + count > most:
            self._evict(min(most // 2, most - count))
        if self.rows.free_count < count:
            self.rows.grow(
                min(most, max(int(GROWTH * self.rows.capacity), len(self.queue) + count, LEAST_CAPACITY))
            )

    def _deepen(self, needed: int) -> None:
        """Give growing columns more rows, packing all domains closely together."""
        depth = max(needed, self.rows.depth + self.rows.depth // 2, 4)
        most = self._most(depth)
        if len(self.queue) > most // 2:
            self._evict(most // 2)
        keys = self.queue.all_sorted()
        self.rows.deepen(depth, keys.slot, max(len(keys), min(self.rows.capacity, most)))
        self.queue.reset(Keys(keys.urgency, keys.number, np.arange(len(keys))))

    def _evict(self, keep: int) -> None:
        """Write all but the `keep` most urgent domains in memory to disk."""
        keys = self.queue.all_sorted()
        if len(keys) <= keep:
            return
        leaving = keys[keep:]
        self.segments += self._written(leaving, self.rows.depth_of(leaving.slot))
        self.queue.reset(keys[:keep])
        self.rows.release(leaving.slot)

    def _written(self, keys: Keys, depth: int, rows: Rows | None = None) -> list[Segment]:
        """Write the rows that sorted keys point at, in memory or in `rows`, whole or not at all."""
        step = max(1, SEGMENT_BYTES // self.rows.row_bytes(depth))
        done: list[Segment] = []
        try:
            for begin in range(0, len(keys), step):
                part = keys[begin : begin + step]
                columns = self.rows.file_columns(part, depth, rows)
                done.append(write_segment(self._spill.new_path(), len(part), depth, columns))
        except BaseException:
            for segment in done:
                segment.path.unlink(missing_ok=True)
            raise
        return done

    # ------------------------------------------------------------ out

    def take(self, count: int) -> list[tuple[Rows, Floats]]:
        """Remove the next rows, at most `count`, in order: some of them with their urgencies, then others.

        Fewer where there are fewer, or where the disk is full when others should come back from it; the error is raised
        once there is nothing else to give.
        """
        parts: list[tuple[Rows, Floats]] = []
        left = count
        while left > 0:
            nearest = min(self.segments, key=lambda segment: segment.first, default=None)
            keys = self.queue.take(left, None if nearest is None else nearest.first)
            if len(keys):
                parts.append((self.rows.copies(keys.slot), keys.urgency.copy()))
                self.rows.release(keys.slot)
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
        return parts

    def _fetch(self, wanted: int) -> None:
        """Bring back the next rows of the segment whose turn is next."""
        depth = self.rows.depth
        most = self._most(depth)
        count = max(1, min(max(wanted, FETCH_BYTES // self.rows.row_bytes(depth)), most // 2))
        self._make_room(count)
        segment = min(self.segments, key=lambda one: one.first)
        count = min(count, len(segment))
        rows = segment.read(0, count)
        urgency, number = rows.pop(URGENCY), rows.pop(NUMBER)
        if count < len(segment):
            segment.advance(count)
        else:
            self.segments.remove(segment)
            segment.path.unlink(missing_ok=True)
        self.queue.push(Keys(urgency, number, self.rows.place(rows, count)))

    # ------------------------------------------------------------ what is settled elsewhere

    def keep_in_memory(self, slots: Numbers, kept: Mask) -> None:
        """Of the rows in all slots in use, only those that are marked."""
        if kept.all():
            return
        marked = np.zeros(self.rows.capacity, np.bool_)
        marked[slots[kept]] = True
        keys = self.queue.all_sorted()
        self.queue.reset(keys[marked[keys.slot]])
        self.rows.release(slots[~kept])

    def keep_on_disk(self, segment: Segment, kept: Mask) -> None:
        """Of a segment's rows only those that are marked.

        Segments are never changed (a checkpoint may share them): one that loses rows is written anew.
        """
        if kept.all():
            return
        replacement: list[Segment] = []
        if kept.any():
            rows = segment.read(0, len(segment))
            at = np.flatnonzero(kept)
            keys = Keys(rows.pop(URGENCY)[at], rows.pop(NUMBER)[at], at)
            replacement = self._written(keys, segment.depth, rows)
        place = self.segments.index(segment)
        self.segments[place : place + 1] = replacement
        segment.path.unlink(missing_ok=True)

    # ------------------------------------------------------------ saving

    def block_sizes(self) -> list[int]:
        """How many rows each of `blocks` will have."""
        step = self.block_rows()
        parts = [len(self.queue), *(len(segment) for segment in self.segments)]
        return [min(step, size - begin) for size in parts for begin in range(0, size, step)]

    def block_rows(self) -> int:
        """Rows of a block at most."""
        return max(1, pool_disk.SLICE_BYTES // self.rows.row_bytes(self.rows.depth))

    def parts_in_memory(self) -> list[tuple[Keys, int]]:
        """Of the blocks in memory: keys, and how long growing columns are."""
        keys, step = self.queue.all_sorted(), self.block_rows()
        parts = [keys[begin : begin + step] for begin in range(0, len(keys), step)]
        return [(part, self.rows.depth_of(part.slot)) for part in parts]

    def blocks(self) -> Iterator[Rows]:
        """All that waits, some rows at a time, with the keys of their turn; the pool stays as it is meanwhile.

        Raises:
            BoundscopeError: a file is gone or unreadable.
        """
        keys, step = self.queue.all_sorted(), self.block_rows()
        for begin in range(0, len(keys), step):
            part = keys[begin : begin + step]
            yield {URGENCY: part.urgency, NUMBER: part.number, **self.rows.copies(part.slot)}
        for segment in self.segments:
            for begin in range(0, len(segment), step):
                yield segment.read(begin, min(begin + step, len(segment)))

    def load_block(self, file: IO[bytes], count: int, depth: int) -> None:
        """Take up the next rows of a saved pool.

        Raises:
            ValueError: the file ends before.
        """
        rows = {
            name: np.frombuffer(exactly(file, count * layout.row_bytes), layout.dtype).reshape(
                (count, *layout.shape)
            )
            for name, layout in self.rows.layouts(depth).items()
        }
        self.insert(rows, rows.pop(URGENCY), rows.pop(NUMBER))

    def adopt(self, image: SegmentImage, beside: Path) -> None:
        """Take up a run of a saved pool, from the folder `beside` it.

        Raises:
            ValueError: the run is missing or damaged; with what is wrong.
        """
        source = beside / image.name
        if image.depth > self.rows.depth:
            self._deepen(image.depth)
        segment = Segment(
            path=self._spill.new_path().with_name(image.name),
            rows=image.rows,
            depth=image.depth,
            layouts=self.rows.layouts(image.depth),
            crc32=image.crc32,
            first=image.first,
            least=image.least,
            start=image.start,
            synced=True,
        )
        try:
            damaged = source.stat().st_size != segment.nbytes or pool_disk.crc_of(source) != image.crc32
            if not damaged:
                link(source, segment.path)
        except OSError as error:
            raise ValueError(
                f"{source}, which belongs to it, cannot be read: {error.strerror or error}"
            ) from error
        if damaged:
            raise ValueError(f"{source}, which belongs to it, is damaged")
        self.segments.append(segment)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Give everything back, on disk too."""
        self._spill.close()
        self.segments = []
        self.queue = TurnQueue()
        self.rows = RowStore(self.rows.columns)
