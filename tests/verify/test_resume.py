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


def test_a_search_whose_time_was_up_goes_on_where_it_was(vnncomp, tmp_path):
    """In pieces, it bounds about as many domains as at once: nothing is begun again."""
    at_once = subprocess.run(
        command(vnncomp, tmp_path / "other", 280.0, 1), capture_output=True, text=True, check=False
    )
    whole = domains(at_once.stdout)
    reached, pieces = 0, 0
    while True:
        done = subprocess.run(
            command(vnncomp, tmp_path / "c", 4.0, 1), capture_output=True, text=True, check=False
        )
        pieces += 1
        if done.returncode != 21:  # a timeout
            break
        assert (tmp_path / "c").exists()
        assert "the same command goes on with it" in done.stderr
        assert domains(done.stdout) > reached
        reached = domains(done.stdout)
    assert done.returncode == 0, done.stderr
    assert pieces > 1
    assert domains(done.stdout) < 1.2 * whole
