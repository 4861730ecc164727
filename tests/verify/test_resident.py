"""What a rank's process takes falls with the number of ranks: none reads the network's file whole."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest

from boundscope.protocol import Event, LogLine, Method, PropertyFile, Sharding, VerifyJob, VerifyResult
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from support.jobs import ref
from support.models import box_property, mlp

WIDTHS = [784, 4096, 4096, 10]
WEIGHTS_BYTES = 4 * sum(a * b for a, b in pairwise(WIDTHS))
MIB = 1 << 20
# Pages of libraries that the first use of each part of them brings in, and buffers of gloo, ONNX Runtime and products.
BESIDE = 90 * MIB


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> JobFiles:
    folder = tmp_path_factory.mktemp("resident")
    prop = folder / "p.vnnlib"
    prop.write_text(box_property([0.4] * 784, [0.41] * 784, 10, "(assert (>= Y_0 90.0))"))
    return JobFiles(mlp(folder / "n.onnx", WIDTHS, seed=1), prop)


def run(files: JobFiles, sharding: Sharding, ranks: int) -> tuple[VerifyResult, list[str]]:
    told: list[str] = []

    def listen(_: int, event: Event) -> None:
        if isinstance(event, LogLine):
            told.append(event.text)

    job = VerifyJob(
        network=ref(files.network),
        property=PropertyFile(file=ref(files.property)),
        method=Method.IBP,
        sharding=sharding,
        ranks=ranks,
        timeout_s=120.0,
    )
    return run_local(job, files, listen), told


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep a resettable peak")
@pytest.mark.parametrize(("sharding", "ranks"), [(Sharding.ROWS, 4), (Sharding.FSDP, 2)])
def test_resident_peaks_fall(wide: JobFiles, sharding: Sharding, ranks: int) -> None:
    """Above what a process of libraries takes, a rank needs about its part; rank 0, which compares with ONNX Runtime
    and attacks, not the network whole either."""
    result, told = run(wide, sharding, ranks)
    assert any("ONNX Runtime agrees" in line for line in told)
    first, *others = (one.resident_peak_bytes for one in result.peak_bytes)
    assert len(others) == ranks - 1
    assert max(others) < WEIGHTS_BYTES / ranks + BESIDE
    assert first < WEIGHTS_BYTES / ranks + 2 * BESIDE


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep a resettable peak")
def test_one_rank_holds_one_copy(wide: JobFiles) -> None:
    result, _ = run(wide, Sharding.NONE, 1)
    assert result.peak_bytes[0].resident_peak_bytes < 1.3 * WEIGHTS_BYTES + 2 * BESIDE
