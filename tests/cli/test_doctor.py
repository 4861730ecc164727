"""The doctor names what is missing and the remedy, and its status says whether anything required is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundscope import doctor
from cli.conftest import Command


def test_json_and_status_agree(boundscope: Command) -> None:
    """`ready` and the exit status say the same, and everything that is not ok has a remedy."""
    done = boundscope("doctor", "--json")
    report = json.loads(done.stdout)
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert report["ready"] == (done.returncode == 0) == ("missing" not in states.values())
    assert {
        "Python",
        "packages",
        "native library",
        "Qt",
        "ports",
        "home",
        "key files",
        "torch",
        "ssh",
    } <= set(states)
    assert all(check["remedy"] for check in report["checks"] if check["state"] != "ok")
    assert done.stderr == ""


def test_keys_that_others_can_read(boundscope: Command, tmp_path: Path) -> None:
    """A connection file with mode 0644 is missing its privacy, and the remedy is the command to run."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    connection = home / "daemon.json"
    connection.touch(mode=0o600)
    connection.chmod(0o644)
    done = boundscope("doctor")
    assert done.returncode == 1
    assert f"chmod go-rwx {connection}" in done.stdout
    assert "missing: key files" in done.stdout


def test_home_that_cannot_be_used(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()
    check = doctor._home(home / "below")
    assert check.state == "missing"
    assert "BOUNDSCOPE_HOME" in check.remedy


def test_a_screen_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """No display is a note, not an error: the command line works without."""
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)
    monkeypatch.setenv("DISPLAY", ":9999")
    checks = {check.name: check for check in doctor._window()}
    assert checks["window"].state == "note"
    assert ":9999" in checks["window"].found
