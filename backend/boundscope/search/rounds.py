"""One search on several ranks, a round at a time: which rank bounds which chunk, how ranks stay together, and what they
tell each other.

Chunks are the same whatever the number of ranks, and a chunk is bounded by the same operations on whichever rank it is:
results differ only where the number of chunks in a round does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.errors import BoundscopeError, CancelledError, DeadlineError, OutOfMemoryError
from boundscope.monitor import Monitor
from boundscope.sharding.ranks import RankGroup


def agreed(ranks: RankGroup, work: Callable[[], None]) -> None:
    """Do this rank's work; what one rank raises, all ranks raise. All call together."""
    error: BoundscopeError | None = None
    try:
        work()
    except (torch.OutOfMemoryError, MemoryError) as caught:
        error = OutOfMemoryError(str(caught))
    except BoundscopeError as caught:
        error = caught
    ranks.agree(error)


class Crew:
    """The ranks of a search.

    Where weights are whole on every rank, each bounds chunks of its own, by itself. Where they are gathered and rows
    are shared out, each bounds chunks of its own too, in step with the others: all make the same passes at the same
    time, which read the same weights; a rank that has nothing left to bound makes them with a row that nobody needs.
    Where every rank carries all rows, each bounds every chunk.
    """

    def __init__(self, ranks: RankGroup, monitor: Monitor, *, collective: bool) -> None:
        """`collective`: passes gather weights from all ranks."""
        self.ranks, self._monitor, self._collective = ranks, monitor, collective
        self.apart = ranks.size > 1 and ranks.splits_rows
        self.in_step = self.apart and collective
        self._dealt = 0  # chunks so far
        self._searching = self._idle = False

    def deal(self, chunks: int) -> NDArray[np.int64]:
        """The ranks [chunks] that bound the chunks of a round: in turn, from where the last round ended.

        Where every rank bounds all, its own number.
        """
        if not self.apart:
            return np.full(chunks, self.ranks.rank)
        first, self._dealt = self._dealt, self._dealt + chunks
        return (first + np.arange(chunks)) % self.ranks.size

    def turns(self, dealt: NDArray[np.int64]) -> list[int | None]:
        """The chunks of this rank in their order; None where it has none while others, in step with it, have one."""
        mine: list[int | None] = [*np.flatnonzero(dealt == self.ranks.rank).tolist()]
        if self.in_step:
            mine += [None] * (-(-len(dealt) // self.ranks.size) - len(mine))
        return mine

    # ------------------------------------------------------------ together

    def check(self) -> None:
        """Stop where the monitor says so: on all ranks together where they pass together."""
        if self._idle:
            return
        error = self._stopped()
        if self._searching:
            self.ranks.least(0, error)
        elif self._collective:
            self.ranks.agree(error)
        elif error is not None:
            raise error

    def _stopped(self) -> BoundscopeError | None:
        try:
            self._monitor.check()
        except (DeadlineError, CancelledError) as caught:
            return caught
        return None

    @contextmanager
    def passes(self, idle: Callable[[], object]) -> Iterator[None]:
        """A search whose number of passes is each rank's own; `check` must be called before each of them.

        Args:
            idle: makes one such pass, for the ranks that go on after this one has ended; it may call `check` once.
        """
        if not self.in_step:
            yield
            return
        self._searching = True
        try:
            yield
            while not self.ranks.least(1, self._stopped()):
                self._idle = True
                idle()
                self._idle = False
        finally:
            self._searching = self._idle = False
