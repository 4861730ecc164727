"""The checkpoint of a job on all of its ranks: every rank goes on from it, rank 0 alone writes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from boundscope.errors import BoundscopeError, CheckpointError
from boundscope.monitor import Monitor
from boundscope.protocol import Verdict, VerifyJob
from boundscope.search.checkpoint import Checkpoint, SearchState, fingerprint
from boundscope.search.spread import SpreadPool
from boundscope.worker.files import JobFiles

if TYPE_CHECKING:
    from boundscope.sharding.ranks import RankGroup

NEAR_S, LAST_EVERY_S = 2.0, 0.2
DONE = ("", -1)  # no rank is asked for more
QUICK_S = 0.5  # a save that is no longer than this may be made after the time is up


class JobCheckpoint:
    """Does nothing where `files` name no checkpoint. A checkpoint that cannot be written is a warning in the log: it
    never ends the search."""

    def __init__(self, job: VerifyJob, files: JobFiles, monitor: Monitor, ranks: RankGroup) -> None:
        self._monitor, self._ranks = monitor, ranks
        self._told = ""
        self._saved_s = -math.inf
        self._ready_for: float | None = None  # the deadline before which the last long save was made
        self._checkpoint: Checkpoint | None = None
        if files.checkpoint is not None:
            self._checkpoint = Checkpoint(files.checkpoint, fingerprint(job), writes=ranks.rank == 0)

    @property
    def folder(self) -> Path | None:
        """Where pools should spill to, so that checkpoints share their files instead of copying them."""
        return None if self._checkpoint is None else self._checkpoint.path.parent

    def load(self, *, limit_bytes: int | None = None) -> SearchState | None:
        """What an earlier run left, the same on every rank, or None. All ranks call it together.

        Raises:
            CheckpointError: it is damaged, in use, or of another job.
            OutOfMemoryError: there is no room for its domains.
        """
        if self._checkpoint is None:
            return None
        state: SearchState | None = None
        error: BoundscopeError | None = None
        try:
            state = self._checkpoint.load(limit_bytes=limit_bytes, folder=self.folder)
        except BoundscopeError as caught:
            error = caught
        try:
            # No rank goes on, and rank 0 replaces nothing, before all have read it.
            self._ranks.agree(error)
        except BoundscopeError:
            for pool in () if state is None else state.pools.values():
                pool.close()
            raise
        if state is not None and self._ranks.rank == 0:
            waiting = sum(len(pool) for pool in state.pools.values())
            proven = sum(clause.proven for clause in state.clauses)
            self._monitor.log(
                f"the search goes on from {self._checkpoint.path}: {state.elapsed_s:.1f} s so far, "
                f"{proven} of {len(state.clauses)} clauses excluded, {waiting} domains wait"
            )
        return state

    def save_if_due(self, state: Callable[[], SearchState]) -> None:
        """Save now and then; cheap to call after every round, on every rank."""
        checkpoint = self._checkpoint
        if checkpoint is None:
            return
        due = False
        if self._ranks.rank == 0:
            due = checkpoint.due() or self._near_the_end(checkpoint) or self._last_chance(checkpoint)
        if self._ranks.of_rank_0(due):
            self.save(state)
            self._saved_s = self._monitor.now_s

    def _near_the_end(self, checkpoint: Checkpoint) -> bool:
        """Whether little may follow, which would be lost: quick saves then come one after another."""
        if checkpoint.cost_s > QUICK_S or self._monitor.remaining_s > NEAR_S:
            return False
        return self._monitor.now_s - self._saved_s >= LAST_EVERY_S + 10.0 * checkpoint.cost_s

    def _last_chance(self, checkpoint: Checkpoint) -> bool:
        """Whether a save that takes long must begin now, once, to end before the time does."""
        deadline = self._monitor.deadline
        if checkpoint.cost_s <= QUICK_S or deadline is None or deadline == self._ready_for:
            return False
        if self._monitor.remaining_s > 1.5 * checkpoint.cost_s + QUICK_S:
            return False
        self._ready_for = deadline
        return True

    def save(self, state: Callable[[], SearchState]) -> None:
        """Save now, however long it takes; all ranks together, for domains lie on all of them."""
        if self._checkpoint is None:
            return
        found = state()
        spread = {name: pool for name, pool in found.pools.items() if isinstance(pool, SpreadPool)}
        for pool in spread.values():
            pool.begin_save()
        if self._ranks.rank:
            while (wish := self._ranks.of_rank_0(DONE)) != DONE:
                name, rank = wish
                if rank == self._ranks.rank:
                    spread[name].send()
            return
        try:
            self._checkpoint.save(found, lambda name, rank: self._tell((name, rank)))
        except CheckpointError as error:
            if str(error) != self._told:
                self._monitor.log(str(error), "warning")
            self._told = str(error)
        # Whatever else is raised here ends the search, on the other ranks where they wait for the next wish.
        self._tell(DONE)

    def _tell(self, wish: tuple[str, int]) -> None:
        """Which rank should send the next block of which pool."""
        self._ranks.of_rank_0(wish)

    def settle(self, verdict: Verdict | None) -> None:
        """The job is over: a checkpoint stays where it gave no final answer (None: no answer at all)."""
        if self._checkpoint is None:
            return
        try:
            if verdict in (Verdict.VERIFIED, Verdict.VIOLATED) and self._ranks.rank == 0:
                self._checkpoint.remove()
        except CheckpointError as error:
            self._monitor.log(str(error), "warning")
        finally:
            self._checkpoint.close()
