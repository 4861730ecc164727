"""How work that takes time talks to the outside: it emits events, and it asks whether to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from boundscope.errors import CancelledError, DeadlineError
from boundscope.pace import Pace
from boundscope.protocol import Event, LogLine, Progress

STOPPED_S = 0.5  # longer between two looks than a busy machine makes it
LOOK_S = 2.0  # that a thread waits for the next look; longer means that nobody looks any more


class Monitor:
    """Carries events out of a computation and the wish to stop, or to pause, into it.

    `emit`, `cancel`, `pause` and `go_on` may be called from any thread and from a signal handler. `check` is called
    between steps of at most a second or so. The monitor's clock (`now_s`, and with it elapsed time and deadline)
    stands still while the work is paused.
    """

    def __init__(self, emit: Callable[[Event], None] | None = None, timeout_s: float | None = None) -> None:
        self._emit = emit
        self._cancelled = threading.Event()
        self._changed = threading.Condition()
        self._paused_since_s: float | None = None
        self._left_out_s = 0.0
        self._looked_s: float | None = None
        self._looks = 0  # the thread that looks
        self._pace = Pace()
        self.standing = False  # whether the work waits inside `check` for the end of a pause
        self.begin(timeout_s)

    def begin(self, timeout_s: float | None) -> None:
        """Start the clock: `check` raises DeadlineError after `timeout_s` from now."""
        self.started = self.now_s
        self.deadline = None if timeout_s is None else self.started + timeout_s

    def emit(self, event: Event) -> None:
        """Hand one event over; never blocks for long, never raises for a slow reader."""
        if self._emit is not None:
            self._emit(self.timed(event))

    def timed(self, event: Event) -> Event:
        """Progress with its time to go, reckoned from what was told before where it does not say one."""
        if not isinstance(event, Progress):
            return event
        return self._pace.timed(event, self.now_s, self.remaining_s)

    def flush(self, timeout_s: float = 60.0) -> bool:
        """Wait until everything emitted so far has arrived; whether it has."""
        return True

    def log(self, text: str, level: str = "info") -> None:
        self.emit(LogLine(text=text, level=level))

    # ------------------------------------------------------------ the clock

    @property
    def now_s(self) -> float:
        """Monotonic seconds without those in which the work was paused; whatever is waited for is measured by it."""
        with self._changed:
            if self._late():
                self._changed.wait_for(lambda: not self._late(), LOOK_S)
            return self.clock_at(time.monotonic())

    def clock_at(self, monotonic_s: float) -> float:
        """What `now_s` was at a time of time.monotonic since the last pause or stop, or is in the pause."""
        with self._changed:
            now = monotonic_s if self._paused_since_s is None else self._paused_since_s
            return now - self._left_out_s

    @property
    def elapsed_s(self) -> float:
        return self.now_s - self.started

    @property
    def remaining_s(self) -> float:
        """Seconds to the deadline; infinite without one."""
        return float("inf") if self.deadline is None else self.deadline - self.now_s

    def leave_out(self, seconds: float) -> None:
        """Do not count a time in which the whole process stood still (SIGSTOP)."""
        with self._changed:
            if self._paused_since_s is None:
                self._left_out_s += seconds

    def look(self, looked_s: float | None) -> None:
        """Say that this thread, which leaves out every time in which the process stood still, last looked for one at
        `looked_s` (of time.monotonic; None: it looks no more). When the process goes on, another thread may read the
        clock first, and would find its limit passed; it waits for the next look where the last is long ago."""
        with self._changed:
            self._looked_s, self._looks = looked_s, threading.get_ident()
            self._changed.notify_all()

    def _late(self) -> bool:
        """Whether a stop of the process may not have been left out yet."""
        return (
            self._looked_s is not None
            and self._paused_since_s is None
            and threading.get_ident() != self._looks
            and time.monotonic() - self._looked_s > STOPPED_S
        )

    # ------------------------------------------------------------ stopping and pausing

    def cancel(self) -> None:
        """`check` raises CancelledError from now on, also where it waits."""
        with self._changed:
            self._cancelled.set()
            self._changed.notify_all()

    @property
    def paused(self) -> bool:
        """Whether a pause has been asked for; `standing` says whether the work has come to it."""
        return self._paused_since_s is not None

    def pause(self) -> None:
        """Stop the clock now, and the work at its next `check`."""
        with self._changed:
            if self._paused_since_s is None:
                self._paused_since_s = time.monotonic()

    def go_on(self) -> None:
        """End a pause."""
        with self._changed:
            if self._paused_since_s is not None:
                self._left_out_s += time.monotonic() - self._paused_since_s
                self._paused_since_s = None
                self._changed.notify_all()

    def check(self) -> None:
        """Wait while the work is paused; then raise CancelledError or DeadlineError when it should stop."""
        if self._paused_since_s is not None:
            self._stand()
        if self._cancelled.is_set():
            raise CancelledError("the job was cancelled")
        if self.remaining_s <= 0:
            raise DeadlineError("the time limit passed")

    def _stand(self) -> None:
        with self._changed:
            while self._paused_since_s is not None and not self._cancelled.is_set():
                self._set_standing(True)
                self._changed.wait()
        self._set_standing(False)

    def _set_standing(self, standing: bool) -> None:
        self.standing = standing
