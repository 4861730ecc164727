"""Windows, daemons and screens, as the tests and the gallery make them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from boundscope.client import Client, connection_path, read_connection_file
from boundscope.errors import DaemonError
from boundscope.protocol import Shutdown
from boundscope_app.draft import Draft
from boundscope_app.main import build_window, parser
from boundscope_app.settings import Settings
from boundscope_app.window import MainWindow, apply_theme

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "resources" / "examples"
SCREEN = "1600x1000x24"
LIMIT_S = 120.0  # for what happens at once; a machine that does much else may take its time
APP_PATHS = os.pathsep.join(str(ROOT / part) for part in ("backend", "app", "native_prism"))


def start_xvfb() -> tuple[subprocess.Popen[bytes], str] | None:
    """An X server of our own, and its display; None where Xvfb is not installed.

    It ends when the standard input of its shell is closed, at the latest with this process: Qt ends a process
    whose X server goes first.
    """
    if shutil.which("Xvfb") is None:
        return None
    server = f"Xvfb -displayfd 1 -screen 0 {SCREEN} -nolisten tcp"
    process = subprocess.Popen(
        ["sh", "-c", f"{server} </dev/null 2>/dev/null & exec >&-; read line; kill $!"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    number = process.stdout.readline().decode().strip()
    return (process, f":{number}") if number else None


def end_daemon(home: Path) -> None:
    """Stop the daemon of a home and wait until its process has gone."""
    try:
        connection = read_connection_file(connection_path(home))
    except DaemonError:
        return
    with suppress(DaemonError), Client.connect(connection) as client:
        client.request(Shutdown(force=True))
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(connection.pid).wait(LIMIT_S)


def prepare_environment(home: Path) -> None:
    os.environ["PYTHONPATH"] = APP_PATHS
    os.environ["OMP_NUM_THREADS"] = "1"
    home.mkdir(parents=True, exist_ok=True)


def open_window(
    qtbot: QtBot, home: Path, settings: Settings | None = None, paths: tuple[Path, ...] = ()
) -> MainWindow:
    """A shown and connected window on the daemon of `home`."""
    apply_theme("light")
    opened = build_window(parser().parse_args(["--home", str(home)]), settings or Settings())
    show_in_front(qtbot, opened)
    opened.begin(paths)
    wait_connected(qtbot, opened)
    return opened


def show_in_front(qtbot: QtBot, window: MainWindow) -> None:
    """Shown, and active, so that its shortcuts work (there may be no window manager to do that)."""
    window.show()
    qtbot.waitExposed(window)
    with qtbot.waitActive(window):
        window.activateWindow()


def wait_connected(qtbot: QtBot, window: MainWindow) -> None:
    qtbot.waitUntil(lambda: window.session.state.phase == "connected" and window.session.listed)


def close(window: MainWindow) -> None:
    window.close()
    window.deleteLater()


def example_draft(name: str = "digits-robust") -> Draft:
    """A network and a property that come with Boundscope."""
    networks = {"advisor-far": "advisor", "digits-conv": "digits_cnn"}
    network = EXAMPLES / "networks" / f"{networks.get(name, 'digits_mlp')}.onnx"
    return Draft(network, EXAMPLES / name / "property.vnnlib")


def run_python(code: str, *arguments: str, timeout_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a process of its own, with our packages importable."""
    environment = {**os.environ, "PYTHONPATH": APP_PATHS}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
        check=False,
    )
