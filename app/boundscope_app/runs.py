"""The runs that the window knows and the one that is selected: the model that docks and views share."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QObject, Signal

from boundscope.comparison import LEAST_RUNS, MOST_RUNS, Run
from boundscope.protocol import EventRecord, JobInfo
from boundscope.records import JobRecord


class RunModel(QObject):
    """Jobs by id, in the order they were made, with what each has said so far.

    Signals: `listed` (all jobs anew), `added`, `changed`, `removed`, `grew` (a job's id), `selected` (an
    id or ""), `comparing` (other runs are compared, or one of them has another record). Lives in the window's thread.
    """

    listed = Signal()
    added = Signal(str)
    changed = Signal(str)
    removed = Signal(str)
    grew = Signal(str)
    selected = Signal(str)
    comparing = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._infos: dict[str, JobInfo] = {}
        self._records: dict[str, JobRecord] = {}
        self._selected = ""
        self._compared: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._infos)

    @property
    def selected_id(self) -> str:
        return self._selected

    @property
    def selected_info(self) -> JobInfo | None:
        return self._infos.get(self._selected)

    @property
    def selected_record(self) -> JobRecord | None:
        return self._records.get(self._selected)

    @property
    def compared(self) -> tuple[str, ...]:
        """The runs that are compared, the first is what ratios are to; () where none are."""
        return self._compared

    def compared_runs(self) -> tuple[Run, ...]:
        """The same with their records, which grow."""
        return tuple(Run(self._infos[job_id], self.record(job_id)) for job_id in self._compared)

    def info(self, job_id: str) -> JobInfo | None:
        return self._infos.get(job_id)

    def record(self, job_id: str) -> JobRecord:
        """The job's record, empty where nothing has come yet."""
        return self._records.setdefault(job_id, JobRecord())

    def running(self) -> tuple[JobInfo, ...]:
        return tuple(info for info in self._infos.values() if not info.state.ended)

    def set_jobs(self, infos: Iterable[JobInfo]) -> None:
        """Take the daemon's whole list; what it no longer has is forgotten."""
        ordered = sorted(infos, key=lambda info: (info.created_s, info.id))
        self._infos = {info.id: info for info in ordered if info.kind != "inspect"}
        self._records = {id_: record for id_, record in self._records.items() if id_ in self._infos}
        self.listed.emit()
        self.compare(self._compared)
        if self._selected and self._selected not in self._infos:
            self.select("")

    def put(self, info: JobInfo) -> None:
        """A job that is new or has changed."""
        if info.kind == "inspect":
            return
        known = info.id in self._infos
        self._infos[info.id] = info
        (self.changed if known else self.added).emit(info.id)

    def remove(self, job_id: str) -> None:
        if self._infos.pop(job_id, None) is None:
            return
        self._records.pop(job_id, None)
        self.removed.emit(job_id)
        self.compare(each for each in self._compared if each != job_id)
        if self._selected == job_id:
            self.select("")

    def apply(self, job_id: str, records: Iterable[EventRecord]) -> None:
        """Add events to a job's record; those it had are ignored."""
        if self.record(job_id).apply_all(records):
            self.grew.emit(job_id)

    def replace_history(self, job_id: str, record: JobRecord) -> None:
        """Take a job's whole history anew, where telemetry had been thinned out on the way."""
        self._records[job_id] = record
        if job_id == self._selected:
            self.selected.emit(job_id)
        if job_id in self._compared:
            self.comparing.emit()

    def compare(self, job_ids: Iterable[str]) -> None:
        """Compare these runs, as far as they are known; fewer than two end the comparison."""
        known = tuple(dict.fromkeys(each for each in job_ids if each in self._infos))[:MOST_RUNS]
        wanted = known if len(known) >= LEAST_RUNS else ()
        if wanted != self._compared:
            self._compared = wanted
            self.comparing.emit()

    def select(self, job_id: str) -> None:
        """Show this run everywhere; "" shows none."""
        if job_id and job_id not in self._infos:
            return
        if job_id != self._selected:
            self._selected = job_id
            self.selected.emit(job_id)
