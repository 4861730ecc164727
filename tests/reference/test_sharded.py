"""auto_LiRPA with its weights shared out: the same bits as on one rank, and no weight whole on a rank for long."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from boundscope.protocol import (
    Engine,
    Event,
    LayerBounds,
    Method,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.reference import compat
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from support.jobs import ref
from support.models import box_property, mlp, save
from support.ranks import on_ranks
from support.reference_ranks import gathers, short_of_memory, stopped, unlent

pytestmark = pytest.mark.skipif(not compat.version(), reason="auto_LiRPA is not installed")

# Of a network of two large weights: one evaluation of each by the layers and by the graph, twice; and in bounds, one of
# the first for its intervals, and one a backward pass.
CROWN_GATHERS = 12

Told = tuple[VerifyResult, list[LayerBounds], set[int]]


def run(files: JobFiles, method: Method, ranks: int, timeout_s: float = 60.0) -> Told:
    """The result, what was told of layers, and the ranks that told it."""
    job = VerifyJob(
        network=ref(files.network),
        property=PropertyFile(file=ref(files.property)),
        engine=Engine.AUTO_LIRPA,
        method=method,
        sharding=Sharding.NONE if ranks == 1 else Sharding.FSDP,
        ranks=ranks,
        timeout_s=timeout_s,
    )
    layers: list[LayerBounds] = []
    told: set[int] = set()

    def listen(rank: int, event: Event) -> None:
        if isinstance(event, LayerBounds):
            layers.append(event)
            told.add(rank)

    return run_local(job, files, listen), layers, told


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> JobFiles:
    """Weights of odd sizes, the middle one in several pieces; a clause that float64 confirms, and one left open."""
    folder = tmp_path_factory.mktemp("wide")
    network = mlp(folder / "n.onnx", [41, 401, 333, 4], seed=3)
    prop = folder / "p.vnnlib"
    prop.write_text(
        box_property([-0.05] * 41, [0.05] * 41, 4, "(assert (or (and (>= Y_0 9)) (and (>= Y_1 0.8))))")
    )
    return JobFiles(network, prop)


Runs = Callable[[Method, int], Told]


@pytest.fixture(scope="module")
def runs(wide: JobFiles) -> Runs:
    """Runs of that network, each once."""
    return functools.cache(lambda method, ranks: run(wide, method, ranks))


@pytest.mark.parametrize(
    ("method", "ranks"),
    [(Method.IBP, 2), (Method.CROWN, 2), (Method.CROWN, 3), (Method.ALPHA_CROWN, 2)],
    ids=str,
)
def test_bounds_are_the_same_bits_on_several_ranks(runs: Runs, method: Method, ranks: int) -> None:
    """Δ = 0 of margins and layers, also of those that are computed again in float64, and of optimised slopes."""
    alone, layers, _ = runs(method, 1)
    together, sharded_layers, told = runs(method, ranks)
    assert alone.verdict is not Verdict.ERROR, alone.reason
    assert together.verdict is alone.verdict, together.reason
    assert together.margin == alone.margin
    assert together.margin.per_clause[0].lower is not None
    assert sharded_layers == layers
    assert layers
    assert told == {0}
    assert [memory.rank for memory in together.peak_bytes] == list(range(ranks))


def test_slopes_are_optimised_with_gathered_weights(runs: Runs) -> None:
    """A gather that autograd does not see would leave alpha-crown at its start values, and say nothing."""
    crown, alpha = (
        runs(method, 2)[0].margin.per_clause[1].lower for method in (Method.CROWN, Method.ALPHA_CROWN)
    )
    assert crown is not None
    assert alpha is not None
    assert alpha > crown


def test_a_rank_holds_its_part_of_the_weights(runs: Runs) -> None:
    """Shards are 1/P; what is gathered is one weight at a time, the largest at most."""
    whole = runs(Method.IBP, 1)[0].peak_bytes[0].by_category["weights"]
    largest = 401 * 333 * 8  # as float64, which confirms the clause that holds
    for memory in runs(Method.IBP, 2)[0].peak_bytes:
        assert memory.by_category["weights"] < 0.6 * whole
        assert 0 < memory.by_category["gathered"] <= largest + 16


def test_convolutions_on_two_ranks(tmp_path: Path) -> None:
    """Kernels large enough to be shared out, carried as patches."""
    random = np.random.default_rng(5)

    def weights(*shape: int) -> NDArray[np.float32]:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {"W1": weights(16, 2, 3, 3), "W2": weights(32, 16, 3, 3), "W3": weights(3, 32 * 16)}
    nodes = [
        helper.make_node("Conv", ["x", "W1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["a1"], "relu1"),
        helper.make_node("Conv", ["a1", "W2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["a2"], "relu2"),
        helper.make_node("Flatten", ["a2"], ["f2"], "flat2"),
        helper.make_node("Gemm", ["f2", "W3"], ["y"], "fc3", transB=1),
    ]
    network = save(tmp_path / "n.onnx", nodes, constants, [1, 2, 4, 4], [1, 3])
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.05] * 32, [0.05] * 32, 3, "(assert (>= Y_0 (+ Y_1 0.5)))"))
    files = JobFiles(network, prop)
    alone, layers, _ = run(files, Method.CROWN, 1)
    together, sharded_layers, _ = run(files, Method.CROWN, 2)
    assert together.verdict is not Verdict.ERROR, together.reason
    assert together.margin == alone.margin
    assert sharded_layers == layers
    assert together.peak_bytes[0].by_category["gathered"] > 0


# ---------------------------------------------------------------- two ranks, without a job


def test_a_rank_that_is_cancelled_cancels_the_other(wide: JobFiles, tmp_path: Path) -> None:
    assert on_ranks(2, tmp_path / "ranks", stopped, wide) == ["cancelled"] * 2


def test_a_rank_short_of_memory_ends_the_other_in_the_middle_of_a_gather(
    wide: JobFiles, tmp_path: Path
) -> None:
    """And leaves nothing behind that a later gather would meet."""
    assert on_ranks(2, tmp_path / "ranks", short_of_memory, wide) == [("out of memory", True)] * 2


def test_weights_are_gathered_once_a_visit_and_again_for_gradients(wide: JobFiles, tmp_path: Path) -> None:
    (crown, alpha, keeping_all), other = on_ranks(2, tmp_path / "ranks", gathers, wide)
    assert (crown, alpha, keeping_all) == other
    assert crown <= CROWN_GATHERS
    assert alpha > keeping_all > crown


def test_a_weight_that_is_not_lent_proves_nothing(wide: JobFiles, tmp_path: Path) -> None:
    """Whatever reads a placeholder gets NaN."""
    assert on_ranks(2, tmp_path / "ranks", unlent, wide) == ["NaN"] * 2
