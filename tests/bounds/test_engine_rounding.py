"""The engine's own rounding: in either precision, no interval and no margin crosses the exact rational value."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.context import BoxContext
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.network.operators.activation import LeakyRelu, Relu
from boundscope.network.operators.arithmetic import Add, Mul, Sub
from boundscope.network.operators.linear import Gemm
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Method, Precision, Verdict
from boundscope.sharding.weights import WholeWeights
from support.jobs import verify
from support.models import box_property, save

METHODS = (Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN)
SETTINGS = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
Exact = Any  # an array of Fractions


def exactly(array: np.ndarray) -> Exact:
    return np.vectorize(Fraction, otypes=[object])(array.astype(np.float64))


def exact_values(network: Network, point: Sequence[float]) -> dict[str, Exact]:
    """Every tensor of the network over the rationals."""
    values: dict[str, Exact] = {name: exactly(array) for name, array in network.constants.items()}
    position = 0
    for info in network.inputs:
        part = np.array(point[position : position + info.size], dtype=np.float64)
        values[info.name] = exactly(part.reshape(info.shape))
        position += info.size
    for node in network.nodes:
        given = [values[name] for name in node.inputs]
        op = node.op
        if isinstance(op, Gemm):
            y = given[0] @ (given[1].T if op.transpose_b else given[1]) * Fraction(op.alpha)
            y = y + given[2] * Fraction(op.beta) if len(given) > 2 else y
        elif isinstance(op, Relu):
            y = np.where(given[0] > 0, given[0], Fraction(0))
        elif isinstance(op, LeakyRelu):
            y = np.where(given[0] > 0, given[0], given[0] * Fraction(op.alpha))
        else:
            combine = {Add: np.add, Sub: np.subtract, Mul: np.multiply}[type(op)]
            y = combine(given[0], given[1])
        values[node.outputs[0]] = y
    return values


def flat(values: dict[str, Exact], tensors: Sequence[Any]) -> list[Fraction]:
    return [v for info in tensors for v in values[info.name].ravel().tolist()]


def exact_margin(network: Network, point: Sequence[float], row: LinearConstraint) -> Fraction:
    outputs = flat(exact_values(network, point), network.outputs)
    floats = (*row.output_coeffs.tolist(), *row.input_coeffs.tolist())
    coefficients = row.exact_coeffs or [Fraction(c) for c in floats]
    terms = [outputs[i] for i in row.output_indices] + [Fraction(point[i]) for i in row.input_indices]
    return sum((c * t for c, t in zip(coefficients, terms, strict=True)), Fraction(0)) - row.bound


def engine_of(network: Network, precision: Precision = Precision.MIXED) -> BoundEngine:
    ledger = MemoryLedger()
    weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
    return BoundEngine(network, weights, ledger, precision=precision)


def boxed(lower: Sequence[float], upper: Sequence[float]) -> Box:
    low, high = np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
    return Box(tuple(map(repr, low.tolist())), tuple(map(repr, high.tolist())), low, high)


def row(
    outputs: Sequence[int],
    coefficients: Sequence[float],
    bound: Fraction | int = 0,
    *,
    strict: bool = False,
    inputs: Sequence[int] = (),
    input_coefficients: Sequence[float] = (),
) -> LinearConstraint:
    return LinearConstraint(
        np.array(outputs, dtype=np.int64),
        np.array(coefficients, dtype=np.float64),
        Fraction(bound),
        strict,
        np.array(inputs, dtype=np.int64),
        np.array(input_coefficients, dtype=np.float64),
    )


def assert_encloses(network: Network, context: BoxContext, point: Sequence[float]) -> None:
    for name, value in exact_values(network, point).items():
        if name not in context.intervals:
            continue
        ends = context.intervals[name]
        for low, exact, high in zip(
            ends.lower.flatten().tolist(), value.ravel().tolist(), ends.upper.flatten().tolist(), strict=True
        ):
            assert Fraction(low) <= exact <= Fraction(high), (
                f"{name}: {float(exact)!r} outside [{low!r}, {high!r}]"
            )


def corners_and_points(box: Box, seed: int, count: int = 8) -> list[list[float]]:
    random = np.random.default_rng(seed)
    share = random.random((count, len(box.lower)))
    share[::2] = share[::2].round()
    return np.clip(box.lower + share * (box.upper - box.lower), box.lower, box.upper).tolist()


def saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    inputs: dict[str, Sequence[int]],
    outputs: dict[str, Sequence[int]],
) -> Path:
    """A network with any inputs and outputs."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def layered(path: Path, seed: int, widths: Sequence[int], *, relu: bool, spread: float) -> Path:
    """Gemms (and Relus between) whose weights alternate in sign and in scale, 10^±spread."""
    random = np.random.default_rng(seed)
    nodes, constants, name = [], {}, "x"
    for layer in range(1, len(widths)):
        shape = (widths[layer], widths[layer - 1])
        sign = np.where(np.indices(shape).sum(0) % 2, -1.0, 1.0)
        scale = 10.0 ** (spread * random.choice([-1, 1], shape))
        constants[f"W{layer}"] = (sign * scale * (0.5 + random.random(shape))).astype(np.float32)
        constants[f"b{layer}"] = random.standard_normal(widths[layer]).astype(np.float32)
        out = "y" if layer == len(widths) - 1 else f"h{layer}"
        nodes.append(
            helper.make_node("Gemm", [name, f"W{layer}", f"b{layer}"], [out], f"fc{layer}", transB=1)
        )
        name = out
        if relu and layer < len(widths) - 1:
            nodes.append(helper.make_node("Relu", [out], [f"r{layer}"], f"relu{layer}"))
            name = f"r{layer}"
    return save(path, nodes, constants, [1, widths[0]], [1, widths[-1]])


@pytest.mark.parametrize("precision", list(Precision))
@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.0, 4.0, 8.0]),
    radius=st.sampled_from([0.0, 1e-9, 0.5]),
)
def test_the_margin_of_a_linear_network_never_passes_the_exact_optimum(
    tmp_path: Path, precision: Precision, seed: int, spread: float, radius: float
) -> None:
    """The optimum is at the corner that the exact gradient names; all methods find it, short of rounding."""
    network = load_network(layered(tmp_path / "n.onnx", seed, [3, 6, 5, 2], relu=False, spread=spread))
    centre = np.random.default_rng(seed).standard_normal(3)
    box = boxed(centre - radius, centre + radius)
    constraint = row([0, 1], [1.0, -1.0], Fraction(1, 3))
    origin = exact_margin(network, [0.0] * 3, constraint)
    gradient = [exact_margin(network, unit, constraint) - origin for unit in np.eye(3).tolist()]
    corner = [low if g > 0 else high for g, low, high in zip(gradient, box.lower, box.upper, strict=True)]
    optimum = exact_margin(network, corner, constraint)
    engine = engine_of(network, precision)
    size = float(sum(abs(g) for g in gradient) + abs(origin))
    for method in METHODS:
        context = engine.context(box, method)
        for point in [corner, *corners_and_points(box, seed, 4)]:
            assert_encloses(network, context, point)
        margin = engine.margins(context, [constraint], method).item()
        assert Fraction(margin) <= optimum
        if spread == 0.0:
            assert margin >= float(optimum) - 1e-12 * size


@pytest.mark.parametrize("precision", list(Precision))
@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.0, 3.0, 8.0]),
    radius=st.sampled_from([0.0, 1e-8, 0.1]),
)
def test_rectified_networks_are_enclosed_exactly(
    tmp_path: Path, precision: Precision, seed: int, spread: float, radius: float
) -> None:
    network = load_network(layered(tmp_path / "n.onnx", seed, [3, 6, 5, 2], relu=True, spread=spread))
    centre = np.random.default_rng(seed).standard_normal(3)
    box = boxed(centre - radius, centre + radius)
    constraints = [
        row([0, 1], [1.0, -1.0]),
        row([0], [-3.0], Fraction(1, 7), inputs=[1], input_coefficients=[1e6]),
        row([], [], Fraction(-2, 3), inputs=[0, 2], input_coefficients=[0.1, -0.7]),
    ]
    engine = engine_of(network, precision)
    for method in METHODS:
        context = engine.context(box, method)
        margins = engine.margins(context, constraints, method).tolist()
        for point in corners_and_points(box, seed):
            assert_encloses(network, context, point)
            for margin, constraint in zip(margins, constraints, strict=True):
                assert Fraction(margin) <= exact_margin(network, point, constraint)


@pytest.mark.parametrize("method", METHODS)
def test_margins_of_inputs_alone_are_exact_to_the_last_digit(tmp_path: Path, method: Method) -> None:
    network = load_network(layered(tmp_path / "n.onnx", 0, [3, 4, 1], relu=True, spread=0.0))
    box = boxed([0.25, -1.0, 0.0], [0.5, 2.0, 0.0])
    constraint = row([], [], Fraction(3, 8), inputs=[0, 1], input_coefficients=[2.0, -0.5])
    engine = engine_of(network)
    assert engine.margins(engine.context(box, method), [constraint], method).item() == 0.5 - 1.0 - 0.375


@pytest.mark.parametrize("method", METHODS)
def test_coefficients_that_no_float64_holds_are_counted(tmp_path: Path, method: Method) -> None:
    """(1/3)·y₀ − (1/3)·y₁ at y₀ = y₁ + 2⁻²⁰·10⁹: what the float64 third misses must be subtracted."""
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    network = load_network(save(tmp_path / "n.onnx", nodes, {}, [1, 2], [1, 2]))
    point = [1e9, 1e-3]
    for third in (Fraction(1, 3), Fraction(-1, 3)):
        constraint = LinearConstraint(
            np.array([0, 1]),
            np.array([float(third), float(-third)]),
            bound=third * (Fraction(point[0]) - Fraction(point[1])),
            coeff_error=float(abs(Fraction(float(third)) - third)) * 1.001,
            exact_coeffs=(third, -third),
        )
        engine = engine_of(network)
        margin = engine.margins(engine.context(boxed(point, point), method), [constraint], method).item()
        assert -1e-6 < margin <= 0


@pytest.mark.parametrize("method", METHODS)
def test_a_margin_of_exactly_zero_excludes_only_what_is_strict(tmp_path: Path, method: Method) -> None:
    """relu(x) is never below 0 but can be 0."""
    network = save(tmp_path / "n.onnx", [helper.make_node("Relu", ["x"], ["y"], "relu")], {}, [1, 2], [1, 2])
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-1.0, -1.0], [1.0, 1.0], 2, "(assert (< Y_0 0.0))"))
    assert verify(network, prop, method=method).verdict is Verdict.VERIFIED
    prop.write_text(box_property([-1.0, -1.0], [1.0, 1.0], 2, "(assert (<= Y_0 0.0))"))
    assert verify(network, prop, method=method).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("method", METHODS)
def test_a_property_that_asks_nothing_of_the_outputs_is_violated_by_any_input(
    tmp_path: Path, method: Method
) -> None:
    network = save(tmp_path / "n.onnx", [helper.make_node("Relu", ["x"], ["y"], "relu")], {}, [1, 2], [1, 2])
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-1.0, -1.0], [1.0, 1.0], 2, ""))
    assert verify(network, prop, method=method).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("method", METHODS)
def test_tensors_that_are_used_twice(tmp_path: Path, method: Method, precision: Precision) -> None:
    """x + x, h − h and a residual: rows that come by two ways are joined, and what cancels is gone."""
    random = np.random.default_rng(0)
    constants = {
        "W": (1e4 * random.standard_normal((4, 4))).astype(np.float32),
        "b": random.standard_normal(4).astype(np.float32),
    }
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"], "twice"),
        helper.make_node("Gemm", ["twice", "W", "b"], ["h"], "fc"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Sub", ["r", "r"], ["nothing"], "nothing"),
        helper.make_node("Add", ["r", "x"], ["res"], "residual"),
        helper.make_node("Sub", ["res", "r"], ["back"], "back"),
        helper.make_node("Add", ["back", "nothing"], ["y"], "sum"),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [1, 4], [1, 4]))
    box = boxed([-1.0, 0.1, 0.3, -7.0], [0.5, 0.7, 0.3, 2.0])
    engine = engine_of(network, precision)
    context = engine.context(box, method)
    constraints = [row([i], [sign]) for i in range(4) for sign in (1.0, -1.0)]
    margins = engine.margins(context, constraints, method).tolist()
    for point in corners_and_points(box, 0, 16):
        assert_encloses(network, context, point)
        for margin, constraint in zip(margins, constraints, strict=True):
            assert Fraction(margin) <= exact_margin(network, point, constraint)
    if method is Method.CROWN:
        ends = [v for low, high in zip(box.lower, box.upper, strict=True) for v in (low, -high)]
        np.testing.assert_allclose(margins, ends, rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_several_inputs_and_outputs_an_input_and_a_constant_among_them(
    tmp_path: Path, method: Method
) -> None:
    random = np.random.default_rng(3)
    path = saved(
        tmp_path / "n.onnx",
        [
            helper.make_node("Gemm", ["p", "W"], ["h"], "fc"),
            helper.make_node("Relu", ["h"], ["r"], "relu"),
            helper.make_node("Add", ["r", "q"], ["s"], "sum"),
            helper.make_node("Identity", ["c"], ["k"], "copy"),
            helper.make_node("Add", ["s", "c"], ["t"], "moved"),
        ],
        {
            "W": random.standard_normal((2, 3)).astype(np.float32),
            "c": np.array([[0.1, -2.0, 3.0]], np.float32),
        },
        {"p": [1, 2], "q": [1, 3]},
        {"s": [1, 3], "k": [1, 3], "q": [1, 3], "t": [1, 3], "h": [1, 3]},
    )
    network = load_network(path)
    assert network.input_count == 5
    assert network.output_count == 15
    box = boxed([-1.0, 0.0, 0.1, 0.2, -0.3], [1.0, 0.5, 0.1, 0.9, 0.3])
    constraints = [
        row([0], [1.0]),
        row([4], [-1.0], 2),
        row([4], [1.0], -2, strict=True),
        row([7, 10], [1.0, -1.0]),
        row([0, 6], [1.0, -1.0], inputs=[2], input_coefficients=[0.3]),
        row([6], [1.0], inputs=[2], input_coefficients=[-1.0]),
        row([12, 13, 14], [0.1, 0.2, 0.3]),
    ]
    engine = engine_of(network)
    context = engine.context(box, method)
    margins = engine.margins(context, constraints, method).tolist()
    assert margins[1] == margins[2] == 0.0  # the constant output is −2
    for point in corners_and_points(box, 0, 16):
        assert_encloses(network, context, point)
        for margin, constraint in zip(margins, constraints, strict=True):
            assert Fraction(margin) <= exact_margin(network, point, constraint)
    if method is not Method.IBP:
        assert margins[5] == pytest.approx(0.0, abs=1e-12)  # the output q is the input q


@pytest.mark.parametrize("method", METHODS)
def test_an_output_that_another_output_reads_twice(tmp_path: Path, method: Method) -> None:
    """Rows that start at q meet those that come back from q + q, and so at the input x."""
    path = saved(
        tmp_path / "n.onnx",
        [
            helper.make_node("Relu", ["x"], ["q"], "relu"),
            helper.make_node("Add", ["q", "q"], ["d"], "twice"),
            helper.make_node("Add", ["x", "x"], ["e"], "input_twice"),
        ],
        {},
        {"x": [1, 1]},
        {"q": [1, 1], "d": [1, 1], "x": [1, 1], "e": [1, 1]},
    )
    network = load_network(path)
    box = boxed([1.5], [2.5])
    constraints = [
        row([0, 1], [1.0, 1.0], inputs=[0], input_coefficients=[1.0]),
        row([0, 1], [-1.0, 1.0]),
        row([2, 3], [-1.0, 1.0]),
        row([2, 3], [-3.0, 1.0]),
        row([0, 1, 2, 3], [1.0, -2.0, 3.0, -1.0]),
    ]
    engine = engine_of(network)
    margins = engine.margins(engine.context(box, method), constraints, method).tolist()
    for point in ([1.5], [2.0], [2.5]):
        for margin, constraint in zip(margins, constraints, strict=True):
            assert Fraction(margin) <= exact_margin(network, point, constraint)
    if method is not Method.IBP:
        np.testing.assert_allclose(margins, [6.0, 1.5, 1.5, -2.5, -5.0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_bounds_beyond_float64_prove_what_they_prove_and_no_more(tmp_path: Path, method: Method) -> None:
    network = load_network(layered(tmp_path / "n.onnx", 0, [2, 3, 1], relu=True, spread=0.0))
    engine = engine_of(network)
    context = engine.context(boxed([-1.0, -1.0], [1.0, 1.0]), method)
    huge = Fraction(10) ** 400
    below, above = engine.margins(context, [row([0], [1.0], -huge), row([0], [1.0], huge)], method).tolist()
    assert below > 0 > above


@pytest.mark.parametrize("scale", [1e-160, 1e-200, 1e-300, 5e-324])
def test_the_chord_of_a_rectifier_holds_where_products_underflow(tmp_path: Path, scale: float) -> None:
    """x/2 − relu(x) over [−s, s] is −s/2 at both ends: an intercept of s·s/2s must not become 0."""
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    network = load_network(save(tmp_path / "n.onnx", nodes, {}, [1, 1], [1, 1]))
    constraint = row([0], [-1.0], inputs=[0], input_coefficients=[0.5])
    for method, point in itertools.product(METHODS, (-scale, 0.0, scale)):
        engine = engine_of(network)
        context = engine.context(boxed([-scale], [scale]), method)
        margin = engine.margins(context, [constraint], method).item()
        assert Fraction(margin) <= exact_margin(network, [point], constraint)
        if method is Method.CROWN and scale > 5e-324:
            assert margin >= -0.5001 * scale - 1e-303


def test_margins_below_the_least_float64_are_not_taken_for_zero(tmp_path: Path) -> None:
    """10⁻²⁰⁰·y < 0 at y = −10⁻²⁰⁰: the product is no float64, yet the constraint holds."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"], "twice")]
    network = load_network(save(tmp_path / "n.onnx", nodes, {}, [1, 1], [1, 1]))
    engine = engine_of(network)
    for method in METHODS:
        context = engine.context(boxed([-1e-200], [1e-200]), method)
        assert engine.margins(context, [row([0], [1e-200], strict=True)], method).item() < 0


@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
def test_float32_rows_whose_coefficients_underflow(tmp_path: Path, method: Method) -> None:
    """Two linear layers of small weights: the product of the weights has two digits left in float32."""
    random = np.random.default_rng(1)
    constants = {
        "A": (1e-21 * random.standard_normal((6, 4))).astype(np.float32),
        "B": (1e-22 * random.standard_normal((6, 6))).astype(np.float32),
        "C": (1e20 * np.ones((1, 6))).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "A"], ["a"], "fc1", transB=1),
        helper.make_node("Gemm", ["a", "B"], ["h"], "fc2", transB=1),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "C"], ["y"], "fc3", transB=1),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [1, 4], [1, 1]))
    centre = 1e20 * random.standard_normal(4)
    for radius in (1e16, 1e19):
        box = boxed(centre - radius, centre + radius)
        context = engine_of(network).context(box, method)
        for point in corners_and_points(box, 0, 32):
            assert_encloses(network, context, point)
