"""Memory of each rank against time: where it goes, and what sharding bought."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QComboBox, QSplitter, QWidget

from boundscope.protocol import VerifyResult
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.plots.panel import Panel
from boundscope_app.plots.style import live_style, paper_style
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT
from boundscope_app.views.clause_list import CurveList, CurveListModel, Row
from boundscope_app.views.memory_model import MemoryModel
from boundscope_app.views.memory_plot import MOST_PANELS, Fit, MemoryChoice, MemoryPlot, reading
from boundscope_app.views.page import Page
from boundscope_app.views.text import byte_size, seconds
from boundscope_app.views.time_view import TimeView


class MemoryView(TimeView):
    """Bytes held by each rank, by category, beside its resident size and its limit."""

    view_id = "memory"
    title = "Memory"
    empty_text = (
        "No memory samples yet.\n\nWhile a run goes on, the memory of every rank is drawn here: weights, gathered "
        "weights, rows, slopes and workspace, beside its resident size and its limit."
    )
    noise_text = (
        "This run keeps no account of memory by category, so there are no curves to draw.\n\nThe peak of every "
        "rank is on the Verdict page, once the run has ended."
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = MemoryModel()
        self._paper: MemoryPlot | None = None
        self._hovered_rank: int | None = None
        self._result: VerifyResult | None = None
        self.plot = MemoryPlot(live_style(themes.current()))
        self.fit = QComboBox()
        self.fit.addItems(("Scale: automatic", "Scale: ledger", "Scale: resident", "Scale: limit"))
        self.fit.setAccessibleName("Memory scale")
        self.fit.currentIndexChanged.connect(self.redraw)
        self.controls.addWidget(self.fit)
        self.add_time_controls(self.plot.figure)
        self.plot.figure.hovered.connect(self._panel_hovered)
        self.rank_model = CurveListModel(("Rank", "Holds", "Peak"))
        self.rank_model.checks_changed.connect(self.redraw)
        self.ranks = CurveList(self.rank_model, "ranks")
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(self.plot.figure)
        splitter.addWidget(self.ranks)
        splitter.setStretchFactor(0, 1)
        splitter.setSizes([800, 220])
        self.set_content(self.with_reading(splitter))

    def has_data(self, record: JobRecord) -> bool:
        if not self.shows_variability:
            return bool(record.memory)
        # The samples' memory is not in the ledger: its curves would say that none was held.
        return any(any(held) for series in record.memory.values() for held in series.by_category.values())

    def reset(self) -> None:
        self.model = MemoryModel()
        self.rank_model.forget_checks()
        self.reset_time()

    def theme_changed(self) -> None:
        super().theme_changed()
        self.plot.set_style(live_style(themes.current()))

    def choice(self) -> MemoryChoice:
        """What is shown now."""
        checked = [rank for rank in self.model.ranks if self.rank_model.is_checked(rank)]
        ranks = self.model.fullest(checked, MOST_PANELS)
        return MemoryChoice(ranks, Fit(self.fit.currentIndex()), self.pins, self._ledger_peaks())

    def _ledger_peaks(self) -> tuple[tuple[int, int], ...]:
        """The peak of every rank's ledger, which may fall between two samples; once the run has ended."""
        result = None if self.record is None else self.record.result
        return () if result is None else tuple((m.rank, m.ledger_peak_bytes) for m in result.peak_bytes)

    def take_new(self, record: JobRecord) -> bool:
        grew = self.model.update(record)
        ended = record.result is not self._result
        self._result = record.result
        return grew or ended

    def plot_all(self) -> None:
        self.plot.show(self.model, self.choice())
        self.cursor_moved()

    def cursor_moved(self) -> None:
        rows = []
        peaks = dict(self._ledger_peaks())
        for rank in sorted(self.model.ranks):
            series = self.model.ranks[rank]
            held = float(series.at(self.time_cursor.time_s).sum())
            peak = max(series.peak()[1], peaks.get(rank, 0))
            rows.append(
                Row(rank, f"rank {rank}", "", (byte_size(held, padded=True), byte_size(peak, padded=True)))
            )
        self.rank_model.set_rows(rows)

    def _panel_hovered(self, panel: Panel | None, _: float | None) -> None:
        self._hovered_rank = self.plot.rank_of(panel)
        self.show_reading()

    def reading_at(self, time_s: float) -> str:
        ranks = self.choice().ranks if self._hovered_rank is None else (self._hovered_rank,)
        return f"{seconds(time_s)}: {reading(self.model, ranks, time_s)}"

    def tables(self) -> tuple[Table, ...]:
        """The samples of the ranks shown."""
        if self.record is None:
            return ()
        self.take()
        shown = set(self.choice().ranks)
        whole = self.record.memory_table()
        return (Table(whole.name, whole.columns, tuple(row for row in whole.rows if row[0] in shown)),)

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        assert self.record is not None
        high = height or round(width * ASPECT)
        self.take()
        style = paper_style(theme, scale)
        if self._paper is None:
            self._paper = MemoryPlot(style)
        paper = self._paper
        paper.set_style(style)
        paper.figure.caption = self.caption
        paper.show(self.model, self.choice())
        self.copy_zoom(self.plot.figure, paper.figure)

        def paint(painter: QPainter) -> None:
            paper.figure.draw_on(painter, width, high)

        return Page(width, high, theme.base, paint)
