"""Entries of real ranks for tests and benchmarks: `run` records every bound and what the rank spent on them, and
`run_apart` besides keeps ranks of one machine from sharing memory, as those of several machines."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from boundscope.bounds import BoundEngine, engine
from boundscope.bounds.alpha import AlphaSettings
from boundscope.protocol import VerifyJob, VerifyResult
from boundscope.worker import verify

# Environment variables: where each rank leaves rank-R.npz; whether nothing is attacked; at most so many steps of a
# search for slopes.
FOLDER, NO_ATTACK, STEPS = "BOUNDSCOPE_RECORDED", "BOUNDSCOPE_NO_ATTACK", "BOUNDSCOPE_ALPHA_STEPS"


@dataclass
class Spent:
    """Seconds of processor time of one rank, in all its threads: before the job, until its bounds begin, and for them;
    bytes that it received from other ranks, and that it read in memory shared with them; methods that it came to."""

    start_s: float = 0.0
    load_s: float = 0.0
    bounds_s: float = 0.0
    received_bytes: int = 0
    read_bytes: int = 0
    methods: list[str] = field(default_factory=list)


def spent(folder: Path, rank: int) -> Spent:
    return Spent(**json.loads((folder / f"rank-{rank}.json").read_text(encoding="ascii")))


def run(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """A verification. The ends of every interval, of every tensor of every context, end up in a file: in the order in
    which the contexts were done, NUMBER METHOD TENSOR SIDE. What was spent is in a file beside it."""
    bounds: dict[str, Any] = {}
    told = Spent(start_s=time.process_time())
    original, solve = BoundEngine.context, verify._VerifyRun._solve

    def recording(own: BoundEngine, box: Any, method: Any, **named: Any) -> Any:
        context = original(own, box, method, **named)
        told.methods.append(str(method))
        number = len({key.split()[0] for key in bounds})
        for name, interval in context.intervals.items():
            bounds[f"{number} {method} {name} lower"] = interval.lower.cpu().numpy().copy()
            bounds[f"{number} {method} {name} upper"] = interval.upper.cpu().numpy().copy()
        return context

    def solving(own: Any, *given: Any) -> Any:
        begin_s = time.process_time()
        told.load_s = begin_s - told.start_s
        try:
            return solve(own, *given)
        finally:
            told.bounds_s = time.process_time() - begin_s

    verify._VerifyRun._solve = solving  # type: ignore[method-assign]
    BoundEngine.context = recording  # type: ignore[method-assign, assignment]
    if NO_ATTACK in os.environ:
        verify._VerifyRun._attacked = lambda *given: None  # type: ignore[method-assign]
    if STEPS in os.environ:
        engine.AlphaSettings = partial(AlphaSettings, steps=int(os.environ[STEPS]))  # type: ignore[misc, assignment]
    try:
        return verify.run_verify(job, files, monitor, ranks)
    finally:
        BoundEngine.context = original  # type: ignore[method-assign]
        verify._VerifyRun._solve = solve  # type: ignore[method-assign]
        if ranks.frames is not None:
            told.received_bytes = ranks.frames.traffic.received_bytes
            told.read_bytes = ranks.frames.traffic.read_bytes
        if FOLDER in os.environ:
            summary = Path(os.environ[FOLDER]) / f"rank-{ranks.rank}.json"
            summary.write_text(json.dumps(asdict(told)), encoding="ascii")
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
