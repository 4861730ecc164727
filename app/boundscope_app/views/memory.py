"""Memory of each rank against time."""

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


class MemoryView(View):
    """Memory held by each rank, by category."""

    view_id = "memory"
    title = "Memory"
    empty_text = "No memory samples yet."

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.plot = pg.PlotWidget(background=themes.current().base)
        self.set_content(self.plot)

    def has_data(self, record: JobRecord) -> bool:
        return bool(record.memory)

    def draw(self) -> None:
        assert self.record is not None
        self.plot.clear()
        for series in self.record.memory.values():
            self.plot.plot(series.elapsed_s, series.total_bytes)

    def tables(self) -> tuple[Table, ...]:
        return () if self.record is None else (self.record.memory_table(),)

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        high = height or round(width * ASPECT)
        self.draw()

        def paint(painter: QPainter) -> None:
            self.plot.scene().render(painter, QRectF(0, 0, width, high))

        return Page(width, high, theme.base, paint)
