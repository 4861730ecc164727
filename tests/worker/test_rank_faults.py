"""One rank of several fails in the middle of its work: within 30 s the job ends with a named cause and no process."""

from __future__ import annotations

import os
import socket
import time

import psutil
import pytest
from msgspec.structs import replace

from boundscope.daemon import run as daemon_run
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.errors import RankFailedError
from boundscope.protocol import (
    FileRef,
    LogLine,
    Method,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from daemon.small_files import write_network, write_property, write_wide_network
from daemon.support import environment
from support import faults
from worker import rank_faults

FAULTS = {**KINDS, "verify": Kind("boundscope.worker.launch", "worker.rank_faults:run")}
LATE = {**KINDS, "verify": Kind("worker.fault_launch", "boundscope.worker.verify:run_verify")}
DAEMON_JOIN_S = daemon_run.JOIN_S  # tests wait longer
NO_WAY_OUT = {**KINDS, "verify": Kind("boundscope.worker.launch", "worker.rank_faults:run_without_a_way_out")}
both_modes = pytest.mark.parametrize("sharding", [Sharding.ROWS, Sharding.FSDP])


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A job's files; afterwards nothing below this process, nor in the groups that it led, runs."""
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield JobFiles(write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib"))
    ours = [p for p in psutil.process_iter(["pid", "environ"]) if belongs(p) and p.pid not in before]
    assert ours == []


def belongs(process: psutil.Process) -> bool:
    """Whether a job of this process started it: torchrun tells every rank so, wherever it has gone."""
    parent = f"{os.getpid()}"
    found = (process.info["environ"] or {}).get("BOUNDSCOPE_PARENT_PID") == parent
    return found and process.status() != psutil.STATUS_ZOMBIE


def job(sharding: Sharding, seed: int = 0, ranks: int = 2) -> VerifyJob:
    ref = FileRef(name="x", sha256="0" * 64, size_bytes=1)
    source = PropertyFile(file=ref)
    return VerifyJob(network=ref, property=source, seed=seed, ranks=ranks, sharding=sharding, timeout_s=60.0)


class Clock:
    """Thirty seconds from the first word of a rank, if any speaks: how long a start takes is the machine's."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._begin_s, self._limit_s = time.monotonic(), 90.0

    def hear(self, rank: int, event: object) -> None:
        if self._limit_s > 30.0:
            self._begin_s, self._limit_s = time.monotonic(), 30.0
        if isinstance(event, LogLine):
            self.texts.append(event.text)

    def check(self) -> None:
        assert time.monotonic() - self._begin_s < self._limit_s


def failure(files: JobFiles, described: VerifyJob, kinds: dict[str, Kind]) -> str:
    clock = Clock()
    with pytest.raises(RankFailedError) as caught:
        run_local(described, files, clock.hear, kinds=kinds)
    clock.check()
    return str(caught.value)


@both_modes
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (faults.KILLED, "rank 1 was killed by SIGKILL"),
        (faults.STOPPED, "rank 1 was stopped (SIGSTOP)"),
        (faults.EXCEPTION, "rank 1 failed: ValueError: this rank has had enough"),
    ],
    ids=["SIGKILL", "SIGSTOP", "exception"],
)
def test_a_rank_that_fails_among_the_bounds_is_named(files, sharding, fault, said):
    assert said in failure(files, job(sharding, fault), FAULTS)


@both_modes
def test_a_rank_that_cannot_allocate_ends_the_job_as_out_of_memory(files, sharding):
    """Also where it fails outside of what ranks do in step: the other one is in the middle of it."""
    clock = Clock()
    result = run_local(job(sharding, faults.OUT_OF_MEMORY), files, clock.hear, kinds=FAULTS)
    clock.check()
    assert (result.verdict, result.reason) == (Verdict.OUT_OF_MEMORY, "rank 1: out of memory")


def test_a_rank_that_never_joins_is_named_by_those_who_waited(files):
    """The wait is 2 s here instead of 25 s."""
    assert "rank 1 never joined: rank 0 waited 2 s for it" in failure(files, job(Sharding.ROWS), LATE)


def test_ranks_leave_without_taking_the_interpreter_apart(files):
    """Threads of gloo may still run in it, and one that meets its end aborts the process: a result would be lost, and
    of a rank that failed SIGABRT be told instead of the cause."""
    result = run_local(job(Sharding.FSDP), files, lambda rank, event: None, kinds=NO_WAY_OUT)
    assert result.verdict is Verdict.VERIFIED, result.reason
    said = failure(files, job(Sharding.FSDP, faults.EXCEPTION), NO_WAY_OUT)
    assert "rank 1 failed: ValueError: this rank has had enough" in said


def test_the_wait_for_a_late_rank_fits_into_the_thirty_seconds():
    from boundscope.worker import rank

    assert rank.JOIN_S < 28
    assert DAEMON_JOIN_S < 28


def test_ports_that_are_taken_are_no_matter(files, monkeypatch):
    """The store's port is the system's choice, whatever another program has left in the environment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for name, value in (
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", str(taken.getsockname()[1])),
            ("RANK", "7"),
            ("WORLD_SIZE", "8"),
        ):
            monkeypatch.setenv(name, value)
        result = run_local(job(Sharding.FSDP), files, lambda rank, event: None)
    assert result.verdict is Verdict.VERIFIED, result.reason


# ---------------------------------------------------------------- memory that only rank 1 lacks

SHORT = {**KINDS, "verify": Kind("boundscope.worker.launch", "worker.rank_faults:run_short")}
all_modes = pytest.mark.parametrize("sharding", [Sharding.ROWS, Sharding.FSDP, Sharding.TP])


@pytest.fixture
def wide(files, tmp_path):
    """A network with weights that are shared out, and a property that CROWN excludes, and intervals do not."""
    network = write_wide_network(tmp_path / "wide.onnx", 64, 2)
    return JobFiles(network, write_property(tmp_path / "wide.vnnlib", threshold=4.0))


def short(files: JobFiles, sharding: Sharding, fault: int) -> tuple[VerifyResult, list[str]]:
    """The result of a CROWN job, which comes within 30 s, and what its ranks logged."""
    clock = Clock()
    result = run_local(replace(job(sharding, fault), method=Method.CROWN), files, clock.hear, kinds=SHORT)
    clock.check()
    return result, clock.texts


@all_modes
@pytest.mark.parametrize(
    "fault",
    [rank_faults.WEIGHTS, rank_faults.INTERVALS, rank_faults.LAYERS, rank_faults.MARGINS],
    ids=["weights", "intervals", "layers", "margins"],
)
def test_memory_that_one_rank_lacks_ends_the_job_as_such_and_names_it(wide, sharding, fault):
    result, _ = short(wide, sharding, fault)
    assert result.verdict is Verdict.OUT_OF_MEMORY, result.reason
    assert result.reason.startswith("rank 1: "), result.reason
    assert "a budget of" in result.reason


@all_modes
def test_all_ranks_take_fewer_rows_where_one_lacks_memory_for_them(wide, sharding):
    """What is said again in smaller chunks is the same, to the bit."""
    whole, _ = short(wide, sharding, 0)
    halved, texts = short(wide, sharding, rank_faults.ONCE)
    assert whole.verdict is halved.verdict is Verdict.VERIFIED
    assert halved.margin == whole.margin
    assert sum("rank 1 out of the memory budget, trying chunks of" in text for text in texts) == 2
