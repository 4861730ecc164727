"""How work that takes time talks to the outside: it emits events, and it asks whether to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from boundscope.errors import CancelledError, DeadlineError
from boundscope.protocol import Event, LogLine


class Monitor:
    """Carries events out of a computation and the wish to stop into it.

    `emit` may be called from any thread. `check` is called between steps of at most a second or so.
    """

    def __init__(self, emit: Callable[[Event], None] | None = None, timeout_s: float | None = None) -> None:
        self._emit = emit
        self._cancelled = threading.Event()
        self.started = time.monotonic()
        self.deadline = None if timeout_s is None else self.started + timeout_s

    def emit(self, event: Event) -> None:
        """Hand one event over; never blocks for long, never raises for a slow reader."""
        if self._emit is not None:
            self._emit(event)

    def log(self, text: str, level: str = "info") -> None:
        self.emit(LogLine(text=text, level=level))

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining_s(self) -> float:
        """Seconds to the deadline; infinite without one."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def check(self) -> None:
        """Raise CancelledError or DeadlineError when the work should stop."""
        if self._cancelled.is_set():
            raise CancelledError("the job was cancelled")
        if self.remaining_s <= 0:
            raise DeadlineError("the time limit passed")
