"""VNN-COMP's three scripts, run as the competition runs them, with the environment that is here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from daemon.small_files import write_network, write_property

SCRIPTS = Path(__file__).resolve().parents[2] / "packaging" / "vnncomp"


@pytest.fixture
def script(tmp_path: Path):
    """`script(name, words…)` runs one; its environment is this interpreter's, its state is the test's own."""
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (venv / "boundscope").write_text(f'#!/bin/sh\nexec {sys.executable} -m boundscope "$@"\n')
    for each in venv.iterdir():
        each.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    environment = {
        **os.environ,
        "BOUNDSCOPE_VENV": str(tmp_path / "venv"),
        "BOUNDSCOPE_OPTIONS": "--method crown",
        "XDG_RUNTIME_DIR": str(state),
        "OMP_NUM_THREADS": "1",
    }

    def run(name: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPTS / name), *map(str, words)],
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_prepare_and_run(script, tmp_path: Path) -> None:
    """sat with its counterexample, unsat and error come out as one word in front; a packed file is found too."""
    network = write_network(tmp_path / "net.onnx")
    results = tmp_path / "results.txt"
    for name, threshold, word in (("proven", 100.0, "unsat"), ("refuted", -100.0, "sat")):
        given = write_property(tmp_path / f"{name}.vnnlib", threshold=threshold)
        if word == "unsat":
            subprocess.run(["gzip", given], check=True)
            prepared = script("prepare_instance.sh", "v1", "small", network, given)
            assert prepared.returncode == 0, prepared.stderr
        done = script("run_instance.sh", "v1", "small", network, given, results, 60)
        assert done.returncode == 0, done.stderr
        first, _, rest = results.read_text().partition("\n")
        assert first == word
        assert rest.startswith("((X_0 ") if word == "sat" else rest == ""
    other = write_property(tmp_path / "other.vnnlib", inputs=3)
    script("run_instance.sh", "v1", "small", network, other, results, 60)
    assert results.read_text() == "error\n"


def test_the_time_is_kept_also_by_what_does_not_listen(script, tmp_path: Path) -> None:
    """A program that ignores both its limit and SIGTERM is ended before the time is up, and leaves `timeout`."""
    stubborn = tmp_path / "venv" / "bin" / "boundscope"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n")
    network, given = write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib")
    results = tmp_path / "results.txt"
    begin = time.monotonic()
    assert script("run_instance.sh", "v1", "small", network, given, results, 6).returncode == 0
    assert time.monotonic() - begin < 6
    assert results.read_text() == "timeout\n"


def test_a_program_that_dies_is_an_error(script, tmp_path: Path) -> None:
    """What the memory killer does is not taken for a timeout, nor for an answer."""
    (tmp_path / "venv" / "bin" / "boundscope").write_text("#!/bin/sh\nkill -9 $$\n")
    network, given = write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib")
    results = tmp_path / "results.txt"
    script("run_instance.sh", "v1", "small", network, given, results, 60)
    assert results.read_text() == "error\n"


def test_prepare_ends_what_a_killed_run_left_and_nothing_else(script, tmp_path: Path) -> None:
    """A process group is ended where it is Boundscope's; a number that others have by now is left alone."""
    network, given = write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib")
    folder = tmp_path / "state" / f"boundscope-vnncomp-{os.getuid()}"
    folder.mkdir(mode=0o700)
    code = "import time; time.sleep(600)"
    for words, ended in ((["boundscope"], True), (["other"], False)):
        left = subprocess.Popen([sys.executable, "-c", code, *words], start_new_session=True)
        try:
            (folder / "group").write_text(f"{left.pid}\n")
            assert script("prepare_instance.sh", "v1", "small", network, given).returncode == 0
            assert not (folder / "group").exists()
            if ended:
                assert left.wait(10) == -signal.SIGKILL
            else:
                assert psutil.Process(left.pid).is_running()
                assert left.poll() is None
        finally:
            left.kill()
            left.wait()


@pytest.mark.parametrize("name", ["install_tool.sh", "prepare_instance.sh", "run_instance.sh"])
def test_another_interface_is_refused(script, name: str) -> None:
    done = script(name, "v2")
    assert done.returncode == 1
    assert "must be v1" in done.stderr


def test_missing_words_and_files_are_named(script, tmp_path: Path) -> None:
    done = script("prepare_instance.sh", "v1", "small", tmp_path / "none.onnx", tmp_path / "none.vnnlib")
    assert done.returncode != 0
    assert "there is no" in done.stderr
    assert script("run_instance.sh", "v1", "small").returncode == 1
    done = script("run_instance.sh", "v1", "small", "a", "b", tmp_path / "r.txt", "soon")
    assert "TIMEOUT must be seconds" in done.stderr


def test_the_scripts_are_clean() -> None:
    checker = shutil.which("shellcheck")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    names = sorted(path.name for path in SCRIPTS.glob("*.sh"))
    done = subprocess.run(
        [checker, "-x", "-P", "../..", *names], cwd=SCRIPTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
