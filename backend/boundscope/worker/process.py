"""What every process of a job does first (tie its life to its parent's) and last. Imports no torch."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
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


def run_to_the_end(work: Callable[[], object]) -> NoReturn:
    """What a fork does instead of returning into its parent's code: its work, then it ends, also by an error."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 the edge of the process
        traceback.print_exc()
    end(status)


def thread_count() -> int:
    """Threads of this process, whoever started them (Linux)."""
    return len(os.listdir("/proc/self/task"))
