"""A rank in this process: the time limit holds, and stopping works, whatever the rank does."""

from __future__ import annotations

import threading
import time

import pytest

from boundscope.daemon import overtime
from boundscope.errors import BoundError, CancelledError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    Event,
    FileRef,
    GapPoint,
    LogLine,
    MemorySample,
    NetworkSummary,
    PropertyFile,
    PropertySummary,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.sharding.ranks import RankGroup
from boundscope.threads import RANK_THREAD
from boundscope.worker import here
from boundscope.worker.files import JobFiles
from boundscope.worker.here import run_here
from boundscope.worker.verify import run_verify
from daemon import behaviours
from daemon.small_files import write_network, write_property
from daemon.support import wait_for


def job(timeout_s: float) -> VerifyJob:
    ref = FileRef(name="x", sha256="0" * 64, size_bytes=1)
    return VerifyJob(network=ref, property=PropertyFile(file=ref), timeout_s=timeout_s)


class Deaf:
    """Work that asks nobody whether to go on, until `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.ended = threading.Event()

    def __call__(self, monitor: Monitor) -> VerifyResult:
        monitor.emit(GapPoint(elapsed_s=0.0, case=0, clause=1, lower=0.25, upper=2.0))
        self.released.wait(60)
        monitor.emit(LogLine(text="too late"))
        self.ended.set()
        monitor.check()
        return behaviours.result("too late")


@pytest.fixture
def deaf():
    work = Deaf()
    yield work
    work.released.set()
    wait_for(lambda: all(one.name != RANK_THREAD for one in threading.enumerate()), 10, "the thread's end")


class Holding:
    """A process that is suspended for a while as soon as its job is driven."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.driven, self.asked = False, True
        self.continued_s: float | None = None

    def take(self) -> None:
        assert self.driven
        time.sleep(self.seconds)
        self.asked, self.continued_s = False, time.monotonic()


def nothing(event: Event) -> None:
    pass


def test_what_the_work_gives_and_what_it_raises():
    work = lambda monitor: behaviours.result("done")  # noqa: E731
    assert run_here(job(60.0), work, nothing, cancel=threading.Event()).reason == "done"

    def failing(monitor: Monitor) -> VerifyResult:
        raise BoundError("no bounds")

    with pytest.raises(BoundError, match="no bounds"):
        run_here(job(60.0), failing, nothing, cancel=threading.Event())


def test_work_that_never_asks_for_the_time_gives_a_timeout_with_what_it_had_told(deaf):
    begin = time.monotonic()
    heard: list[Event] = []
    result = run_here(job(0.5), deaf, heard.append, cancel=threading.Event())
    assert time.monotonic() - begin < 0.5 + overtime.GRACE_S + 1.0
    assert result.verdict is Verdict.TIMEOUT
    assert "the time limit of 0.5 s passed" in result.reason
    assert [(each.clause, each.lower) for each in result.margin.per_clause] == [(1, 0.25)]
    deaf.released.set()
    assert deaf.ended.wait(10)
    assert LogLine(text="too late") not in heard, "what comes after the result is nobody's"


def test_work_that_never_asks_is_left_behind_when_it_is_cancelled(deaf):
    cancel = threading.Event()
    cancel.set()
    begin = time.monotonic()
    with pytest.raises(CancelledError):
        run_here(job(60.0), deaf, nothing, cancel=cancel)
    assert time.monotonic() - begin < overtime.GRACE_S + 1.0


def test_work_that_asks_is_cancelled_at_once():
    cancel = threading.Event()

    def work(monitor: Monitor) -> VerifyResult:
        while True:
            cancel.set()
            monitor.check()

    begin = time.monotonic()
    with pytest.raises(CancelledError):
        run_here(job(60.0), work, nothing, cancel=cancel)
    assert time.monotonic() - begin < 1.0


def test_the_limit_leaves_out_the_time_in_which_the_process_was_suspended():
    def work(monitor: Monitor) -> VerifyResult:
        while monitor.elapsed_s < 0.4:
            monitor.check()
            time.sleep(0.001)
        return behaviours.result("in time")

    hold = Holding(1.5)
    begin = time.monotonic()
    assert run_here(job(1.0), work, nothing, cancel=threading.Event(), hold=hold).reason == "in time"
    assert time.monotonic() - begin > 1.5
    assert not hold.driven


def test_a_rank_that_goes_on_first_after_a_stop_of_the_process_waits_for_who_leaves_it_out():
    """SIGSTOP stops all threads; when they go on, any of them may be the first to read the clock."""
    monitor = Monitor(timeout_s=1.0)
    begin = time.monotonic()
    monitor.look(begin - 30.0)  # the last before a stop of half a minute, which is not left out yet
    monitor.started -= 30.0
    monitor.deadline -= 30.0
    checked: list[float] = []

    def work() -> None:
        monitor.check()
        checked.append(monitor.elapsed_s)

    rank = threading.Thread(target=work)
    rank.start()
    rank.join(0.2)
    assert not checked, "it waits"
    monitor.leave_out(30.0)
    monitor.look(time.monotonic())
    rank.join(10)
    assert len(checked) == 1
    assert checked[0] < 1.0


@pytest.mark.parametrize("told", ["before", "late", "never"])
def test_a_stop_is_left_out_once_also_where_word_of_its_end_comes_late(told: str):
    """SIGCONT may be handled in any thread, after the one that looks has gone on; without it a gap was no stop."""
    monitor, hold = Monitor(), Holding(0.0)
    hold.asked = False
    looked_s = time.monotonic() - 30.0

    def tell() -> None:
        hold.continued_s = time.monotonic()

    if told == "before":
        tell()
    timer = threading.Timer(0.05, tell)
    if told == "late":
        timer.start()
    began_s = monitor.started
    again_s = here._obey(hold, monitor, looked_s)
    timer.cancel()
    left_out = 30.0 if told != "never" else 0.0
    assert monitor.clock_at(began_s) == pytest.approx(began_s - left_out, abs=1.0)
    before_s = monitor.clock_at(began_s)
    here._obey(hold, monitor, again_s)
    assert monitor.clock_at(began_s) == before_s


def test_nobody_waits_for_one_who_looks_no_more():
    monitor = Monitor(timeout_s=1.0)
    monitor.look(time.monotonic() - 30.0)
    monitor.look(None)
    read: list[float] = []
    rank = threading.Thread(target=lambda: read.append(monitor.elapsed_s))
    rank.start()
    rank.join(10)
    assert len(read) == 1
    assert read[0] < 1.0


def test_a_wish_to_stop_is_heard_while_the_files_are_loaded(tmp_path):
    """Reading a large network and comparing it with ONNX Runtime takes seconds, before anything is bounded."""
    files = JobFiles(write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib"))

    class Stopping(Monitor):
        """Cancels itself when a kind of event comes."""

        def __init__(self, at: type) -> None:
            super().__init__()
            self.at, self.told = at, []

        def emit(self, event: Event) -> None:
            self.told.append(event)
            if isinstance(event, self.at):
                self.cancel()

    for at in (MemorySample, NetworkSummary, PropertySummary):
        monitor = Stopping(at)
        with pytest.raises(CancelledError):
            run_verify(job(60.0), files, monitor, RankGroup())
        assert any(isinstance(event, at) for event in monitor.told)
        assert not any(isinstance(event, LogLine) for event in monitor.told), "it had not been compared yet"
