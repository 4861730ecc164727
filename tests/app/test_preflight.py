"""What the system lacks is said in a sentence with the remedy, before Qt would end the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from app.window_support import APP_PATHS, LIMIT_S
from boundscope_app import preflight


def all_there(_: str) -> bool:
    return True


def test_nothing_missing_is_no_problem() -> None:
    environ = {"DISPLAY": ":0"}
    assert preflight.problem(environ, "linux", loads=all_there, answers=all_there) is None


@pytest.mark.parametrize(
    ("library", "package"), sorted((preflight.DEBIAN_PACKAGES | preflight.DEBIAN_PACKAGES_X11).items())
)
def test_missing_library_names_the_package(library: str, package: str) -> None:
    said = preflight.problem(
        {"DISPLAY": ":0"}, "linux", loads=lambda name: name != library, answers=all_there
    )
    assert said is not None
    assert library in said
    assert f"sudo apt-get install {package}" in said


def test_x11_libraries_are_not_asked_for_on_wayland() -> None:
    environ = {"WAYLAND_DISPLAY": "wayland-0"}
    missing_x11 = lambda name: name not in preflight.DEBIAN_PACKAGES_X11  # noqa: E731
    assert preflight.problem(environ, "linux", loads=missing_x11, answers=all_there) is None


def test_offscreen_needs_no_display() -> None:
    environ = {"QT_QPA_PLATFORM": "offscreen"}
    assert preflight.problem(environ, "linux", loads=all_there, answers=lambda _: False) is None


def test_no_display_points_at_the_command_line() -> None:
    said = preflight.problem({}, "linux", loads=all_there, answers=all_there)
    assert said is not None
    assert "boundscope verify" in said


def test_missing_qt_library_at_import_names_the_package() -> None:
    error = ImportError("libEGL.so.1: cannot open shared object file: No such file or directory")
    assert "apt-get install libegl1" in preflight.without_qt(error)


@pytest.mark.parametrize("display", ["", ":987"])
def test_start_without_a_screen_ends_with_one_sentence(display: str) -> None:
    dropped = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    if display:
        environment["DISPLAY"] = display
    environment["PYTHONPATH"] = APP_PATHS
    ended = subprocess.run(
        [sys.executable, "-m", "boundscope_app"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 1
    assert "boundscope verify" in ended.stderr or "apt-get install" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
