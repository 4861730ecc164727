"""Runs the real command in processes of its own, with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from boundscope.examples import Example, example

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The test's environment with one thread, its own home and no display."""
    chosen = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return {**chosen, "BOUNDSCOPE_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@pytest.fixture
def boundscope(environment: dict[str, str], tmp_path: Path) -> Command:
    """`boundscope WORDS…`, off a terminal, in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "boundscope", *map(str, words)],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def robust() -> Example:
    return example("digits-robust")


@pytest.fixture(scope="session")
def fooled() -> Example:
    return example("digits-fooled")
