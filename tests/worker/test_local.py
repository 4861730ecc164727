"""Several ranks without a daemon: the same result, errors and clean end as with one."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
import pytest

from boundscope.daemon import overtime
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.errors import CancelledError, RankFailedError
from boundscope.protocol import FileRef, LogLine, Progress, PropertyFile, Sharding, Verdict, VerifyJob
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from daemon import behaviours
from daemon.small_files import write_network, write_property
from daemon.support import environment

KINDS_HERE = {**KINDS, "verify": Kind("boundscope.worker.launch", "daemon.behaviours:run")}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    before = set(psutil.Process().children(recursive=True))
    yield JobFiles(write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib"))
    left = set(psutil.Process().children(recursive=True)) - before
    assert [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def job(seed: int, **changes: object) -> VerifyJob:
    ref = FileRef(name="x", sha256="0" * 64, size_bytes=1)
    fields = {"seed": seed, "ranks": 2, "sharding": Sharding.ROWS, "timeout_s": 60.0, **changes}
    return VerifyJob(network=ref, property=PropertyFile(file=ref), **fields)


def test_the_ranks_events_and_the_result_of_rank_0(files):
    heard: list[tuple[int, object]] = []
    result = run_local(job(behaviours.QUICK), files, lambda *each: heard.append(each), kinds=KINDS_HERE)
    assert result.reason == "rank 0"
    assert {rank for rank, event in heard if isinstance(event, LogLine)} == {0, 1}


def test_cancel(files):
    cancel = threading.Event()

    def on_event(rank: int, event: object) -> None:
        if isinstance(event, Progress):
            cancel.set()

    with pytest.raises(CancelledError):
        run_local(job(behaviours.PATIENT), files, on_event, cancel=cancel, kinds=KINDS_HERE)


def test_a_killed_rank_is_named(files):
    killed_s = []

    def on_event(rank: int, event: object) -> None:
        if rank == 1 and isinstance(event, LogLine):
            os.kill(int(event.text.split()[-1]), signal.SIGKILL)
            killed_s.append(time.monotonic())

    with pytest.raises(RankFailedError, match="rank 1 was killed by SIGKILL"):
        run_local(job(behaviours.MEETS), files, on_event, kinds=KINDS_HERE)
    assert time.monotonic() - killed_s[0] < 30


def test_the_callers_error_ends_the_ranks(files):
    def on_event(rank: int, event: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_local(job(behaviours.MEETS), files, on_event, kinds=KINDS_HERE)


def test_a_real_job_on_two_ranks(files):
    result = run_local(job(0), files, lambda rank, event: None)
    assert result.verdict is Verdict.VERIFIED, result.reason
    assert {memory.rank for memory in result.peak_bytes} == {0, 1}


def test_a_job_that_never_asks_for_the_time_is_ended_as_a_timeout(files, monkeypatch):
    """With its cause and the margins that it had told; by itself it would never end."""
    monkeypatch.setattr(overtime, "GRACE_S", 1.0)
    result = run_local(job(behaviours.DEAF, timeout_s=1.0), files, lambda rank, event: None, kinds=KINDS_HERE)
    assert result.verdict is Verdict.TIMEOUT
    assert "the time limit of 1 s passed, and rank 0, 1 was still inside" in result.reason
    assert [(each.clause, each.lower, each.upper) for each in result.margin.per_clause] == [(1, 0.25, 2.0)]
    assert result.margin.smallest == 0.25
