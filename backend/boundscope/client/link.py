"""One connection to a daemon."""

from __future__ import annotations

import math
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from boundscope import __version__
from boundscope.client import transfer
from boundscope.client.connection import mismatch_sentence, versions_meet
from boundscope.errors import DaemonError
from boundscope.protocol import (
    Ack,
    Cancel,
    ConnectionFile,
    Continue,
    DeleteJob,
    EventBatch,
    EventPage,
    EventRecord,
    FileRef,
    FromDaemon,
    GetEvents,
    Hello,
    Job,
    JobChanged,
    JobInfo,
    JobList,
    ListJobs,
    Pause,
    Ping,
    Pong,
    Refused,
    Reply,
    ReplyBody,
    Request,
    RequestBody,
    Resume,
    Struct,
    Submit,
    Submitted,
    Subscribe,
    Unsubscribe,
    Welcome,
)

Push = EventBatch | JobChanged
_Body = TypeVar("_Body", bound=Struct)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FromDaemon).decode

_GONE = "the daemon went away; connect again and ask for what came after the last number seen"
_WATCHED = (
    zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class Client:
    """A connection to one daemon, owned by one thread. Every method raises DaemonError once the daemon has gone."""

    def __init__(self, connection: ConnectionFile) -> None:
        """Use `Client.connect`."""
        self.connection = connection
        self._pushed: deque[Push] = deque()
        self._trouble: str | None = None
        self._next_id = 1
        self._closed = False
        self._closers: list[Callable[[], object]] = []
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 200),
            (zmq.RCVHWM, 0),
            (zmq.RECONNECT_IVL, -1),
            (zmq.HEARTBEAT_IVL, 5000),
            (zmq.HEARTBEAT_TIMEOUT, 20000),
        ):
            self._socket.setsockopt(option, value)
        self._socket.routing_id = b"client-" + uuid.uuid4().bytes
        self._socket.curve_serverkey = connection.server_public_key.encode()
        self._socket.curve_publickey = connection.client_public_key.encode()
        self._socket.curve_secretkey = connection.client_secret_key.encode()
        self._monitor = self._socket.get_monitor_socket(_WATCHED)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    @classmethod
    def connect(cls, connection: ConnectionFile, *, timeout_s: float = 5.0) -> Self:
        """Connect and exchange hellos; DaemonError says why that did not come about."""
        if versions_meet(connection.protocol_min, connection.protocol_max) is None:
            raise DaemonError(
                mismatch_sentence(
                    "the daemon", connection.version, connection.protocol_min, connection.protocol_max
                )
            )
        client = cls(connection)
        try:
            client._greet(timeout_s)
        except BaseException:
            client.close()
            raise
        return client

    def _greet(self, timeout_s: float) -> None:
        self._socket.connect(self.connection.address)
        self._socket.send(msgspec.json.encode(Hello(version=__version__)))
        payload = self._receive(time.monotonic() + timeout_s)
        if payload is None:
            raise DaemonError(
                f"no answer from {self.connection.address} within {timeout_s:g} s. Is process "
                f"{self.connection.pid} on {self.connection.host} a Boundscope daemon, and is it running?"
            )
        try:
            welcome = msgspec.json.decode(payload, type=Welcome)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise DaemonError(
                f"what answers at {self.connection.address} is not a Boundscope daemon"
            ) from None
        if welcome.boundscope == "refused":
            raise DaemonError(f"the daemon refused the connection: {welcome.reason}")
        if versions_meet(welcome.protocol, welcome.protocol) is None:
            raise DaemonError(
                mismatch_sentence("the daemon", welcome.version, welcome.protocol, welcome.protocol)
            )

    # ------------------------------------------------------------ the wire

    def _receive(self, deadline: float) -> bytes | None:
        """The next frame; None when the deadline (monotonic) has passed."""
        while True:
            self._require_open()
            ready = dict(self._poller.poll(max(0, math.ceil((deadline - time.monotonic()) * 1000))))
            if self._socket in ready:
                return self._socket.recv()
            if self._monitor in ready:
                self._read_monitor()
            elif time.monotonic() >= deadline:
                return None

    def _post(self, payload: bytes) -> None:
        while self._monitor.poll(0):
            self._read_monitor()
        self._require_open()
        try:
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            raise DaemonError(_GONE) from None

    def _require_open(self) -> None:
        if self._closed:
            raise DaemonError("the connection to the daemon has been closed")
        if self._trouble is not None:
            raise DaemonError(self._trouble)

    def _read_monitor(self) -> None:
        event = parse_monitor_message(self._monitor.recv_multipart())["event"]
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._trouble = (
                "the daemon refused this key; the connection file may be of an earlier daemon: read it again"
            )
        elif event in (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL):
            self._trouble = (
                f"the encrypted handshake with {self.connection.address} failed: what listens there does not have "
                "the key that the connection file names; read the file again"
            )
        elif event == zmq.EVENT_CLOSED:
            self._trouble = (
                f"nothing listens at {self.connection.address}: the daemon (process {self.connection.pid} on "
                f"{self.connection.host}) has gone. Start it again with: boundscope daemon"
            )
        elif self._socket.poll(0) == 0:
            self._trouble = _GONE

    def _take_push(self, payload: bytes) -> Reply | None:
        """Decode a frame; pushes are put aside for `poll`, a Reply is returned."""
        try:
            message = _decode(payload)
        except msgspec.DecodeError as error:
            raise DaemonError(
                f"the daemon sent what this program cannot read ({error}); update the older of both"
            ) from error
        if isinstance(message, Reply):
            return message
        if isinstance(message, EventBatch | JobChanged):
            self._pushed.append(message)
        return None

    def request(self, body: RequestBody, timeout_s: float = 10.0) -> ReplyBody:
        """Ask and wait for the answer. A Refused becomes a DaemonError with its reason."""
        self._require_open()
        number = self._next_id
        self._next_id += 1
        self._post(_encode(Request(id=number, body=body)))
        deadline = time.monotonic() + timeout_s
        while (payload := self._receive(deadline)) is not None:
            reply = self._take_push(payload)
            if reply is not None and reply.id == number:
                if isinstance(reply.body, Refused):
                    raise DaemonError(reply.body.reason)
                return reply.body
        raise DaemonError(
            f"the daemon did not answer within {timeout_s:g} s; it may be overloaded or stopped"
        )

    def ask(self, body: RequestBody, expected: type[_Body], timeout_s: float = 10.0) -> _Body:
        """`request`, for an answer of one type."""
        answer = self.request(body, timeout_s)
        if not isinstance(answer, expected):
            raise DaemonError(
                f"the daemon answered a {type(body).__name__} with a {type(answer).__name__}; update both"
            )
        return answer

    # ------------------------------------------------------------ files

    def upload(
        self, path: str | Path, name: str | None = None, progress: Callable[[int, int], None] | None = None
    ) -> FileRef:
        """Send a file (with its ONNX external data) unless the daemon has it; a broken transfer goes on.

        `progress(sent_bytes, total_bytes)` is called after every piece.
        """
        return transfer.upload(self.ask, Path(path), name, progress)

    def fetch(self, ref: FileRef, path: str | Path) -> Path:
        """Write a file of the daemon's to `path`, its companions beside it; checked by hash."""
        return transfer.fetch(self.ask, ref, Path(path))

    # ------------------------------------------------------------ jobs

    def submit(self, job: Job, title: str = "", *, key: str | None = None) -> JobInfo:
        """Queue a job. A key given by the caller makes it safe to submit again after a broken connection."""
        return self.ask(Submit(job=job, key=key or uuid.uuid4().hex, title=title), Submitted).info

    def resume(self, job_id: str, timeout_s: float | None = None, *, key: str | None = None) -> JobInfo:
        """Queue a job that goes on with the search of one that ended without a final verdict, for `timeout_s` more
        seconds (None: as many as that one had). DaemonError where that job left nothing to go on from."""
        body = Resume(job_id=job_id, key=key or uuid.uuid4().hex, timeout_s=timeout_s)
        return self.ask(body, Submitted).info

    def jobs(self, *, include_inspections: bool = False) -> list[JobInfo]:
        """All jobs, oldest first."""
        return list(self.ask(ListJobs(include_inspections=include_inspections), JobList).jobs)

    def events(self, job_id: str, after: int = 0) -> list[EventRecord]:
        """Every stored record after number `after`, whole (nothing is thinned out)."""
        records: list[EventRecord] = []
        while True:
            page = self.ask(GetEvents(job_id=job_id, after=after), EventPage)
            records.extend(page.records)
            if not page.records or page.records[-1].number >= page.last_number:
                return records
            after = page.records[-1].number

    def subscribe(self, job_id: str | None, after: int = 0) -> None:
        """Have the job's events after `after` pushed, with the changes of its JobInfo; None: changes of all jobs.

        To miss nothing of all jobs, subscribe first and ask for `jobs()` then.
        """
        self.request(Subscribe(job_id=job_id, after=after))

    def unsubscribe(self, job_id: str) -> None:
        self.request(Unsubscribe(job_id=job_id))

    def poll(self, timeout_s: float) -> list[Push]:
        """What was pushed; waits up to `timeout_s` for the first. Taking it gives the daemon credit for more."""
        deadline = time.monotonic() + timeout_s
        while not self._pushed:
            payload = self._receive(deadline)
            if payload is None:
                return []
            self._take_push(payload)
        while self._socket.poll(0):
            self._take_push(self._socket.recv())
        taken = list(self._pushed)
        self._pushed.clear()
        newest = {push.job_id: push for push in taken if isinstance(push, EventBatch) and push.records}
        for job_id, batch in newest.items():
            self._post(_encode(Ack(job_id=job_id, number=batch.records[-1].number)))
        return taken

    def cancel(self, job_id: str, force: bool = False) -> None:
        """Ask a job to stop (SIGTERM and SIGKILL follow); `force`: SIGKILL at once."""
        self.request(Cancel(job_id=job_id, force=force))

    def pause(self, job_id: str) -> None:
        """Have a running job stand still; it is `pausing` now, and `paused` as soon as every rank stands."""
        self.request(Pause(job_id=job_id))

    def go_on(self, job_id: str) -> None:
        """End a pause."""
        self.request(Continue(job_id=job_id))

    def delete(self, job_id: str) -> None:
        """Remove an ended job with everything it said."""
        self.request(DeleteJob(job_id=job_id))

    def ping(self) -> Pong:
        return self.ask(Ping(), Pong)

    # ------------------------------------------------------------ life

    def fileno(self) -> int:
        """ZeroMQ's edge-triggered descriptor: after it becomes readable, `poll(0)` until that gives []."""
        return int(self._socket.getsockopt(zmq.FD))

    def when_closed(self, work: Callable[[], object]) -> None:
        """Have this done once the connection has been closed."""
        self._closers.append(work)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()
        self._context.term()
        for work in self._closers:
            work()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
