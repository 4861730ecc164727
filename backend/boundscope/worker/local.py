"""A job with several ranks in this process tree, without a daemon: the same launcher, socket and judgement."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from msgspec.structs import replace

from boundscope.daemon import hello
from boundscope.daemon.endpoint import Endpoint, KeyPair
from boundscope.daemon.jobspec import KINDS, JobSpec, Kind, job_kind
from boundscope.daemon.postmortem import Outcome
from boundscope.daemon.run import JobRun
from boundscope.errors import CancelledError, RankFailedError
from boundscope.protocol import (
    Event,
    InstancesJob,
    InstancesResult,
    JobState,
    VariabilityJob,
    VariabilityResult,
    VerifyJob,
    VerifyResult,
    to_json,
)
from boundscope.worker.files import InstancesFiles, JobFiles, VariabilityFiles
from boundscope.worker.here import Hold

POLL_S = 0.05
HOLD_S = 2.0  # for the ranks to stand before this process is suspended


@overload
def run_local(
    job: VerifyJob,
    files: JobFiles,
    on_event: Callable[[int, Event], None],
    *,
    cancel: threading.Event | None = None,
    hold: Hold | None = None,
    kinds: Mapping[str, Kind] = KINDS,
) -> VerifyResult: ...


@overload
def run_local(
    job: VariabilityJob,
    files: VariabilityFiles,
    on_event: Callable[[int, Event], None],
    *,
    cancel: threading.Event | None = None,
    hold: Hold | None = None,
    kinds: Mapping[str, Kind] = KINDS,
) -> VariabilityResult: ...


@overload
def run_local(
    job: InstancesJob,
    files: InstancesFiles,
    on_event: Callable[[int, Event], None],
    *,
    cancel: threading.Event | None = None,
    hold: Hold | None = None,
    kinds: Mapping[str, Kind] = KINDS,
) -> InstancesResult: ...


def run_local(
    job: VerifyJob | VariabilityJob | InstancesJob,
    files: JobFiles | VariabilityFiles | InstancesFiles,
    on_event: Callable[[int, Event], None],
    *,
    cancel: threading.Event | None = None,
    hold: Hold | None = None,
    kinds: Mapping[str, Kind] = KINDS,
) -> VerifyResult | VariabilityResult | InstancesResult:
    """Run `job.ranks` ranks and give rank 0's result; `on_event(rank, event)` is called in this thread.
    Where `hold` asks to suspend this process, the ranks, which are in sessions of their own, pause first.

    Raises:
        CancelledError: `cancel` was set.
        RankFailedError: a rank died, never joined, or failed; the text says which and why.
    """
    folder = Path(tempfile.mkdtemp(prefix="boundscope-"))
    endpoint = Endpoint()
    kind = kinds[job_kind(job)]
    keys = KeyPair.new()
    endpoint.admit(keys.public, "job")
    spec = JobSpec(
        job_id=uuid.uuid4().hex,
        job=job,
        entry=kind.entry,
        ranks=job.ranks,
        network=None,
        property=None,
        address=endpoint.address,
        server_public_key=endpoint.keys.public,
        public_key=keys.public,
        secret_key=keys.secret,
    )
    run = JobRun(
        _with_files(spec, files), folder, kind, lambda rank, _, event: on_event(rank, event), endpoint.send
    )
    try:
        run.start()
        return _result(_drive(run, endpoint, cancel, hold))
    except OSError as error:
        raise RankFailedError(f"the ranks could not be started: {error}") from error
    finally:
        run.abandon()
        endpoint.close()
        shutil.rmtree(folder, ignore_errors=True)


def _with_files(spec: JobSpec, files: JobFiles | VariabilityFiles | InstancesFiles) -> JobSpec:
    if isinstance(files, InstancesFiles):
        return replace(
            spec,
            networks=_absolute(files.networks),
            properties=_absolute(files.properties),
            first=files.first,
            tally=files.tally,
        )
    spec = replace(
        spec,
        network=str(files.network.absolute()),
        property=None if files.property is None else str(files.property.absolute()),
    )
    if isinstance(files, VariabilityFiles):
        return replace(spec, inputs=_absolute(files.inputs), results=str(files.results.absolute()))
    if files.checkpoint is not None:
        spec = replace(spec, checkpoint=str(files.checkpoint.absolute()))
    return spec


def _absolute(paths: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(str(path.absolute()) for path in paths)


def _drive(run: JobRun, endpoint: Endpoint, cancel: threading.Event | None, hold: Hold | None) -> Outcome:
    if hold is None:
        return _follow(run, endpoint, cancel, lambda: None)
    hold.driven = True
    try:
        return _follow(run, endpoint, cancel, _Holder(run, hold).look)
    finally:
        hold.driven = False


@dataclass
class _Holder:
    """Has the ranks stand still before this process is suspended."""

    run: JobRun
    hold: Hold
    asked_s: float | None = None

    def look(self) -> None:
        if not self.hold.asked:
            return
        now = time.monotonic()
        if self.asked_s is None:
            self.asked_s = now
            self.run.pause()
        if self.run.standing or now - self.asked_s > HOLD_S:
            self.asked_s = None
            self.hold.take()
            self.run.go_on()


def _follow(
    run: JobRun, endpoint: Endpoint, cancel: threading.Event | None, look: Callable[[], None]
) -> Outcome:
    while True:
        for message in endpoint.receive(POLL_S):
            if message.payload.startswith(b"{"):
                _, welcome = hello.answer(message.payload)
                endpoint.send(message.peer, to_json(welcome).encode())
            else:
                run.hear(message.peer, message.payload)
        run.acknowledge()
        if cancel is not None and cancel.is_set() and not run.cancelling:
            run.cancel()
        look()
        outcome = run.tick()
        if outcome is not None:
            return outcome


def _result(outcome: Outcome) -> VerifyResult | VariabilityResult | InstancesResult:
    if outcome.result is not None:
        return outcome.result
    if outcome.state is JobState.CANCELLED:
        raise CancelledError("the job was cancelled")
    raise RankFailedError(outcome.cause or "the ranks ended without a result")
