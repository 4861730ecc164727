"""The one thread that owns the connection to the daemon: commands in by a queue, reports out as signals."""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QThread, Signal, Slot

from boundscope.client import Client, RemoteHost, connect_remote, ensure_local_daemon, read_connection_file
from boundscope.errors import BoundscopeError, DaemonError
from boundscope.protocol import ConnectionFile, EventBatch, FileRef, JobChanged, Unsubscribe
from boundscope.records import JobRecord
from boundscope_app.draft import Source
from boundscope_app.link_types import (
    CancelRun,
    Command,
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
    Upload,
    Watch,
)

PING_EVERY_S = 3.0
IDLE_WAIT_S = 0.2
START_S = 15.0  # for a local daemon to start, and then again; less than `stop` waits
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 4.0, 5.0)


class StoppedError(BoundscopeError):
    """The window closes while the thread is busy; ends what it does."""


class SwitchedError(StoppedError):
    """The window goes to another daemon while the thread is busy with this one."""


class Link(QThread):
    """Connects, reconnects with growing pauses, and resumes every watched job from its last number.

    `send` and `switch` may be called from any thread; everything else happens in this one. Without a connection
    file a local daemon is started in `home` when none runs; with a host, one there, through ssh. After a switch
    nothing is told any more of the daemon that was left.
    """

    state_changed = Signal(object)  # LinkState
    jobs_listed = Signal(object)  # tuple[JobInfo, ...]
    job_changed = Signal(object, bool)  # JobInfo, deleted
    events_arrived = Signal(str, object)  # job id, tuple[EventRecord, ...]
    history_arrived = Signal(str, object)  # job id, JobRecord: of all that it said
    submitted = Signal(int, object)  # token, JobInfo
    run_refused = Signal(int, str)  # token, sentence
    command_failed = Signal(str)  # sentence
    inspected = Signal(object)  # Inspection
    reading = Signal(object)  # Reading
    uploading = Signal(object)  # Upload
    _told = Signal(int, str, object)  # place, which of the signals above, its arguments

    def __init__(
        self,
        home: Path | None = None,
        connection: Path | None = None,
        parent: QObject | None = None,
        host: RemoteHost | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("boundscope-link")
        self._told.connect(self._pass_on)
        self._home = home
        self._connection = connection
        self._place = (0, host)  # with a number that every switch raises
        self._serving = 0  # that of the daemon that commands go to now
        self._kept: Command | None = None  # taken from the queue, and meant for the next daemon
        self._commands: queue.SimpleQueue[tuple[int, Command]] = queue.SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._stopping = False
        self._state = LinkState()
        self._watched: dict[str, int] = {}
        self._thinned: set[str] = set()
        self._ended: set[str] = set()
        self._inspections: dict[str, tuple[int, JobRecord]] = {}

    # ------------------------------------------------------------ called from the window's thread

    def send(self, command: Command) -> None:
        """Queue a command; it is carried out as soon as there is a connection, and not after `stop`."""
        if not self._stopping:
            self._commands.put((self._place[0], command))
            self._wake()

    def switch(self, host: RemoteHost | None) -> None:
        """Leave the daemon and go to that of another host (None: the local one). From the window's thread.

        What was asked before and is not yet done is dropped: it was meant for the daemon that is left.
        """
        self._place = (self._place[0] + 1, host)
        self._wake()

    @property
    def host(self) -> RemoteHost | None:
        """Where the daemon is or is looked for; None: here."""
        return self._place[1]

    def stop(self, wait_ms: int = 20_000) -> bool:
        """End the thread and wait for it; jobs go on. True when it has ended."""
        self._stopping = True
        self._wake()
        ended = self.wait(wait_ms)
        if ended:
            self._wake_in.close()
            self._wake_out.close()
        return ended

    @Slot(int, str, object)
    def _pass_on(self, place: int, name: str, arguments: tuple[object, ...]) -> None:
        """Tell it, unless it is of a daemon that has been left while it was on its way."""
        if place == self._place[0]:
            getattr(self, name).emit(*arguments)

    def _wake(self) -> None:
        try:
            self._wake_in.send(b"!")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    # ------------------------------------------------------------ the thread

    def run(self) -> None:
        attempt = 0
        while not self._stopping:
            try:
                with contextlib.closing(self._connect()) as client:
                    attempt = 0
                    self._serve(client)
            except SwitchedError:
                attempt = 0
            except StoppedError:
                break
            except BoundscopeError as error:
                self._report_loss(str(error), attempt)
                self._pause(BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)])
                attempt += 1
        self._set_state(LinkState(Phase.CLOSED, self._state.host, self._state.local))

    def _connect(self) -> Client:
        number, host = self._place
        if number != self._serving:
            self._serving = number
            self._forget(host)
        if host is not None:
            client = connect_remote(host, check=self._check_stopping)
            self._set_state(LinkState(Phase.CONNECTED, host.name, local=False))
            return client
        if self._connection is not None:
            connection = read_connection_file(self._connection)
        else:
            connection = ensure_local_daemon(self._home, START_S)
        self._check_stopping()
        client = Client.connect(connection)
        self._set_state(LinkState(Phase.CONNECTED, connection.host, self._is_local(connection)))
        return client

    def _forget(self, host: RemoteHost | None) -> None:
        """Nothing of the daemon before has a meaning at the next one."""
        for kept in (self._watched, self._thinned, self._ended, self._inspections):
            kept.clear()
        self._state = LinkState(Phase.STARTING, "" if host is None else host.name, host is None)
        self._tell("state_changed", self._state)

    def _is_local(self, connection: ConnectionFile) -> bool:
        return self._connection is None or connection.host in ("", socket.gethostname())

    def _serve(self, client: Client) -> None:
        client.subscribe(None)
        jobs = tuple(client.jobs())
        self._ended |= {info.id for info in jobs if info.state.ended}
        self._tell("jobs_listed", jobs)
        for job_id, after in list(self._watched.items()):
            self._attempt(client, partial(client.subscribe, job_id, after))
        self._inspections.clear()
        next_ping = 0.0
        while not self._stopping:
            self._check_stopping()
            if time.monotonic() >= next_ping:
                self._ping(client)
                next_ping = time.monotonic() + PING_EVERY_S
            busy = self._take_messages(client)
            busy = self._take_command(client) or busy
            self._complete_histories(client)
            if not busy:
                select.select([client.fileno(), self._wake_out.fileno()], [], [], IDLE_WAIT_S)
                self._drain_wakes()

    def _ping(self, client: Client) -> None:
        before = time.perf_counter()
        client.ping()
        round_trip_s = time.perf_counter() - before
        self._set_state(
            LinkState(Phase.CONNECTED, self._state.host, self._state.local, round_trip_s=round_trip_s)
        )

    # ------------------------------------------------------------ what the daemon says

    def _take_messages(self, client: Client) -> bool:
        messages = client.poll(0.0)
        for message in messages:
            if isinstance(message, EventBatch):
                self._take_batch(client, message)
            elif isinstance(message, JobChanged):
                self._take_change(message)
        return bool(messages)

    def _take_batch(self, client: Client, batch: EventBatch) -> None:
        inspection = self._inspections.get(batch.job_id)
        if inspection is not None:
            token, record = inspection
            record.apply_all(batch.records)
            if record.progress is not None:
                self._tell("reading", Reading(token, record.progress))
            if record.state.ended:
                self._finish_inspection(client, batch.job_id, token, record)
            return
        if batch.job_id not in self._watched:
            return
        if batch.records:
            self._watched[batch.job_id] = batch.records[-1].number
            self._tell("events_arrived", batch.job_id, batch.records)
        if batch.skipped:
            self._thinned.add(batch.job_id)

    def _take_change(self, change: JobChanged) -> None:
        if change.info.state.ended:
            self._ended.add(change.info.id)
        if change.deleted:
            self._watched.pop(change.info.id, None)
            self._thinned.discard(change.info.id)
        self._tell("job_changed", change.info, change.deleted)

    def _complete_histories(self, client: Client) -> None:
        """Fetch what was left out for slowness, once the job has ended."""
        for job_id in self._thinned & self._ended & self._watched.keys():
            self._thinned.discard(job_id)
            self._attempt(client, partial(self._fetch_history, client, job_id))

    def _fetch_history(self, client: Client, job_id: str) -> None:
        records = tuple(client.events(job_id))
        if records:
            self._watched[job_id] = max(self._watched[job_id], records[-1].number)
            record = JobRecord()
            record.apply_all(records)  # here, for it takes a while and the window shall not wait for it
            self._tell("history_arrived", job_id, record)

    def _finish_inspection(self, client: Client, job_id: str, token: int, record: JobRecord) -> None:
        del self._inspections[job_id]
        problems = tuple(failure.cause for failure in record.failures)
        if not problems and record.network is None and record.property is None:
            problems = (record.state_reason or "The daemon could not read it and did not say why.",)
        self._tell("inspected", Inspection(token, record.network, record.property, problems))
        self._attempt(client, lambda: client.request(Unsubscribe(job_id=job_id)))
        self._attempt(client, lambda: client.delete(job_id))

    # ------------------------------------------------------------ what the window asks

    def _take_command(self, client: Client) -> bool:
        command, self._kept = self._kept, None
        if command is None:
            try:
                number, command = self._commands.get_nowait()
            except queue.Empty:
                return False
            if number < self._serving:
                return True
            if number > self._serving:
                self._kept = command
                self._check_stopping()
        match command:
            case Run():
                self._run(client, command)
            case ResumeRun():
                self._resume(client, command)
            case Inspect():
                self._inspect(client, command)
            case Watch():
                self._watched[command.job_id] = command.after
                self._attempt(client, lambda: client.subscribe(command.job_id, command.after))
            case Unwatch():
                self._watched.pop(command.job_id, None)
                self._thinned.discard(command.job_id)
                self._attempt(client, lambda: client.request(Unsubscribe(job_id=command.job_id)))
            case CancelRun():
                self._attempt(client, lambda: client.cancel(command.job_id, force=command.force))
            case PauseRun():
                ask = client.pause if command.held else client.go_on
                self._attempt(client, lambda: ask(command.job_id))
            case DeleteRun():
                self._attempt(client, lambda: client.delete(command.job_id))
        return True

    def _run(self, client: Client, command: Run) -> None:
        try:
            job = command.draft.job(lambda source: self._resolve(client, source))
            info = client.submit(job, command.draft.title)
        except StoppedError:
            raise
        except (BoundscopeError, OSError) as error:
            self._tell("run_refused", command.token, str(error))
            client.ping()
            return
        self._tell("submitted", command.token, info)

    def _resume(self, client: Client, command: ResumeRun) -> None:
        try:
            info = client.resume(command.job_id)
        except DaemonError as error:
            self._tell("run_refused", command.token, str(error))
            client.ping()
            return
        self._tell("submitted", command.token, info)

    def _inspect(self, client: Client, command: Inspect) -> None:
        try:
            job = command.draft.inspect_job(lambda source: self._resolve(client, source))
            info = client.submit(job, command.draft.title)
            self._inspections[info.id] = (command.token, JobRecord())
            client.subscribe(info.id)
        except StoppedError:
            raise
        except (BoundscopeError, OSError) as error:
            self._tell("inspected", Inspection(command.token, problems=(str(error),)))
            client.ping()

    def _resolve(self, client: Client, source: Source) -> FileRef:
        if isinstance(source, FileRef):
            return source

        def progress(done_bytes: int, total_bytes: int) -> None:
            self._check_stopping()
            self._tell("uploading", Upload(source.name, done_bytes, total_bytes))

        return client.upload(source, progress=progress)

    def _attempt(self, client: Client, action: Callable[[], object]) -> None:
        """Do it and tell a refusal; where the connection itself is lost, the ping that follows raises."""
        try:
            action()
        except DaemonError as error:
            self._tell("command_failed", str(error))
            self._check_stopping()
            client.ping()

    # ------------------------------------------------------------ the state

    def _check_stopping(self) -> None:
        if self._stopping:
            raise StoppedError("the window is closing")
        if self._place[0] != self._serving:
            raise SwitchedError("the window goes to another daemon")

    def _tell(self, name: str, *arguments: object) -> None:
        self._told.emit(self._serving, name, arguments)

    def _set_state(self, state: LinkState) -> None:
        if state != self._state:
            self._state = state
            self._tell("state_changed", state)

    def _report_loss(self, reason: str, attempt: int) -> None:
        phase = Phase.REFUSED if "key" in reason and "refuse" in reason else Phase.RECONNECTING
        self._set_state(
            LinkState(phase, self._state.host, self._state.local, reason=reason, attempt=attempt + 1)
        )

    def _pause(self, seconds: float) -> None:
        if not self._stopping:
            select.select([self._wake_out], [], [], seconds)
            self._drain_wakes()

    def _drain_wakes(self) -> None:
        try:
            while self._wake_out.recv(4096):
                pass
        except BlockingIOError:
            return
