"""What may befall a rank, by number: for entries of real ranks that are told which by their job's seed."""

from __future__ import annotations

import os
import signal

KILLED, STOPPED, OUT_OF_MEMORY, EXCEPTION = range(1, 5)


def fail(fault: int) -> None:
    """Let it befall this process; 0: nothing does."""
    match fault:
        case 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        case 3:
            raise MemoryError
        case 4:
            raise ValueError("this rank has had enough")
