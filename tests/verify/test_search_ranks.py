"""Branch and bound over real ranks: the same verdict, the same work where that is asked for, and any rank goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from boundscope.errors import CancelledError
from boundscope.protocol import (
    Branching,
    Event,
    Method,
    PropertyFile,
    SearchPoint,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from support.jobs import ref
from support.models import box_property, mlp

INPUTS = 50  # so many that activations are split to the end


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mlp(tmp_path_factory.mktemp("search") / "n.onnx", [INPUTS, 60, 84, 60, 2], seed=5)


def searched(
    network: Path,
    prop: Path,
    ranks: int,
    *,
    checkpoint: Path | None = None,
    timeout_s: float = 60.0,
    stops: bool = False,
) -> tuple[VerifyResult, list[SearchPoint]]:
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=Method.COMPLETE,
        branching=Branching.ACTIVATION,
        sharding=Sharding.ROWS if ranks > 1 else Sharding.NONE,
        ranks=ranks,
        timeout_s=timeout_s,
        threads_per_rank=1,
        force_synchronous=True,
    )
    points: list[SearchPoint] = []
    cancel = threading.Event()

    def listen(_: int, event: Event) -> None:
        if isinstance(event, SearchPoint):
            points.append(event)
        if stops and checkpoint is not None and checkpoint.exists():
            cancel.set()

    return run_local(job, JobFiles(network, prop, checkpoint=checkpoint), listen, cancel=cancel), points


def written(path: Path, bound: float, radius: float = 0.1) -> Path:
    path.write_text(box_property([-radius] * INPUTS, [radius] * INPUTS, 2, f"(assert (>= Y_0 {bound!r}))"))
    return path


@pytest.fixture(scope="module")
def proven(network: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, VerifyResult]:
    """A property that some rounds of splitting prove, and how one rank does it."""
    prop = written(tmp_path_factory.mktemp("property") / "p.vnnlib", BOUND)
    return prop, searched(network, prop, 1)[0]


BOUND, HARD = 1.0, 0.6  # proven after some rounds; not for long


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_bound_the_same_domains(network: Path, proven: tuple[Path, VerifyResult], ranks: int) -> None:
    prop, alone = proven
    together, _ = searched(network, prop, ranks)
    assert alone.verdict is together.verdict is Verdict.VERIFIED
    assert alone.search is not None
    assert together.search is not None
    assert alone.search.domains == together.search.domains > 100
    assert alone.search.depth == together.search.depth
    assert [m.lower for m in alone.margin.per_clause] == [m.lower for m in together.margin.per_clause]


def test_another_number_of_ranks_goes_on(network: Path, tmp_path: Path) -> None:
    """What three ranks left behind, two go on with."""
    prop = written(tmp_path / "p.vnnlib", HARD)
    checkpoint = tmp_path / "c"
    with pytest.raises(CancelledError):
        searched(network, prop, 3, checkpoint=checkpoint, stops=True)
    assert checkpoint.exists()
    result, points = searched(network, prop, 2, checkpoint=checkpoint, timeout_s=15.0)
    assert result.verdict in (Verdict.VERIFIED, Verdict.TIMEOUT), result.reason
    assert points[0].done > 0, "it does not begin anew"
    assert result.search is not None
    assert result.search.domains > points[0].done
