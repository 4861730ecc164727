"""A paused computation waits in `check` without computing, and its clock stands; it can be cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from boundscope.errors import CancelledError, DeadlineError
from boundscope.monitor import Monitor
from daemon.support import wait_for


class Worker(threading.Thread):
    """Calls `check` until it raises; counts the calls."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self.monitor = monitor
        self.calls = 0
        self.raised: BaseException | None = None
        self.cpu_s: Callable[[], float] = lambda: 0.0

    def run(self) -> None:
        clock = time.pthread_getcpuclockid(threading.get_ident())
        self.cpu_s = lambda: time.clock_gettime(clock)
        try:
            while True:
                self.monitor.check()
                self.calls += 1
                time.sleep(0.001)
        except (CancelledError, DeadlineError) as error:
            self.raised = error


def test_work_stands_while_it_is_paused_and_goes_on_afterwards():
    monitor = Monitor()
    worker = Worker(monitor)
    worker.start()
    wait_for(lambda: worker.calls, 10, "the first step")
    monitor.pause()
    wait_for(lambda: monitor.standing, 10, "the pause")
    calls, cpu_s = worker.calls, worker.cpu_s()
    time.sleep(0.3)
    assert worker.calls == calls
    assert worker.cpu_s() - cpu_s < 0.01, "standing takes no processor time"
    monitor.go_on()
    wait_for(lambda: worker.calls > calls, 10, "the next step")
    assert not monitor.standing
    monitor.cancel()
    worker.join(10)
    assert isinstance(worker.raised, CancelledError)


def test_cancelling_reaches_work_that_stands():
    monitor = Monitor()
    worker = Worker(monitor)
    monitor.pause()
    worker.start()
    wait_for(lambda: monitor.standing, 10, "the pause")
    begin = time.monotonic()
    monitor.cancel()
    worker.join(10)
    assert isinstance(worker.raised, CancelledError)
    assert worker.calls == 0
    assert time.monotonic() - begin < 2.0


def test_no_clock_runs_while_work_is_paused():
    monitor = Monitor(timeout_s=0.2)
    monitor.pause()
    before = monitor.now_s, monitor.elapsed_s, monitor.remaining_s
    time.sleep(0.4)
    assert (monitor.now_s, monitor.elapsed_s, monitor.remaining_s) == before
    monitor.go_on()
    monitor.check()  # what was left of the limit is still left
    assert 0 < monitor.remaining_s <= before[2]
    time.sleep(0.25)
    with pytest.raises(DeadlineError):
        monitor.check()


def test_pausing_twice_counts_once():
    monitor = Monitor(timeout_s=10.0)
    for _ in range(2):
        monitor.pause()
        monitor.pause()
        time.sleep(0.05)
        monitor.go_on()
        monitor.go_on()
    assert 9.8 < monitor.remaining_s <= 10.0


def test_time_in_which_the_process_stood_still_can_be_left_out():
    monitor = Monitor(timeout_s=1.0)
    monitor.leave_out(5.0)
    assert monitor.remaining_s > 5.0
    monitor.begin(1.0)
    assert 0.5 < monitor.remaining_s <= 1.0, "a new clock starts from now"
