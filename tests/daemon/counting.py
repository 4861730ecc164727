"""A search that counts to COUNTED, and goes on from its checkpoint."""

from __future__ import annotations

import time

from msgspec.structs import replace

from boundscope.errors import DeadlineError
from boundscope.monitor import Monitor
from boundscope.protocol import Progress, Verdict, VerifyJob, VerifyResult
from boundscope.search.checkpoint import SearchState
from boundscope.worker.checkpoints import JobCheckpoint
from daemon.behaviours import COUNTED, result


def count(job: VerifyJob, files: object, monitor: Monitor, ranks: object) -> VerifyResult:
    """Count, one step at a time, each saved before it is told; in the first run no further than half the way.

    There it waits to be cut short: however late that comes, it has begun and has not ended.
    """
    checkpoint = JobCheckpoint(job, files, monitor, ranks)  # type: ignore[arg-type]
    state = checkpoint.load() or SearchState(counters={"count": 0, "runs": 0})
    state.counters["runs"] += 1
    end = COUNTED // 2 if state.counters["runs"] == 1 else COUNTED
    verdict: Verdict | None = None
    try:
        while state.counters["count"] < end:
            state.counters["count"] += 1
            state.elapsed_s += 0.02
            checkpoint.save(lambda: state)
            if ranks.rank == 0:  # type: ignore[attr-defined]
                monitor.emit(Progress(stage="counting", done=int(state.counters["count"]), total=COUNTED))
            monitor.check()
            time.sleep(0.01)
        while end < COUNTED:
            monitor.check()
            time.sleep(0.02)
        verdict = Verdict.VERIFIED
    except DeadlineError:
        verdict = Verdict.TIMEOUT
    finally:
        checkpoint.settle(verdict)
    said = f"counted to {state.counters['count']} in {state.counters['runs']} runs"
    return replace(result(said), verdict=verdict)
