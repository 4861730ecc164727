"""Entries of real ranks for tests and benchmarks: `run` records every bound, and `run_apart` besides keeps ranks of one
machine from sharing memory, as those of several machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from boundscope.bounds import BoundEngine
from boundscope.protocol import VerifyJob, VerifyResult
from boundscope.worker.verify import run_verify

FOLDER = "BOUNDSCOPE_RECORDED"  # an environment variable: where each rank leaves rank-R.npz


def run(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """A verification. The ends of every interval, of every tensor of every context, end up in a file: in the order in
    which the contexts were done, NUMBER METHOD TENSOR SIDE."""
    bounds: dict[str, Any] = {}
    original = BoundEngine.context

    def recording(engine: BoundEngine, box: Any, method: Any, **named: Any) -> Any:
        context = original(engine, box, method, **named)
        number = len({key.split()[0] for key in bounds})
        for name, interval in context.intervals.items():
            bounds[f"{number} {method} {name} lower"] = interval.lower.cpu().numpy().copy()
            bounds[f"{number} {method} {name} upper"] = interval.upper.cpu().numpy().copy()
        return context

    BoundEngine.context = recording  # type: ignore[method-assign, assignment]
    try:
        return run_verify(job, files, monitor, ranks)
    finally:
        BoundEngine.context = original  # type: ignore[method-assign]
        if FOLDER in os.environ:
            np.savez(Path(os.environ[FOLDER]) / f"rank-{ranks.rank}.npz", **bounds)


def run_apart(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    os.environ["LOCAL_WORLD_SIZE"] = "1"
    return run(job, files, monitor, ranks)


def difference(one: Path, other: Path) -> float:
    """The largest difference of any recorded bound in two files; infinite where not the same was recorded."""
    with np.load(one) as left, np.load(other) as right:
        if list(left) != list(right):
            return float("inf")
        worst = 0.0
        for name in left:
            a, b = left[name], right[name]
            if a.shape != b.shape:
                return float("inf")
            differs = (a != b) & ~(np.isnan(a) & np.isnan(b))
            if differs.any():
                worst = max(worst, float(np.abs(a[differs] - b[differs]).max()))
        return worst
