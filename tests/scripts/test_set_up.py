"""The set-up script does nothing twice, and says what it cannot do in sentences."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "set_up.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("set_up", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """A PATH that begins with these shell programs."""
    for name, body in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_nothing_to_do_is_quick_and_quiet(script: ModuleType, tmp_path: Path) -> None:
    """An environment whose stamp fits is left alone: no pip, no apt, no word with --quiet."""
    (tmp_path / script.STAMP_NAME).write_text(script.fingerprint(script.find_python()))
    words = [sys.executable, str(SCRIPT), "--venv", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "is up to date" in done.stdout
    assert subprocess.run([*words, "--quiet"], capture_output=True, text=True, check=True).stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == [script.STAMP_NAME]


def test_what_is_missing_is_one_line_to_run(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without root: the packages that are not installed, in one line that can be run as it is; no apt-get."""
    with_programs(
        tmp_path,
        monkeypatch,
        dpkg_query="echo 'g++ ii '; echo 'libgl1 ii '; echo 'libglib2.0-0t64 ii '; echo 'xvfb rc '; exit 1",
        apt_get="echo apt-get was run >&2; exit 1",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    script.install_system_packages()
    said = capsys.readouterr()
    (line,) = [line.strip() for line in said.out.splitlines() if "apt-get install" in line]
    program, *words = line.split()
    assert (program, words[:2]) == ("sudo", ["apt-get", "install"])
    assert {"libegl1", "libxcb-cursor0", "xvfb", "libhwy-dev"} <= set(words)
    assert not {"g++", "libgl1", "libglib2.0-0"} & set(words)
    assert "apt-get was run" not in said.err


def test_packages_are_those_that_the_window_and_the_build_need(script: ModuleType) -> None:
    """Each name once."""
    names = [name for group in script.DEBIAN_PACKAGES.values() for name in group]
    assert len(names) == len(set(names))
    assert {"cmake", "g++", "libegl1", "libxcb-cursor0", "xauth"} <= set(names)


def test_pip_that_fails_is_a_sentence(script: ModuleType, tmp_path: Path) -> None:
    """pip's last words, where all of them are, and what to do without a network."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such wheel\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(script.SetUpError, match="no such wheel") as caught:
        script.run_pip(python, "nothing")
    assert "PIP_FIND_LINKS" in str(caught.value)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_lists_its_commands() -> None:
    done = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True)
    for command in ("run", "test", "lint", "gallery", "bench", "clean"):
        assert f"make {command} " in done.stdout
