"""What the plots of several runs over time share: the list of runs, the figure, and the exported page."""

from __future__ import annotations

from abc import abstractmethod

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from boundscope.comparison import LETTERS, Run
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.plots.style import live_style, paper_style
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT
from boundscope_app.views.clause_list import CurveList, CurveListModel, Row
from boundscope_app.views.compare import CompareView, run_style
from boundscope_app.views.compare_plot import Overlay, OverlayPlot
from boundscope_app.views.page import Page
from boundscope_app.views.text import seconds
from boundscope_app.views.time_view import TimeView

BESIDE_PX = 900
HEAD_LINES, RUN_LINES = 5.5, 1.5  # of the list below a plot: its filter and head, and each run
LIST_SHARE = 0.42  # of the view's height, at most
UNLIMITED_PX = 16_777_215  # Qt's own word for no maximum


class CompareTimeView(CompareView, TimeView):
    """Curves of several runs against the time since each one's start. Runs without data are in the list, grey."""

    list_columns: tuple[str, str, str] = ("Run", "", "")

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.plot = OverlayPlot(live_style(themes.current()))
        self._paper: OverlayPlot | None = None
        self.add_choices()
        self.add_time_controls(self.plot.figure)
        self.add_end_button()
        self.run_model = CurveListModel(self.list_columns)
        self.run_model.checks_changed.connect(self.redraw)
        self.run_list = CurveList(self.run_model, "runs")
        self.splitter = splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(self.plot.figure)
        splitter.addWidget(self.run_list)
        splitter.setStretchFactor(0, 1)
        splitter.setSizes([700, 330])
        splitter.setChildrenCollapsible(False)
        content = QWidget()
        layout = QVBoxLayout(content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.notes)
        layout.addWidget(self.with_reading(splitter), 1)
        self.set_content(content)

    @abstractmethod
    def add_choices(self) -> None:
        """Put the view's own choices into the bar."""

    @abstractmethod
    def run_has_data(self, place: int) -> bool:
        """Whether there is a curve of the run at this place."""

    @abstractmethod
    def why_not(self, place: int) -> str:
        """Why there is no curve of it: half a sentence that follows the run's name."""

    @abstractmethod
    def overlay(self, places: tuple[int, ...], theme: Theme, *, live: bool) -> Overlay:
        """The curves of the runs at these places."""

    @abstractmethod
    def values_at(self, place: int, time_s: float | None) -> tuple[str, str]:
        """Of one run at this time (None: at the end), and over all time, as the list shows them."""

    def has_data(self, record: JobRecord) -> bool:
        return any(self.run_has_data(place) for place in range(len(self.runs)))

    def reset(self) -> None:
        self.run_model.forget_checks()
        self.reset_time()

    def theme_changed(self) -> None:
        super().theme_changed()
        self.plot.set_style(live_style(themes.current()))

    def shown(self) -> tuple[int, ...]:
        """Places of the runs that have curves and are not unchecked."""
        ids = [run.info.id for run in self.runs]
        return tuple(
            place
            for place, job_id in enumerate(ids)
            if self.run_has_data(place) and self.run_model.is_checked(job_id)
        )

    def plot_all(self) -> None:
        theme = themes.current()
        self.plot.show(self.overlay(self.shown(), theme, live=True), self.pins)
        self.show_notes(self.texts())
        self.cursor_moved()

    def texts(self) -> tuple[str, ...]:
        """Which runs have no curve, and why."""
        return tuple(
            f"{head}: {self.why_not(place)}"
            for place, head in enumerate(self.heads)
            if not self.run_has_data(place)
        )

    def cursor_moved(self) -> None:
        theme = themes.current()
        rows = []
        for place, (run, head) in enumerate(zip(self.runs, self.heads, strict=True)):
            color, pen = run_style(theme, place)
            values = ("–", "–")
            if self.run_has_data(place):
                values = self.values_at(place, self.time_cursor.time_s)
            rows.append(Row(run.info.id, head, color, values, self.tip(place), pen))
        self.run_model.set_rows(rows)

    def tip(self, place: int) -> str:
        """What the list says of a run when somebody points at it."""
        info = self.runs[place].info
        return f"{self.heads[place]}\n{info.title}\n{info.id}"

    def set_runs(self, runs: tuple[Run, ...]) -> None:
        before = len(self.runs)
        super().set_runs(runs)
        if len(runs) != before:
            self._place_list()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_list()

    def _place_list(self) -> None:
        """The list stands beside the plot where there is room, and below it where there is not."""
        wide = self.width() >= BESIDE_PX
        beside = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        lines = HEAD_LINES + RUN_LINES * max(2, len(self.runs))
        height = round(min(lines * self.fontMetrics().lineSpacing(), LIST_SHARE * self.height()))
        self.run_list.setMaximumHeight(UNLIMITED_PX if wide else height)
        if beside is not self.splitter.orientation():
            self.splitter.setOrientation(beside)
            self.splitter.setSizes([700, 330])
        if not wide:
            self.splitter.setSizes([max(1, self.splitter.height() - height), height])

    def reading_at(self, time_s: float) -> str:
        parts = (f"{LETTERS[place]} {self.values_at(place, time_s)[0]}" for place in self.shown())
        return f"{seconds(time_s)}: {'  ·  '.join(parts)}"

    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The curves shown, as they are drawn."""

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        self.take()
        high = height or round(width * ASPECT)
        style = paper_style(theme, scale)
        if self._paper is None:
            self._paper = OverlayPlot(style)
        paper = self._paper
        paper.set_style(style)
        paper.figure.caption = self.caption
        paper.show(self.overlay(self.shown(), theme, live=False), self.pins)
        self.copy_zoom(self.plot.figure, paper.figure)

        def paint(painter: QPainter) -> None:
            paper.figure.draw_on(painter, width, high)

        return Page(width, high, theme.base, paint)
