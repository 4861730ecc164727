"""Ctrl+Z suspends a run with all its ranks, and the time limit does not run meanwhile."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cli.conftest import Command
from daemon.small_files import write_property, write_wide_network
from daemon.support import wait_for

LIMIT_S = 2.0
SUSPENDED_S = LIMIT_S + 3.0


@contextmanager
def running(words: list[str], environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process group of its own within our session, as a shell with job control starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "boundscope", *words],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in family(process))


def computes(process: subprocess.Popen[bytes]) -> bool:
    """Whether the run, or its first rank, has loaded the network into ONNX Runtime, which comes before bounds."""
    for one in family(process):
        with contextlib.suppress(psutil.Error):  # one that has just ended
            if any("onnxruntime" in place.path for place in one.memory_maps()):
                return True
    return False


@pytest.mark.parametrize(("number", "ranks"), [(signal.SIGTSTP, 1), (signal.SIGTSTP, 2), (signal.SIGSTOP, 1)])
def test_a_suspended_run_does_not_lose_its_time(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals, ranks: int
) -> None:
    network = write_wide_network(tmp_path / "net.onnx", 1500, 4)
    given = write_property(tmp_path / "p.vnnlib")
    words = ["verify", str(network), str(given), "--timeout", f"{LIMIT_S:g}", "--json", "result.json"]
    words += ["--chunk-rows", "64"] + (["--ranks", "2", "--sharding", "rows"] if ranks > 1 else [])
    with running(words, environment, tmp_path) as process:
        wait_for(lambda: computes(process), 60, "the first computation")
        process.send_signal(number)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 10, "the suspension")
        before = cpu_s(process)
        time.sleep(SUSPENDED_S)
        assert cpu_s(process) - before < 0.2 * SUSPENDED_S, "a rank goes on behind the shell's back"
        process.send_signal(signal.SIGCONT)
        process.wait(60)
    result = json.loads((tmp_path / "result.json").read_text())
    assert sum(result["seconds"].values()) < SUSPENDED_S


@pytest.mark.slow
def test_a_command_that_looks_on_may_be_suspended_for_longer_than_the_daemon_waits_for_it(
    boundscope: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    """The job goes on there; the command finds it again, and all that it had said meanwhile."""
    network = write_wide_network(tmp_path / "net.onnx", 100, 2)
    given = write_property(tmp_path / "p.vnnlib")
    assert boundscope("daemon", "start").returncode == 0
    try:
        words = ["verify", str(network), str(given), "--daemon", "--json", "result.json"]
        with running(words, environment, tmp_path) as process:
            wait_for(lambda: "starting" in boundscope("jobs").stdout, 60, "the job's start")
            process.send_signal(signal.SIGSTOP)
            time.sleep(25.0)
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) in (0, 20)
        (job,) = json.loads(boundscope("jobs", "--json").stdout)
        result = json.loads((tmp_path / "result.json").read_text())
        assert (job["state"], result["verdict"]) == ("finished", job["verdict"])
    finally:
        boundscope("daemon", "stop", "--force")
