"""Runs a job in this process tree, or on a daemon, and hands back everything that it said."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from boundscope.cli.interrupt import Stop, Suspension, stop_on_signal, suspend_on_signal
from boundscope.cli.progress import ProgressLine, Waiting
from boundscope.cli.recorder import Recorder
from boundscope.errors import BoundscopeError, CancelledError, DaemonError, RankFailedError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    EpsilonBall,
    EventBatch,
    EventRecord,
    JobChanged,
    JobInfo,
    JobState,
    PropertyFile,
    StateChanged,
    VerifyJob,
    VerifyResult,
)
from boundscope.records import JobRecord
from boundscope.startup import large_imports
from boundscope.threads import core_count, thread_variables
from boundscope.worker.files import JobFiles

if TYPE_CHECKING:
    from boundscope.client import Client, RemoteHost


class Follower(Protocol):
    """What `follow` tells as it goes: a ProgressLine, for one."""

    def say(self, text: str) -> None: ...

    def take(self, record: EventRecord) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """A run that gave a result."""

    info: JobInfo
    record: JobRecord
    result: VerifyResult


def title_of(job: VerifyJob) -> str:
    return f"{job.network.name} · {property_name(job)}"


def property_name(job: VerifyJob) -> str:
    source = job.property
    return source.file.name if isinstance(source, PropertyFile) else f"ε-ball around {source.center.name}"


# ---------------------------------------------------------------- here


def run_here(job: VerifyJob, files: JobFiles) -> Outcome:
    """Run in this process (one rank) or in ranks below it; CancelledError after Ctrl+C."""
    created_s = time.time()
    line = ProgressLine(job.timeout_s)
    with stop_on_signal(line.say_at_once) as stop, suspend_on_signal(line.hide, line.show) as hold, line:
        recorder = Recorder(line.take)
        recorder.add(-1, StateChanged(state=JobState.RUNNING))
        result = (_one_rank if job.ranks == 1 and not job.nodes else _ranks)(job, files, recorder, stop, hold)
        recorder.add(0, result)
        recorder.add(-1, StateChanged(state=JobState.FINISHED))
    info = JobInfo(
        id="terminal",
        kind="verify",
        title=title_of(job),
        state=JobState.FINISHED,
        job=job,
        created_s=created_s,
        started_s=created_s,
        ended_s=time.time(),
        last_number=recorder.record.last_number,
        verdict=result.verdict,
        host=socket.gethostname(),
    )
    return Outcome(info, recorder.record, result)


def _one_rank(
    job: VerifyJob, files: JobFiles, recorder: Recorder, stop: Stop, hold: Suspension
) -> VerifyResult:
    for name, value in thread_variables(job.threads_per_rank or core_count()).items():
        os.environ.setdefault(name, value)
    with large_imports():
        import torch

        from boundscope.sharding.ranks import RankGroup
        from boundscope.worker.here import run_here
        from boundscope.worker.verify import run_verify

    def work(monitor: Monitor) -> VerifyResult:
        if job.threads_per_rank is not None:
            torch.set_num_threads(job.threads_per_rank)
        return run_verify(job, files, monitor, RankGroup())

    return run_here(job, work, lambda event: recorder.add(0, event), cancel=stop.event, hold=hold)


def _ranks(job: VerifyJob, files: JobFiles, recorder: Recorder, stop: Stop, hold: Suspension) -> VerifyResult:
    from boundscope.worker.local import run_local

    return run_local(job, files, recorder.add, cancel=stop.event, hold=hold)


# ---------------------------------------------------------------- on a daemon


def connect(home: Path | RemoteHost | None, *, start: bool = True) -> Client:
    """A client of the daemon of this home (None: the user's), started where it does not run and `start`; or of the
    daemon of another host, through ssh."""
    from boundscope import client

    if isinstance(home, client.RemoteHost):
        with Waiting(f"connecting to {home.name}"):
            return client.connect_remote(home)
    place = client.home_path() if home is None else home.absolute()
    if start:
        with Waiting("starting the daemon"):
            connection = client.ensure_local_daemon(place)
    else:
        connection = client.read_connection_file(client.connection_path(place))
    return client.Client.connect(connection)


def run_on_daemon(job: VerifyJob, files: JobFiles, home: Path | RemoteHost | None) -> Outcome:
    """Upload what the daemon lacks, submit, follow to the end; Ctrl+C cancels the job there."""
    client = connect(home)
    try:
        line = ProgressLine(job.timeout_s)
        with stop_on_signal(line.say_at_once) as stop, line:
            return _follow(client, job, files, line, stop)
    finally:
        client.close()


def _follow(client: Client, job: VerifyJob, files: JobFiles, line: ProgressLine, stop: Stop) -> Outcome:
    network, source = (
        client.upload(path, progress=line.sending(path.name)) for path in (files.network, files.property)
    )
    named = (
        msgspec.structs.replace(job.property, center=source)
        if isinstance(job.property, EpsilonBall)
        else PropertyFile(file=source)
    )
    stop.check()
    sent = msgspec.structs.replace(job, network=network, property=named)
    return outcome_of(*follow(client, client.submit(sent, title_of(job)), line, stop))


def follow(client: Client, info: JobInfo, line: Follower, stop: Stop) -> tuple[JobInfo, JobRecord]:
    """Everything that a submitted job says, to its end; a wish to stop cancels it there.

    A connection that broke, as when this process was suspended (Ctrl+Z) for longer than the daemon waits, is made anew.
    """
    line.say(f"job {info.id} on {info.host or 'the daemon'}")
    recorder = Recorder(line.take)
    client.subscribe(info.id)
    cancelled = False
    with ExitStack() as opened:
        while not info.state.ended:
            try:
                if stop.asked and not cancelled:
                    client.cancel(info.id)
                    cancelled = True
                info = _poll(client, info, recorder)
            except DaemonError as error:
                client, info = _again(client, info, recorder, error)
                opened.callback(client.close)
        try:
            rest = client.events(info.id, after=recorder.record.last_number)
        except DaemonError as error:  # the job's end was heard, and then the connection broke
            client, info = _again(client, info, recorder, error)
            opened.callback(client.close)
            rest = client.events(info.id, after=recorder.record.last_number)
        for record in rest:
            recorder.take(record)
    return info, recorder.record


def _again(client: Client, info: JobInfo, recorder: Recorder, error: DaemonError) -> tuple[Client, JobInfo]:
    """A new connection to the same daemon, and what has become of the job; the error where it has no such job."""
    again = type(client).connect(client.connection)
    found = next((each for each in again.jobs() if each.id == info.id), None)
    if found is None:
        again.close()
        raise error
    again.subscribe(info.id, after=recorder.record.last_number)
    return again, found


def _poll(client: Client, info: JobInfo, recorder: Recorder) -> JobInfo:
    for message in client.poll(0.2):
        if isinstance(message, EventBatch) and message.job_id == info.id:
            if message.skipped:
                for record in client.events(info.id, after=recorder.record.last_number):
                    recorder.take(record)
            for record in message.records:
                recorder.take(record)
        elif isinstance(message, JobChanged) and message.info.id == info.id:
            if message.deleted:
                raise DaemonError(f"job {info.id} was deleted while it was followed")
            info = message.info
    return info


def outcome_of(info: JobInfo, record: JobRecord) -> Outcome:
    """The outcome of an ended job; an error that says why where it gave no result."""
    if record.result is not None:
        return Outcome(info, record, record.result)
    raise no_result(info, record)


def no_result(info: JobInfo, record: JobRecord) -> BoundscopeError:
    """Why an ended job gave no result."""
    cause = info.cause or record.state_reason or "it gave no reason"
    if info.state is JobState.CANCELLED:
        return CancelledError(f"job {info.id} was cancelled")
    return RankFailedError(f"job {info.id} ended without a result: {cause}")
