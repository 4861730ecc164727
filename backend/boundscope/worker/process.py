"""What every process of a job does first (tie its life to its parent's) and last. Imports no torch."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import NoReturn

from boundscope.daemon.processes import PARENT_VARIABLE

_PR_SET_PDEATHSIG = 1


def begin() -> None:
    """Die with the parent (Linux), and leave a stack in the log when the interpreter crashes."""
    faulthandler.enable()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is not None and int(parent) != os.getppid():
        sys.exit(f"the process that started this one ({parent}) has gone")


def end(status: int) -> NoReturn:
    """Leave at once: the interpreter's own way out can hang in the threads of torch, and everything has been said."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
