"""Ctrl+C and SIGTERM ask a run to stop; a second one stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from boundscope.errors import CancelledError


class Stop:
    """Whether somebody asked to stop, and whom to tell when it happens."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._tell: list[Callable[[], None]] = []

    @property
    def asked(self) -> bool:
        return self.event.is_set()

    def tell(self, ask: Callable[[], None]) -> None:
        """Call `ask` when somebody asks to stop; at once where somebody has."""
        self._tell.append(ask)
        if self.asked:
            ask()

    def check(self) -> None:
        """CancelledError where somebody asked to stop."""
        if self.asked:
            raise CancelledError("stopped by the user")

    def ask(self) -> None:
        self.event.set()
        for ask in self._tell:
            ask()


@contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[Stop]:
    """While inside, the first SIGINT or SIGTERM asks the Stop, the second raises KeyboardInterrupt."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        say("stopping; Ctrl+C again stops at once")
        stop.ask()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
