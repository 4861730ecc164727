"""Between window and network thread: what the user asks becomes commands, what comes back fills the runs."""

from __future__ import annotations

import itertools

from PySide6.QtCore import QObject, Signal

from boundscope.client import RemoteHost
from boundscope.protocol import EventRecord, JobInfo, JobState
from boundscope.records import JobRecord
from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.draft import Draft
from boundscope_app.link import Link
from boundscope_app.link_types import (
    CancelRun,
    DeleteRun,
    Inspect,
    Inspection,
    LinkState,
    PauseRun,
    Phase,
    Reading,
    ResumeRun,
    Run,
    Unwatch,
    Watch,
)
from boundscope_app.noise_draft import NoiseDraft
from boundscope_app.runs import RunModel


class Session(QObject):
    """Owns no socket and no widget. Lives in the window's thread.

    Signals: `job_ended` (JobInfo of a run that ended while we looked on), `run_refused` (a sentence),
    `run_accepted`, `told` (kind, sentence), `taken_back` (a sentence that no longer holds),
    `inspected` (Inspection of the draft last asked for), `reading` (Progress of it), `connected`.
    `listed` once the daemon has named its jobs for the first time.
    """

    job_ended = Signal(object)
    run_refused = Signal(str)
    run_accepted = Signal()
    told = Signal(str, str)
    taken_back = Signal(str)
    inspected = Signal(object)
    reading = Signal(object)
    connected = Signal()

    def __init__(self, link: Link, runs: RunModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._runs = runs
        self._tokens = itertools.count(1)
        self._inspection = 0
        self._watched: set[str] = set()
        self._wanted = ""
        self._wanted_compared: tuple[str, ...] = ()
        self.listed = False
        self._loss = ""
        self.state = LinkState()
        link.state_changed.connect(self._state_changed)
        link.jobs_listed.connect(self._jobs_listed)
        link.job_changed.connect(self._job_changed)
        link.events_arrived.connect(self._events_arrived)
        link.history_arrived.connect(self._history_arrived)
        link.submitted.connect(self._submitted)
        link.run_refused.connect(self._run_refused)
        link.command_failed.connect(self._command_failed)
        link.inspected.connect(self._inspected)
        link.reading.connect(self._reading)
        runs.selected.connect(self._selected)
        runs.comparing.connect(self._compared)

    # ------------------------------------------------------------ asked by the user

    def want(self, job_id: str, compared: tuple[str, ...] = ()) -> None:
        """Select this run, and compare these, as soon as the daemon lists them (as kept from the last time)."""
        self._wanted, self._wanted_compared = job_id, compared

    def switch(self, host: RemoteHost | None) -> None:
        """Leave this daemon, whose jobs go on, and show those of another host (None: of this computer)."""
        self._link.switch(host)
        self._watched.clear()
        self._wanted, self._wanted_compared = "", ()
        self.listed = False
        self._take_back_loss()
        self._runs.set_jobs(())

    def run(self, draft: Draft | NoiseDraft | BenchmarkDraft) -> None:
        self._link.send(Run(next(self._tokens), draft))

    def inspect(self, draft: Draft) -> None:
        """Have a draft read back; an answer to an older question is dropped."""
        self._inspection = next(self._tokens)
        self._link.send(Inspect(self._inspection, draft))

    def cancel(self, job_id: str) -> None:
        """Ask a run to stop; where it was asked before, kill it."""
        info = self._runs.info(job_id)
        if info is None or info.state.ended:
            return
        force = info.state is JobState.CANCELLING
        self._link.send(CancelRun(job_id, force))
        if force:
            self.told.emit("warning", f"{info.title} is being killed.")
        else:
            self.told.emit("info", f"{info.title} was asked to stop. Cancel once more to kill it.")

    def pause(self, job_id: str) -> None:
        """Have a run stand still; where it is paused, or about to be, let it go on."""
        info = self._runs.info(job_id)
        if info is not None and info.state.can_hold:
            self._link.send(PauseRun(job_id, not info.state.held))

    def resume(self, job_id: str) -> None:
        """Go on, in a new run, with the search of one that ended without an answer."""
        info = self._runs.info(job_id)
        if info is not None and info.resumable:
            self._link.send(ResumeRun(next(self._tokens), job_id))

    def delete(self, job_id: str) -> None:
        self._link.send(DeleteRun(job_id))

    # ------------------------------------------------------------ told by the thread

    def _state_changed(self, state: LinkState) -> None:
        before, self.state = self.state, state
        if state.phase is Phase.CONNECTED and before.phase is not Phase.CONNECTED:
            self.connected.emit()
        if state.phase is Phase.CONNECTED and self._loss:
            self._take_back_loss()
            self.told.emit("success", "Connected to the daemon again.")
        elif state.reason and state.reason != before.reason:
            self._take_back_loss()
            self._loss = f"No connection to the daemon: {state.reason}. The window tries again by itself."
            self.told.emit("error" if state.phase is Phase.REFUSED else "warning", self._loss)

    def _take_back_loss(self) -> None:
        if self._loss:
            self.taken_back.emit(self._loss)
            self._loss = ""

    def _jobs_listed(self, infos: tuple[JobInfo, ...]) -> None:
        before = {info.id for info in self._runs.running()}
        self._runs.set_jobs(infos)
        for info in infos:
            if info.id in before and info.state.ended:
                self.job_ended.emit(info)
        if not self.listed:
            self.listed = True
            if not self._runs.selected_id:
                self._runs.select(self._wanted)
            if not self._runs.compared:
                self._runs.compare(self._wanted_compared)

    def _job_changed(self, info: JobInfo, deleted: bool) -> None:
        if deleted:
            self._watched.discard(info.id)
            self._runs.remove(info.id)
            return
        known = self._runs.info(info.id)
        self._runs.put(info)
        if known is not None and not known.state.ended and info.state.ended:
            self.job_ended.emit(info)
            self._release()

    def _events_arrived(self, job_id: str, records: tuple[EventRecord, ...]) -> None:
        if self._runs.info(job_id) is not None:
            self._runs.apply(job_id, records)

    def _history_arrived(self, job_id: str, record: JobRecord) -> None:
        if self._runs.info(job_id) is not None:
            self._runs.replace_history(job_id, record)

    def _submitted(self, _token: int, info: JobInfo) -> None:
        if self._runs.info(info.id) is None:
            self._runs.put(info)
        self._runs.select(info.id)
        self.run_accepted.emit()

    def _run_refused(self, _token: int, reason: str) -> None:
        self.run_refused.emit(reason)

    def _command_failed(self, reason: str) -> None:
        self.told.emit("error", reason)

    def _inspected(self, inspection: Inspection) -> None:
        if inspection.token == self._inspection:
            self.inspected.emit(inspection)

    def _reading(self, reading: Reading) -> None:
        if reading.token == self._inspection:
            self.reading.emit(reading.progress)

    # ------------------------------------------------------------ which runs are watched

    def _selected(self, job_id: str) -> None:
        self._watch(job_id)
        self._release()

    def _compared(self) -> None:
        for job_id in self._runs.compared:
            self._watch(job_id)
        self._release()

    def _watch(self, job_id: str) -> None:
        if job_id and job_id not in self._watched:
            self._watched.add(job_id)
            self._link.send(Watch(job_id, self._runs.record(job_id).last_number))

    def _release(self) -> None:
        """Stop watching runs that have ended and are not shown; their records stay as they are."""
        shown = {self._runs.selected_id, *self._runs.compared}
        for job_id in sorted(self._watched):
            info = self._runs.info(job_id)
            complete = info is None or (
                info.state.ended and self._runs.record(job_id).last_number >= info.last_number
            )
            if job_id not in shown and complete:
                self._watched.discard(job_id)
                self._link.send(Unwatch(job_id))
