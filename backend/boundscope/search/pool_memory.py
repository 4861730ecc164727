"""Rows of domains in memory: one array a column, in slots that are used again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope.search import pool_disk
from boundscope.search.pool_disk import LENGTH, NUMBER, URGENCY, Layout, Rows
from boundscope.search.pool_order import KEY_BYTES, Keys, Numbers

LEAST_CAPACITY = 64
# What a row takes beside its columns: its key, with as much room again, and its slot.
_OVERHEAD_BYTES = 2 * KEY_BYTES + 8


@dataclass(frozen=True)
class Column:
    """What one column holds of every domain: an array of `shape`.

    Where it `grows`, axis 0 of `shape` is as long as each batch needs, and `shape[0]` says nothing. Whatever is shorter
    is padded with `fill`, and trailing entries that are nothing but `fill` are padding. All growing columns of a domain
    have one common length.
    """

    dtype: Any
    shape: tuple[int, ...] = ()
    grows: bool = False
    fill: int | float = 0

    def shape_of(self, depth: int) -> tuple[int, ...]:
        return (depth, *self.shape[1:]) if self.grows else self.shape

    def layout(self, depth: int) -> Layout:
        return Layout(np.dtype(self.dtype), self.shape_of(depth))

    def padded(self, array: NDArray[Any], depth: int) -> NDArray[Any]:
        """[n, depth, …] of a column that grows; others as they are."""
        if not self.grows or array.shape[1] == depth:
            return array
        padded = np.full((len(array), *self.shape_of(depth)), self.fill, self.dtype)
        shared = min(depth, array.shape[1])
        padded[:, :shared] = array[:, :shared]
        return padded

    def lengths(self, array: NDArray[Any]) -> NDArray[np.int32]:
        """[n] of [n, w, …]: where the padding begins; of a column that grows."""
        width = array.shape[1]
        same = np.isnan(array) if self.fill != self.fill else array == self.fill
        if not width:
            return np.zeros(len(array), np.int32)
        holds = ~(same if array.ndim == 2 else same.all(axis=tuple(range(2, array.ndim))))
        last = width - np.argmax(holds[:, ::-1], axis=1)
        return np.where(holds.any(axis=1), last, 0).astype(np.int32)


class RowStore:
    """`columns` holds also those of the pool itself; LENGTH is one of them where some column grows."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        self.depth = 0  # rows of growing columns
        self.capacity = 0
        self._grows = LENGTH in columns
        self._arrays: Rows = {
            name: np.empty((0, *column.shape_of(0)), column.dtype) for name, column in columns.items()
        }
        self._free = np.empty(0, np.int64)  # slots, of which the first `free_count` are free
        self.free_count = 0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values()) + self._free.nbytes

    def __getitem__(self, name: str) -> NDArray[Any]:
        """[capacity, …] of a column, to be read at the slots that are in use."""
        return self._arrays[name]

    def row_bytes(self, depth: int) -> int:
        """What a domain takes in memory, all in all."""
        return _OVERHEAD_BYTES + sum(column.layout(depth).row_bytes for column in self.columns.values())

    def depth_of(self, slots: Numbers) -> int:
        """How long growing columns of these rows are at most."""
        return int(self._arrays[LENGTH][slots].max()) if self._grows and len(slots) else 0

    # ------------------------------------------------------------ in and out

    def place(self, rows: Rows, count: int) -> Numbers:
        """Put rows into free slots, of which there are enough; their slots."""
        slots = self._free[self.free_count - count : self.free_count].copy()
        self.free_count -= count
        for name, values in rows.items():
            array, column = self._arrays[name], self.columns[name]
            if column.grows:
                depth = min(values.shape[1], self.depth)
                array[slots, :depth] = values[:, :depth]
                array[slots, depth:] = column.fill
            else:
                array[slots] = values
        return slots

    def copies(self, slots: Numbers) -> Rows:
        """The rows of some slots, growing columns as long as the longest of them."""
        depth = self.depth_of(slots)
        return {
            name: array[slots, :depth] if self.columns[name].grows else array.take(slots, axis=0)
            for name, array in self._arrays.items()
        }

    def release(self, slots: Numbers) -> None:
        self._free[self.free_count : self.free_count + len(slots)] = slots
        self.free_count += len(slots)

    # ------------------------------------------------------------ room

    def grow(self, capacity: int) -> None:
        for array in self._arrays.values():
            # In place (where the system can, without a second copy); nobody else holds these arrays.
            array.resize((capacity, *array.shape[1:]), refcheck=False)
        free = np.empty(capacity, np.int64)
        free[: self.free_count] = self._free[: self.free_count]
        added = capacity - self.capacity
        free[self.free_count : self.free_count + added] = np.arange(capacity - 1, self.capacity - 1, -1)
        self._free, self.free_count, self.capacity = free, self.free_count + added, capacity

    def deepen(self, depth: int, slots: Numbers, capacity: int) -> None:
        """Give growing columns more rows; what was in `slots` is in 0:len(slots) then, and nothing else is kept."""
        used = len(slots)
        for name, column in self.columns.items():
            old = self._arrays.pop(name)
            new = np.empty((capacity, *column.shape_of(depth)), column.dtype)
            if column.grows:
                new[:used, : self.depth] = old[slots]
                new[:used, self.depth :] = column.fill
            else:
                new[:used] = old[slots]
            self._arrays[name] = new
            del old
        self._free = np.arange(capacity - 1, -1, -1)
        self.free_count, self.capacity, self.depth = capacity - used, capacity, depth

    # ------------------------------------------------------------ files

    def layouts(self, depth: int) -> dict[str, Layout]:
        """Of all columns of a file, in their order."""
        keys = {URGENCY: Layout(np.dtype(np.float64), ()), NUMBER: Layout(np.dtype(np.int64), ())}
        return keys | {name: column.layout(depth) for name, column in self.columns.items()}

    def file_columns(self, keys: Keys, depth: int, rows: Rows | None = None) -> dict[str, pool_disk.Column]:
        """What a file of the rows that `keys` point at, here or in `rows`, is written from."""
        arrays = self._arrays if rows is None else rows

        def of(name: str) -> Callable[[int, int], NDArray[Any]]:
            array = arrays[name]
            if self.columns[name].grows:
                return lambda begin, end: array[keys.slot[begin:end], :depth]
            return lambda begin, end: array[keys.slot[begin:end]]

        readers: dict[str, Callable[[int, int], NDArray[Any]]] = {
            URGENCY: lambda begin, end: keys.urgency[begin:end],
            NUMBER: lambda begin, end: keys.number[begin:end],
            **{name: of(name) for name in self.columns},
        }
        return {name: pool_disk.Column(layout, readers[name]) for name, layout in self.layouts(depth).items()}
