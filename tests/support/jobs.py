"""Verify jobs run in the test's own process, on files as they lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from boundscope.monitor import Monitor
from boundscope.protocol import (
    Arithmetic,
    Engine,
    Event,
    FileRef,
    Method,
    Precision,
    PropertyFile,
    VerifyJob,
    VerifyResult,
)
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify


def ref(path: Path) -> FileRef:
    return FileRef(name=path.name, sha256="0" * 64, size_bytes=path.stat().st_size)


def verify(
    network: Path,
    prop: Path,
    *,
    method: Method = Method.CROWN,
    arithmetic: Arithmetic = Arithmetic.REAL,
    engine: Engine = Engine.NATIVE,
    cross_check: bool = False,
    precision: Precision = Precision.MIXED,
    emit: Callable[[Event], None] | None = None,
) -> VerifyResult:
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=method,
        arithmetic=arithmetic,
        engine=engine,
        cross_check=cross_check,
        precision=precision,
    )
    return run_verify(job, JobFiles(network, prop), Monitor(emit, timeout_s=120), RankGroup())
