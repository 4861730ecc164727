"""What a job's folder tells the processes that run it, and which program runs which kind of job."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from boundscope.errors import StoreError
from boundscope.protocol import Job, Struct, Tally, VerifyJob

SPEC_NAME = "job.json"
REPORT_NAME = "launch.json"
PULSE_NAME = "pulse.json"
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


class NodePlace(Struct, frozen=True):
    """Where one node of a job stands: its number, and how it meets the others."""

    node: int
    nodes: int
    host: str  # as people call it
    address: str  # of the first node, which keeps the store that all meet at
    port: int
    own_address: str  # of this node, on its way there
    interface: str  # which has that address
    listener: int | None = None  # the first node's listening socket: a descriptor that its launcher inherits


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
    place: NodePlace | None = None  # on a node of several; None: this machine runs all ranks

    @builtins.property  # `property` is a field here
    def nodes(self) -> tuple[str, ...]:
        """The hosts that run the ranks; () where this machine runs all of them."""
        return self.job.nodes if isinstance(self.job, VerifyJob) else ()

    def host_of(self, rank: int) -> str:
        """The host that runs a rank; "" where that is this machine."""
        return self.nodes[rank * len(self.nodes) // self.ranks] if self.nodes else ""

    def name_of(self, rank: int) -> str:
        """What messages call a rank: "rank 3", or "rank 3 on HOST"."""
        host = self.host_of(rank)
        return f"rank {rank} on {host}" if host else f"rank {rank}"


class RankExit(Struct, frozen=True):
    """How one rank ended; a negative code is the signal that killed it."""

    rank: int
    exit_code: int


class RankPulse(Struct, frozen=True):
    """How a rank on a node is, as its agent sees it: whether stopped by a signal, and the processor time it used."""

    rank: int
    stopped: bool
    cpu_s: float


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


def write_pulses(folder: Path, pulses: tuple[RankPulse, ...]) -> None:
    """Leave word of how the ranks on other nodes are; not worth a wait for the disk."""
    temporary = folder / f".{PULSE_NAME}"
    temporary.write_bytes(msgspec.json.encode(pulses))
    temporary.replace(folder / PULSE_NAME)


def read_pulses(folder: Path) -> dict[int, RankPulse]:
    """How the ranks on other nodes are, by rank; those of which nothing is known yet are missing."""
    try:
        pulses = msgspec.json.decode((folder / PULSE_NAME).read_bytes(), type=tuple[RankPulse, ...])
    except (OSError, msgspec.DecodeError):
        return {}
    return {pulse.rank: pulse for pulse in pulses}
