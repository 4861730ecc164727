"""What befalls rank 1 in the middle of a real branch and bound, by the job's seed (0: nothing)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from boundscope.bounds.beta import BetaSearch
from boundscope.protocol import VerifyJob, VerifyResult
from boundscope.search.spread import SpreadPool
from boundscope.worker.verify import run_verify
from support.faults import KILLED, fail

KEEPING = 5  # killed where it keeps the children
MARK = "failed"  # a file beside the property, made when it happens
STEPS = 6  # of that kind, from the search's first on


def run(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """A verification; rank 1 fails while it looks for bounds of its chunk, or where it keeps the children."""
    if ranks.rank == 1:
        owner, name = (SpreadPool, "push") if job.seed == KEEPING else (BetaSearch, "search")
        function, calls = getattr(owner, name), 0

        def failing(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if job.seed and calls == STEPS:
                Path(files.property).with_name(MARK).touch()
                fail(KILLED if job.seed == KEEPING else job.seed)
            return function(*given, **named)

        setattr(owner, name, failing)
    return run_verify(job, files, monitor, ranks)


def run_scattered(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """The same as if each rank had a machine of its own: none reads weights that another one holds, all gather them."""
    os.environ["LOCAL_WORLD_SIZE"] = "1"
    return run(job, files, monitor, ranks)
