"""Lines around every element-wise function hold for every θ, are as tight as lines can be, and serve whole networks.

Each row is one operator in a network Gemm → operator → Gemm, whose first Gemm mixes neighbours (weights 3/4 and 1/4),
so that intervals stay in the function's domain and no interval is that of a network's input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds import BoundEngine, MemoryLedger, unsupported
from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.context import BoxContext
from boundscope.bounds.operators.relaxation import BroadcastLines, Lines
from boundscope.bounds.rounding import ENGINE, gamma
from boundscope.errors import BoundError
from boundscope.network import load_network
from boundscope.network.graph import Network, Node
from boundscope.properties.types import Box
from boundscope.protocol import Arithmetic, Method
from boundscope.sharding.weights import WholeWeights
from support.models import save

COUNT = 6  # elements of every tensor
SETTINGS = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Row:
    op: str
    attributes: dict[str, Any] = field(default_factory=dict)
    constant: Any = None  # a second input
    opset: int = 13
    domain: str = "all"  # or "positive", "from zero", "negative"
    largest: float = 1e6  # of the input's absolute value
    jumps: bool = False

    def __str__(self) -> str:
        extra = [*self.attributes.values(), *([] if self.constant is None else [self.constant])]
        return " ".join([self.op, *(str(np.asarray(value).tolist()) for value in extra), self.domain])


SLOPES = np.array([-2.0, -1.0, 0.0, 0.3, 1.0, 1.5], dtype=np.float32)
ROWS = [
    *(Row(op) for op in ("Sigmoid", "Tanh", "Erf", "Softplus", "Sin", "Cos", "Abs")),
    *(Row(op, jumps=True) for op in ("Sign", "Floor", "Ceil")),
    *(Row("Elu", {"alpha": alpha}) for alpha in (0.5, 1.0, 2.0, -1.0)),
    *(Row("LeakyRelu", {"alpha": alpha}) for alpha in (0.1, -0.5, 1.7)),
    *(Row("HardSigmoid", {"alpha": alpha, "beta": 0.4}) for alpha in (0.2, -0.3, 0.0)),
    Row("PRelu", constant=SLOPES),
    Row("Clip", {"min": -0.5, "max": 0.75}, opset=10),
    Row("Clip", {"min": -0.5}, opset=10),
    Row("Clip", {"max": 0.75}, opset=10),
    Row("Gelu", opset=20),
    Row("Gelu", {"approximate": "tanh"}, opset=20),
    Row("Mish", opset=18),
    Row("HardSwish", opset=14),
    Row("Exp", largest=60.0),
    Row("Log", domain="positive"),
    Row("Sqrt", domain="from zero"),
    Row("Reciprocal", domain="positive"),
    Row("Reciprocal", domain="negative"),
    *(Row("Pow", constant=np.float32(power), largest=1e3) for power in (1.0, 2.0, 3.0, 4.0)),
    *(
        Row("Pow", constant=np.float32(power), domain=domain, largest=1e3)
        for power in (-1.0, -2.0)
        for domain in ("positive", "negative")
    ),
    *(
        Row("Pow", constant=np.float32(power), domain="from zero", largest=1e3)
        for power in (0.5, 1.5, 2.5, 0.0)
    ),
    Row(
        "Pow",
        constant=np.array([2.0, 0.5, 3.0, -1.5, -2.0, 1.0], np.float32),
        domain="positive",
        largest=1e3,
    ),
]
IDS = [str(row) for row in ROWS]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Row], Network]:
    """Networks by row, each written and loaded once."""
    known: dict[str, Network] = {}

    def loaded(row: Row) -> Network:
        if str(row) not in known:
            known[str(row)] = load_network(write(row, tmp_path_factory.mktemp("row") / "n.onnx"))
        return known[str(row)]

    return loaded


def write(row: Row, path: Path) -> Path:
    identity = np.eye(COUNT, dtype=np.float32)
    random = np.random.default_rng(3)
    constants = {
        "W1": 0.75 * identity + 0.25 * np.roll(identity, 1, axis=0),
        "b1": np.zeros(COUNT, dtype=np.float32),
        "W2": random.standard_normal((4, COUNT)).astype(np.float32),
        "b2": random.standard_normal(4).astype(np.float32),
    }
    # The rounding of a Gemm reaches below zero, where roots end; a rectifier does not.
    rectified = row.domain == "from zero"
    names = ["z"]
    if row.constant is not None:
        constants["k"] = np.asarray(row.constant)
        names.append("k")
    nodes = [
        helper.make_node("Gemm", ["x", "W1", "b1"], ["g" if rectified else "z"], "mix", transB=1),
        *([helper.make_node("Relu", ["g"], ["z"], "rectify")] if rectified else []),
        helper.make_node(row.op, names, ["a"], "tested", **row.attributes),
        helper.make_node("Gemm", ["a", "W2", "b2"], ["y"], "out", transB=1),
    ]
    return save(path, nodes, constants, [1, COUNT], [1, 4], opset=row.opset)


CENTRES = [0.0, 0.5, -0.75, 1.0, 3.0, -3.0, 2.25, 40.0, -1000.0, 1000.0]
WIDTHS = [0.0, 1e-12, 1e-6, 0.01, 0.5, 2.0, 6.0, 30.0, 1e6]
INTERVALS = st.lists(
    st.tuples(st.sampled_from(CENTRES), st.sampled_from(WIDTHS), st.floats(-1.0, 1.0)),
    min_size=COUNT,
    max_size=COUNT,
)


def box_of(row: Row, intervals: list[tuple[float, float, float]]) -> Box:
    centre, width, shift = (np.array(values) for values in zip(*intervals, strict=True))
    centre = centre + shift * width / 2
    lower, upper = centre - width / 2, centre + width / 2
    if row.domain in ("positive", "negative"):
        lower = np.maximum(np.abs(lower), 1e-3)
        upper = lower + width
        if row.domain == "negative":
            lower, upper = -upper, -lower
    elif row.domain == "from zero":
        lower = np.maximum(lower, 0.0)
        upper = np.maximum(upper, lower)
    lower, upper = (np.clip(end, -row.largest, row.largest) for end in (lower, upper))
    # Exact in float32, so that a float32 runtime can stand at both ends.
    lower, upper = (end.astype(np.float32).astype(np.float64) for end in (lower, upper))
    return Box(tuple(map(repr, lower.tolist())), tuple(map(repr, upper.tolist())), lower, upper)


def engine_of(network: Network, arithmetic: Arithmetic = Arithmetic.REAL) -> BoundEngine:
    ledger, cpu = MemoryLedger(), torch.device("cpu")
    weights = WholeWeights(network.constants, ledger, cpu, torch.float64)
    return BoundEngine(network, weights, ledger, arithmetic=arithmetic)


def node_under_test(network: Network) -> Node:
    return next(node for node in network.nodes if node.name == "tested")


def lines_of(
    context: BoxContext, node: Node, theta: torch.Tensor | None
) -> tuple[Lines, torch.Tensor, torch.Tensor]:
    """The lines at θ, the room that the engine gives their rounding, and θ's default."""
    rule = context.rule(node)
    with context.view(node) as view:
        relaxation = rule.relax(view, theta)
        magnitude = rule.relax_magnitude(view, relaxation)
        default = rule.theta(view)
    assert default is not None
    lines = relaxation.lines if isinstance(relaxation, BroadcastLines) else relaxation
    assert isinstance(lines, Lines)
    return lines, magnitude * gamma(magnitude.numel() + 16, ENGINE.unit), default


def samples(context: BoxContext, node: Node, count: int = 401) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the input's interval, ends included, and the function there: [count, 1, COUNT] each."""
    interval = context.intervals[node.inputs[0]]
    share = torch.linspace(0.0, 1.0, count, dtype=torch.float64)[:, None, None]
    x = (interval.lower + share * (interval.upper - interval.lower)).clamp(interval.lower, interval.upper)
    constants = [
        torch.from_numpy(np.array(context.network.constants[name])).double() for name in node.inputs[1:]
    ]
    (value,) = node.op.evaluate([x, *constants])
    return x, value


def bounds_of(engine: BoundEngine, context: BoxContext, method: Method) -> tuple[torch.Tensor, torch.Tensor]:
    """Bounds of the four outputs."""
    interval = engine.element_bounds(
        context, "y", torch.arange(4), "outputs", alpha=method is Method.ALPHA_CROWN
    )
    return interval.lower.flatten(), interval.upper.flatten()


@pytest.mark.parametrize("row", ROWS, ids=IDS)
@SETTINGS
@given(intervals=INTERVALS, seed=st.integers(0, 10**6))
def test_lines_hold_for_every_theta(
    load: Callable[[Row], Network], row: Row, intervals: list[tuple[float, float, float]], seed: int
) -> None:
    """θ at 0, at 1 and anywhere between; intervals with no width, with a tiny and with a huge one."""
    network = load(row)
    context = engine_of(network).context(box_of(row, intervals), Method.CROWN)
    node = node_under_test(network)
    _, _, default = lines_of(context, node, None)
    theta = torch.rand(8, *default.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    theta[0], theta[1], theta[2] = 0.0, 1.0, default
    lines, room, _ = lines_of(context, node, theta)
    assert lines.lower_intercept is not None
    x, value = samples(context, node)
    for trial in range(len(theta)):
        below = lines.lower_slope[trial] * x + lines.lower_intercept[trial] - room
        above = lines.upper_slope[trial] * x + lines.upper_intercept[trial] + room
        assert bool((below <= value).all()), f"θ number {trial}: the lower line crosses the function"
        assert bool((value <= above).all()), f"θ number {trial}: the upper line crosses the function"


@pytest.mark.parametrize("row", ROWS, ids=IDS)
@SETTINGS
@given(places=st.lists(st.tuples(st.floats(-4.0, 4.0), st.floats(0.1, 6.0)), min_size=COUNT, max_size=COUNT))
def test_lines_are_as_tight_as_lines_can_be(
    load: Callable[[Row], Network], row: Row, places: list[tuple[float, float]]
) -> None:
    """The area between two lines is the width times their distance at the middle, and there no line can come
    nearer than the convex and the concave envelope: the extreme chords between sampled points on either side."""
    network = load(row)
    box = box_of(row, [(centre, width, 0.0) for centre, width in places])
    context = engine_of(network).context(box, Method.CROWN)
    node = node_under_test(network)
    lines, room, _ = lines_of(context, node, None)
    assert lines.lower_intercept is not None
    x, value = samples(context, node)
    half = len(x) // 2
    middle = x[half]
    left, right = (t[: half + 1, None] for t in (x, value)), (t[None, half + 1 :] for t in (x, value))
    (x_left, f_left), (x_right, f_right) = left, right
    share = (middle - x_left) / (x_right - x_left)
    chords = (f_left + share * (f_right - f_left)).flatten(0, 1)
    least = chords.amax(0) - chords.amin(0)
    distance = (
        (lines.upper_slope - lines.lower_slope) * middle + lines.upper_intercept - lines.lower_intercept
    )
    # The samples miss a jump by up to a step, over which a steep line makes up for it.
    allowed = 1.3 if row.jumps else 1.05
    wide = x[-1] - x[0] > 0.05
    assert bool(((distance <= allowed * least + 2 * room + 1e-9) | ~wide).all())


@pytest.mark.parametrize("row", ROWS, ids=IDS)
@settings(SETTINGS, max_examples=3)
@given(intervals=INTERVALS, seed=st.integers(0, 10**6))
def test_values_lie_inside_and_alpha_is_never_looser(
    load: Callable[[Row], Network], row: Row, intervals: list[tuple[float, float, float]], seed: int
) -> None:
    network = load(row)
    box = box_of(row, intervals)
    engine = engine_of(network)
    crown = engine.context(box, Method.CROWN)
    lower, upper = bounds_of(engine, crown, Method.CROWN)
    better_lower, better_upper = bounds_of(engine, crown, Method.ALPHA_CROWN)
    # Passes of different kinds give their own rounding different room.
    _, room, _ = lines_of(crown, node_under_test(network), None)
    weight = torch.from_numpy(np.array(network.constants["W2"])).double().abs()
    slack = 8.0 * (weight @ room.flatten()) + 1e-12
    assert bool((better_lower >= lower - slack).all())
    assert bool((better_upper <= upper + slack).all())
    interval = crown.intervals["a"]
    random = np.random.default_rng(seed)
    for trial in range(30):
        share = random.random(COUNT)
        share = share.round() if trial % 2 else share
        point = np.clip(box.lower + share * (box.upper - box.lower), box.lower, box.upper)
        seen = values(network, point, torch.float64)
        assert bool(((interval.lower <= seen["a"]) & (seen["a"] <= interval.upper)).all())
        y = seen["y"].flatten()
        # The evaluation itself rounds; what it may be off by is far below the bounds' width, but not zero.
        off = 64 * ENGINE.unit * (1.0 + 6.0 * seen["a"].abs().max() + y.abs())
        assert bool(((better_lower - off <= y) & (y <= better_upper + off)).all())


def values(network: Network, point: np.ndarray, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Every tensor of the network at a point, by name."""
    seen: dict[str, torch.Tensor] = {}
    network.evaluate(
        {"x": torch.from_numpy(point).reshape(1, COUNT).to(dtype)},
        visit=lambda node, outputs: seen.update(zip(node.outputs, outputs, strict=True)),
    )
    return seen


@pytest.mark.parametrize("row", ROWS, ids=IDS)
@settings(SETTINGS, max_examples=2)
@given(intervals=INTERVALS, seed=st.integers(0, 10**6))
def test_float32_runtimes_lie_inside_the_float32_bounds(
    load: Callable[[Row], Network], row: Row, intervals: list[tuple[float, float, float]], seed: int
) -> None:
    """Every third interval is a point, where the bounds have no width but the rounding's."""
    network = load(row)
    intervals = [(centre, 0.0 if i % 3 == 0 else width, s) for i, (centre, width, s) in enumerate(intervals)]
    box = box_of(row, intervals)
    engine = engine_of(network, Arithmetic.FLOAT32)
    context = engine.context(box, Method.CROWN)
    lower, upper = bounds_of(engine, context, Method.ALPHA_CROWN)
    session = onnxruntime.InferenceSession(network.source, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(seed)
    for trial in range(20):
        share = random.random(COUNT)
        share = share.round() if trial % 2 else share
        point = np.clip(
            (box.lower + share * (box.upper - box.lower)).astype(np.float32), box.lower, box.upper
        )
        seen = values(network, point, torch.float32)
        interval = context.intervals["a"]
        inside = (interval.lower <= seen["a"].double()) & (seen["a"].double() <= interval.upper)
        assert bool(inside.all()), "torch leaves the interval of the operator"
        theirs = session.run(None, {"x": point.astype(np.float32)[None]})[0]
        for name, y in (("torch", seen["y"]), ("ONNX Runtime", torch.from_numpy(theirs))):
            y = y.double().flatten()
            assert bool(((lower <= y) & (y <= upper)).all()), f"{name} leaves the bounds"


SHARPER = [
    row
    for row in ROWS
    if row.op in ("Sigmoid", "Tanh", "Abs", "Clip", "Gelu", "HardSwish", "Exp", "Sin", "Floor")
]


@pytest.mark.parametrize("row", SHARPER, ids=[str(row) for row in SHARPER])
def test_alpha_finds_better_touching_points(load: Callable[[Row], Network], row: Row) -> None:
    network = load(row)
    centres = (0.2, -0.4, 0.8, -0.1, 0.5, -0.9)
    box = box_of(row, [(centre, 3.0, 0.0) for centre in centres])
    engine = engine_of(network)
    context = engine.context(box, Method.CROWN)
    lower, upper = bounds_of(engine, context, Method.CROWN)
    better_lower, better_upper = bounds_of(engine, context, Method.ALPHA_CROWN)
    assert (better_upper - better_lower).sum() < 0.999 * (upper - lower).sum()


def test_the_search_pass_has_gradients_in_every_theta_that_matters(load: Callable[[Row], Network]) -> None:
    """A touching point that got no gradient would stay where it starts without a word."""
    network = load(ROWS[0])
    context = engine_of(network).context(box_of(ROWS[0], [(0.1, 4.0, 0.0)] * COUNT), Method.CROWN)
    node = node_under_test(network)
    rule = context.rule(node)
    with context.view(node) as view:
        matters, default = rule.theta_matters(view), rule.theta(view)
    assert default is not None
    assert bool(matters.all())
    theta = (0.3 + 0.4 * default)[None].repeat(2, *[1] * default.dim()).requires_grad_()
    with torch.enable_grad():
        one = BackwardPass(context, thetas={node.name: theta}, search=True)
        rows = torch.stack([torch.ones(1, COUNT), -torch.ones(1, COUNT)])
        one.lower({"a": rows}, 2).sum().backward()
    assert theta.grad is not None
    # Row 0 meets the lines below, row 1 those above.
    assert bool((theta.grad[0, 0] != 0).all())
    assert bool((theta.grad[1, 1] != 0).all())


@pytest.mark.parametrize(
    ("row", "lower", "upper"),
    [
        (Row("Log"), -1.0, 2.0),
        (Row("Log"), 0.0, 2.0),
        (Row("Sqrt"), -1.0, 2.0),
        (Row("Reciprocal"), -1.0, 2.0),
        (Row("Reciprocal"), 0.0, 1.0),
        (Row("Pow", constant=np.float32(-2.0)), -1.0, 1.0),
        (Row("Pow", constant=np.float32(0.5)), -1.0, 1.0),
        (Row("Exp"), 0.0, 1e4),
    ],
    ids=str,
)
def test_an_interval_outside_the_domain_names_the_tensor(
    load: Callable[[Row], Network], row: Row, lower: float, upper: float
) -> None:
    box = box_of(row, [((lower + upper) / 2, upper - lower, 0.0)] * COUNT)
    name = "'a'" if row.op == "Exp" else "'z'"
    for method in (Method.IBP, Method.CROWN):
        with pytest.raises(BoundError, match=name):
            engine_of(load(row)).context(box, method)


def test_an_exponent_that_depends_on_the_input_is_named_before_anything_runs(tmp_path: Path) -> None:
    nodes = [helper.make_node("Pow", ["two", "x"], ["y"], "power")]
    network = load_network(
        save(tmp_path / "n.onnx", nodes, {"two": np.array([2.0], np.float32)}, [1, 2], [1, 2])
    )
    (sentence,) = unsupported(network)
    assert "'power'" in sentence
    assert "exponent" in sentence


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_saturated_and_huge_intervals_keep_finite_bounds(
    load: Callable[[Row], Network], method: Method
) -> None:
    """Where the function is flat to the last bit its derivative is zero, and so is what tangents are sought with."""
    for row in ROWS[:3]:
        network = load(row)
        ends = [(-1000.0, 1.0, 0.0), (1000.0, 1.0, 0.0), (0.0, 1e6, 0.0), (-1000.0, 1e6, 0.3)]
        box = box_of(row, [*ends, (1000.0, 0.0, 0.0), (0.0, 2000.0, 0.0)])
        interval = engine_of(network).context(box, method).intervals["a"]
        floor = 0.0 if row.op == "Sigmoid" else -1.0
        assert bool((interval.lower >= floor - 1e-12).all())
        assert bool((interval.upper <= 1.0 + 1e-12).all())


def test_a_clamp_written_as_max_then_min_is_bounded_exactly(tmp_path: Path) -> None:
    constants = {
        "W": np.eye(3, dtype=np.float32),
        "low": np.array([0.5], np.float32),
        "high": np.array([0.75], np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["z"], "copy"),
        helper.make_node("Max", ["z", "low"], ["m"], "max"),
        helper.make_node("Min", ["m", "high"], ["y"], "min"),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [1, 3], [1, 3]))
    lower, upper = np.array([-5.0, 0.6, 1.0]), np.array([5.0, 0.7, 2.0])
    box = Box(tuple(map(repr, lower.tolist())), tuple(map(repr, upper.tolist())), lower, upper)
    for method in (Method.IBP, Method.CROWN, Method.ALPHA_CROWN):
        engine = engine_of(network)
        context = engine.context(box, method)
        interval = context.intervals["y"]
        np.testing.assert_allclose(interval.lower.flatten().numpy(), [0.5, 0.6, 0.75], rtol=0, atol=1e-12)
        np.testing.assert_allclose(interval.upper.flatten().numpy(), [0.75, 0.7, 0.75], rtol=0, atol=1e-12)


def test_bends_of_the_gated_functions_lie_where_the_curvature_changes() -> None:
    """The envelopes trust these constants; at each the second difference changes its sign."""
    from boundscope.bounds.operators.smooth import GeluCurve, MishCurve, SiluCurve, TanhGeluCurve

    for curve in (GeluCurve(), TanhGeluCurve(), MishCurve(), SiluCurve()):
        for bend, curving_up_after in ((curve.left, True), (curve.right, False)):
            x = torch.tensor([bend - 1e-4, bend + 1e-4], dtype=torch.float64)
            step = 1e-5
            bending = (curve.slope(x + step, inner=True) - curve.slope(x - step, inner=True)).tolist()
            assert (bending[0] < 0 < bending[1]) == curving_up_after
            assert (bending[1] < 0 < bending[0]) != curving_up_after
        assert abs(curve.slope(torch.tensor(curve.bottom, dtype=torch.float64), inner=True).item()) < 1e-12
        assert math.isfinite(curve.value(torch.tensor(-1e6, dtype=torch.float64)).item())
