"""Nothing holds the window up, and drawing forgets what it drew (tests/benchmarks/stalls.py: the same at length).

What counts of a stall is the processor time that the window's own thread took for it, and the garbage collector: a
machine that builds may let it wait as long as it likes. The goal is 50 ms; slow processors are given room, as much
more as they take longer for a loop of Python.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from app.streaming import StallWatch, redraw, small_record, streaming_daemon, submit_stream
from app.window_support import LIMIT_S, close, open_window
from boundscope_app.export import Exporter
from boundscope_app.views import VIEWS
from boundscope_app.views.base import View

STREAM_S, NODES = 5.0, 400
EVENTS = 1500  # that the window has heard by the end: it did stream
MOST_STALL_MS = 200.0
YARD_MS = 15.0  # of the loop of `slowness`, on a processor that is not slow
WARM_UP, REDRAWS = 30, 100
MOST_GROWTH_BYTES = 512 << 10  # of all redraws; a leak of one line of a plot each would be several times that
DRAWN = [view for view in VIEWS if view.view_id not in ("instances", "variability")]


def test_a_thousand_events_a_second_and_every_view_in_turn(qtbot: QtBot, tmp_path: Path) -> None:
    with streaming_daemon(tmp_path / "home") as client:
        window = open_window(qtbot, tmp_path / "home")
        try:
            info = submit_stream(client, LIMIT_S, NODES)
            qtbot.waitUntil(lambda: info.id in window.runs.ids)
            window.runs.select(info.id)
            qtbot.waitUntil(lambda: window.runs.record(info.id).network is not None)
            watch = StallWatch()
            watch.start()
            begin_s = time.monotonic()
            while time.monotonic() < begin_s + STREAM_S or window.runs.record(info.id).last_number < EVENTS:
                assert time.monotonic() < begin_s + LIMIT_S, "the run does not stream"
                window.tabs.step(1)
                watch.doing = window.tabs.current_view_id
                qtbot.wait(400)
            watch.doing = "export"
            exporter = Exporter(window.tabs.views, tmp_path / "out")
            with qtbot.waitSignal(exporter.finished):
                exporter.start()
            watch.stop()
            client.cancel(info.id, force=True)
        finally:
            close(window)
    assert watch.beats > 100
    assert watch.worst.own_ms < MOST_STALL_MS * max(1.0, slowness()), watch.worst


def slowness() -> float:
    """How many times as long as a processor that is not slow this one takes, whatever else it does."""

    def yard_s() -> float:
        begin_s = time.thread_time()
        assert sum(number % 7 for number in range(500_000)) > 0
        return time.thread_time() - begin_s

    return 1000 * max(yard_s() for _ in range(3)) / YARD_MS


@pytest.mark.parametrize(("computes", "least_ms", "most_ms"), [(True, 60.0, 1e9), (False, 0.0, 30.0)])
def test_the_watch_counts_work_and_not_waiting(
    qtbot: QtBot, computes: bool, least_ms: float, most_ms: float
) -> None:
    """A step of 60 ms is seen as what it is; a wait as long, as on a machine that gives no processor, is not."""
    watch = StallWatch()

    def hold_up() -> None:
        watch.doing = "held up"
        begin_s = time.thread_time()
        while computes and time.thread_time() - begin_s < 0.06:
            pass
        if not computes:
            time.sleep(0.06)

    watch.start()
    QTimer.singleShot(20, hold_up)
    qtbot.waitUntil(lambda: any(stall.doing == "held up" for stall in watch.stalls))
    watch.stop()
    held = next(stall for stall in watch.stalls if stall.doing == "held up")
    assert held.wall_ms >= 60
    assert least_ms <= held.own_ms <= most_ms


@pytest.mark.parametrize("kind", DRAWN, ids=lambda kind: kind.view_id)
def test_redrawing_takes_no_memory(qtbot: QtBot, kind: type[View]) -> None:
    """Every view, drawn anew from the same record a hundred times, leaves the process as large as before."""
    view = kind()
    qtbot.addWidget(view)
    view.resize(900, 600)
    view.set_run(None, small_record())
    view.show()
    qtbot.waitExposed(view)
    process = psutil.Process()
    redraw(view, WARM_UP)
    least = MOST_GROWTH_BYTES + 1
    for _ in range(3):  # the allocator may take a piece once; what leaks grows every time
        before = process.memory_info().rss
        redraw(view, REDRAWS)
        least = min(least, process.memory_info().rss - before)
        if least < MOST_GROWTH_BYTES:
            break
    assert least < MOST_GROWTH_BYTES
