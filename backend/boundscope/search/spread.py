"""A pool of domains over ranks: what decides the order lies on every rank, the wide columns of a domain on one.

Every rank holds all keys (priority, number, owner and a few small columns) and takes the same decisions. The wide
columns lie in a pool of their own on the owner, in the same order: where all ranks take the next domains together, the
next rows of that pool are the owner's among them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.errors import BoundscopeError, OutOfMemoryError
from boundscope.search.pool import Column, DomainPool
from boundscope.search.pool_disk import NUMBER, URGENCY, Rows
from boundscope.search.pool_order import Floats, Numbers
from boundscope.search.pool_saving import write_pool
from boundscope.search.rounds import agreed
from boundscope.sharding.ranks import RankGroup

OWNER = "owner"
# Of domains that a rank may hold beyond its fair part before others take some.
SLACK_ROWS, SLACK_SHARE = 16, 0.05
KEYS_PART = 4  # of the limit, the part of keys


def placed(counts: Numbers, made: Numbers) -> Numbers:
    """Owners [D] of new domains that were made on ranks `made` [D], where ranks hold `counts` [P] already.

    A domain stays where it was made unless that rank would hold more than its fair part and a slack; then it goes to
    the rank that holds least. Domains that are there already stay: no rank ever grows beyond the fair part and the
    slack of the moment at which it grew.
    """
    size = len(counts)
    fair = -(-(int(counts.sum()) + len(made)) // size)
    most = fair + max(SLACK_ROWS, int(SLACK_SHARE * fair))
    owner = made.copy()
    held = counts.copy()
    over: list[int] = []
    for rank in range(size):
        mine = np.flatnonzero(made == rank)
        stays = min(len(mine), max(0, most - int(counts[rank])))
        held[rank] += stays
        over += mine[stays:].tolist()
    for index in sorted(over):
        owner[index] = held.argmin()
        held[owner[index]] += 1
    return owner


class Exchange:
    """Wide columns on their way between ranks, all of a row's beside each other as bytes."""

    def __init__(self, ranks: RankGroup, columns: Mapping[str, Column], device: torch.device) -> None:
        self._ranks, self._columns, self._device = ranks, columns, device

    def bring(self, wide: Mapping[str, NDArray[Any]], source: Numbers, wanted: Sequence[Numbers]) -> Rows:
        """The rows of D domains that this rank wants, in that order.

        All ranks call together and bring the same `source` and `wanted`.

        Args:
            wide: [d, …] of the domains that lie here, in order.
            source: [D] where each domain lies.
            wanted: for each rank, the indices (0 … D) of the domains that it wants.
        """
        rank, size = self._ranks.rank, self._ranks.size
        place = np.cumsum(source == rank) - 1  # of a domain that lies here, among those
        if size == 1:
            return {name: array[wanted[0]] for name, array in wide.items()}
        leaving = [place[one[source[one] == rank]] for one in wanted]
        came_from = source[wanted[rank]]
        ready: list[tuple[Tensor, NDArray[np.uint8]]] = []

        def pack() -> None:
            sent = _packed(wide, self._columns)[np.concatenate(leaving)]
            room = np.empty((len(came_from), sent.shape[1]), np.uint8)
            ready.append((torch.from_numpy(sent).to(self._device), room))

        agreed(self._ranks, pack)
        ((sent, rows),) = ready
        counts = np.bincount(came_from, minlength=size)
        came = self._ranks.exchange(sent, [len(one) for one in leaving], counts.tolist())
        rows[np.argsort(came_from, kind="stable")] = came.cpu().numpy()
        return _unpacked(rows, self._columns)


@dataclass(frozen=True)
class Taken:
    """Domains that were taken together: small columns [D, …] and priorities [D] on every rank; wide columns where they
    lie, until `bring` brings them to where they are needed."""

    small: Rows
    priority: Floats
    _wide: Rows
    _owner: Numbers
    _exchange: Exchange

    def __len__(self) -> int:
        return len(self.priority)

    def bring(self, wanted: Sequence[Numbers]) -> Rows:
        """The wide columns of the domains that this rank wants, in that order; all ranks call together.

        Args:
            wanted: for each rank, the same on all, the indices of the domains that it wants.
        """
        return self._exchange.bring(self._wide, self._owner, wanted)


class SpreadPool:
    """Domains in the order "best", the smallest priority first. All ranks call every method together, but for those
    that say otherwise. A group of one rank holds all columns in one pool."""

    def __init__(
        self,
        ranks: RankGroup,
        small: Mapping[str, Column],
        wide: Mapping[str, Column],
        *,
        limit_bytes: int | None,
        folder: Path | None = None,
        device: torch.device | None = None,
    ) -> None:
        """`limit_bytes` is for what a rank holds in memory; rows travel as tensors on `device`."""
        if any(column.grows for column in (*small.values(), *wide.values())):
            raise ValueError("columns of a pool over ranks do not grow")
        self._ranks, self._small, self._wide = ranks, dict(small), dict(wide)
        self._exchange = Exchange(ranks, self._wide, device or torch.device("cpu"))
        self._alone = ranks.size == 1
        self._counts = np.zeros(ranks.size, np.int64)
        self._sizes: list[list[int]] = []  # rows of each block of each rank, while the pool is saved
        self._sending: Iterator[Rows] | None = None
        every = {**small, **wide}
        if self._alone:
            self._keys = self._rows = DomainPool(every, limit_bytes=limit_bytes, folder=folder)
            return
        part = None if limit_bytes is None else limit_bytes // KEYS_PART
        rest = None if limit_bytes is None or part is None else limit_bytes - part
        self._keys = DomainPool({**small, OWNER: Column(np.int32)}, limit_bytes=part, folder=folder)
        self._rows = DomainPool(every, limit_bytes=rest, folder=folder)

    @classmethod
    def of(
        cls,
        pool: DomainPool | SpreadPool,
        ranks: RankGroup,
        small: Mapping[str, Column],
        wide: Mapping[str, Column],
        *,
        limit_bytes: int | None,
        folder: Path | None = None,
        device: torch.device | None = None,
    ) -> SpreadPool:
        """A pool that was saved, whatever the number of ranks then; it is closed, or goes on in the new one."""
        if isinstance(pool, SpreadPool):
            return pool
        found = cls(ranks, small, wide, limit_bytes=limit_bytes, folder=folder, device=device)
        if found._alone:
            found._keys = found._rows = pool
            return found
        with pool:
            agreed(ranks, lambda: found._take_over(pool))
        return found

    def _take_over(self, pool: DomainPool) -> None:
        for rows in pool.blocks():
            urgency, number = rows.pop(URGENCY), rows.pop(NUMBER)
            owner = number % self._ranks.size
            keys = {name: rows[name] for name in self._small} | {OWNER: owner.astype(np.int32)}
            self._keys.push(keys, urgency, number)
            mine = owner == self._ranks.rank
            self._rows.push(
                {name: rows[name][mine] for name in self._rows.columns}, urgency[mine], number[mine]
            )
            self._counts += np.bincount(owner, minlength=self._ranks.size)
        self._keys.next_number = max(self._keys.next_number, pool.next_number)

    # ------------------------------------------------------------ what there is

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def counts(self) -> Numbers:
        """[P] of the domains whose wide columns lie on each rank; on any rank alone."""
        return np.array([len(self._keys)]) if self._alone else self._counts.copy()

    @property
    def key_bytes(self) -> int:
        """In memory, of what every rank holds; on any rank alone."""
        return self._keys.nbytes - self._rows.bytes_of(self._wide) if self._alone else self._keys.nbytes

    @property
    def payload_bytes(self) -> int:
        """In memory, of what this rank holds for all; on any rank alone."""
        return self._rows.bytes_of(self._wide) if self._alone else self._rows.nbytes

    def least(self) -> float | None:
        """The smallest priority that waits; on any rank alone."""
        return self._keys.least()

    # ------------------------------------------------------------ in

    def push(
        self,
        small: Mapping[str, NDArray[Any]],
        priority: Floats,
        wide: Mapping[str, NDArray[Any]],
        made: Numbers | None = None,
    ) -> None:
        """Add domains: small columns [D, …] and priorities [D], the same on every rank.

        Args:
            wide: [d, …] of those domains that `made` says this rank has, in order; of all D where that is None.
            made: the rank [D] that has the wide columns of each domain.

        Raises:
            OutOfMemoryError: the disk of a rank is full.
        """
        if self._alone:
            self._rows.push({**small, **wide}, priority)
            return
        size, rank, count = self._ranks.size, self._ranks.rank, len(priority)
        dealt = np.arange(count) % size if made is None else made
        owner = placed(self._counts, dealt)
        mine = np.flatnonzero(owner == rank)
        first = self._keys.next_number
        if made is None:
            own = {name: array[mine] for name, array in wide.items()}
        elif (owner == made).all():
            own = dict(wide)
        else:
            own = self._exchange.bring(wide, made, [np.flatnonzero(owner == one) for one in range(size)])

        def put() -> None:
            self._keys.push({**small, OWNER: owner.astype(np.int32)}, priority)
            columns = {name: array[mine] for name, array in small.items()} | own
            self._rows.push(columns, priority[mine], first + mine)

        agreed(self._ranks, put)
        self._counts += np.bincount(owner, minlength=size)

    # ------------------------------------------------------------ out

    def pop(self, count: int) -> Taken:
        """Remove the next domains, at most `count`, in order.

        Raises:
            OutOfMemoryError, BoundscopeError: domains on disk cannot come back on some rank.
        """
        if self._alone:
            rows, priority = self._rows.pop(count)
            small = {name: rows[name] for name in self._small}
            wide = {name: rows[name] for name in self._wide}
            return Taken(small, priority, wide, np.zeros(len(priority), np.int64), self._exchange)
        taken: list[tuple[Rows, Floats, Rows]] = []
        wanted = min(count, len(self._keys))

        def take() -> None:
            keys, priority = self._keys.pop(wanted)
            mine = int(np.count_nonzero(keys[OWNER] == self._ranks.rank))
            rows, own_priority = self._rows.pop(mine)
            if len(priority) < wanted or len(own_priority) < mine:
                raise OutOfMemoryError(
                    "domains of the search that wait on disk cannot come back: the disk is full; make room there, or "
                    "allow more memory"
                )
            taken.append((keys, priority, rows))

        agreed(self._ranks, take)
        ((keys, priority, rows),) = taken
        owner = keys.pop(OWNER).astype(np.int64)
        self._counts -= np.bincount(owner, minlength=self._ranks.size)
        return Taken(keys, priority, {name: rows[name] for name in self._wide}, owner, self._exchange)

    # ------------------------------------------------------------ saving

    def begin_save(self) -> None:
        """Before `save` on rank 0 and `send` on the others."""
        if not self._alone:
            self._sizes = self._ranks.gather(self._rows.block_sizes())
            self._sending = self._rows.blocks()

    def save(self, file: IO[bytes], beside: Path, ask: Callable[[int], None]) -> frozenset[str]:
        """Write all ranks' domains as one DomainPool would be, a block at a time. On rank 0 alone.

        Args:
            ask: makes another rank call `send`.

        Raises:
            OSError: the disk is full or failing, or another rank cannot read its domains back.
        """
        if self._alone:
            return self._rows.save(file, beside)

        def blocks() -> Iterator[Rows]:
            yield from self._rows.blocks()
            for rank in range(1, self._ranks.size):
                for size in self._sizes[rank]:
                    ask(rank)
                    yield self._received(rank, size)

        sizes = [size for each in self._sizes for size in each]
        write_pool(file, self._rows.columns, sizes, self._keys.next_number, blocks())
        return frozenset()

    def _stored(self) -> dict[str, Column]:
        return {URGENCY: Column(np.float64), NUMBER: Column(np.int64), **self._rows.columns}

    def _received(self, rank: int, count: int) -> Rows:
        columns = self._stored()
        ready = self._ranks.to_rank_0(rank, torch.zeros(1, dtype=torch.uint8))
        if not int(ready):
            raise OSError(f"rank {rank} cannot read back domains that wait on its disk")
        room = torch.empty(count, _row_bytes(columns), dtype=torch.uint8)
        return _unpacked(self._ranks.to_rank_0(rank, room).numpy(), columns)

    def send(self) -> None:
        """Send this rank's next block to rank 0, which waits for it; where it cannot be had, that it cannot."""
        assert self._sending is not None
        packed: NDArray[np.uint8] | None = None
        # Rank 0 tells the user that this checkpoint was not written; the search needs none.
        with contextlib.suppress(BoundscopeError, MemoryError):
            packed = _packed(next(self._sending), self._stored())
        rank = self._ranks.rank
        self._ranks.to_rank_0(rank, torch.tensor([packed is not None], dtype=torch.uint8))
        if packed is not None:
            self._ranks.to_rank_0(rank, torch.from_numpy(packed))

    def close(self) -> None:
        """Give everything back, on disk too; on any rank alone."""
        self._keys.close()
        self._rows.close()


def _row_bytes(columns: Mapping[str, Column]) -> int:
    return sum(column.layout(0).row_bytes for column in columns.values())


def _packed(rows: Mapping[str, NDArray[Any]], columns: Mapping[str, Column]) -> NDArray[np.uint8]:
    """[count, bytes] of rows, one column beside the other."""
    count = len(next(iter(rows.values()))) if columns else 0
    packed = np.empty((count, _row_bytes(columns)), np.uint8)
    first = 0
    for name, column in columns.items():
        width = column.layout(0).row_bytes
        if width and count:
            array = np.ascontiguousarray(rows[name]).reshape(count, -1)
            packed[:, first : first + width] = array.view(np.uint8).reshape(count, width)
        first += width
    return packed


def _unpacked(packed: NDArray[np.uint8], columns: Mapping[str, Column]) -> Rows:
    rows: Rows = {}
    first = 0
    for name, column in columns.items():
        width = column.layout(0).row_bytes
        part = np.ascontiguousarray(packed[:, first : first + width])
        rows[name] = part.reshape(-1).view(column.dtype).reshape(len(packed), *column.shape)
        first += width
    return rows
