"""Bounds on the margin of each clause against time: how far the proof has come, and how far it could go."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QComboBox, QSplitter, QWidget

from boundscope.protocol import VerifyResult
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.plots.style import live_style, paper_style
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT
from boundscope_app.views.clause_list import CurveList, CurveListModel, Row
from boundscope_app.views.gap_model import ColorSlots, GapModel, Key
from boundscope_app.views.gap_plot import ABOVE_ZERO, FRONT, GapChoice, GapPlot, reading
from boundscope_app.views.page import Page
from boundscope_app.views.text import aligned, clause_name
from boundscope_app.views.time_view import TimeView

LIST_TIPS = (
    "The worst first: the one whose proven bound is least",
    "The margin that is proven: a solid line, with triangles that point up",
    "The least margin that an input was seen to have: a dashed line, with triangles that point down",
)


class BoundGapView(TimeView):
    """Proven lower and reached upper bound of every clause's margin over time."""

    view_id = "bound_gap"
    title = "Bound gap"
    empty_text = (
        "No bounds yet.\n\nWhile a run goes on, the proven lower bound and the least margin seen are drawn here for "
        "every clause. The property holds once every lower bound is above zero."
    )
    noise_text = (
        "This run measures noise and proves no margin, so there is no gap to draw.\n\nWhat it measured is in the "
        "Variability view; with a property, the bounds proven for its layers are there too."
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = GapModel()
        self._slots = ColorSlots(FRONT)
        self._paper: GapPlot | None = None
        self._result: VerifyResult | None = None
        self.plot = GapPlot(live_style(themes.current()))
        self.scale = QComboBox()
        self.scale.addItems(("Signed log", "Linear"))
        self.scale.setAccessibleName("Margin scale")
        self.scale.setToolTip("Of margins and counts; the signed logarithm has a place for zero")
        self.scale.currentIndexChanged.connect(self.redraw)
        self.controls.addWidget(self.scale)
        self.add_time_controls(self.plot.figure)
        self.clause_model = CurveListModel(("Clause", "▲ Lower", "▼ Upper"), LIST_TIPS)
        self.clause_model.checks_changed.connect(self.redraw)
        self.clauses = CurveList(self.clause_model, "clauses")
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(self.plot.figure)
        splitter.addWidget(self.clauses)
        splitter.setStretchFactor(0, 1)
        splitter.setSizes([760, 260])
        self.set_content(self.with_reading(splitter))

    def has_data(self, record: JobRecord) -> bool:
        return bool(record.gaps or record.search)

    def reset(self) -> None:
        self.model = GapModel()
        self._slots = ColorSlots(FRONT)
        self.clause_model.forget_checks()
        self.reset_time()

    def theme_changed(self) -> None:
        super().theme_changed()
        self.plot.set_style(live_style(themes.current()))

    def choice(self) -> GapChoice:
        """What is shown now, worst clause first."""
        shown = [key for key in self.model.clauses if self.clause_model.is_checked(key)]
        worst = self.model.worst_first(shown)
        front = worst[:FRONT]
        slots = self._slots.assign(front)
        return GapChoice(tuple(worst), slots, self.scale.currentIndex() == 0, self.pins, self._excluded())

    def _excluded(self) -> frozenset[Key]:
        """Clauses that the verdict excludes: a bound of 0 that a search ended with means above 0."""
        result = None if self.record is None else self.record.result
        margins = () if result is None else result.margin.per_clause
        return frozenset((each.case, each.clause) for each in margins if each.excluded)

    def take_new(self, record: JobRecord) -> bool:
        self.model.update(record)
        ended = record.result is not self._result
        self._result = record.result
        return ended or bool(self.model.changed) or self.model.searched

    def plot_all(self) -> None:
        choice = self.choice()
        self.plot.show(self.model, choice)
        self._fill_list(choice)

    def _fill_list(self, choice: GapChoice) -> None:
        theme = themes.current()
        single = len({case for case, _ in self.model.clauses}) <= 1
        texts = self._clause_texts()
        time_s = self.time_cursor.time_s
        rows = []
        for key in self.model.worst_first(self.model.clauses):
            bounds = self.model.clauses[key]
            slot = choice.slots.get(key)
            color = theme.disabled if slot is None else theme.series[slot]
            lower = bounds.lower.at(time_s)
            proven = (
                ABOVE_ZERO if lower == 0 and time_s is None and key in choice.excluded else aligned(lower, 4)
            )
            values = (proven, aligned(bounds.upper.at(time_s), 4))
            rows.append(Row(key, clause_name(*key, single), color, values, texts.get(key, "")))
        self.clause_model.set_rows(rows)

    def _clause_texts(self) -> dict[Key, str]:
        summary = None if self.record is None else self.record.property
        return {} if summary is None else {(row.case, row.clause): row.text for row in summary.clauses}

    def reading_at(self, time_s: float) -> str:
        return reading(self.model, self.choice(), time_s)

    def cursor_moved(self) -> None:
        if self.record is not None and self.model.clauses:
            self._fill_list(self.choice())

    def tables(self) -> tuple[Table, ...]:
        """The series of the clauses shown, and of the search where there is one."""
        if self.record is None:
            return ()
        whole = self.record.gap_table()
        rows = tuple(row for row in whole.rows if self.clause_model.is_checked((row[0], row[1])))
        gaps = Table(whole.name, whole.columns, rows)
        return (gaps, self.record.search_table()) if self.record.search else (gaps,)

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        assert self.record is not None
        high = height or round(width * ASPECT)
        self.take()
        choice = self.choice()
        style = paper_style(theme, scale)
        if self._paper is None:
            self._paper = GapPlot(style)
        paper = self._paper
        paper.set_style(style)
        paper.figure.caption = self.caption
        paper.show(self.model, choice)
        paper.figure.legend.entries = paper.legend(self.model, choice)
        self.copy_zoom(self.plot.figure, paper.figure)

        def paint(painter: QPainter) -> None:
            paper.figure.draw_on(painter, width, high)

        return Page(width, high, theme.base, paint)
