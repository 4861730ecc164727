"""Whatever goes wrong on the way, nothing is verified or violated by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.linear import GemmRule
from boundscope.bounds.operators.relaxation import Lines
from boundscope.bounds.operators.relu import ReluRule
from boundscope.errors import CancelledError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.properties.types import LinearConstraint
from boundscope.protocol import (
    Arithmetic,
    Event,
    GapPoint,
    LayerBounds,
    Method,
    Progress,
    PropertyFile,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.search.attack import Attack
from boundscope.search.evaluation import BatchedNetwork
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import networks as networks_module
from boundscope.worker import reading as reading_module
from boundscope.worker import witness as witness_module
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify
from support.enclosure import box_of, corners_and_points, engine_of, values_at
from support.jobs import ref, verify
from support.models import box_property, mlp, save

DECIDED = (Verdict.VERIFIED, Verdict.VIOLATED)


@pytest.fixture
def proven(tmp_path: Path) -> tuple[Path, Path]:
    """A network and a property that α-CROWN verifies; slopes of the margin alone fall short by 0.03, CROWN by 0.09."""
    network, prop = mlp(tmp_path / "n.onnx", [4, 12, 12, 3], 3), tmp_path / "proven.vnnlib"
    prop.write_text(box_property([-0.3] * 4, [0.3] * 4, 3, "(assert (<= Y_0 (+ Y_1 0.1)))"))
    return network, prop


@pytest.fixture
def violated(tmp_path: Path) -> tuple[Path, Path]:
    network, prop = mlp(tmp_path / "n.onnx", [4, 12, 12, 3], 3), tmp_path / "violated.vnnlib"
    prop.write_text(box_property([-0.1] * 4, [0.1] * 4, 3, "(assert (<= Y_0 1000.0))"))
    return network, prop


def failing(real: Callable[..., Any], after: int) -> Callable[..., Any]:
    """The real thing for a while, then an error that nobody foresaw."""
    calls = 0

    def call(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise RuntimeError("injected")
        return real(*args, **options)

    return call


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (GemmRule, "enclose"),
        (GemmRule, "backward_on"),
        (GemmRule, "select"),
        (ReluRule, "interval"),
        (ReluRule, "relax"),
        (BackwardPass, "lower"),
        (BatchedNetwork, "outputs"),
        (reading_module, "compare_with_onnxruntime"),
        (reading_module, "read_property"),
        (networks_module, "load_network"),
    ],
)
def test_an_error_in_any_step_of_a_proof_proves_nothing(
    proven: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, after: int
) -> None:
    assert verify(*proven, method=Method.CROWN).verdict is Verdict.UNKNOWN
    assert verify(*proven, method=Method.ALPHA_CROWN).verdict is Verdict.VERIFIED
    once = owner in (reading_module, networks_module)
    monkeypatch.setattr(owner, step, failing(getattr(owner, step), 0 if once else after))
    try:
        result = verify(*proven, method=Method.ALPHA_CROWN)
    except RuntimeError as error:
        assert str(error) == "injected"  # noqa: PT017 - the alternative is a result
        return
    assert result.verdict not in DECIDED


@pytest.mark.parametrize(
    ("owner", "step"),
    [(witness_module, "replay"), (Attack, "run"), (reading_module, "compare_with_onnxruntime")],
)
def test_an_error_in_any_step_of_a_refutation_refutes_nothing(
    violated: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    assert verify(*violated).verdict is Verdict.VIOLATED
    monkeypatch.setattr(owner, step, failing(getattr(owner, step), 0))
    try:
        result = verify(*violated)
    except RuntimeError as error:
        assert str(error) == "injected"  # noqa: PT017
        return
    assert result.verdict not in DECIDED


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("arithmetic", list(Arithmetic))
def test_bounds_that_are_no_numbers_are_unknown_and_named(
    proven: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, arithmetic: Arithmetic, value: float
) -> None:
    real = ReluRule.interval

    def spoilt(self: ReluRule, view: Any) -> tuple[Interval, ...]:
        (interval,) = real(self, view)
        return (Interval(interval.lower, torch.full_like(interval.upper, value)),)

    monkeypatch.setattr(ReluRule, "interval", spoilt)
    result = verify(*proven, arithmetic=arithmetic)
    assert result.verdict is Verdict.UNKNOWN
    assert "tensor 'a1'" in result.reason


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_relaxation_that_is_no_number_proves_nothing(
    proven: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    real = ReluRule.relax

    def spoilt(self: ReluRule, view: Any, theta: torch.Tensor | None = None) -> Lines:
        lines = real(self, view, theta)
        assert isinstance(lines, Lines)
        bad = torch.full_like(lines.upper_slope, value)
        return Lines(lines.lower_slope, lines.lower_intercept, bad, lines.upper_intercept)

    monkeypatch.setattr(ReluRule, "relax", spoilt)
    assert verify(*proven, method=Method.ALPHA_CROWN).verdict not in DECIDED


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_margin_that_is_no_number_proves_nothing(
    proven: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setattr(
        BackwardPass, "lower", lambda self, rows, count: torch.full((count,), value, dtype=torch.float64)
    )
    assert verify(*proven, method=Method.ALPHA_CROWN).verdict not in DECIDED


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_weights_that_overflow_verify_nothing(tmp_path: Path, method: Method, arithmetic: Arithmetic) -> None:
    """10³⁰ times 10³⁰ is infinite in float32; eleven of them in a row, less their like, are so in float64."""
    constants, nodes, name = {}, [], "x"
    for layer in range(11):
        constants[f"W{layer}"] = np.array([[1e30, -1e30], [1e30, -1e30]], dtype=np.float32)
        out = "y" if layer == 10 else f"h{layer}"
        nodes.append(helper.make_node("Gemm", [name, f"W{layer}"], [out], f"fc{layer}"))
        name = out
        if layer < 10:
            nodes.append(helper.make_node("Relu", [out], [f"r{layer}"], f"relu{layer}"))
            name = f"r{layer}"
    network, prop = save(tmp_path / "n.onnx", nodes, constants, [1, 2], [1, 2]), tmp_path / "p.vnnlib"
    prop.write_text(box_property([0.5, 0.5], [1.0, 1.0], 2, "(assert (<= Y_0 Y_1))"))
    result = verify(network, prop, method=method, arithmetic=arithmetic)
    assert result.verdict not in DECIDED
    assert any(f"'{name}'" in result.reason for name in (*(f"h{i}" for i in range(11)), "y")), result.reason


def spent_s() -> float:
    """Seconds that this process has computed, by each of its threads: others on the machine do not count."""
    return time.process_time() / torch.get_num_threads()


def slow(tmp_path: Path, method: Method, monitor: Monitor) -> VerifyResult:
    """A job of some ten seconds at least."""
    network, prop = mlp(tmp_path / "n.onnx", [64, *[1500] * 4, 4], 1), tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.1] * 64, [0.1] * 64, 4, "(assert (>= Y_0 (+ Y_1 20.0)))"))
    job = VerifyJob(network=ref(network), property=PropertyFile(file=ref(prop)), method=method, timeout_s=0.5)
    return run_verify(job, JobFiles(network, prop), monitor, RankGroup())


@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
def test_a_deadline_is_kept_with_what_was_proven_so_far(tmp_path: Path, method: Method) -> None:
    """It passes in the moment that intervals have said what they can, so that no machine is too quick for it."""
    began_s: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, GapPoint) and event.step == "ibp" and not began_s:
            began_s.append(spent_s())
            monitor.deadline = monitor.now_s

    monitor = Monitor(listen, timeout_s=10)  # a fifth of which is for attacks
    result = slow(tmp_path, method, monitor)
    assert result.verdict is Verdict.TIMEOUT
    assert spent_s() - began_s[0] < 2.0
    assert result.margin.smallest is not None
    assert result.margin.smallest <= 0


def wide(tmp_path: Path) -> tuple[Path, float, float, float]:
    """A network whose hidden layers take α-CROWN many times as long as CROWN; of Y_1 − Y_0 the bound by CROWN, that by
    slopes of this row alone, and the least of some values."""
    path = mlp(tmp_path / "n.onnx", [64, *[400] * 4, 4], 1)
    network = load_network(path)
    box = box_of([-0.1] * 64, [0.1] * 64)
    engine = engine_of(network)
    context = engine.context(box, Method.CROWN)
    row = LinearConstraint(np.array([1, 0]), np.array([1.0, -1.0]), bound=Fraction(10**6))
    crown, alpha = (
        engine.margins(context, [row], method).item() + 1e6 for method in (Method.CROWN, Method.ALPHA_CROWN)
    )
    outputs = [
        values_at(network, x, torch.float64)["y"].flatten()
        for x in corners_and_points(box, 200, torch.float64)
    ]
    return path, crown, alpha, min(float(y[1] - y[0]) for y in outputs)


def run_alpha(tmp_path: Path, network: Path, threshold: float, monitor: Monitor) -> VerifyResult:
    """Whether Y_1 − Y_0 stays above a threshold."""
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.1] * 64, [0.1] * 64, 4, f"(assert (>= Y_0 (+ Y_1 {-threshold:.9f})))"))
    job = VerifyJob(
        network=ref(network), property=PropertyFile(file=ref(prop)), method=Method.ALPHA_CROWN, timeout_s=60
    )
    return run_verify(job, JobFiles(network, prop), monitor, RankGroup())


class Ticking(Monitor):
    """A clock that each look at it moves on: what a search does in its time is the same on every machine."""

    looks = 0

    @property
    def now_s(self) -> float:
        self.looks += 1
        return 0.01 * self.looks


def test_alpha_ends_within_the_limit_and_keeps_what_it_has_found(tmp_path: Path) -> None:
    """With half the time that a search takes after CROWN has said what it can, it ends before the limit, not at it."""
    seen: dict[str, float] = {}
    told: list[float] = []
    limit_s = [60.0]

    def listen(event: Event) -> None:
        if isinstance(event, GapPoint) and event.lower is not None and event.step not in seen:
            seen[event.step] = event.lower
            if event.step == "crown":
                told.append(monitor.now_s)
                monitor.deadline = monitor.now_s + limit_s[0]

    network, _, alpha, reached = wide(tmp_path)
    threshold = (alpha + reached) / 2
    monitor = Ticking(listen, timeout_s=60)
    assert run_alpha(tmp_path, network, threshold, monitor).verdict is Verdict.UNKNOWN
    limit_s[0] = (monitor.now_s - told[0]) / 2
    seen.clear()
    monitor = Ticking(listen, timeout_s=60)
    result = run_alpha(tmp_path, network, threshold, monitor)
    assert monitor.remaining_s > -0.5
    assert result.verdict is Verdict.TIMEOUT
    assert "cut the search for better bounds short" in result.reason
    assert result.margin.smallest is not None
    assert result.margin.smallest > seen["crown"]


def test_slopes_of_the_margins_come_before_those_of_all_layers(tmp_path: Path) -> None:
    """A property that they suffice for is proven without a search in any hidden layer."""
    searched: set[str] = set()

    def listen(event: Event) -> None:
        if isinstance(event, LayerBounds):
            searched.add(event.method)

    network, crown, alpha, _ = wide(tmp_path)
    assert crown < alpha
    result = run_alpha(tmp_path, network, (crown + alpha) / 2, Monitor(listen, timeout_s=60))
    assert result.verdict is Verdict.VERIFIED
    assert "crown" in searched
    assert "alpha-crown" not in searched


def test_a_deadline_before_anything_is_proven(tmp_path: Path) -> None:
    begin_s = spent_s()
    result = slow(tmp_path, Method.CROWN, Monitor(timeout_s=0.02))  # less than the files take to be read
    assert result.verdict is Verdict.TIMEOUT
    assert "0.5 s" in result.reason
    assert spent_s() - begin_s < 3.5


@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
def test_cancelling_stops_a_job_promptly(tmp_path: Path, method: Method) -> None:
    """In the middle of a layer's bounds."""
    asked: list[float] = []
    intervals: list[Event] = []

    def listen(event: Event) -> None:
        if isinstance(event, GapPoint) and event.step == "ibp":
            intervals.append(event)
        elif isinstance(event, Progress) and intervals and 0 < event.done < event.total and not asked:
            asked.append(spent_s())
            monitor.cancel()

    monitor = Monitor(listen, timeout_s=10)  # a fifth of which is for attacks
    with pytest.raises(CancelledError):
        slow(tmp_path, method, monitor)
    assert spent_s() - asked[0] < 2.0
