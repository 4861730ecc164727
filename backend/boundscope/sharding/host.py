"""Weights in memory that the ranks of one machine share: each has written its part, and reads what it needs of all.

The memory is an anonymous file (memfd) for all ranks. It has no name on any file system, and is gone with the last of
the processes, however they end. A rank maps what it has written itself, uses that in place, and copies what else it
reads: a mapping of all would count as resident in every rank, and to let go of its pages after each use costs no less
than the copy. No rank waits for another.
"""

from __future__ import annotations

import math
import mmap
import os
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.errors import BoundError
from boundscope.network.arrays import bands
from boundscope.sharding.frames import Traffic
from boundscope.sharding.ranks import RankGroup

if TYPE_CHECKING:
    from boundscope.sharding.weights import Ledger

BLOCK_COLUMNS = 256  # of a matrix, which lie together: a tile is one piece of memory
READ_ROWS = 2048  # of a block, read at a time where single rows are wanted
ALIGNED_BYTES = 64  # as torch's own memory: what a product rounds may depend on it
NAME = "boundscope-weights"
Index = slice | Tensor
# Where a part of a matrix is kept that a rule uses again and again: a dictionary and its key. What lies there may be
# replaced by the same in other memory.
Wish = tuple[dict[Any, Any], Any]


class HostMemory:
    """Bytes that all ranks of a machine share. `wishes`, where it is a list, gets parts that are worth to be copied
    once."""

    def __init__(self, descriptor: int, size: int, traffic: Traffic) -> None:
        """Takes a descriptor of the file, which it closes."""
        self._descriptor, self._traffic = descriptor, traffic
        weakref.finalize(self, os.close, descriptor)
        self._written = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED)
        self.wishes: list[Wish] | None = None

    @classmethod
    def shared(cls, ranks: RankGroup, size: int) -> tuple[HostMemory | None, str]:
        """Memory of `size` bytes (at least one), the same on all ranks; or none on any of them, and why. All ranks
        call together.

        Raises:
            BoundscopeError: what another rank has brought to `agree` instead of coming here.
        """
        assert ranks.frames is not None
        found, why, path = None, "", ""
        if ranks.rank == 0:
            try:
                descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
                path = f"/proc/{os.getpid()}/fd/{descriptor}"
                try:
                    os.truncate(descriptor, size)
                except OSError:
                    os.close(descriptor)
                    raise
                found = cls(descriptor, size, ranks.frames.traffic)
            except (OSError, AttributeError) as error:  # the latter where it is not Linux
                why = f"rank 0: {error}"
        path, why = ranks.of_rank_0((path, why))
        if ranks.rank and not why:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                if os.fstat(descriptor).st_size != size:
                    os.close(descriptor)
                    raise OSError(f"{path} is not what rank 0 has made")
                found = cls(descriptor, size, ranks.frames.traffic)
            except OSError as error:
                why = f"rank {ranks.rank}: {error}"
        reasons = [one for one in ranks.gather(why) if one]
        return (None, reasons[0]) if reasons else (found, "")

    def own(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A part that this rank writes, and that stays resident in it."""
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._written, dtype=dtype, count=count, offset=offset).view(shape)

    def read(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A copy of a part, whoever has written it.

        Raises:
            BoundError: the memory cannot be read.
        """
        start_s = time.perf_counter()
        found = torch.empty(shape, dtype=dtype)
        memory = found.numpy()
        done = os.preadv(self._descriptor, [memory.data], offset) if memory.size else 0
        while done < memory.nbytes:
            rest = memory.reshape(-1).view(np.uint8)[done:]
            count = os.preadv(self._descriptor, [rest.data], offset + done)
            if count <= 0:
                raise BoundError("memory that ranks share has become shorter")
            done += count
        self._traffic.read_s += time.perf_counter() - start_s
        self._traffic.read_bytes += done
        return found


@dataclass(frozen=True)
class Layout:
    """Where each constant begins, in bytes, and how many there are in all."""

    offsets: Mapping[str, int]
    size: int

    @classmethod
    def of(cls, constants: Mapping[str, NDArray[Any]]) -> Layout:
        offsets, end = {}, 0
        for name, array in constants.items():
            offsets[name] = end
            end += -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        return cls(offsets, end)


def _own_part(count: int, ranks: RankGroup) -> slice:
    """Of `count` rows or elements, those that this rank writes."""
    step = -(-count // ranks.size)
    return slice(min(count, ranks.rank * step), min(count, (ranks.rank + 1) * step))


def torch_dtype(array: NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, array.dtype)).dtype


class HostConstant:
    """A constant whose elements the ranks of a machine have written in equal parts, in their order."""

    def __init__(
        self, array: NDArray[Any], memory: HostMemory, offset: int, ranks: RankGroup, ledger: Ledger
    ) -> None:
        self._memory, self._offset, self._shape = memory, offset, array.shape
        self._dtype = torch_dtype(array)
        part = _own_part(array.size, ranks)
        own = memory.own(offset + part.start * array.itemsize, (part.stop - part.start,), self._dtype)
        self._own = ledger.hold(own, "weights")
        for elements, values in bands(array.reshape(-1)[part]):
            own.numpy()[elements] = values

    def gathered(self) -> Tensor:
        return self._memory.read(self._offset, self._shape, self._dtype)


class HostMatrix:
    """A matrix [m, n] in blocks of BLOCK_COLUMNS columns, of whose rows the ranks of a machine have written equal
    parts."""

    in_step = False  # whether all ranks ask for the same parts in the same order
    device = torch.device("cpu")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        memory: HostMemory,
        offset: int,
        ranks: RankGroup,
        ledger: Ledger,
    ) -> None:
        self.shape, self.dtype, self.ranks, self.memory = torch.Size(shape), dtype, ranks, memory
        self._offset, self._ledger = offset, ledger
        self._chosen: tuple[Index, _Columns] | None = None  # the columns asked for last
        self.own_rows = _own_part(shape[0], ranks)
        self._own: list[Tensor] = []
        for block in range(-(-shape[1] // BLOCK_COLUMNS)):
            start, width = self._block(block)
            place = start + self.own_rows.start * width * dtype.itemsize
            own = memory.own(place, (self.own_rows.stop - self.own_rows.start, width), dtype)
            self._own.append(ledger.hold(own, "weights"))

    def write(self, band: slice, values: NDArray[Any], columns: slice | None = None) -> None:
        """Some of this rank's own rows, counted from its first one: [k, n], or only those columns, of one block."""
        for block, own in enumerate(self._own):
            first = block * BLOCK_COLUMNS
            if columns is None:
                own.numpy()[band] = values[:, first : first + own.shape[1]]
            elif columns.start == first:
                own.numpy()[band] = values

    def _block(self, block: int) -> tuple[int, int]:
        """Where a block of columns begins, in bytes, and its width."""
        first = block * BLOCK_COLUMNS
        width = min(BLOCK_COLUMNS, self.shape[1] - first)
        return self._offset + self.shape[0] * first * self.dtype.itemsize, width

    def gather(self, wanted: Sequence[tuple[Index, Index]]) -> Iterator[Tensor]:
        """The parts [k, l] at some rows and columns, each contiguous, one after another."""
        for rows, columns in wanted:
            yield self._ledger.hold(self._part(rows, columns), "gathered")

    def _part(self, rows: Index, columns: Index) -> Tensor:
        if isinstance(rows, slice) and isinstance(columns, slice):
            block, first = divmod(columns.start, BLOCK_COLUMNS)
            if not first and columns.stop == min(columns.start + BLOCK_COLUMNS, self.shape[1]):
                return self._rows(block, rows.start, rows.stop)
        chosen = self._columns(columns)
        pieces = [self._piece(block, rows, inside) for block, inside in chosen.blocks]
        whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)
        if chosen.order is not None:
            whole = whole.index_select(1, chosen.order)
        return whole.contiguous()

    def _piece(self, block: int, rows: Index, inside: Index) -> Tensor:
        """[k, l] of one block."""
        width = self._block(block)[1]
        if isinstance(rows, slice):
            part = self._rows(block, rows.start, rows.stop)
        elif not len(rows):
            part = torch.empty(0, width, dtype=self.dtype)
        else:
            first, last = int(rows.min()), int(rows.max())
            if last - first < READ_ROWS:
                part = self._rows(block, first, last + 1).index_select(0, rows - first)
            else:
                part = self._single_rows(block, rows)
        return part[:, inside] if isinstance(inside, slice) else part.index_select(1, inside)

    def _single_rows(self, block: int, rows: Tensor) -> Tensor:
        """Rows [k] that lie far apart, some at a time."""
        found = torch.empty(len(rows), self._block(block)[1], dtype=self.dtype)
        band = rows // READ_ROWS
        for number in range(int(band.min()), int(band.max()) + 1):
            here = (band == number).nonzero().flatten()
            if not len(here):
                continue
            inside = rows[here]
            first = int(inside.min())
            found[here] = self._rows(block, first, int(inside.max()) + 1).index_select(0, inside - first)
        return found

    def _rows(self, block: int, first: int, stop: int) -> Tensor:
        """Rows of a block: a view of this rank's own where they lie as a copy would, else a copy."""
        if self.own_rows.start <= first and stop <= self.own_rows.stop:
            own = self._own[block][first - self.own_rows.start : stop - self.own_rows.start]
            if own.data_ptr() % ALIGNED_BYTES == 0:
                return own
        start, width = self._block(block)
        place = start + first * width * self.dtype.itemsize
        return self.memory.read(place, (stop - first, width), self.dtype)

    def _columns(self, columns: Index) -> _Columns:
        if self._chosen is None or self._chosen[0] is not columns:
            self._chosen = (columns, _Columns.of(columns))
        return self._chosen[1]


@dataclass(frozen=True)
class _Columns:
    """Some columns by blocks: which of each block, and where each of those wanted is among all of these (None: in that
    order already)."""

    blocks: list[tuple[int, Index]]
    order: Tensor | None

    @classmethod
    def of(cls, columns: Index) -> _Columns:
        if isinstance(columns, slice):
            parts: list[tuple[int, Index]] = []
            for block in range(columns.start // BLOCK_COLUMNS, -(-columns.stop // BLOCK_COLUMNS)):
                first = block * BLOCK_COLUMNS
                inside = slice(max(0, columns.start - first), min(BLOCK_COLUMNS, columns.stop - first))
                parts.append((block, inside))
            return cls(parts or [(0, slice(0, 0))], None)
        if not len(columns):
            return cls([(0, columns)], None)
        blocks = columns // BLOCK_COLUMNS
        order: Tensor | None = None
        if bool((blocks[1:] < blocks[:-1]).any()):
            arrived = blocks.argsort(stable=True)
            order = arrived.argsort()
            columns, blocks = columns[arrived], blocks[arrived]
        # Rising now, so that those of one block lie together.
        found: list[tuple[int, Index]] = []
        for number in range(int(blocks[0]), int(blocks[-1]) + 1):
            those = columns[blocks == number]
            if len(those):
                found.append((number, those - number * BLOCK_COLUMNS))
        return cls(found, order)
