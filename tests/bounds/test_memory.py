"""A memory budget is kept, changes no bound, and ends in a result that says what needed how much."""

from __future__ import annotations

import gc
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
import torch
from onnx import helper

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.alpha import AlphaSettings
from boundscope.bounds.context import BoxContext
from boundscope.bounds.operators.linear import CONVERTED_ELEMENTS
from boundscope.errors import OutOfMemoryError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import LogLine, Method, PropertyFile, Verdict, VerifyJob
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.weights import WholeWeights
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify
from support.enclosure import network_of
from support.jobs import ref
from support.models import box_property, mlp

WIDTHS = [20, 300, 300, 300, 4]
ROWS = [LinearConstraint(np.array([0, 1]), np.array([1.0, -1.0]), bound=Fraction(100))]


def box(radius: float = 0.05) -> Box:
    centre = np.random.default_rng(0).standard_normal(WIDTHS[0])
    low, high = centre - radius, centre + radius
    return Box(tuple(map(repr, low.tolist())), tuple(map(repr, high.tolist())), low, high)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return load_network(mlp(tmp_path_factory.mktemp("memory") / "n.onnx", WIDTHS, 1))


class Run:
    """One engine with its own ledger, and what it said."""

    def __init__(
        self,
        network: Network,
        limit_bytes: int | None = None,
        chunk_rows: int | None = None,
        alpha: AlphaSettings | None = None,
    ) -> None:
        self.said: list[str] = []
        self.ledger = MemoryLedger(limit_bytes)
        weights = WholeWeights(network.constants, self.ledger, torch.device("cpu"), torch.float64)
        monitor = Monitor(lambda event: self.said.append(event.text) if isinstance(event, LogLine) else None)
        self.engine = BoundEngine(
            network, weights, self.ledger, monitor=monitor, chunk_rows=chunk_rows, alpha=alpha
        )

    def bounds(self, method: Method) -> tuple[BoxContext, float]:
        context = self.engine.context(box(), method)
        return context, self.engine.margins(context, ROWS, method).item()

    @property
    def peak(self) -> int:
        return self.ledger.peaks(0).ledger_peak_bytes


@pytest.mark.parametrize("share", [0.75, 0.5])
def test_a_smaller_budget_is_kept_and_gives_the_same_bounds(network: Network, share: float) -> None:
    free = Run(network)
    context, margin = free.bounds(Method.CROWN)
    held = free.ledger.peaks(0).by_category["weights"]
    limit = int(held + share * (free.peak - held))
    tight = Run(network, limit)
    tight_context, tight_margin = tight.bounds(Method.CROWN)
    assert tight_margin == margin
    for name, interval in context.intervals.items():
        assert torch.equal(tight_context.intervals[name].lower, interval.lower), name
        assert torch.equal(tight_context.intervals[name].upper, interval.upper), name
    assert not tight.said
    assert tight.peak <= limit


def test_a_search_within_a_budget_stays_sound_and_close(network: Network) -> None:
    """Each chunk of α-CROWN stops by its own gain, so that other chunks give slightly other bounds."""
    free = Run(network)
    _, crown = free.bounds(Method.CROWN)
    _, margin = free.bounds(Method.ALPHA_CROWN)
    held = free.ledger.peaks(0).by_category["weights"]
    tight = Run(network, int(held + 0.4 * (free.peak - held)))
    _, tight_margin = tight.bounds(Method.ALPHA_CROWN)
    assert tight_margin >= crown
    assert tight_margin == pytest.approx(margin, abs=0.02 * (margin - crown))
    assert tight.ledger.total_bytes <= tight.ledger.limit_bytes


def test_chunks_that_do_not_fit_are_halved_and_it_is_said(network: Network) -> None:
    free = Run(network, chunk_rows=512)
    _, margin = free.bounds(Method.CROWN)
    held = free.ledger.peaks(0).by_category["weights"]
    tight = Run(network, held + (free.peak - held) // 3, chunk_rows=512)
    assert tight.bounds(Method.CROWN)[1] == pytest.approx(margin, rel=1e-6)
    assert any("out of the memory budget, trying chunks of 112 rows" in line for line in tight.said)
    assert all("memory budget" in line for line in tight.said)


@pytest.mark.parametrize("chunk_rows", [16, 64, 4096])
@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_a_budget_is_kept_whatever_rows_are_asked_for(
    network: Network, chunk_rows: int, share: float, method: Method
) -> None:
    """Fewer rows are carried where those asked for do not fit; what does not fit is never held, not even at first."""
    alpha = AlphaSettings(steps=2)
    free = Run(network, alpha=alpha)
    _, margin = free.bounds(method)
    held = free.ledger.peaks(0).by_category["weights"]
    limit = int(held + share * max(free.peak - held, 8 * 256 * max(WIDTHS)))
    tight = Run(network, limit, chunk_rows=chunk_rows, alpha=alpha)
    _, tight_margin = tight.bounds(method)
    assert tight.peak <= limit
    if chunk_rows > 512 and method is not Method.IBP:  # more than there is room for
        assert any("trying chunks of" in line for line in tight.said)
    assert tight_margin == pytest.approx(margin, rel=1e-6 if method is not Method.ALPHA_CROWN else 0.05)


def test_what_has_no_room_is_not_counted_but_told() -> None:
    ledger = MemoryLedger(2**20)
    kept = ledger.hold(torch.zeros(100_000), "rows")
    with pytest.raises(
        OutOfMemoryError, match=r"1\.1 MiB needed.*1\.0 MiB.*rows 0\.4 MiB, workspace 0\.8 MiB"
    ):
        ledger.hold(torch.zeros(200_000), "workspace")
    assert ledger.total_bytes == ledger.peaks(0).ledger_peak_bytes == kept.nbytes
    assert ledger.peaks(0).by_category["workspace"] == 0
    more = ledger.hold(torch.zeros(100_000), "workspace")
    assert ledger.total_bytes == kept.nbytes + more.nbytes


def test_a_budget_that_nothing_fits_is_an_error_with_the_breakdown(network: Network) -> None:
    held = Run(network).ledger.total_bytes
    with pytest.raises(OutOfMemoryError, match=r"needed with a budget of .*weights \d"):
        Run(network, held + 20_000).bounds(Method.CROWN)


@pytest.mark.parametrize("chunk_rows", [None, 16, 512])
@pytest.mark.parametrize("share", [0.75, 1.01])
def test_out_of_memory_is_a_verdict_with_the_breakdown(
    tmp_path: Path, share: float, chunk_rows: int | None
) -> None:
    """Whether the weights alone are too many, or what comes on top of them; and fewer rows are not advised, for the
    fewest have been tried."""
    path, prop = mlp(tmp_path / "n.onnx", [20, 600, 600, 600, 4], 1), tmp_path / "p.vnnlib"
    bounds = box()
    asks = "(assert (>= (+ Y_0 Y_1) 1.0))"
    prop.write_text(box_property(bounds.lower.tolist(), bounds.upper.tolist(), 4, asks))
    weights = Run(load_network(path)).ledger.total_bytes
    job = VerifyJob(
        network=ref(path),
        property=PropertyFile(file=ref(prop)),
        memory_budget_bytes=int(share * weights),
        chunk_rows=chunk_rows,
    )
    result = run_verify(job, JobFiles(path, prop), Monitor(timeout_s=60), RankGroup())
    assert result.verdict is Verdict.OUT_OF_MEMORY
    assert result.peak_bytes[0].ledger_peak_bytes <= job.memory_budget_bytes
    assert "--chunk-rows" not in result.reason
    assert "weights" in result.reason
    assert "MiB" in result.reason
    assert "--memory-budget" in result.reason


def test_a_budget_may_be_a_share_of_the_device(tmp_path: Path) -> None:
    path, prop = mlp(tmp_path / "n.onnx", WIDTHS, 1), tmp_path / "p.vnnlib"
    bounds = box()
    asks = "(assert (>= (+ Y_0 Y_1) 1.0))"
    prop.write_text(box_property(bounds.lower.tolist(), bounds.upper.tolist(), 4, asks))
    weights = Run(load_network(path)).ledger.total_bytes
    share = 0.75 * weights / psutil.virtual_memory().total
    job = VerifyJob(
        network=ref(path), property=PropertyFile(file=ref(prop)), memory_budget_share=share, chunk_rows=4096
    )
    result = run_verify(job, JobFiles(path, prop), Monitor(timeout_s=60), RankGroup())
    assert result.verdict is Verdict.OUT_OF_MEMORY
    assert result.peak_bytes[0].ledger_peak_bytes <= share * psutil.virtual_memory().total
    roomy = msgspec.structs.replace(job, memory_budget_share=0.5)
    result = run_verify(roomy, JobFiles(path, prop), Monitor(timeout_s=60), RankGroup())
    assert result.verdict is not Verdict.OUT_OF_MEMORY


def test_the_ledger_tells_weights_rows_and_slopes_apart(network: Network) -> None:
    run = Run(network)
    stored = sum(array.nbytes for array in network.constants.values())
    assert run.ledger.sample(0.0).by_category["weights"] == run.ledger.total_bytes == stored
    slopes: list[int] = []
    hold = run.ledger.hold

    def watched(tensor: torch.Tensor, category: str) -> torch.Tensor:
        slopes.append(tensor.untyped_storage().nbytes() if category == "slopes" else 0)
        return hold(tensor, category)

    run.ledger.hold = watched  # type: ignore[method-assign]
    context, _ = run.bounds(Method.ALPHA_CROWN)
    assert run.ledger.peaks(0).by_category["rows"] > 0
    assert max(slopes) > 0
    intervals = sum(8 * 2 * interval.lower.numel() for interval in context.intervals.values())
    assert run.ledger.sample(0.0).by_category["workspace"] >= intervals // 2


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_after_a_run_only_the_weights_are_held(network: Network, method: Method) -> None:
    run = Run(network)
    run.bounds(method)
    gc.collect()
    left = run.ledger.sample(0.0).by_category
    assert {name for name, size in left.items() if size} == {"weights"}


def test_memory_is_flat_over_a_hundred_runs(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [8, 40, 40, 3], 1))
    low, high = np.full(8, -0.1), np.full(8, 0.1)
    small = Box(tuple(map(repr, low.tolist())), tuple(map(repr, high.tolist())), low, high)
    process = psutil.Process()

    def once() -> None:
        run = Run(network, alpha=AlphaSettings(steps=2))
        run.engine.margins(run.engine.context(small, Method.ALPHA_CROWN), ROWS, Method.ALPHA_CROWN)

    for _ in range(20):
        once()
    gc.collect()
    before = process.memory_info().rss
    for _ in range(100):
        once()
    gc.collect()
    assert process.memory_info().rss < 1.05 * before


def test_planes_of_each_rows_own_are_counted_as_slopes(tmp_path: Path) -> None:
    """A product's two planes have three numbers a row and element each: more than the rows and the parameters."""
    random = np.random.default_rng(0)
    width, outputs = 400, 32
    constants = {
        "A": random.standard_normal((width, 6)).astype(np.float32),
        "B": random.standard_normal((width, 6)).astype(np.float32),
        "C": random.standard_normal((outputs, width)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "A"], ["a"], transB=1),
        helper.make_node("Gemm", ["x", "B"], ["b"], transB=1),
        helper.make_node("Mul", ["a", "b"], ["p"]),
        helper.make_node("Gemm", ["p", "C"], ["y"], transB=1),
    ]
    network = network_of(tmp_path, nodes, 6, constants)
    run = Run(network)
    small = Box(("-1",) * 6, ("1",) * 6, np.full(6, -1.0), np.full(6, 1.0))
    rows = [
        LinearConstraint(np.array([row]), np.array([1.0]), bound=Fraction(10**6)) for row in range(outputs)
    ]
    context = run.engine.context(small, Method.CROWN)
    run.engine.margins(context, rows, Method.CROWN)
    assert run.ledger.peaks(0).by_category["slopes"] == 0
    run.engine.margins(context, rows, Method.ALPHA_CROWN)
    assert run.ledger.peaks(0).by_category["slopes"] >= 6 * 8 * outputs * width
    gc.collect()
    assert run.ledger.sample(0.0).by_category["slopes"] == 0


@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
def test_a_large_weight_has_no_second_copy(tmp_path: Path, method: Method) -> None:
    """Float64 passes convert it block by block; and that changes no bound by more than a rounding."""
    network = load_network(mlp(tmp_path / "n.onnx", [20, 1100, 1100, 4], 1))
    assert network.constants["W2"].size > 4 * CONVERTED_ELEMENTS
    run = Run(network, alpha=AlphaSettings(steps=2))
    _, margin = run.bounds(method)
    stored = sum(array.nbytes for array in network.constants.values())
    # The part of it between neurons that are not dead may be kept, in the file's own dtype.
    assert run.ledger.sample(0.0).by_category["weights"] < 2.2 * stored

    whole = Run(network, alpha=AlphaSettings(steps=2))
    use = whole.engine.weights.use
    whole.engine.weights.use = lambda names, dtype=None, *_: use(names, dtype)  # type: ignore[method-assign]
    assert whole.bounds(method)[1] == pytest.approx(margin, rel=1e-9)
    assert whole.ledger.sample(0.0).by_category["weights"] >= stored + 8 * network.constants["W2"].size
