"""`boundscope jobs` and `boundscope export`: what the daemon's store holds."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from boundscope.cli import results
from boundscope.cli.execution import connect, outcome_of
from boundscope.cli.output import complain
from boundscope.cli.progress import Waiting
from boundscope.errors import UsageError
from boundscope.protocol import JobInfo
from boundscope.records import JobRecord

if TYPE_CHECKING:
    from boundscope.client import Client


def run_jobs(arguments: argparse.Namespace) -> int:
    """One line a job, the newest first: id, when, state, verdict, title."""
    client = connect(arguments.home)
    try:
        jobs = newest_first(client.jobs())
    finally:
        client.close()
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(jobs), indent=2).decode() + "\n")
        return 0
    width = max((len(info.id) for info in jobs), default=0)
    for info in jobs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.created_s))
        verdict = "" if info.verdict is None else info.verdict.value
        more = "  (boundscope resume goes on with it)" if info.resumable else ""
        print(f"{info.id:<{width}}  {when}  {info.state.value:<11}  {verdict:<13}  {info.title}{more}")
    if not jobs:
        complain("the daemon has no jobs yet")
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    """Write a job's tables, report or result from what the store holds."""
    client = connect(arguments.home)
    try:
        info = find_job(client.jobs(), arguments.job)
        record = read_history(client, info)
    finally:
        client.close()
    if arguments.json is not None:
        if record.benchmark is not None:
            rows = [row for _, row in sorted(record.instances.items())]
            results.write_document(results.benchmark_document(record.benchmark, rows), arguments.json)
            return 0
        results.write_json(record.variability or outcome_of(info, record).result, arguments.json)
        return 0
    if arguments.csv is not None:
        written = results.write_csv(record.tables(), arguments.csv)
    else:
        from boundscope.report import make_report

        with Waiting(f"writing plots and tables to {arguments.all}"):
            report = make_report(record, info, arguments.all)
        written = report.paths
        if report.left_out:
            complain(report.left_out)
    for path in written:
        print(path)
    return 0


def read_history(client: Client, info: JobInfo) -> JobRecord:
    """All that a job has said so far."""
    record = JobRecord()
    text = f"reading the history of job {info.id}"
    with Waiting(text) as waiting:
        while new := client.events(info.id, after=record.last_number):
            record.apply_all(new)
            waiting.tell(text, record.last_number, info.last_number)
    return record


def newest_first(jobs: Sequence[JobInfo]) -> list[JobInfo]:
    """Jobs that bound something, without those that only read files back for the window."""
    return sorted((info for info in jobs if info.kind != "inspect"), key=lambda info: -info.created_s)


def find_job(jobs: Sequence[JobInfo], name: str) -> JobInfo:
    """The job of this id, of the only id that starts so, or the newest for "last"; UsageError otherwise."""
    known = newest_first(jobs)
    if not known:
        raise UsageError("the daemon has no jobs")
    if name == "last":
        return known[0]
    exact = [info for info in jobs if info.id == name]
    found = exact or [info for info in jobs if info.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} could be any of {', '.join(info.id for info in found)}; write more of it")
    raise UsageError(f"the daemon has no job {name!r}; `boundscope jobs` lists them")
