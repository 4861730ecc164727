"""How long the window stalls while a run streams 1 000 events a second into it, and whether redrawing leaks.

    python tests/benchmarks/stalls.py [--seconds 60] [--nodes 2000] [--redraws 10000]

A real daemon, its real connection, the real window on an X server of its own, whose views are gone through one after
the other. A stall is a gap in the beats of a 1 ms timer in the window's thread. `own`: of it, the processor time of
that thread, and of the garbage collector where it ran in another one. The rest is other programs' share of the
processors.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tests", "backend", "app", "native_prism")]
os.environ["QT_QPA_PLATFORMTHEME"] = ""

from app.window_support import start_xvfb  # noqa: E402

MIB = 1 << 20
VIEW_S = 2.0
WARM_UP = 300


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--nodes", type=int, default=2000)
    options.add_argument("--redraws", type=int, default=10_000)
    chosen = options.parse_args()
    screen = start_xvfb()
    if screen is None:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    else:
        os.environ["DISPLAY"], os.environ["QT_QPA_PLATFORM"] = screen[1], "xcb"
    with tempfile.TemporaryDirectory(prefix="boundscope-stalls-") as folder:
        os.environ["BOUNDSCOPE_CONFIG"] = folder
        watch_stream(Path(folder) / "home", chosen.seconds, chosen.nodes, chosen.redraws)


def watch_stream(home: Path, seconds: float, nodes: int, redraws: int) -> None:
    import psutil
    from PySide6.QtCore import QEventLoop
    from PySide6.QtWidgets import QApplication

    from app.streaming import StallWatch, streaming_daemon, submit_stream
    from boundscope.records import JobRecord
    from boundscope_app.main import build_window, parser, settle
    from boundscope_app.settings import Settings
    from boundscope_app.window import apply_theme

    app = QApplication(["stalls"])
    apply_theme("light")

    def process_until(end_s: float) -> None:
        while time.monotonic() < end_s:
            app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 20)

    with streaming_daemon(home) as client:
        window = build_window(parser().parse_args(["--home", str(home)]), Settings())
        window.resize(1280, 800)
        window.show()
        window.begin()
        settle()
        while not window.session.listed:
            process_until(time.monotonic() + 0.05)
        info = submit_stream(client, seconds, nodes)
        while info.id not in window.runs.ids:
            process_until(time.monotonic() + 0.05)
        watch, process = StallWatch(), psutil.Process()
        psutil.cpu_percent()
        watch.start()
        before, begin_s = process.cpu_times(), time.monotonic()
        window.runs.select(info.id)
        while time.monotonic() < begin_s + seconds:
            watch.doing = f"next view after {window.tabs.current_view_id}"
            window.tabs.step(1)
            watch.doing = window.tabs.current_view_id
            process_until(min(begin_s + seconds, time.monotonic() + VIEW_S))
        watch.stop()
        took = time.monotonic() - begin_s
        after, machine = process.cpu_times(), psutil.cpu_percent()
        heard = window.runs.record(info.id).last_number
        print(f"{heard} events heard in {took:.0f} s ({heard / took:.0f} a second), network of {nodes} nodes")
        own = 100 * (after.user + after.system - before.user - before.system) / took
        print(f"processor: {own:.0f} % of one core by the window, the whole machine at {machine:.0f} %")
        report(watch)
        history = tuple(client.events(info.id))
        watch.stalls.clear()
        watch.start()
        for view in window.tabs.views:
            if not window.tabs.isTabVisible(window.tabs.indexOf(view)):
                continue
            window.tabs.setCurrentWidget(view)
            process_until(time.monotonic() + 0.1)
            window.runs.select("")
            process_until(time.monotonic() + 0.1)
            watch.doing = f"opening the whole history: {view.view_id}"
            watch.stop()  # the record is made in the thread of the network
            record = JobRecord()
            record.apply_all(history)
            watch.start()
            window.runs.replace_history(info.id, record)
            window.runs.select(info.id)
            process_until(time.monotonic() + 1.5)
        watch.stop()
        print("the same run, opened with all that it said:")
        report(watch)
        watch.stalls.clear()
        watch.start()
        watch.doing = "exporting all"
        window.commands.begin_export(home / "export")
        while window.commands.exporting:
            watch.doing = f"exporting all: {window.work.text.text()}"
            process_until(time.monotonic() + 0.005)
        watch.stop()
        print("all of it exported:")
        report(watch)
        measure_growth(window, redraws)
        window.close()


def report(watch: object) -> None:
    from app.streaming import StallWatch

    assert isinstance(watch, StallWatch)
    own, wall = watch.worst, watch.worst_wall
    print(
        f"  longest stall: {own.own_ms:.0f} ms own ({own.doing}), {wall.wall_ms:.0f} ms by the clock ({wall.doing})"
    )
    if watch.stalls:
        middle = statistics.median(stall.wall_ms for stall in watch.stalls)
        long = sum(stall.own_ms > 50 for stall in watch.stalls)
        print(
            f"  {len(watch.stalls)} gaps over 10 ms (median {middle:.0f} ms), {long} over 50 ms own, "
            f"in {watch.beats} beats"
        )
    collected = watch.collecting_ms
    print(f"  garbage collections: {len(collected)}, the longest {max(collected, default=0.0):.0f} ms")
    by_view: dict[str, float] = {}
    for stall in watch.stalls:
        by_view[stall.doing] = max(by_view.get(stall.doing, 0.0), stall.own_ms)
    for doing, worst_ms in sorted(by_view.items(), key=lambda each: -each[1])[:12]:
        print(f"    {worst_ms:6.0f} ms  {doing}")


def measure_growth(window: object, redraws: int) -> None:
    """Resident memory before and after so many redraws of every view, from scratch each time."""
    import psutil

    from app.streaming import redraw, small_record
    from boundscope_app.window import MainWindow

    assert isinstance(window, MainWindow)
    record, process = small_record(), psutil.Process()
    for view in window.tabs.views:
        if not view.has_data(record) or not window.tabs.isTabVisible(window.tabs.indexOf(view)):
            continue
        window.tabs.setCurrentWidget(view)
        view.set_run(window.runs.selected_info, record)
        redraw(view, WARM_UP)
        before, start_s = process.memory_info().rss, time.monotonic()
        redraw(view, redraws)
        grown, took = (process.memory_info().rss - before) / MIB, time.monotonic() - start_s
        print(
            f"{redraws} redraws of {view.title}: {grown:+.1f} MiB, {1000 * took / max(1, redraws):.2f} ms each"
        )


if __name__ == "__main__":
    main()
