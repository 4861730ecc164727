"""Rows in chunks, over ranks: how many are carried together, which of them by which rank, and what happens where memory
does not hold them. It knows nothing of what a row is."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from boundscope.bounds.in_step import InStep
from boundscope.errors import BoundscopeError, OutOfMemoryError
from boundscope.protocol import Progress
from boundscope.sharding.weights import WeightStore

CHUNK_MULTIPLE = 16
CHUNK_DEFAULT = 256
CHUNK_LARGEST = 1024
CHUNK_SEARCHED = 256  # a search remembers what its rows meet at every non-linear node
CHUNK_ELEMENTS = 1 << 20  # of the widest tensor; small networks take more rows at once
AGREE_S = 1.0  # ranks that need nothing of each other ask about this often whether one has failed
LIVE_COPIES = 5  # coefficient tensors of the widest layer that a pass holds at once, with its temporaries


@dataclass(frozen=True)
class Chunk:
    """Rows start … stop−1 of a block; carried with zero rows added up to the chunk size."""

    start: int
    stop: int


class RowChunks:
    """Bounds blocks of rows over one network, a chunk at a time. Every rank of the job calls it in step."""

    def __init__(
        self,
        in_step: InStep,
        weights: WeightStore,
        device: torch.device,
        *,
        widest: int,
        item_bytes: int,
        asked: int | None = None,
    ) -> None:
        """
        Args:
            in_step, weights, device: who works together, on what, and where.
            widest: elements of the widest tensor that rows meet.
            item_bytes: of each in rows of hidden layers.
            asked: rows to carry together, a multiple of 16; None: by the ledger's limit.
        """
        self._in_step, self._ranks = in_step, in_step.ranks
        self._monitor, self._ledger = in_step.monitor, in_step.ledger
        self._weights, self._device = weights, device
        self._widest, self._item_bytes, self._asked = widest, item_bytes, asked

    def lower(
        self, count: int, bound: Callable[[Chunk, int], Tensor], *, stage: str, searched: bool
    ) -> Tensor:
        """Lower bounds of `count` rows: [count] float64, equal on every rank; `bound` gives those of one chunk.

        What a search decides for a chunk, it decides for all its rows: where bounds are `searched`, chunks are the same
        whatever the number of ranks, which carry equal parts of each. A product has the same bits for each row, so
        that bounds are the same bits. A chunk that does not fit the memory budget is halved and tried again.
        """
        if not count:
            return torch.zeros(0, dtype=torch.float64, device=self._device)
        size = self._ranks.least(self._size(count))
        if self._asked is None and searched:
            size = _even(count, min(size, CHUNK_SEARCHED))
        if self._asked is not None and size < min(self._asked, count):
            self._say_fewer(stage, "no room in the memory budget for the chunks asked for", size)
        if self._asked is None and not searched and self._weights.lends_tiles and self._ranks.splits_rows:
            # Tiles are worth reading for as many rows as one rank carries of a wide network; memory must fall, too.
            size = max(size, min(2 * size, CHUNK_DEFAULT * self._ranks.size))
        while True:
            try:
                return self._lower_in_chunks(count, bound, size, stage, searched)
            except OutOfMemoryError as error:
                if size <= CHUNK_MULTIPLE or error.final:
                    raise
                rank = "" if error.rank is None else f"rank {error.rank} "
                _forget_frames(error)
                size = _half(size)
                self._say_fewer(stage, f"{rank}out of the memory budget", size)

    def _say_fewer(self, stage: str, why: str, size: int) -> None:
        self._monitor.log(f"{stage}: {why}, trying chunks of {size} rows", "warning")

    def _lower_in_chunks(
        self, count: int, bound: Callable[[Chunk, int], Tensor], size: int, stage: str, searched: bool
    ) -> Tensor:
        bounds = torch.zeros(count, dtype=torch.float64, device=self._device)
        rows = self._ranks.part_of(size)
        starts = range(0, count, size)
        next_agreement, last_agreement, start_s = 0, -1, self._monitor.now_s
        # One rank of several, which bounds something alone, may not ask the others.
        keeps = len(starts) > 1 and self._ranks.size > 1
        for number, first in enumerate(starts):
            chunk = Chunk(first, min(first + size, count))
            mine = self._part_of(chunk, rows)
            error: BoundscopeError | None = None
            self._monitor.emit(Progress(stage=stage, done=first, total=count))
            self._weights.watch_parts(number == 0 and keeps)
            try:
                lower = self._in_step.try_alone(partial(bound, mine, rows))
                bounds[mine.start : mine.stop] = lower[: mine.stop - mine.start]
            except BoundscopeError as caught:
                error = caught
            if error is not None:
                self._weights.watch_parts(False)
            if searched:
                self._ranks.agree(error)
            elif error is not None or number in (next_agreement, len(starts) - 1):
                now_s = self._monitor.now_s
                chunks = (number - last_agreement) * AGREE_S / max(now_s - start_s, 1e-6)
                next_agreement = number + self._ranks.least(max(1, int(min(chunks, len(starts)))), error)
                last_agreement, start_s = number, now_s
            if number == 0 and keeps:
                self._in_step.do(self._weights.keep_parts)
        self._monitor.emit(Progress(stage=stage, done=count, total=count))
        return self._ranks.sum_parts(bounds)

    def _part_of(self, chunk: Chunk, rows: int) -> Chunk:
        """The rows of a chunk that this rank carries; none where there are more ranks than parts."""
        if not self._ranks.splits_rows:
            return chunk
        start = min(chunk.start + self._ranks.rank * rows, chunk.stop)
        return Chunk(start, min(start + rows, chunk.stop))

    def _size(self, count: int) -> int:
        """Rows a chunk: as asked or the default, less where this rank's budget or the number of rows is small."""
        widest = self._widest
        most = -(-count // CHUNK_MULTIPLE) * CHUNK_MULTIPLE
        limit = self._ledger.limit_bytes
        free = None if limit is None else limit - self._ledger.total_bytes
        if self._asked is not None:
            # As asked; but what surely has no room is not tried, for trying takes the memory.
            size = min(self._asked, most)
            row_bytes = self._item_bytes * widest
            while free is not None and size > CHUNK_MULTIPLE and self._ranks.part_of(size) * row_bytes > free:
                size = _half(size)
            return size
        cheap = CHUNK_ELEMENTS // widest // CHUNK_MULTIPLE * CHUNK_MULTIPLE
        size = min(max(CHUNK_DEFAULT, min(CHUNK_LARGEST, cheap)), most)
        if free is not None:
            size = min(size, free // (2 * 8 * LIVE_COPIES * widest) // CHUNK_MULTIPLE * CHUNK_MULTIPLE)
        return max(size, CHUNK_MULTIPLE)


def _even(count: int, largest: int) -> int:
    """Rows of a chunk, where as few as are needed of at most `largest` carry alike many of `count`."""
    chunks = -(-count // largest)
    return -(-count // (chunks * CHUNK_MULTIPLE)) * CHUNK_MULTIPLE


def _half(size: int) -> int:
    return max(CHUNK_MULTIPLE, size // 2 // CHUNK_MULTIPLE * CHUNK_MULTIPLE)


def _forget_frames(error: BaseException) -> None:
    """Let go of what the frames that failed still hold: the tensors that there was no room for."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
