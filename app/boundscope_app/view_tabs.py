"""The tabs in the centre: every view of the selected run, drawn only when it changed and can be seen."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QTabWidget, QWidget

from boundscope.protocol import JobInfo, VariabilityJob, VerifyJob
from boundscope_app.plots.cursor import TimeCursor
from boundscope_app.runs import RunModel
from boundscope_app.selection import LayerSelection
from boundscope_app.views import VIEWS
from boundscope_app.views.base import View


class ViewTabs(QTabWidget):
    """Follows the RunModel's selection; `view_changed` gives the id of the view that is in front."""

    view_changed = Signal(str)

    def __init__(self, runs: RunModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("views")
        self.setAccessibleName("Views of the selected run")
        self.setDocumentMode(True)
        self._runs = runs
        self.cursor_model = TimeCursor(self)
        self.layer_selection = LayerSelection(self)
        self.views: tuple[View, ...] = tuple(view(self) for view in VIEWS)
        for number, view in enumerate(self.views, start=1):
            view.set_time_cursor(self.cursor_model)
            view.set_selection(self.layer_selection)
            self.addTab(view, view.title)
            self.setTabToolTip(number - 1, f"{view.title} of the selected run")
            self.setTabVisible(number - 1, view.suits(None))
        runs.selected.connect(self._show_run)
        runs.changed.connect(self._info_changed)
        runs.grew.connect(self._grew)
        self.currentChanged.connect(self._current_changed)

    @property
    def current_view_id(self) -> str:
        view = self.currentWidget()
        return view.view_id if isinstance(view, View) else ""

    def show_view(self, view_id: str) -> None:
        for view in self.views:
            if view.view_id == view_id and self.isTabVisible(self.indexOf(view)):
                self.setCurrentWidget(view)

    def step(self, by: int) -> None:
        """Go to the view `by` places further, round the end."""
        shown = [index for index in range(self.count()) if self.isTabVisible(index)]
        self.setCurrentIndex(shown[(shown.index(self.currentIndex()) + by) % len(shown)])

    def tick(self) -> None:
        """Draw what is in front, where it changed; called 30 times a second."""
        view = self.currentWidget()
        if isinstance(view, View) and view.dirty and view.isVisible():
            view.refresh()

    def _show_run(self, job_id: str) -> None:
        info = self._runs.selected_info
        record = self._runs.record(job_id) if info is not None else None
        self.layer_selection.show_run(job_id, network_key(info))
        for index, view in enumerate(self.views):
            view.set_run(info, record)
            came = view.suits(info) and not self.isTabVisible(index)
            self.setTabVisible(index, view.suits(info))
            if came:  # a view of this kind of run alone is what people want to see first
                self.setCurrentIndex(index)

    def _info_changed(self, job_id: str) -> None:
        if job_id == self._runs.selected_id:
            self._show_run(job_id)

    def _grew(self, job_id: str) -> None:
        if job_id == self._runs.selected_id:
            for view in self.views:
                view.mark_dirty()

    def _current_changed(self, _index: int) -> None:
        self.view_changed.emit(self.current_view_id)
        self.tick()


def network_key(info: JobInfo | None) -> str:
    """What tells whether two runs are of the same network; "" where a run has not one."""
    job = None if info is None else info.job
    return job.network.sha256 if isinstance(job, VerifyJob | VariabilityJob) else ""
