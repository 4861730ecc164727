"""Ctrl+C and SIGTERM ask a run to stop, a second stops it at once; Ctrl+Z suspends it, and its time limit."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
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


class Suspension:
    """A wish to suspend this process. Whoever drives a job in it (`driven`) first has the job stand still; else the
    process is suspended at once. `hide` and `show` are called before and afterwards."""

    def __init__(self, hide: Callable[[], None], show: Callable[[], None]) -> None:
        self._hide, self._show = hide, show
        self.driven = self.asked = False
        self.continued_s: float | None = None

    def take(self) -> None:
        """Be suspended, as the shell expects it; comes back after SIGCONT."""
        with contextlib.suppress(
            RuntimeError
        ):  # the signal came in the middle of a write, which nothing can enter
            self._hide()
        mine = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, mine)
        self.asked = False
        with contextlib.suppress(RuntimeError):
            self._show()

    def handle_stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self.driven:
            self.take()

    def handle_continue(self, number: int, frame: FrameType | None) -> None:
        self.continued_s = time.monotonic()


@contextmanager
def suspend_on_signal(hide: Callable[[], None], show: Callable[[], None]) -> Iterator[Suspension]:
    """While inside, SIGTSTP asks the Suspension, and SIGCONT tells it, also after a SIGSTOP that nobody can catch."""
    suspension = Suspension(hide, show)
    handlers = {signal.SIGTSTP: suspension.handle_stop, signal.SIGCONT: suspension.handle_continue}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield suspension
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[Stop]:
    """While inside, the first SIGINT or SIGTERM asks the Stop, the second raises KeyboardInterrupt.

    `say` is called in the signal's handler, and must not write to a stream that somebody may be writing to.
    """
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
