"""The parts of a job on several ranks: how long each took, what is told of it, and that all ranks end it together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from boundscope.errors import BoundscopeError, OutOfMemoryError
from boundscope.monitor import Monitor
from boundscope.protocol import Progress
from boundscope.sharding.ranks import RankGroup


class Steps:
    """Seconds of a job's parts, in `times`, on the monitor's clock; all ranks take the same parts."""

    def __init__(self, monitor: Monitor, ranks: RankGroup) -> None:
        self.monitor, self.ranks = monitor, ranks
        self.times = {"load": 0.0, "parse": 0.0, "solve": 0.0}

    def tell(self, stage: str, done: int = 0, total: int = 0) -> None:
        """What is being done, for those who watch."""
        if self.ranks.rank == 0:
            self.monitor.emit(Progress(stage=stage, done=done, total=total))

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start_s = self.monitor.now_s
        try:
            yield
        finally:
            self.times[part] += self.monitor.now_s - start_s

    @contextlib.contextmanager
    def agreed(self, *, final: bool = False) -> Iterator[None]:
        """What one rank raises in the block, all ranks raise at its end: nobody waits for one that left."""
        error: BoundscopeError | None = None
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError) as caught:
            if self.ranks.size == 1:
                raise
            error = OutOfMemoryError(str(caught) or "out of memory")
        except BoundscopeError as caught:
            error = caught
        self.ranks.agree(error, final=final)
