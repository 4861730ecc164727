"""Starts the workbench: checks what the system lacks, shows the window, then connects."""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from boundscope_app import preflight
from boundscope_app import settings as settings_store

if TYPE_CHECKING:
    from boundscope.client import RemoteHost
    from boundscope_app.window import MainWindow

EXIT_NO_WINDOW = 1


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="boundscope-app",
        description="The Boundscope workbench: what can this network do, and how much of it is rounding noise?",
    )
    result.add_argument(
        "paths", nargs="*", type=Path, metavar="NET PROPERTY", help="files or folders to open at once"
    )
    result.add_argument("--run", action="store_true", help="run the network and property at once")
    place = result.add_mutually_exclusive_group()
    place.add_argument("--home", type=Path, metavar="DIR", help="where the local daemon keeps its jobs")
    place.add_argument(
        "--connection", type=Path, metavar="FILE", help="connection file of a daemon that runs already"
    )
    place.add_argument(
        "--host", type=_host, metavar="HOST[:HOME]", help="work with the daemon of this host, through ssh"
    )
    result.add_argument("--theme", choices=("light", "dark", "system"), help="for this start only")
    return result


def _host(text: str) -> RemoteHost:
    from boundscope.client import read_host
    from boundscope.errors import DaemonError

    try:
        return read_host(text)
    except DaemonError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Open the window and stay until it is closed; the exit status."""
    options = parser().parse_args(argv)
    problem = preflight.problem()
    if problem is not None:
        print(f"boundscope-app: {problem}", file=sys.stderr)
        return EXIT_NO_WINDOW
    try:
        from PySide6.QtWidgets import QApplication

        from boundscope_app.window import apply_theme
    except ImportError as error:
        print(f"boundscope-app: {preflight.without_qt(error)}", file=sys.stderr)
        return EXIT_NO_WINDOW
    app = QApplication.instance() or QApplication(["boundscope-app"])
    assert isinstance(app, QApplication)
    app.setApplicationName("boundscope")
    app.setApplicationDisplayName("Boundscope")
    app.setDesktopFileName("boundscope")
    kept, note = settings_store.load()
    apply_theme(options.theme or kept.theme)
    window = build_window(options, kept, note)
    _end_on_signals(window)
    sys.excepthook = _Reporter(window)
    window.show()
    window.begin(tuple(options.paths), options.run)
    settle()
    status = app.exec()
    sys.excepthook = sys.__excepthook__
    return status


def build_window(options: argparse.Namespace, kept: settings_store.Settings, note: str = "") -> MainWindow:
    """The window with its network thread, not yet shown nor started."""
    from boundscope_app import icons
    from boundscope_app.link import Link
    from boundscope_app.window import MainWindow

    chosen = options.home is not None or options.connection is not None
    asked = kept.last_host if options.host is None else kept.known(options.host)
    host = None if chosen else asked
    link = Link(options.home, options.connection, host=host)
    window = MainWindow(link, kept, note, options.theme)
    window.setWindowIcon(icons.application_icon())
    return window


def settle() -> None:
    """Take what is there for good (modules, widgets) out of what the garbage collector looks through.

    It stops the window while it looks: 65 ms for all that is imported, many times a minute during a busy run.
    """
    gc.collect()
    gc.freeze()


def _end_on_signals(window: MainWindow) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: window.close())


class _Reporter:
    """Says in the window that something of ours broke, and keeps the traceback in a file."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        path = settings_store.config_folder() / "workbench-errors.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as stream:
                traceback.print_exception(kind, error, trace, file=stream)
            where = f"The details are in {path}."
        except OSError as failed:
            where = f"The details could not be written to {path}: {failed.strerror}."
        self._window.tell(
            "error", f"This is a fault of Boundscope itself ({kind.__name__}: {error}). {where}"
        )


if __name__ == "__main__":
    sys.exit(main())
