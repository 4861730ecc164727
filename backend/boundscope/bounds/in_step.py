"""Work that all ranks of a job do at the same place: where one of them fails, all end it together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from boundscope.bounds.ledger import MemoryLedger
from boundscope.errors import BoundscopeError, OutOfMemoryError
from boundscope.monitor import Monitor
from boundscope.sharding.ranks import RankGroup

T = TypeVar("T")


@dataclass(frozen=True)
class InStep:
    """The ranks that work together, who may stop them, and the memory that this one has."""

    ranks: RankGroup
    monitor: Monitor
    ledger: MemoryLedger

    def do(self, work: Callable[[], T]) -> T:
        """What the work gives. One rank alone may fail, for want of memory say, or be asked to stop: then all do."""
        error: BoundscopeError | None = None
        result: list[T] = []
        try:
            result.append(self.try_alone(work))
        except BoundscopeError as caught:
            error = caught
        self.ranks.agree(error)
        return result[0]

    def try_alone(self, work: Callable[[], T]) -> T:
        """What the work of this rank gives, before the others hear of it.

        Raises:
            DeadlineError, CancelledError: from the monitor, before the work begins.
            OutOfMemoryError: the device or the process had no room; with the ledger's breakdown.
        """
        self.monitor.check()
        try:
            return work()
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise OutOfMemoryError(f"{error}; {self.ledger.breakdown()}") from error
