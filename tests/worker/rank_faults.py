"""What befalls rank 1 in the middle of a real job, by the job's seed."""

from __future__ import annotations

import os
import signal
from typing import Any

from boundscope.bounds import BoundEngine
from boundscope.protocol import VerifyJob, VerifyResult
from boundscope.worker.verify import run_verify

KILLED, STOPPED, OUT_OF_MEMORY, EXCEPTION = range(1, 5)


def run(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """A verification; rank 1 fails where the margins are to be bounded, with the other in its collectives."""
    if ranks.rank == 1:

        def margins(*given: object, **named: object) -> None:
            fail(job.seed)
            raise AssertionError("the fault did not come about")

        BoundEngine.margins = margins  # type: ignore[assignment, method-assign]
    return run_verify(job, files, monitor, ranks)


def fail(seed: int) -> None:
    match seed:
        case 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        case 3:
            raise MemoryError
        case 4:
            raise ValueError("this rank has had enough")
