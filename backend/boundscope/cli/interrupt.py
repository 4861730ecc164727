"""Ctrl+C and SIGTERM ask a run to stop; a second one stops it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal(ask: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """While inside, the first SIGINT or SIGTERM calls `ask`, the second raises KeyboardInterrupt."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("stopping; press Ctrl+C again to stop at once")
        ask()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
