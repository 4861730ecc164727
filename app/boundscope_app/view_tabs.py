"""The tabs in the centre: every view of the selected run, drawn only when it changed and can be seen."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QTabWidget, QWidget

from boundscope.protocol import JobInfo, VariabilityJob, VerifyJob
from boundscope_app.plots.cursor import TimeCursor
from boundscope_app.runs import RunModel
from boundscope_app.selection import LayerSelection
from boundscope_app.views import COMPARE_VIEWS, VIEWS, CompareView
from boundscope_app.views.base import View


class ViewTabs(QTabWidget):
    """Follows the RunModel's selection; `view_changed` gives the id of the view that is in front.

    While runs are compared, the views that draw several stand in the place of those that draw one.
    """

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
        self.compare_views: tuple[CompareView, ...] = tuple(view(self) for view in COMPARE_VIEWS)
        self._wanted = ""  # the view to show as soon as its tab is there
        for view in self.views:
            for several in self.compare_views:
                if several.stands_before == view.view_id:
                    self._add(several, f"{several.title} of the runs that are compared")
            self._add(view, f"{view.title} of the selected run")
        runs.comparing.connect(self._compare)
        runs.selected.connect(self._show_run)
        runs.changed.connect(self._info_changed)
        runs.grew.connect(self._grew)
        self.currentChanged.connect(self._current_changed)

    def _add(self, view: View, tip: str) -> None:
        view.set_time_cursor(self.cursor_model)
        view.set_selection(self.layer_selection)
        index = self.addTab(view, view.title)
        self.setTabToolTip(index, tip)
        self.setTabVisible(index, self._shows(view, None))

    @property
    def all_views(self) -> tuple[View, ...]:
        """Those of one run, then those of several."""
        return (*self.views, *self.compare_views)

    def _shows(self, view: View, info: JobInfo | None) -> bool:
        """Whether there is a tab of this view now."""
        replaced = any(each.suits(info) and each.replaces == view.view_id for each in self.compare_views)
        return view.suits(info) and not replaced

    @property
    def current_view_id(self) -> str:
        view = self.currentWidget()
        return view.view_id if isinstance(view, View) else ""

    def show_view(self, view_id: str) -> None:
        """Bring this view to the front; where its tab is not there yet, as soon as it is."""
        self._wanted = view_id
        for view in self.all_views:
            if view.view_id == view_id and self.isTabVisible(self.indexOf(view)):
                self._wanted = ""
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
        for view in self.views:
            view.set_run(info, record)
        for view in self._update_tabs(info):
            if not any(each.replaces == view.view_id for each in self.compare_views):
                self.setCurrentWidget(
                    view
                )  # a view of this kind of run alone is what people want to see first

    def _update_tabs(self, info: JobInfo | None) -> list[View]:
        """Show the tabs that there are now; the views whose tabs came. The front goes from a view to its like."""
        front = self.currentWidget()
        came = []
        for view in self.all_views:
            index, shown = self.indexOf(view), self._shows(view, info)
            if shown and not self.isTabVisible(index):
                came.append(view)
            if shown:
                self.setTabVisible(index, True)
        for view in came:
            like = view.replaces if isinstance(view, CompareView) else ""
            if isinstance(front, View) and (
                like == front.view_id or getattr(front, "replaces", "") == view.view_id
            ):
                self.setCurrentWidget(view)
        for view in self.all_views:
            if not self._shows(view, info):
                self.setTabVisible(self.indexOf(view), False)
        if self._wanted:
            self.show_view(self._wanted)
        return [view for view in came if not isinstance(view, CompareView)]

    def _compare(self) -> None:
        for view in self.compare_views:
            view.set_runs(self._runs.compared_runs())
        self._update_tabs(self._runs.selected_info)

    def _info_changed(self, job_id: str) -> None:
        if job_id == self._runs.selected_id:
            self._show_run(job_id)
        if job_id in self._runs.compared:
            self._compare()

    def _grew(self, job_id: str) -> None:
        if job_id == self._runs.selected_id:
            for view in self.views:
                view.mark_dirty()
        if job_id in self._runs.compared:
            for several in self.compare_views:
                several.mark_dirty()

    def _current_changed(self, _index: int) -> None:
        self.view_changed.emit(self.current_view_id)
        self.tick()


def network_key(info: JobInfo | None) -> str:
    """What tells whether two runs are of the same network; "" where a run has not one."""
    job = None if info is None else info.job
    return job.network.sha256 if isinstance(job, VerifyJob | VariabilityJob) else ""
