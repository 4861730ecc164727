"""What a job's folder tells the processes that run it, and which program runs which kind of job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from boundscope.errors import StoreError
from boundscope.protocol import Job, Struct, Tally

SPEC_NAME = "job.json"
REPORT_NAME = "launch.json"
LOG_NAME = "output.log"
SEARCH_NAME = "search"  # the folder of a complete search's state, which another job can take over
CHECKPOINT_NAME = "checkpoint"

EXIT_CANCELLED = 3
EXIT_LOST_PEER = 4


@dataclass(frozen=True)
class Kind:
    """How one kind of job runs: `python -m module FOLDER`, which calls `entry` ("package.module:function").

    `beside` jobs are light: they start at once, beside the queue. `warm`: a spare process may fork for it and call
    `module.main(FOLDER)`.
    """

    module: str
    entry: str
    beside: bool = False
    warm: bool = False


KINDS: Mapping[str, Kind] = {
    "verify": Kind("boundscope.worker.launch", "boundscope.worker.verify:run_verify", warm=True),
    "variability": Kind(
        "boundscope.worker.launch", "boundscope.worker.variability:run_variability", warm=True
    ),
    "instances": Kind("boundscope.worker.launch", "boundscope.worker.instances:run_instances", warm=True),
    "inspect": Kind(
        "boundscope.worker.inspect", "boundscope.worker.inspect:inspect_files", beside=True, warm=True
    ),
}


class JobSpec(Struct, frozen=True):
    """All that the processes of one job need, in its folder (mode 0600, for it holds the job's secret key)."""

    job_id: str
    job: Job
    entry: str
    ranks: int
    network: str | None  # paths
    property: str | None
    address: str  # where the events go, and the keys for it
    server_public_key: str
    public_key: str
    secret_key: str
    inputs: tuple[str, ...] = ()  # paths of a variability job's points
    results: str | None = None  # the folder that its tables go to
    checkpoint: str | None = None  # where a complete search keeps its state
    networks: tuple[str, ...] = ()  # paths of a benchmark's files
    properties: tuple[str, ...] = ()
    first: int = 0  # the instance of a benchmark to go on with, after those counted in `tally`
    tally: Tally = Tally()


class RankExit(Struct, frozen=True):
    """How one rank ended; a negative code is the signal that killed it."""

    rank: int
    exit_code: int


class LaunchReport(Struct, frozen=True):
    """What the launcher saw, left in the folder for the daemon. `cause` where the ranks did not even start.

    `cpu_s`: processor time of the launcher and its ranks.
    """

    exits: tuple[RankExit, ...] = ()
    cause: str = ""
    cpu_s: float = 0.0


def job_kind(job: Job) -> str:
    """The kind's name: the tag of the job's Struct."""
    return str(type(job).__struct_config__.tag)


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 atomically, on disk before it has its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)


def write_spec(folder: Path, spec: JobSpec) -> None:
    write_private(folder / SPEC_NAME, msgspec.json.encode(spec))


def read_spec(folder: Path) -> JobSpec:
    try:
        return msgspec.json.decode((folder / SPEC_NAME).read_bytes(), type=JobSpec)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{folder / SPEC_NAME} does not describe a job: {error}") from error


def write_report(folder: Path, report: LaunchReport) -> None:
    write_private(folder / REPORT_NAME, msgspec.json.encode(report))


def read_report(folder: Path) -> LaunchReport:
    """The launcher's report; an empty one where it left none (it was killed)."""
    try:
        return msgspec.json.decode((folder / REPORT_NAME).read_bytes(), type=LaunchReport)
    except (OSError, msgspec.DecodeError):
        return LaunchReport()
