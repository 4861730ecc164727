"""The jobs as a Qt table model, newest first."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QColor, QFont

from boundscope.protocol import (
    InspectJob,
    InstancesJob,
    JobInfo,
    JobState,
    Progress,
    VariabilityJob,
    VerifyJob,
)
from boundscope_app import theme as themes
from boundscope_app.docks.choices import METHODS
from boundscope_app.format import (
    STATE_WORDS,
    duration,
    limit_left_s,
    moment,
    outcome_word,
    progress_text,
    run_seconds,
)
from boundscope_app.runs import RunModel

COLUMNS = ("State", "Run", "Method", "Ranks", "Verdict", "Progress", "Started", "Duration", "Host")
STATE, RUN, METHOD, RANKS, VERDICT, PROGRESS, STARTED, DURATION, HOST = range(len(COLUMNS))
INFO_ROLE = Qt.ItemDataRole.UserRole
SORT_ROLE = Qt.ItemDataRole.UserRole + 1
Index = QModelIndex | QPersistentModelIndex


class JobsModel(QAbstractTableModel):
    """Follows a RunModel; durations and times to go of running jobs move when `tick` is called.

    Each run has a box to mark it for a comparison; `marks_changed` when another set of them is marked.
    """

    marks_changed = Signal()

    def __init__(self, runs: RunModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._runs = runs
        self._ids: list[str] = []
        self._marked: set[str] = set()
        self._heard: dict[
            str, tuple[Progress | None, float]
        ] = {}  # the last progress of a run, and when it came
        runs.listed.connect(self._reload)
        runs.added.connect(self._add)
        runs.changed.connect(self._update)
        runs.removed.connect(self._remove)
        themes.notifier.changed.connect(self._repaint)
        self._reload()

    def row_of(self, job_id: str) -> int:
        """The row of a job, or -1."""
        return self._ids.index(job_id) if job_id in self._ids else -1

    def id_at(self, row: int) -> str:
        return self._ids[row] if 0 <= row < len(self._ids) else ""

    # ------------------------------------------------------------ marks

    @property
    def marked(self) -> tuple[str, ...]:
        """The runs that are marked, the oldest first."""
        return tuple(job_id for job_id in reversed(self._ids) if job_id in self._marked)

    def set_marked(self, job_ids: Iterable[str]) -> None:
        """Mark these runs and no others."""
        wanted = set(job_ids) & set(self._ids)
        if wanted != self._marked:
            changed = wanted ^ self._marked
            self._marked = wanted
            for job_id in changed & set(self._ids):
                place = self.index(self.row_of(job_id), STATE)
                self.dataChanged.emit(place, place, [Qt.ItemDataRole.CheckStateRole])
            self.marks_changed.emit()

    def tick(self) -> None:
        """Let time pass for jobs that run."""
        for row, job_id in enumerate(self._ids):
            info = self._runs.info(job_id)
            if info is not None and not info.state.ended:
                self.dataChanged.emit(self.index(row, PROGRESS), self.index(row, DURATION))

    # ------------------------------------------------------------ following the runs

    def _reload(self) -> None:
        self.beginResetModel()
        self._ids = list(reversed(self._runs.ids))
        self.endResetModel()
        self.set_marked(self._marked)

    def _add(self, job_id: str) -> None:
        self.beginInsertRows(QModelIndex(), 0, 0)
        self._ids.insert(0, job_id)
        self.endInsertRows()

    def _update(self, job_id: str) -> None:
        row = self.row_of(job_id)
        self._hear(job_id)
        if row >= 0:
            self.dataChanged.emit(self.index(row, 0), self.index(row, len(COLUMNS) - 1))

    def _hear(self, job_id: str) -> None:
        info = self._runs.info(job_id)
        progress = None if info is None or info.state.ended else info.progress
        if progress is None:
            self._heard.pop(job_id, None)
        elif self._heard.get(job_id, (None, 0.0))[0] != progress:
            self._heard[job_id] = (progress, time.monotonic())

    def _progress(self, info: JobInfo) -> str:
        """How far a run is; of one that pauses, only that, for what is left does not become less."""
        progress = info.progress
        if info.state.held:
            progress = None if progress is None else replace(progress, eta_s=None)
            return " · ".join(part for part in (STATE_WORDS[info.state], progress_text(progress)) if part)
        heard, heard_s = self._heard.get(info.id, (None, 0.0))
        if progress is not None and progress.eta_s is not None and heard == progress:
            progress = replace(progress, eta_s=max(0.0, progress.eta_s - (time.monotonic() - heard_s)))
        return progress_text(progress, limit_left_s(info, time.time()))

    def _remove(self, job_id: str) -> None:
        row = self.row_of(job_id)
        self._heard.pop(job_id, None)
        if row >= 0:
            self.beginRemoveRows(QModelIndex(), row, row)
            del self._ids[row]
            self.endRemoveRows()
            self.set_marked(self._marked)

    def _repaint(self) -> None:
        if self._ids:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self._ids) - 1, len(COLUMNS) - 1))

    # ------------------------------------------------------------ QAbstractTableModel

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._ids)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        return flags | Qt.ItemFlag.ItemIsUserCheckable if index.column() == STATE else flags

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        job_id = self.id_at(index.row())
        if role != Qt.ItemDataRole.CheckStateRole or not job_id:
            return False
        marked = Qt.CheckState(value) is Qt.CheckState.Checked
        self.set_marked(self._marked | {job_id} if marked else self._marked - {job_id})
        return True

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        if orientation is Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        return None

    def data(self, index: Index, role: int = 0) -> Any:
        info = self._runs.info(self.id_at(index.row()))
        if info is None:
            return None
        column = index.column()
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return self._text(info, column)
            case Qt.ItemDataRole.CheckStateRole if column == STATE:
                return Qt.CheckState.Checked if info.id in self._marked else Qt.CheckState.Unchecked
            case Qt.ItemDataRole.ForegroundRole:
                return _color(info, column)
            case Qt.ItemDataRole.FontRole if column == VERDICT:
                font = QFont()
                font.setBold(True)
                return font
            case Qt.ItemDataRole.TextAlignmentRole if column in (RANKS, DURATION):
                return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            case Qt.ItemDataRole.ToolTipRole:
                return info.cause or self._text(info, column) or None
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{COLUMNS[column]}: {self._text(info, column) or 'none'}"
            case _ if role == INFO_ROLE:
                return info
            case _ if role == SORT_ROLE:
                return _sort_key(info, column)
        return None

    def _text(self, info: JobInfo, column: int) -> str:
        if column == PROGRESS and not info.state.ended:
            return self._progress(info)
        return _text(info, column)


def _text(info: JobInfo, column: int) -> str:
    job = info.job
    match column:
        case 0:
            return STATE_WORDS[info.state]
        case 1:
            return info.title or info.id
        case 2:
            return _method(info)
        case 3:
            return "" if isinstance(job, InspectJob) else f"{job.ranks}"
        case 4:
            return outcome_word(info)
        case 5:
            return info.cause
        case 6:
            return moment(info.started_s)
        case 7:
            seconds = run_seconds(info, time.time())
            return "" if seconds is None else duration(seconds)
        case _:
            return info.host


def _method(info: JobInfo) -> str:
    """The bound method, or the rounding of a run that measures."""
    job = info.job.verify if isinstance(info.job, InstancesJob) else info.job
    if isinstance(job, VerifyJob):
        return METHODS.get(job.method, (str(job.method),))[0]
    return job.mode.upper() if isinstance(job, VariabilityJob) else info.kind


def _color(info: JobInfo, column: int) -> QColor | None:
    if column == STATE and info.state is not JobState.FINISHED:
        return QColor(themes.current().verdict_colors(info.state)[0])
    if column == VERDICT and info.verdict is not None:
        return QColor(themes.current().verdict_colors(info.verdict)[0])
    return None


def _sort_key(info: JobInfo, column: int) -> float | str:
    job = info.job
    if column == RANKS:
        return 0.0 if isinstance(job, InspectJob) else float(job.ranks)
    if column == STARTED:
        return info.started_s or info.created_s
    if column == DURATION:
        return run_seconds(info, time.time()) or 0.0
    return _text(info, column).casefold()
