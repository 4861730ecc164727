"""`boundscope verify --instances`: a whole benchmark in one warm process, and a file of results to go on from."""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boundscope import capabilities
from boundscope.cli import EXIT_INTERRUPTED, inputs, results
from boundscope.cli.execution import connect, follow, no_result
from boundscope.cli.instances_results import Instance, ResultsFile, fingerprint
from boundscope.cli.instances_text import print_summary, row_text, style_of
from boundscope.cli.interrupt import Stop, Suspension, stop_on_signal, suspend_on_signal
from boundscope.cli.output import complain
from boundscope.cli.progress import ProgressLine
from boundscope.cli.recorder import Recorder
from boundscope.cli.verify import prepare_outputs
from boundscope.cli.verify import read_job as read_one
from boundscope.command import instances_command
from boundscope.errors import CancelledError, UsageError
from boundscope.instances import InstanceLine, benchmark_name, files_of, instances_job, read_instances
from boundscope.protocol import (
    Event,
    EventRecord,
    FileRef,
    InstanceResult,
    InstancesJob,
    InstancesResult,
    JobInfo,
    JobState,
    Progress,
    PropertyFile,
    StateChanged,
    Tally,
    instances_result,
)
from boundscope.worker.files import InstancesFiles

if TYPE_CHECKING:
    from boundscope.client import Client

_NAMES = {
    "network": "NET",
    "property": "PROPERTY",
    "ball": "--ball",
    "vnncomp": "--vnncomp",
    "checkpoint": "--checkpoint",
}


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 where every instance was solved, else as the verdicts say; 130 where it was stopped."""
    for name, option in _NAMES.items():
        if getattr(arguments, name) is not None:
            raise UsageError(f"--instances FILE is for many networks and properties; leave {option} out")
    if arguments.threads is not None and arguments.threads < 1:
        raise UsageError(f"--threads {arguments.threads}: there must be at least one thread")
    prepare_outputs(arguments)
    lines = read_instances(arguments.instances)
    job = read_job(arguments, lines)
    path = arguments.results or Path(f"{job.name}_results.csv")
    with ResultsFile(path, instances_of(lines, job)) as file:
        begin = _Begin(arguments, lines, job, file)
        try:
            result, live = _run(begin)
        except CancelledError:
            print_summary(_so_far(begin), file, job)
            left = len(lines) - len(file.done)
            complain(
                f"stopped with {left} of {len(lines)} instances left; the same command goes on with them"
            )
            return EXIT_INTERRUPTED
        _write(begin, result, live)
    return result.exit_code


def read_job(arguments: argparse.Namespace, lines: Sequence[InstanceLine]) -> InstancesJob:
    """The job that file and options describe, with its files hashed and its capabilities checked."""
    arguments.network, arguments.property = lines[0].network, lines[0].property
    verify = read_one(arguments)
    networks, properties = files_of(lines)
    refs: dict[Path, FileRef] = {path: inputs.describe_network(path) for path in networks}
    refs |= {path: inputs.describe(path, "PROPERTY") for path in properties}
    name = benchmark_name(arguments.instances)
    job = instances_job(lines, verify, refs.__getitem__, name=name, timeout_s=arguments.timeout)
    capabilities.check_instances(job)
    return job


def instances_of(lines: Sequence[InstanceLine], job: InstancesJob) -> list[Instance]:
    """Each line with its time limit and the fingerprint that its row must have."""
    found = []
    for number, line in enumerate(lines):
        one = job.verify_job(number)
        assert isinstance(one.property, PropertyFile)
        names = one.network.name, one.property.file.name
        found.append(Instance(line, *names, timeout_s=one.timeout_s, fingerprint=fingerprint(one)))
    return found


class _Begin:
    """What a run starts from: all instances, and the places of those that are still to be run."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        lines: Sequence[InstanceLine],
        job: InstancesJob,
        file: ResultsFile,
    ) -> None:
        self.arguments, self.job, self.file = arguments, job, file
        self.created_s = time.time()
        self.places = [place for place in range(len(lines)) if place not in file.done]
        self.lines = [lines[place] for place in self.places]
        networks, properties = files_of(lines)
        refs = dict(zip((*networks, *properties), (*job.networks, *job.properties), strict=True))
        self.paths = files_of(self.lines)
        self.left = instances_job(
            self.lines, job.verify, refs.__getitem__, name=job.name, timeout_s=arguments.timeout
        )

    @property
    def command(self) -> str:
        """The shell line that does the same."""
        return instances_command(self.job, self.arguments.instances, self.arguments.timeout)


class _Live:
    """Takes what the instances still to be run say: rows go to the results file and to the screen, as they come."""

    def __init__(self, begin: _Begin, line: ProgressLine, *, quiet: bool) -> None:
        self._begin, self.line, self._quiet = begin, line, quiet
        self.total = len(begin.job.instances)
        self.recorder = Recorder(line.take)
        for _, row in sorted(begin.file.done.items()):
            self.recorder.add(0, row)

    def say(self, text: str) -> None:
        self.line.say(text)

    def take(self, record: EventRecord) -> None:
        """One record that a daemon has numbered."""
        self.hear(record.rank, record.event)

    def hear(self, rank: int, event: Event) -> None:
        """One event of a rank; numbers count the instances of this run only."""
        begin, done = self._begin, self._begin.file.done
        if isinstance(event, InstanceResult):
            place = begin.places[event.number]
            event = msgspec.structs.replace(event, number=place)
            found = begin.file.add(place, event)
            done[place] = event
            if not self._quiet:
                self.line.above(row_text(event, len(done), self.total, found), style_of(event.verdict))
        elif isinstance(event, Progress):
            event = msgspec.structs.replace(event, done=len(done), total=self.total)
        self.recorder.add(rank, event)


def _run(begin: _Begin) -> tuple[InstancesResult, _Live]:
    """Run what is left; the end of the whole."""
    line = ProgressLine()
    live = _Live(begin, line, quiet=begin.arguments.json == "-")
    if begin.file.done and begin.places and begin.arguments.json != "-":
        print(f"{len(begin.file.done)} of {live.total} instances are in {begin.file.path} already")
    ended = instances_result(Tally())
    if begin.places:
        with stop_on_signal(line.say_at_once) as stop, line:
            live.recorder.add(-1, StateChanged(state=JobState.RUNNING))
            if begin.arguments.daemon is None:
                with suspend_on_signal(line.hide, line.show) as hold:
                    ended = _here(begin, live, stop, hold)
            else:
                ended = _on_daemon(begin, live, stop)
    live.recorder.add(-1, StateChanged(state=JobState.FINISHED))
    whole = msgspec.structs.replace(
        _so_far(begin), peak_bytes=ended.peak_bytes, versions=ended.versions, command=begin.command
    )
    live.recorder.add(0, whole)
    return whole, live


def _so_far(begin: _Begin) -> InstancesResult:
    tally = Tally()
    for _, row in sorted(begin.file.done.items()):
        tally = tally.plus(row)
    return msgspec.structs.replace(instances_result(tally), command=begin.command)


def _here(begin: _Begin, live: _Live, stop: Stop, hold: Suspension) -> InstancesResult:
    """In ranks below this process, also where it is one: what an instance does to its process is not our end."""
    from boundscope.worker.local import run_local

    networks, properties = begin.paths
    files = InstancesFiles(networks=networks, properties=properties)
    return run_local(begin.left, files, live.hear, cancel=stop.event, hold=hold)


def _on_daemon(begin: _Begin, live: _Live, stop: Stop) -> InstancesResult:
    daemon = begin.arguments.daemon
    client = connect(None if daemon == Path() else daemon)
    try:
        job = _sent(client, begin, live.line)
        stop.check()
        info, record = follow(client, client.submit(job, title_of(job)), live, stop)
    finally:
        client.close()
    if record.benchmark is None:
        raise no_result(info, record)
    return record.benchmark


def _sent(client: Client, begin: _Begin, line: ProgressLine) -> InstancesJob:
    """The job with the files that the daemon has now."""
    networks, properties = begin.paths
    refs = {path: client.upload(path, progress=line.sending(path.name)) for path in (*networks, *properties)}
    return instances_job(
        begin.lines,
        begin.job.verify,
        refs.__getitem__,
        name=begin.job.name,
        timeout_s=begin.arguments.timeout,
    )


def title_of(job: InstancesJob) -> str:
    return f"{job.name} · {len(job.instances)} instances"


# ---------------------------------------------------------------- what is written


def _write(begin: _Begin, result: InstancesResult, live: _Live) -> None:
    arguments, record = begin.arguments, live.recorder.record
    if arguments.json != "-":
        print_summary(result, begin.file, begin.job)
    if arguments.json is not None:
        rows = [row for _, row in sorted(record.instances.items())]
        results.write_document(results.benchmark_document(result, rows), arguments.json)
    if arguments.csv is not None:
        results.write_csv(record.tables(), arguments.csv)
    if arguments.report is not None:
        from boundscope.report import write_report

        info = JobInfo(
            id="terminal",
            kind="instances",
            title=title_of(begin.job),
            state=JobState.FINISHED,
            job=begin.job,
            created_s=begin.created_s,
            started_s=begin.created_s,
            ended_s=time.time(),
            last_number=record.last_number,
            verdict=result.verdict,
            host=socket.gethostname(),
        )
        written = write_report(record, info, arguments.report)
        if arguments.json != "-":
            print(f"{'report':<16}{written[0]}")
