"""Verify jobs run in the test's own process, on files as they lie."""

from __future__ import annotations

from pathlib import Path

from boundscope.monitor import Monitor
from boundscope.protocol import (
    Arithmetic,
    FileRef,
    Method,
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
    network: Path, prop: Path, *, method: Method = Method.CROWN, arithmetic: Arithmetic = Arithmetic.REAL
) -> VerifyResult:
    job = VerifyJob(
        network=ref(network), property=PropertyFile(file=ref(prop)), method=method, arithmetic=arithmetic
    )
    return run_verify(job, JobFiles(network, prop), Monitor(timeout_s=120), RankGroup())
