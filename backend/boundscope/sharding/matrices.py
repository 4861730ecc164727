"""Large matrices whose columns lie on several ranks, lent tile by tile: no rank ever holds one whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.network.arrays import take_columns
from boundscope.sharding.frames import Frame
from boundscope.sharding.host import BLOCK_COLUMNS, HostMatrix, HostMemory
from boundscope.sharding.ranks import RankGroup

if TYPE_CHECKING:
    from boundscope.sharding.weights import Ledger

TILE_ROWS = 512
TILE_COLUMNS = BLOCK_COLUMNS
Cut = tuple[slice, slice]


@dataclass(frozen=True)
class ColumnShards:
    """Which columns of a stored matrix [m, n] lie where: of each TILE_COLUMNS, an equal part on every rank."""

    columns: int
    ranks: int

    @cached_property
    def owner(self) -> Tensor:
        """The rank of each column, [n]."""
        column = torch.arange(self.columns)
        start = column // TILE_COLUMNS * TILE_COLUMNS
        width = (self.columns - start).clamp(max=TILE_COLUMNS)
        return (column - start) // ((width + self.ranks - 1) // self.ranks)

    @cached_property
    def local(self) -> Tensor:
        """The column of its rank's shard that each column is, [n]."""
        found = torch.empty(self.columns, dtype=torch.int64)
        for rank in range(self.ranks):
            own = self.of(rank)
            found[own] = torch.arange(len(own))
        return found

    def of(self, rank: int) -> Tensor:
        """The columns of a rank, rising."""
        return (self.owner == rank).nonzero().flatten()


class ShardedMatrix:
    """One rank's shard of a stored matrix [m, n]; `gather` gives parts of the whole, which all ranks ask for alike."""

    in_step = True

    def __init__(self, array: NDArray[Any], ranks: RankGroup, ledger: Ledger, device: torch.device) -> None:
        assert ranks.frames is not None
        self.shape = torch.Size(array.shape)
        self.ranks, self._frames, self._ledger = ranks, ranks.frames, ledger
        self._shards = ColumnShards(array.shape[1], ranks.size)
        self._spreads: dict[tuple[int, int], _Spread] = {}
        own = take_columns(array, self._shards.of(ranks.rank).numpy())
        self.values = ledger.hold(torch.from_numpy(own).to(device), "weights")

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def gather(self, wanted: Sequence[tuple[slice | Tensor, slice | Tensor]]) -> Iterator[Tensor]:
        """The parts [k, l] at some rows and columns, each contiguous, one after another. While the caller works on one,
        the next is under way, and no more."""
        waiting: deque[_Pending] = deque()
        for rows, columns in wanted:
            waiting.append(self._post(rows, columns))
            if len(waiting) > 1:
                yield self._received(waiting.popleft())
        while waiting:
            yield self._received(waiting.popleft())

    def _post(self, rows: slice | Tensor, columns: slice | Tensor) -> _Pending:
        spread = self._spread(columns)
        values = self.values[:, spread.own] if isinstance(spread.own, slice) else self.values
        part = values[rows] if isinstance(rows, slice) else values.index_select(0, rows)
        if isinstance(spread.own, Tensor):
            part = part.index_select(1, spread.own)
        widest = max(spread.counts)
        if part.shape[1] < widest:
            part = torch.cat([part, part.new_zeros(len(part), widest - part.shape[1])], dim=1)
        frames = self._frames.post(part)
        for frame in frames:
            for tensor in (frame.sent, frame.received):
                if tensor is not None:
                    self._ledger.hold(tensor, "gathered")
        return _Pending(frames, len(part), widest, spread)

    def _spread(self, columns: slice | Tensor) -> _Spread:
        if isinstance(columns, Tensor):
            return _Spread.of(self._shards, columns, self.ranks.rank, self.device)
        key = (columns.start, columns.stop)
        if key not in self._spreads:
            index = torch.arange(columns.start, columns.stop)
            self._spreads[key] = _Spread.of(self._shards, index, self.ranks.rank, self.device)
        return self._spreads[key]

    def _received(self, pending: _Pending) -> Tensor:
        spread = pending.spread
        parts = self._frames.take(pending.frames, pending.rows * pending.widest, self.dtype)
        pieces = [
            part.view(pending.rows, pending.widest)[:, :count].to(self.device)
            for part, count in zip(parts, spread.counts, strict=True)
        ]
        whole = torch.cat(pieces, dim=1)
        if spread.order is not None:
            whole = whole.index_select(1, spread.order)
        return self._ledger.hold(whole, "gathered")


@dataclass(frozen=True)
class _Spread:
    """How some columns lie on the ranks: each rank's number of them, which of its shard are this rank's, and where each
    is among all, rank after rank (None: in that order already)."""

    counts: list[int]
    own: slice | Tensor
    order: Tensor | None

    @classmethod
    def of(cls, shards: ColumnShards, columns: Tensor, rank: int, device: torch.device) -> _Spread:
        owner = shards.owner[columns]
        counts = torch.bincount(owner, minlength=shards.ranks).tolist()
        found = shards.local[columns][owner == rank]
        own: slice | Tensor = found.to(device)
        if len(found) and bool((found[1:] - found[:-1] == 1).all()):
            own = slice(int(found[0]), int(found[-1]) + 1)
        if bool((owner[1:] >= owner[:-1]).all()):
            return cls(counts, own, None)
        # Sorted by owner is how they arrive.
        return cls(counts, own, owner.argsort(stable=True).argsort().to(device))


@dataclass(frozen=True)
class _Pending:
    frames: list[Frame]
    rows: int
    widest: int
    spread: _Spread


@dataclass(frozen=True)
class LentMatrix:
    """A matrix, or a part of one, that a rule reads tile by tile. All ranks read the same tiles in the same order, but
    for what lies in memory that they share."""

    stored: ShardedMatrix | HostMatrix
    rows: Tensor | None = None  # of the stored matrix; None: all
    columns: Tensor | None = None
    transposed: bool = False
    together: bool = False  # all ranks take the same products with it now, and share them out

    is_sparse = False
    requires_grad = False

    @property
    def shape(self) -> torch.Size:
        rows = self.stored.shape[0] if self.rows is None else len(self.rows)
        columns = self.stored.shape[1] if self.columns is None else len(self.columns)
        return torch.Size((columns, rows) if self.transposed else (rows, columns))

    def __len__(self) -> int:
        return self.shape[0]

    def numel(self) -> int:
        return self.shape.numel()

    def dim(self) -> int:
        return 2

    def is_floating_point(self) -> bool:
        return True

    @property
    def dtype(self) -> torch.dtype:
        return self.stored.dtype

    @property
    def device(self) -> torch.device:
        return self.stored.device

    @property
    def T(self) -> LentMatrix:  # noqa: N802 as a tensor's
        return replace(self, transposed=not self.transposed)

    def index_select(self, dim: int, index: Tensor) -> LentMatrix:
        """Some rows, or columns, the same on all ranks: nothing is gathered yet."""
        if (dim == 0) is not self.transposed:
            return replace(self, rows=index if self.rows is None else self.rows[index])
        return replace(self, columns=index if self.columns is None else self.columns[index])

    def tiles(self, cuts: Sequence[Cut]) -> Iterator[Tensor]:
        """The parts at some rows and columns, laid out in memory as a slice of the stored matrix is."""
        wanted = []
        found: dict[tuple[int, int, int], slice | Tensor] = {}  # the same index where it is wanted again
        for first, second in cuts:
            rows, columns = (second, first) if self.transposed else (first, second)
            chosen = []
            for axis, (index, part) in enumerate(((self.rows, rows), (self.columns, columns))):
                key = (axis, part.start, part.stop)
                if key not in found:
                    found[key] = _within(index, part)
                chosen.append(found[key])
            wanted.append((chosen[0], chosen[1]))
        for tile in self.stored.gather(wanted):
            yield tile.T if self.transposed else tile

    def own_bands(self, bands: Sequence[slice]) -> list[slice]:
        """Of bands of rows, those that this rank takes of a product that all ranks take together."""
        return [
            band
            for band, rank in zip(bands, self._takers(len(bands)), strict=True)
            if rank == self.stored.ranks.rank
        ]

    def _takers(self, count: int) -> list[int]:
        """The rank of each band: in the order of ranks, as rows lie in memory that they share."""
        return [number * self.stored.ranks.size // count for number in range(count)]

    def of_all_ranks(self, parts: Sequence[Tensor], bands: Sequence[slice]) -> list[Tensor]:
        """Values [..., k] at the rows of this rank's bands, of one dtype, as values [..., m] at all of them.

        Raises:
            PeerStoppedError: another rank has failed.
        """
        ranks = self.stored.ranks
        widths = [0] * ranks.size
        for band, rank in zip(bands, self._takers(len(bands)), strict=True):
            widths[rank] += band.stop - band.start
        flat = [part.reshape(part.shape[:-1].numel(), part.shape[-1]) for part in parts]
        sent = flat[0].new_zeros(sum(len(part) for part in flat), max(widths))
        sent[:, : widths[ranks.rank]] = torch.cat(flat)
        received = ranks.share(sent)
        whole = torch.cat([one[:, :width] for one, width in zip(received, widths, strict=True)], dim=1)
        split = torch.split(whole, [len(part) for part in flat])
        return [one.reshape(*part.shape[:-1], -1) for one, part in zip(split, parts, strict=True)]

    def whole(self) -> Tensor:
        (part,) = self.tiles([(slice(0, len(self)), slice(0, self.shape[1]))])
        return part

    def kept(self, place: dict[Any, Any], key: Any) -> LentMatrix:
        """The same, which a rule keeps at a key of `place` until its use next time."""
        if isinstance(self.stored, HostMatrix) and self.stored.memory.wishes is not None:
            self.stored.memory.wishes.append((place, key))
        return self

    def copied(self, memory: HostMemory, ledger: Ledger) -> LentMatrix:
        """The same in shared memory of its own, of which this rank writes its part."""
        plain = replace(self, transposed=False)
        ranks = self.stored.ranks
        copy = HostMatrix(plain.shape, self.dtype, memory, 0, ranks, ledger)
        first, stop = copy.own_rows.start, copy.own_rows.stop
        bands = [slice(one, min(one + TILE_ROWS, stop)) for one in range(first, stop, TILE_ROWS)]
        width = plain.shape[1]
        blocks = [slice(one, min(one + TILE_COLUMNS, width)) for one in range(0, width, TILE_COLUMNS)]
        cuts = [(band, block) for block in blocks for band in bands]
        for (band, block), part in zip(cuts, plain.tiles(cuts), strict=True):
            copy.write(slice(band.start - first, band.stop - first), part.numpy(), block)
        return LentMatrix(copy, transposed=self.transposed)

    def taken(self, elements: Tensor) -> Tensor:
        """Rows at some indices [k], each rank's own: [k, width]. k is the same on every rank."""
        if not self.stored.in_step:
            return self.index_select(0, elements).whole()
        ranks = self.stored.ranks
        every = torch.cat(ranks.share(elements.cpu())) if ranks.splits_rows else elements.cpu()
        union, width = torch.unique(every), self.shape[1]
        place = torch.searchsorted(union, elements.cpu())
        step = max(1, TILE_ROWS * TILE_COLUMNS // width)
        found = torch.empty(len(elements), width, dtype=self.dtype, device=self.device)
        chosen = self.index_select(0, union)
        cuts = [
            (slice(start, min(start + step, len(union))), slice(0, width))
            for start in range(0, len(union), step)
        ]
        for cut, part in zip(cuts, chosen.tiles(cuts), strict=True):
            here = ((place >= cut[0].start) & (place < cut[0].stop)).nonzero().flatten()
            found[here.to(self.device)] = part[(place[here] - cut[0].start).to(self.device)]
        return found


def _within(index: Tensor | None, part: slice) -> slice | Tensor:
    return part if index is None else index[part].cpu()


def tiles_of(matrix: Tensor | LentMatrix, cuts: Sequence[Cut]) -> Iterator[Tensor]:
    """The parts of a matrix at some rows and columns, one after another."""
    if isinstance(matrix, LentMatrix):
        return matrix.tiles(cuts)
    return (matrix[cut] for cut in cuts)
