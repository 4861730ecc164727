"""One rank in this very process, as the command line runs it: in a thread that can be left behind.

So the process keeps the time limit, hears Ctrl+C and Ctrl+Z at once, and writes what is known, whatever the rank does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, cast

from boundscope.daemon.overtime import Overtime
from boundscope.errors import CancelledError
from boundscope.monitor import STOPPED_S, Monitor
from boundscope.protocol import Event, VariabilityJob, VerifyJob
from boundscope.threads import RANK_THREAD

POLL_S = 0.05
TOLD_S = 0.5  # for word of SIGCONT, which any thread may get, after this one goes on

R = TypeVar("R")


class Hold(Protocol):
    """A process that can be suspended (Ctrl+Z), as whoever drives a job in it sees it."""

    driven: bool  # somebody takes care of what is asked
    asked: bool  # to suspend the process
    continued_s: float | None  # when the process, stopped by whatever means, last went on (of time.monotonic)

    def take(self) -> None:
        """Suspend the process; comes back when it is continued."""
        ...


class _Rank(threading.Thread, Generic[R]):
    def __init__(self, work: Callable[[], R]) -> None:
        super().__init__(name=RANK_THREAD, daemon=True)
        self._work = work
        self.result: R | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 raised again where the thread was started
            self.error = error


def run_here(
    job: VerifyJob | VariabilityJob,
    work: Callable[[Monitor], R],
    on_event: Callable[[Event], None],
    *,
    cancel: threading.Event,
    hold: Hold | None = None,
) -> R:
    """What `work` gives, or raises. Where it keeps no time limit, the timeout that it owes, with what it has told.

    A thread that was left behind ends at its next `check`. The interpreter must not wait for it: see RANK_THREAD.

    Raises:
        CancelledError: `cancel` was set; also where `work` does not hear of it.
    """
    overtime = Overtime(job)
    left = threading.Event()

    def emit(event: Event) -> None:
        if not left.is_set():
            overtime.hear(event, monitor.now_s)
            on_event(event)

    monitor = Monitor(emit, timeout_s=job.timeout_s)
    overtime.began_s = monitor.started
    rank = _Rank(lambda: work(monitor))
    rank.start()
    try:
        _watch(rank, monitor, overtime, cancel, hold)
    finally:
        left.set()
        monitor.cancel()
    if rank.error is not None:
        raise rank.error
    if rank.is_alive():
        return cast("R", overtime.result([0], monitor.now_s))
    return cast("R", rank.result)


def _watch(
    rank: _Rank[R], monitor: Monitor, overtime: Overtime, cancel: threading.Event, hold: Hold | None
) -> None:
    """Until the rank has ended, or has not in time."""
    asked_s: float | None = None
    looked_s = time.monotonic()
    if hold is not None:
        hold.driven = True
    try:
        while rank.is_alive():
            if hold is None:
                looked_s = time.monotonic()
            else:
                looked_s = _obey(hold, monitor, looked_s)
                monitor.look(looked_s)
            if overtime.over(monitor.clock_at(looked_s)):
                break
            rank.join(POLL_S)
            if cancel.is_set():
                monitor.cancel()
                asked_s = looked_s if asked_s is None else asked_s
                if looked_s - asked_s > overtime.grace_s and rank.is_alive():
                    raise CancelledError("stopped inside a computation that cannot be interrupted")
    finally:
        if hold is not None:
            hold.driven = False
            monitor.look(None)


def _obey(hold: Hold, monitor: Monitor, looked_s: float) -> float:
    """Suspend the process where that is asked; the monitor's clock leaves out every time in which it was stopped.

    Of a stop since `looked_s`, the last look. Gives the time of this one; what is stopped after it is of the next.
    """
    now_s = time.monotonic()
    if hold.asked:
        monitor.pause()
        hold.take()
        monitor.go_on()
        return time.monotonic()
    if now_s - looked_s <= STOPPED_S or not _told(hold, looked_s):
        return now_s
    monitor.leave_out(now_s - looked_s)
    assert hold.continued_s is not None
    return max(now_s, hold.continued_s)


def _told(hold: Hold, looked_s: float) -> bool:
    """Whether the process went on since `looked_s`, having been stopped."""
    until_s = time.monotonic() + TOLD_S
    while hold.continued_s is None or hold.continued_s <= looked_s:
        if time.monotonic() > until_s:
            return False
        time.sleep(POLL_S / 10)
    return True
