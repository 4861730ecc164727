"""On a terminal: progress is shown, and Ctrl+C stops the run cleanly."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boundscope.examples import Example, example
from cli.conftest import Command
from daemon.small_files import write_property, write_wide_network
from support.wider import DIGITS, wider

LIMIT_S = 120.0


class Terminal:
    """A command whose standard error is a pseudo-terminal; its standard input and output are pipes."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, *([] if words[0] == "-c" else ["-m", "boundscope"]), *words],
            env={**environment, "TERM": "xterm-256color"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def read(self) -> bool:
        """Take what was written within a moment; False at the end of it."""
        if not select.select([self.master], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:  # Linux says EIO when the last writer has gone
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in self.shown:
            assert self.read(), f"it ended without showing {text!r}:\n{self.shown}"
            assert time.monotonic() < deadline, f"{text!r} did not appear:\n{self.shown}"

    def finish(self) -> tuple[int, str]:
        """Exit status and standard output, once the command has ended."""
        deadline = time.monotonic() + LIMIT_S
        while self.read():
            assert time.monotonic() < deadline, self.shown
        assert self.process.stdout is not None
        output = self.process.stdout.read().decode()
        return self.process.wait(LIMIT_S), output


@contextmanager
def terminal(words: list[str], environment: dict[str, str]) -> Iterator[Terminal]:
    run = Terminal(words, environment)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()
        assert run.process.stdout is not None
        run.process.stdout.close()
        os.close(run.master)


def words_of(found: Example, *options: str) -> list[str]:
    return ["verify", str(found.network), str(found.property), *options]


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A run that is still at its bounds whenever somebody who has seen them begin wants to stop it."""
    folder = tmp_path_factory.mktemp("long")
    network, given = write_wide_network(folder / "net.onnx", 1500, 6), write_property(folder / "p.vnnlib")
    return ["verify", str(network), str(given), "--chunk-rows", "16"]


def test_progress_on_a_terminal(environment: dict[str, str], robust: Example) -> None:
    """Standard error shows the stage and a bar; standard output stays the plain summary."""
    with terminal(words_of(robust), environment) as run:
        status, output = run.finish()
    assert status == 0
    assert "━" in run.shown
    assert "\x1b[?25h" in run.shown, "the cursor is shown again"
    assert output.startswith("verdict         verified\n")
    assert "\x1b" not in output


@pytest.mark.parametrize(
    "options", [(), ("--sharding", "rows", "--ranks", "2")], ids=["one rank", "two ranks"]
)
@pytest.mark.parametrize("moment", ["starting", "bounds"])
def test_ctrl_c_stops_cleanly(
    environment: dict[str, str], long_run: list[str], options: tuple[str, ...], moment: str
) -> None:
    """One Ctrl+C, before or while it computes: status 130, one sentence, no output, no process left."""
    with terminal([*long_run, *options], environment) as run:
        run.wait_for(moment)
        os.killpg(run.process.pid, signal.SIGINT)
        status, output = run.finish()
        assert status == 130, run.shown
        assert "stopped before it gave a result" in run.shown
        assert "Traceback" not in run.shown
        assert output == ""
        with pytest.raises(ProcessLookupError):
            os.killpg(run.process.pid, 0)


def test_a_search_shows_counts_and_no_share(environment: dict[str, str], tmp_path: Path) -> None:
    """Nobody knows how many domains there will be: standard error counts them, and the summary has their line."""
    words = ["verify", str(DIGITS), str(wider("digits-robust", "2.5", tmp_path / "wide.vnnlib"))]
    with terminal([*words, "--method", "complete", "--timeout", "8"], environment) as run:
        run.wait_for(" open")
        status, output = run.finish()
    assert status == 21
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", run.shown)
    assert re.search(r"splitting activations .*[0-9] domains?, [0-9 ]+ open", plain)
    assert "of at most 8.0 s" in plain, "where nobody knows the time to go, the limit is said"
    assert re.search(
        r"^search          [0-9 ]+ domains, deepest \d+ splits, splitting activations, ", output, re.M
    )
    assert "\u202f" not in output


def test_work_outside_a_run_shows_that_it_goes_on(environment: dict[str, str]) -> None:
    """Where it takes longer than a moment, for as long as it takes."""
    work = "with Waiting('reading net.onnx'): sys.stdin.read()"
    with terminal(
        ["-c", f"import sys; from boundscope.cli.progress import Waiting\n{work}"], environment
    ) as run:
        run.wait_for("reading net.onnx")
        assert run.process.poll() is None
        assert run.process.stdin is not None
        run.process.stdin.close()
        status, output = run.finish()
    assert (status, output) == (0, "")


def test_a_plan_on_a_terminal_is_plain_on_standard_output(environment: dict[str, str]) -> None:
    with terminal(["plan", str(example("digits-conv").network)], environment) as run:
        status, output = run.finish()
    assert status == 0
    assert "digits_cnn.onnx" in output
    assert "\x1b" not in output


def test_sigterm_stops_as_ctrl_c_does(environment: dict[str, str], long_run: list[str]) -> None:
    with terminal(long_run, environment) as run:
        run.wait_for("starting")
        run.process.terminate()
        status, output = run.finish()
    assert (status, output) == (130, "")


def test_ctrl_c_cancels_the_job_on_a_daemon(
    boundscope: Command, environment: dict[str, str], long_run: list[str]
) -> None:
    """The job ends as cancelled there; the command says so with status 130."""
    try:
        with terminal([*long_run, "--daemon"], environment) as run:
            run.wait_for("bounds")
            os.killpg(run.process.pid, signal.SIGINT)
            status, output = run.finish()
        assert (status, output) == (130, ""), run.shown
        (job,) = json.loads(boundscope("jobs", "--json").stdout)
        assert job["state"] == "cancelled"
    finally:
        boundscope("daemon", "stop", "--force")
