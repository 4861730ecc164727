"""Bounds on the margin of each clause against time."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.page import Page


class BoundGapView(View):
    """Proven lower and reached upper bound on the margin of each clause."""

    view_id = "bound_gap"
    title = "Bound gap"
    empty_text = "No bounds yet.\n\nThe bounds on each clause's margin appear here while a run goes on."

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.plot = pg.PlotWidget(background=themes.current().base)
        self.set_content(self.plot)

    def has_data(self, record: JobRecord) -> bool:
        return bool(record.gaps)

    def draw(self) -> None:
        assert self.record is not None
        self.plot.clear()
        for series in self.record.gaps.values():
            self.plot.plot(series.elapsed_s, [float("nan") if v is None else v for v in series.lower])

    def tables(self) -> tuple[Table, ...]:
        return () if self.record is None else (self.record.gap_table(),)

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        high = height or round(width * ASPECT)
        self.draw()

        def paint(painter: QPainter) -> None:
            self.plot.scene().render(painter, QRectF(0, 0, width, high))

        return Page(width, high, theme.base, paint)
