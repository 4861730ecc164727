"""The ranks of a job as one object: who am I, how many are we, and the few collectives that bounds need."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from boundscope.errors import BoundscopeError, OutOfMemoryError
from boundscope.sharding.frames import Frames, PeerStoppedError

T = TypeVar("T")

# Products of rows have the same bits, row by row, whatever multiple of this is carried together.
ROW_UNIT = 16
LEAST_PART = 64
AGREED = "_raised_on_all_ranks"  # an attribute of errors
TILE_BYTES = (1 << 19) + (1 << 12)  # that a frame gathers: a tile of float32, columns shared out unevenly
VALUES_BYTES = 1 << 17  # and where tiles do not travel: four numbers for each output of a wide matrix


@dataclass(frozen=True)
class RankGroup:
    """This process among the `size` processes of the job; a group of one needs no torch.distributed."""

    rank: int = 0
    size: int = 1
    splits_rows: bool = True  # False: every rank carries all rows, and only the weights are shared out
    frames: Frames | None = field(default=None, compare=False, repr=False)  # None: a group of one

    @classmethod
    def of_process_group(cls) -> RankGroup:
        """The default process group, which must be initialised."""
        size = dist.get_world_size()
        return cls(dist.get_rank(), size, frames=Frames(size, -(-TILE_BYTES // size)) if size > 1 else None)

    def expect(self, *, tiles: bool) -> None:
        """Have what ranks tell each other in the middle of a pass travel in frames that suit it. All call together,
        where no pass is under way."""
        if self.frames is not None:
            self.frames.resize(-(-(TILE_BYTES if tiles else VALUES_BYTES) // self.size))

    def with_all_rows(self) -> RankGroup:
        """The same ranks, each of which carries every row."""
        return replace(self, splits_rows=False)

    def owns(self, chunk: int) -> bool:
        """Whether this rank carries row chunk number `chunk`: chunks are dealt in turn."""
        return not self.splits_rows or chunk % self.size == self.rank

    def sum_parts(self, part: Tensor) -> Tensor:
        """Element-wise sum over ranks, in place, of tensors that are zero where another rank fills in.

        Every element is non-zero on at most one rank, so the sum is exact and equal on all ranks.
        """
        if self.size > 1 and self.splits_rows:
            dist.all_reduce(part)
        return part

    def sum_all(self, part: Tensor) -> Tensor:
        """`sum_parts` whether or not every rank carries all rows."""
        if self.size > 1:
            dist.all_reduce(part)
        return part

    def exchange(self, values: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Rows to other ranks, from other ranks: of `values` [n, …], `sent` of them for each rank, in the order of
        ranks; and `received` of them from each. All call together, and know how many come."""
        if self.size == 1:
            return values
        came = values.new_empty(sum(received), *values.shape[1:])
        dist.all_to_all_single(came, values.contiguous(), received, sent)
        return came

    def to_rank_0(self, source: int, values: Tensor) -> Tensor:
        """The values of rank `source` on rank 0, which brings a tensor of that size; these two ranks call together."""
        if self.rank == source:
            dist.send(values, dst=0)
        else:
            dist.recv(values, src=source)
        return values

    def agree(self, error: BoundscopeError | None, *, final: bool = False) -> None:
        """Raise on every rank what any of them brings (of several, the lowest rank's); all must call together.

        A rank that brings PeerStoppedError raises what the one that failed brings. What was raised here already, all
        ranks have: it is raised again without asking them. `final` is for the end of a job.
        """
        if self.size > 1 and not getattr(error, AGREED, False):
            own = None if isinstance(error, PeerStoppedError) else error
            if self._someone_failed(own is not None):
                if isinstance(own, OutOfMemoryError):
                    own.rank, own.final = self.rank, final
                brought: list[BoundscopeError | None] = [None] * self.size
                dist.all_gather_object(brought, own)
                error = next((one for one in brought if one is not None), error)
                setattr(error, AGREED, True)
        if error is not None:
            raise error

    def _someone_failed(self, failed: bool) -> bool:
        if self.frames is not None:
            return self.frames.settle(failed=failed)
        state = torch.tensor([int(failed)])
        dist.all_reduce(state, op=dist.ReduceOp.MAX)
        return bool(state)

    def share(self, values: Tensor) -> list[Tensor]:
        """Every rank's values, tensors of one size and dtype, in the order of ranks; also in the middle of a pass.

        Raises:
            PeerStoppedError: another rank has failed.
        """
        if self.frames is None:
            return [values]
        flat = values.contiguous()
        parts = self.frames.take(self.frames.post(flat), flat.numel(), flat.dtype)
        return [part.reshape(flat.shape) for part in parts]

    def part_of(self, rows: int) -> int:
        """How many of a chunk's rows each rank carries: a multiple of ROW_UNIT, and enough for a product to pay."""
        if self.size == 1 or not self.splits_rows:
            return rows
        part = -(-rows // self.size)
        return min(rows, max(LEAST_PART, -(-part // ROW_UNIT) * ROW_UNIT))

    @property
    def on_this_machine(self) -> int:
        """How many of the ranks share this machine, as torchrun tells them."""
        return min(self.size, int(os.environ.get("LOCAL_WORLD_SIZE", self.size)))

    def gather(self, value: T) -> list[T]:
        """Every rank's value (any picklable object), in the order of ranks, on every rank.

        Raises:
            BoundscopeError: what another rank has brought to `agree` instead of coming here.
        """
        if self.size == 1:
            return [value]
        self.agree(None)
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return [one for one in values if one is not None]

    def of_rank_0(self, value: T) -> T:
        """Rank 0's value (any picklable object), on every rank.

        Raises:
            BoundscopeError: what another rank has brought to `agree` instead of coming here.
        """
        if self.size == 1:
            return value
        self.agree(None)
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def least(self, value: int, error: BoundscopeError | None = None) -> int:
        """The least of all ranks' values.

        Raises:
            BoundscopeError: `error`, or what another rank has brought here, or to `agree` instead of coming here.
        """
        self.agree(error)
        if self.size == 1:
            return value
        every = torch.tensor([value])
        dist.all_reduce(every, op=dist.ReduceOp.MIN)
        return int(every)

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()
