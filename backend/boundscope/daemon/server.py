"""The daemon's one loop: messages in, processes looked after, changes committed, then told."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from boundscope.daemon import hello
from boundscope.daemon.blobs import BlobStore
from boundscope.daemon.endpoint import Endpoint, KeyPair, Message
from boundscope.daemon.home import Home
from boundscope.daemon.jobs import Jobs
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.daemon.processes import ProcessMark, signal_trees
from boundscope.daemon.requests import Answerer, RawPage
from boundscope.daemon.spare import Spare
from boundscope.daemon.store import Store
from boundscope.daemon.subscriptions import Subscriptions
from boundscope.errors import StoreError
from boundscope.protocol import Ack, FromClient, JobChanged, JobInfo, ReplyBody, Struct, Subscribe

COMMIT_S = 0.02
TICK_S = 0.05
IDLE_TICK_S = 0.5
CHANGE_S = 0.2  # a job's progress is told at most so often; its states at once
RETRY_S = 1.0
FAREWELL_S = 0.1  # between the wish to stop and the end of the socket, so that the last answers are taken
CLIENT = "client"

log = logging.getLogger("boundscope.daemon")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FromClient).decode


class _RawReply(Struct, frozen=True, tag="reply"):
    id: int
    body: ReplyBody | RawPage


def _spare_id(mark: ProcessMark) -> str:
    """What the store calls a spare process, among the jobs."""
    return f"spare {mark.pid}"


class Daemon:
    """Serves one home until `stop`; StoreError or DaemonError where it cannot."""

    def __init__(
        self,
        home: Path,
        *,
        idle_exit_s: float | None = None,
        jobs_at_once: int = 1,
        kinds: Mapping[str, Kind] = KINDS,
        spare: bool = False,
    ) -> None:
        self._home = Home(home)
        self._idle_exit_s = idle_exit_s
        self._store = Store(self._home.store_path)
        self._blobs = BlobStore(self._home.blobs_path)
        self._sweep()
        self._endpoint = Endpoint()
        self._subscriptions = Subscriptions(self._store, self._endpoint.send)
        self._spare = Spare(
            self._home.path,
            wanted=spare and any(kind.warm for kind in kinds.values()),
            remember=lambda mark: self._store.remember_process(_spare_id(mark), mark),
            forget=lambda mark: self._store.forget_processes(_spare_id(mark)),
        )
        self._jobs = Jobs(
            self._store,
            self._blobs,
            self._endpoint,
            self._home.jobs_path,
            kinds,
            at_once=jobs_at_once,
            changed=self._note_change,
            launch=self._spare.launch,
        )
        self._changes: dict[str, JobInfo] = {}
        self._told: dict[str, tuple[str, float]] = {}
        self._peers: dict[bytes, str] = {}
        self._stopping_s: float | None = None
        self._trouble: tuple[float, StoreError] | None = None
        self._answerer = Answerer(
            self._store,
            self._blobs,
            self._jobs,
            self._subscriptions,
            commit=self._commit,
            stop=self.stop,
            changed=lambda change: self._subscriptions.job_changed(change.info.id, _encode(change)),
        )

    def _sweep(self) -> None:
        """End the processes that a crashed daemon left; never one that only has the same pid."""
        for job_id, mark in self._store.processes():
            if signal_trees([mark], signal.SIGKILL):
                log.warning("ended process %d, left over from %s", mark.pid, job_id)

    def stop(self) -> None:
        """Cancel what runs, record it, and end; to be called from the loop or a signal handler."""
        if self._stopping_s is None:
            self._stopping_s = time.monotonic()

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Serve until stopped; the connection file is there exactly while this runs."""
        self._jobs.recover()
        self._commit()
        self._blobs.keep_only(self._jobs.hashes())
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self._endpoint.watch(wake_read)
        client = KeyPair.new()
        self._endpoint.admit(client.public, CLIENT)
        self._home.publish(self._endpoint.address, self._endpoint.keys.public, client.public, client.secret)
        log.info("serving %s at %s", self._home.path, self._endpoint.address)
        try:
            self._loop()
        finally:
            signal.set_wakeup_fd(-1)
            for run in self._jobs.runs.values():
                run.abandon()
            self._spare.close()
            self._home.close()
            self._endpoint.close()
            self._store.close()
        log.info("stopped")

    def _loop(self) -> None:
        ticked = busy = retried = time.monotonic()
        while True:
            for message in self._endpoint.receive(self._patience()):
                self._handle(message)
            now = time.monotonic()
            if now - ticked >= TICK_S:
                ticked = now
                self._jobs.tick()
                if self._stopping_s is None:
                    self._spare.tick(now)
            if self._due(now):
                self._commit_or_wait(now)
            if now - retried >= 0.1:
                retried = now
                self._subscriptions.retry(self._encode_change)
            if self._stopping_s is not None and self._stopped(now):
                return
            if self._endpoint.connection_count or not self._jobs.idle:
                busy = now
            if self._idle_exit_s is not None and now - busy >= self._idle_exit_s:
                self.stop()

    def _patience(self) -> float:
        if self._store.staged_since is not None and self._trouble is None:
            return COMMIT_S / 2
        if self._stopping_s is not None or self._jobs.runs or not self._jobs.idle:
            return TICK_S
        return IDLE_TICK_S

    def _due(self, now: float) -> bool:
        if self._trouble is not None:
            return now - self._trouble[0] >= RETRY_S
        since = self._store.staged_since
        return bool(self._changes) if since is None else now - since >= COMMIT_S

    def _stopped(self, now: float) -> bool:
        """Cancel running jobs, with more force as time passes; whether all have ended and are committed."""
        self._jobs.paused = True
        waited = now - (self._stopping_s or now)
        for job_id, run in list(self._jobs.runs.items()):
            if not run.cancelling:
                self._jobs.cancel(job_id)
            if waited > 4.0:
                run.cancel(force=True)
        if waited < FAREWELL_S or (self._jobs.runs and waited < 20.0):
            return False
        self._commit_or_wait(now)
        return True

    # ------------------------------------------------------------ committing, then telling

    def _note_change(self, info: JobInfo) -> None:
        self._changes[info.id] = info

    def _commit_or_wait(self, now: float) -> None:
        """Commit; on a full disk say so once a second in the log, keep everything, and try again."""
        try:
            self._commit()
        except StoreError as error:
            self._trouble = (now, error)
            log.error("%s", error)

    def _commit(self) -> None:
        """Commit what is staged, then acknowledge it to the ranks and push it to the clients."""
        jobs = self._store.flush()
        self._trouble = None
        for run in self._jobs.runs.values():
            run.acknowledge()
        for job_id in jobs:
            self._subscriptions.push(job_id)
        self._tell_changes()

    def _tell_changes(self) -> None:
        now = time.monotonic()
        for job_id, info in list(self._changes.items()):
            state, told_s = self._told.get(job_id, ("", 0.0))
            if state == info.state and now - told_s < CHANGE_S:
                continue
            del self._changes[job_id]
            self._told[job_id] = (info.state, now)
            if (payload := self._encode_change(job_id)) is not None:
                self._subscriptions.job_changed(job_id, payload)

    def _encode_change(self, job_id: str) -> bytes | None:
        try:
            return _encode(JobChanged(info=self._jobs.info(job_id)))
        except StoreError:
            return None

    # ------------------------------------------------------------ messages

    def _handle(self, message: Message) -> None:
        role = self._peers.get(message.peer)
        if message.payload.startswith(b"{"):
            self._greet(message)
        elif role is None or role != message.owner:
            _, refusal = hello.answer(b"")
            self._endpoint.send(message.peer, msgspec.json.encode(refusal))
        elif role == CLIENT:
            self._handle_client(message)
        elif (run := self._jobs.runs.get(role.removeprefix("job:"))) is not None:
            run.hear(message.peer, message.payload)

    def _greet(self, message: Message) -> None:
        greeting, answer = hello.answer(message.payload)
        if greeting is not None:
            self._subscriptions.forget_peer(message.peer)
            self._peers[message.peer] = message.owner
        self._endpoint.send(message.peer, msgspec.json.encode(answer))

    def _handle_client(self, message: Message) -> None:
        try:
            request = _decode(message.payload)
        except msgspec.DecodeError as error:
            log.warning("a client sent what is no request: %s", error)
            return
        if isinstance(request, Ack):
            self._subscriptions.acknowledge(message.peer, request.job_id, request.number)
            return
        reply = _RawReply(id=request.id, body=self._answerer.answer(message.peer, request.body))
        if self._endpoint.send(message.peer, _encode(reply)) is None:
            self._peers.pop(message.peer, None)
            self._subscriptions.forget_peer(message.peer)
        if isinstance(request.body, Subscribe) and request.body.job_id is not None:
            self._subscriptions.push(request.body.job_id, only=message.peer)
