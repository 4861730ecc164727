"""How fast the bound gap view redraws while it grows, against plain pyqtgraph, and whether redrawing leaks.

Run: QT_QPA_PLATFORM=offscreen python tests/benchmarks/redraw.py [--points 10000] [--curves 8] [--redraws 10000]
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np
import psutil
import pyqtgraph as pg
from PySide6.QtWidgets import QApplication

from boundscope.protocol import EventRecord, GapPoint
from boundscope.records import JobRecord
from boundscope_app import theme
from boundscope_app.views import BoundGapView

SECONDS = 3.0
MIB = 1 << 20


def point(index: int, clause: int) -> GapPoint:
    lower = -math.exp(-index / 4000) * (1 + clause) + 0.02 * math.sin(index * 0.9)
    return GapPoint(elapsed_s=index * 0.01, case=0, clause=clause, lower=lower, upper=None, step="crown")


def filled(points: int, curves: int) -> JobRecord:
    record = JobRecord()
    for index in range(points):
        append(record, index, curves)
    return record


def append(record: JobRecord, index: int, curves: int) -> None:
    for clause in range(curves):
        number = record.last_number + 1
        record.apply(EventRecord(number=number, time_s=0.0, rank=0, event=point(index, clause)))


def rate(step: Callable[[], None], seconds: float = SECONDS) -> float:
    """Steps a second."""
    step()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step()
        count += 1
    return count / (time.perf_counter() - start)


def view_step(app: QApplication, view: BoundGapView, record: JobRecord, curves: int) -> Callable[[], None]:
    """One more point on every curve, then one redraw onto the screen."""
    index = [len(next(iter(record.gaps.values())).elapsed_s)]

    def step() -> None:
        append(record, index[0], curves)
        index[0] += 1
        view.mark_dirty()
        view.refresh()
        view.plot.figure.viewport().repaint()

    return step


def plain_step(
    app: QApplication, points: int, curves: int, width: float, antialias: bool
) -> Callable[[], None]:
    """The same data through PlotDataItem.setData, without thinning."""
    pg.setConfigOptions(antialias=antialias)
    widget = pg.PlotWidget()
    widget.resize(1000, 600)
    x = np.arange(points) * 0.01
    ys = [np.array([point(i, c).lower for i in range(points)], dtype=float) for c in range(curves)]
    lines = [widget.plot(pen=pg.mkPen(pg.intColor(c), width=width)) for c in range(curves)]
    widget.show()
    app.processEvents()
    shift = [0.0]

    def step() -> None:
        shift[0] += 1e-4
        for line, y in zip(lines, ys, strict=True):
            line.setData(x, y + shift[0])
        widget.viewport().repaint()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--curves", type=int, default=8)
    parser.add_argument("--redraws", type=int, default=10_000)
    options = parser.parse_args()
    app = QApplication([])
    theme.apply(app, theme.LIGHT)
    view = BoundGapView()
    view.resize(1260, 660)
    record = filled(options.points, options.curves)
    view.set_run(None, record)
    view.show()
    app.processEvents()
    step = view_step(app, view, record, options.curves)
    print(f"{options.points} points x {options.curves} curves")
    print(f"bound gap view, one more point each:  {rate(step):7.1f} updates/s")
    for width, antialias in ((1.0, False), (2.0, True)):
        plain = plain_step(app, options.points, options.curves, width, antialias)
        print(f"plain pyqtgraph, width {width:g}, antialias {antialias!s:5}: {rate(plain):7.1f} updates/s")
    if options.redraws:
        process = psutil.Process()
        small = filled(200, options.curves)
        view.set_run(None, small)

        def small_step() -> None:
            view.redraw()
            view.plot.figure.viewport().repaint()

        for _ in range(200):
            small_step()
        before = process.memory_info().rss
        start = time.perf_counter()
        for _ in range(options.redraws):
            small_step()
        grown = (process.memory_info().rss - before) / MIB
        took = time.perf_counter() - start
        print(f"{options.redraws} redraws in {took:.1f} s: resident memory grew by {grown:.1f} MiB")


if __name__ == "__main__":
    main()
