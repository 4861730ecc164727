"""What happens when something happens that nobody foresaw: one sentence, and a file for a bug report."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType

import platformdirs

from boundscope import __version__
from boundscope.cli.output import complain


def install() -> None:
    """Replace Python's traceback on standard error, in every thread."""
    sys.excepthook = _report
    threading.excepthook = _report_thread


def _report_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        _report(args.exc_type, args.exc_value, args.exc_traceback)


def _report(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, value, trace))
    path = write_crash_file(text)
    said = str(value).strip().splitlines()
    what = f"{kind.__name__}: {said[0]}" if said else kind.__name__
    where = f"Details are in {path}; please attach it to a report." if path else "Run it again with --debug."
    complain(f"an error in Boundscope itself stopped it ({what}). {where}")


def folders() -> tuple[Path, ...]:
    """Where crash files go: beside the daemon's store, or the temporary folder where that cannot be written."""
    home = os.environ.get("BOUNDSCOPE_HOME")
    state = Path(home) if home else platformdirs.user_state_path("boundscope")
    return (state / "crashes", Path(tempfile.gettempdir()))


def write_crash_file(text: str) -> Path | None:
    """Write one report, readable by its owner only; its path, or None where no place can be written."""
    name = f"boundscope-crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    head = (
        f"Boundscope {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"Command: {' '.join(sys.argv)}\n\n"
    )
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError:
            continue
        with os.fdopen(descriptor, "w") as file:
            file.write(head + text)
        return folder / name
    return None
