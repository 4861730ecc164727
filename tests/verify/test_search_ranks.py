"""Branch and bound over real ranks: the same verdict, the same work where that is asked for, no domain held twice, any
number of ranks goes on from a checkpoint, and a rank that fails ends the job."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from boundscope import capabilities
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.errors import RankFailedError, UsageError
from boundscope.protocol import (
    Branching,
    Event,
    FileRef,
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
from daemon.support import environment
from support import faults
from support.jobs import ref
from support.models import box_property, mlp
from verify import search_faults

INPUTS, FEW = 50, 6  # so many that activations are split to the end; so few that boxes are
# Proven by splitting: with about 1200 and 5000 domains; and by no means within a minute.
QUICK, LONGER, HARD = 1.4, 1.2, 0.6
# Ranks of one machine, which bound domains each by itself; and ranks that gather weights from one another, in step.
NEAR = {**KINDS, "verify": Kind("boundscope.worker.launch", "verify.search_faults:run")}
FAR = {**KINDS, "verify": Kind("boundscope.worker.launch", "verify.search_faults:run_scattered")}
Kinds = Mapping[str, Kind]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of its weights are so large that `rows` and `fsdp` share them out."""
    return mlp(tmp_path_factory.mktemp("search") / "n.onnx", [INPUTS, 60, 84, 60, 2], seed=5)


def written(path: Path, bound: float, inputs: int = INPUTS, radius: float = 0.1) -> Path:
    path.write_text(box_property([-radius] * inputs, [radius] * inputs, 2, f"(assert (>= Y_0 {bound!r}))"))
    return path


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ranks find the modules of the tests."""
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])


def job(network: Path, prop: Path, ranks: int, sharding: Sharding = Sharding.ROWS) -> VerifyJob:
    return VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=Method.COMPLETE,
        branching=Branching.ACTIVATION,
        sharding=sharding if ranks > 1 else Sharding.NONE,
        ranks=ranks,
        timeout_s=60.0,
        threads_per_rank=1,
        force_synchronous=True,
    )


def searched(described: VerifyJob, network: Path, prop: Path, kinds: Kinds = KINDS) -> VerifyResult:
    return run_local(described, JobFiles(network, prop), lambda rank, event: None, kinds=kinds)


def same_work(one: VerifyResult, other: VerifyResult) -> bool:
    """The same domains in the same order, and so the same bounds, to the bit."""
    lower = [[margin.lower for margin in result.margin.per_clause] for result in (one, other)]
    assert one.search is not None
    return one.verdict is other.verdict and one.search == other.search and lower[0] == lower[1]


# ---------------------------------------------------------------- the same work


@pytest.fixture(scope="module")
def proven(network: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, VerifyResult]:
    """A property that some rounds of splitting prove, and how one rank does it."""
    prop = written(tmp_path_factory.mktemp("property") / "p.vnnlib", QUICK)
    result = searched(job(network, prop, 1), network, prop)
    assert result.verdict is Verdict.VERIFIED, result.reason
    assert result.search is not None
    assert result.search.domains > 1000
    return prop, result


@pytest.mark.parametrize(
    ("ranks", "sharding", "kinds"),
    [
        (2, Sharding.ROWS, NEAR),
        (3, Sharding.ROWS, NEAR),
        (2, Sharding.ROWS, FAR),
        (3, Sharding.ROWS, FAR),
        (2, Sharding.FSDP, FAR),
    ],
    ids=["2-near", "3-near", "2-far", "3-far", "2-fsdp"],
)
def test_ranks_bound_the_same_domains(
    network: Path, proven: tuple[Path, VerifyResult], ranks: int, sharding: Sharding, kinds: Kinds
) -> None:
    """Each by itself; in step, one of three often with nothing of its own; and, with `fsdp`, every rank all of them."""
    prop, alone = proven
    together = searched(job(network, prop, ranks, sharding), network, prop, kinds)
    assert same_work(together, alone), (together.search, alone.search)


def test_ranks_bound_the_same_parts(tmp_path: Path) -> None:
    """Also where they split boxes."""
    network = mlp(tmp_path / "n.onnx", [FEW, 40, 40, 2], seed=3)
    prop = written(tmp_path / "p.vnnlib", 0.69, FEW, radius=0.5)
    described = replace(job(network, prop, 1), branching=Branching.INPUT)
    alone = searched(described, network, prop)
    assert alone.search is not None
    assert alone.search.domains > 200
    for ranks, kinds in ((2, NEAR), (3, FAR)):
        together = searched(replace(described, ranks=ranks, sharding=Sharding.ROWS), network, prop, kinds)
        assert same_work(together, alone), (together.search, alone.search)


def test_synchronous_rounds_go_with_the_method_that_splits(network: Path) -> None:
    described = replace(job(network, network, 2), method=Method.CROWN, branching=Branching.AUTO)
    with pytest.raises(UsageError, match="--force-synchronous goes with --method complete"):
        capabilities.check(described)


# ---------------------------------------------------------------- going on


def command(network: Path, prop: Path, checkpoint: Path, ranks: int) -> list[str]:
    more = ["--sharding", "rows", "--ranks", str(ranks)] if ranks > 1 else []
    words = [sys.executable, "-m", "boundscope", "verify", str(network), str(prop), "--method", "complete"]
    words += ["--branching", "activation", "--threads", "1", "--timeout", "100", "--json", "-", *more]
    return [*words, "--checkpoint", str(checkpoint)]


@pytest.mark.parametrize(
    ("first", "then"),
    [(3, 2), (2, 1), (1, 2)],
)
def test_another_number_of_ranks_goes_on_with_what_was_killed(
    network: Path, tmp_path: Path, first: int, then: int
) -> None:
    prop, checkpoint = written(tmp_path / "p.vnnlib", LONGER), tmp_path / "c"
    with subprocess.Popen(
        command(network, prop, checkpoint, first), stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 120.0
        while not checkpoint.exists():
            assert process.poll() is None, "it ended before it kept anything"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    points: list[SearchPoint] = []

    def listen(rank: int, event: Event) -> None:
        if isinstance(event, SearchPoint):
            points.append(event)

    described = replace(
        job(network, prop, then), network=hashed(network), property=PropertyFile(file=hashed(prop))
    )
    result = run_local(described, JobFiles(network, prop, checkpoint=checkpoint), listen)
    assert points[0].done > 0, "it does not begin anew"
    assert result.verdict is Verdict.VERIFIED, result.reason
    assert not checkpoint.exists()


def hashed(path: Path) -> FileRef:
    """As the command line names a file."""
    content = path.read_bytes()
    return FileRef(name=path.name, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


# ---------------------------------------------------------------- a rank that fails


@pytest.mark.parametrize(
    ("fault", "kinds", "said"),
    [
        (faults.KILLED, NEAR, "rank 1 was killed by SIGKILL"),
        (search_faults.KEEPING, FAR, "rank 1 was killed by SIGKILL"),
        (faults.STOPPED, FAR, "rank 1 was stopped (SIGSTOP)"),
        (faults.EXCEPTION, NEAR, "rank 1 failed: ValueError: this rank has had enough"),
        (faults.EXCEPTION, FAR, "rank 1 failed: ValueError: this rank has had enough"),
    ],
    ids=["SIGKILL-near", "SIGKILL-far", "SIGSTOP-far", "exception-near", "exception-far"],
)
def test_a_rank_that_is_lost_among_the_domains_is_named(
    network: Path, tmp_path: Path, fault: int, kinds: Kinds, said: str
) -> None:
    prop = written(tmp_path / "p.vnnlib", HARD)
    with pytest.raises(RankFailedError) as caught:
        searched(replace(job(network, prop, 3), seed=fault), network, prop, kinds)
    assert time.time() - prop.with_name(search_faults.MARK).stat().st_mtime < 30
    assert said in str(caught.value)


@pytest.mark.parametrize("kinds", [NEAR, FAR], ids=["near", "far"])
def test_memory_that_one_rank_lacks_among_the_domains_ends_the_job_as_such(
    network: Path, tmp_path: Path, kinds: Kinds
) -> None:
    prop = written(tmp_path / "p.vnnlib", HARD)
    described = replace(job(network, prop, 3), seed=faults.OUT_OF_MEMORY)
    result = searched(described, network, prop, kinds)
    assert result.verdict is Verdict.OUT_OF_MEMORY
    assert result.reason.startswith("rank 1: "), result.reason
