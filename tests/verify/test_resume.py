"""A real complete search that was killed, or whose time was up, goes on from its checkpoint to the same verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
NETWORK = "acasxu/onnx/ACASXU_run2a_1_1_batch_2000.onnx"
PROPERTY = "acasxu/vnnlib/prop_6.vnnlib"  # verified after some seconds of splitting


def command(vnncomp: Path, checkpoint: Path, timeout_s: float, ranks: int) -> list[str]:
    words = [sys.executable, "-m", "boundscope", "verify", str(vnncomp / NETWORK), str(vnncomp / PROPERTY)]
    words += ["--method", "complete", "--threads", "1", "--timeout", str(timeout_s), "--json", "-"]
    words += ["--checkpoint", str(checkpoint)]
    return words + (["--sharding", "rows", "--ranks", str(ranks)] if ranks > 1 else [])


def domains(text: str) -> int:
    return int(json.loads(text)["search"]["domains"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_search_that_was_killed_reaches_the_same_verdict(vnncomp, tmp_path, ranks):
    checkpoint = tmp_path / "c"
    whole = command(vnncomp, checkpoint, 280.0, ranks)
    with subprocess.Popen(whole, stdout=subprocess.PIPE, start_new_session=True) as process:
        deadline = time.monotonic() + 120.0
        while not checkpoint.exists():
            assert process.poll() is None, "it ended before it kept anything"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    assert checkpoint.exists()
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "verified"
    assert list(tmp_path.iterdir()) == [], "with the answer, nothing is kept"


def in_pieces(vnncomp: Path, checkpoint: Path, limit_s: float) -> tuple[int, int]:
    """How many runs of at most `limit_s`, longer where one did not get on, proved it, and the domains in all."""
    reached, pieces = 0, 0
    while True:
        run = command(vnncomp, checkpoint, limit_s, 1)
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        pieces += 1
        if done.returncode != 21:  # a timeout
            assert done.returncode == 0, done.stderr
            return pieces, domains(done.stdout)
        now = domains(done.stdout) if checkpoint.exists() else 0  # none: its time was up before the search
        assert now >= reached
        if now == reached:
            limit_s *= 1.5
        else:
            assert "the same command goes on with it" in done.stderr
        reached = now


def test_a_search_whose_time_was_up_goes_on_where_it_was(vnncomp, tmp_path):
    """In pieces, it bounds about as many domains as at once: nothing is begun again."""
    run = command(vnncomp, tmp_path / "other", 280.0, 1)
    at_once = subprocess.run(run, capture_output=True, text=True, check=False)
    whole = domains(at_once.stdout)
    limit_s = sum(json.loads(at_once.stdout)["seconds"].values())
    pieces = 1
    for number in range(6):  # however much faster the machine has become since
        limit_s /= 2
        pieces, bounded = in_pieces(vnncomp, tmp_path / f"c{number}", limit_s)
        if pieces > 1:
            break
    assert pieces > 1
    assert bounded < 1.2 * whole
