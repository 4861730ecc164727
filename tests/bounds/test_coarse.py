"""Comparisons, choices, indices and casts: sound everywhere, exact where the bounds decide."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from boundscope.bounds.operators import rule_of
from boundscope.errors import BoundError
from boundscope.network.graph import Network
from boundscope.properties.types import LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, assert_holds, box_of, engine_of, network_of

SETTINGS = settings(
    max_examples=16,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Nodes = Sequence[onnx.NodeProto]
N = helper.make_node
SIZE = 3

# Each takes "h" [1, 3], a mixture of the input, and gives "y". Opset 12, where axes are still attributes.
GRAPHS: dict[str, Nodes] = {
    "less": [N("Less", ["h", "k"], ["b"]), N("Cast", ["b"], ["y"], to=FLOAT)],
    "greater or equal": [N("GreaterOrEqual", ["k", "h"], ["b"]), N("Cast", ["b"], ["y"], to=FLOAT)],
    "logic": [
        N("Less", ["h", "k"], ["a"]),
        N("Greater", ["h", "m"], ["b"]),
        N("And", ["a", "b"], ["and"]),
        N("Or", ["a", "b"], ["or"]),
        N("Not", ["or"], ["not"]),
        N("Cast", ["and"], ["p"], to=INT64),
        N("Cast", ["p"], ["pf"], to=FLOAT),
        N("Cast", ["not"], ["q"], to=FLOAT),
        N("Sub", ["pf", "q"], ["y"]),
    ],
    "equal integers": [
        N("Cast", ["h"], ["i"], to=TensorProto.INT32),
        N("Equal", ["i", "count32"], ["b"]),
        N("Cast", ["b"], ["c"], to=INT64),
        N("ReduceSum", ["c"], ["s"], axes=[1]),
        N("Cast", ["s"], ["y"], to=FLOAT),
    ],
    "argmax": [N("ArgMax", ["h"], ["i"], axis=1), N("Cast", ["i"], ["y"], to=FLOAT)],
    "one hot": [
        N("ArgMax", ["h"], ["i"], axis=1, keepdims=0),
        N("OneHot", ["i", "three", "values"], ["hot"], axis=-1),
        N("Mul", ["hot", "k"], ["y"]),
    ],
    "one hot of any index": [
        N("Cast", ["h"], ["i"], to=INT64),
        N("OneHot", ["i", "depth", "values"], ["y"], axis=1),
    ],
    "choice": [N("Less", ["h", "k"], ["b"]), N("Where", ["b", "h", "m"], ["y"])],
    "choice of two": [
        N("Less", ["h", "k"], ["b"]),
        N("Neg", ["h"], ["n"]),
        N("ReduceSum", ["h"], ["s"], axes=[1]),
        N("Where", ["b", "n", "s"], ["y"]),
    ],
    "fixed choice": [N("Neg", ["h"], ["n"]), N("Where", ["mask", "h", "n"], ["y"])],
    "fixed choice of a constant": [N("Where", ["mask", "h", "k"], ["y"])],
    "towards zero": [
        N("Cast", ["h"], ["i"], to=INT64),
        N("Cast", ["i"], ["f"], to=FLOAT),
        N("Sub", ["f", "h"], ["y"]),
    ],
    "truth": [N("Cast", ["h"], ["b"], to=BOOL), N("Cast", ["b"], ["y"], to=FLOAT)],
    "integer division": [
        N("Cast", ["h"], ["i"], to=INT64),
        N("Div", ["i", "two"], ["d"]),
        N("Cast", ["d"], ["y"], to=FLOAT),
    ],
    "gather": [
        N("ArgMax", ["h"], ["i"], axis=1, keepdims=0),
        N("Sub", ["i", "one"], ["j"]),
        N("Gather", ["h", "j"], ["y"], axis=1),
    ],
    "slice": [
        N("Min", ["h", "far"], ["low"]),
        N("ArgMax", ["low"], ["i"], axis=1, keepdims=0),
        N("Add", ["i", "two"], ["stop"]),
        N("Slice", ["table", "i", "stop", "zero"], ["t"]),
        N("Reshape", ["t", "row"], ["y"]),
    ],
    "written where the input says": [
        N("ArgMax", ["h"], ["i"], axis=1),
        N("ScatterND", ["h", "place", "one_by_one"], ["w"]),
        N("Reshape", ["h", "long"], ["v"]),
        N("ScatterND", ["v", "i", "first"], ["z"]),
        N("Add", ["w", "z"], ["y"]),
    ],
    "product": [N("ReduceProd", ["h"], ["y"], axes=[1])],
    "sum": [N("ReduceSum", ["h"], ["s"], axes=[1]), N("Sum", ["h", "s", "k", "h"], ["y"])],
    "resized": [
        N("Reshape", ["h", "image"], ["i"]),
        N("Resize", ["i", "nowhere", "scales"], ["r"], mode="linear"),
        N("Reshape", ["r", "row"], ["y"]),
    ],
    "double": [N("Cast", ["h"], ["d"], to=TensorProto.DOUBLE), N("Cast", ["d"], ["y"], to=FLOAT)],
}
CONSTANTS: dict[str, NDArray] = {
    "k": np.array([0.25, -1.0, 0.5], np.float32),
    "m": np.array([[0.0, -2.0, 1.5]], np.float32),
    "count32": np.array([0, -1, 1], np.int32),
    "depth": np.array([4], np.int64),
    "three": np.array([3], np.int64),
    "values": np.array([-0.5, 2.0], np.float32),
    "mask": np.array([[True, False, True]]),
    "one": np.array([1], np.int64),
    "two": np.array([2], np.int64),
    "zero": np.array([0], np.int64),
    "far": np.array([-1e5, 1e5, -1e5], np.float32),
    "table": np.array([[3.0], [1.0], [-4.0], [1.5]], np.float32),
    "row": np.array([1, -1], np.int64),
    "long": np.array([-1], np.int64),
    "place": np.array([[0, 1]], np.int64),
    "one_by_one": np.array([7.5], np.float32),
    "first": np.array([-7.5], np.float32),
    "image": np.array([1, 1, 1, 3], np.int64),
    "nowhere": np.zeros(0, np.float32),
    "scales": np.array([1, 1, 2, 2.5], np.float32),
}


def network_with(folder: Path, graph: str, seed: int | None) -> Network:
    """The graph after a mixture of four inputs, or straight on three inputs where there is no seed."""
    nodes, constants, size = list(GRAPHS[graph]), dict(CONSTANTS), SIZE
    if seed is None:
        nodes.insert(0, N("Identity", ["x"], ["h"]))
    else:
        size = 4
        constants["W"] = np.random.default_rng(seed).standard_normal((SIZE, size)).astype(np.float32)
        nodes.insert(0, N("Gemm", ["x", "W"], ["h"], "mix", transB=1))
    read = {name for node in nodes for name in node.input}
    used = {name: value for name, value in constants.items() if name in read}
    return network_of(folder, nodes, size, used, opset=12)


@pytest.mark.parametrize("method", METHODS)
@SETTINGS
@given(
    graph=st.sampled_from(sorted(GRAPHS)),
    seed=st.integers(0, 10**6),
    radius=st.sampled_from([0.0, 1e-12, 0.05, 1.0, 100.0]),
)
def test_values_lie_inside(tmp_path: Path, method: Method, graph: str, seed: int, radius: float) -> None:
    network = network_with(tmp_path, graph, seed)
    centre = np.random.default_rng(seed).standard_normal(4)
    lower, upper = centre - radius, centre + radius
    assert_holds(network, lower, upper, method, seed=seed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("graph", sorted(GRAPHS))
@pytest.mark.parametrize("radius", [0.0, 0.4])
def test_float32_values_lie_inside(tmp_path: Path, graph: str, method: Method, radius: float) -> None:
    network = network_with(tmp_path, graph, 1)
    centre = np.random.default_rng(2).standard_normal(4).astype(np.float32).astype(np.float64)
    assert_holds(network, centre - radius, centre + radius, method, Arithmetic.FLOAT32)


def ends(
    network: Network,
    lower: Sequence[float],
    upper: Sequence[float],
    arithmetic: Arithmetic = Arithmetic.REAL,
) -> list[list[float]]:
    """Lower and upper ends of the output, from intervals."""
    box = box_of(np.array(lower, float), np.array(upper, float))
    interval = engine_of(network, arithmetic).context(box, Method.IBP).intervals["y"]
    return [interval.lower.flatten().tolist(), interval.upper.flatten().tolist()]


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize(
    ("graph", "lower", "upper", "expected"),
    [
        ("less", [0.0, -0.5, 0.0], [0.2, 0.5, 0.6], [[1, 0, 0], [1, 0, 1]]),
        ("argmax", [0.0, 2.0, -1.0], [1.0, 3.0, 1.9], [[1], [1]]),
        ("argmax", [0.0, 2.0, -1.0], [1.0, 3.0, 2.5], [[1], [2]]),
        ("truth", [-1.0, 0.5, -2.0], [1.0, 0.6, -1.0], [[0, 1, 1], [1, 1, 1]]),
        ("equal integers", [0.1, -1.9, 1.0], [0.9, -1.1, 1.9], [[3], [3]]),
        ("integer division", [-5.9, 3.0, 6.0], [-4.0, 3.9, 9.0], [[-2, 1, 3], [-2, 1, 4]]),
        ("choice", [0.0, 1.0, 0.0], [0.1, 2.0, 1.0], [[0.0, -2.0, 0.0], [0.1, -2.0, 1.5]]),
        ("gather", [0.0, 2.0, -1.0], [1.0, 3.0, 1.0], [[0.0], [1.0]]),
        ("one hot", [0.0, 2.0, -1.0], [1.0, 3.0, 1.0], None),
    ],
)
def test_what_the_bounds_decide_is_exact(
    tmp_path: Path,
    graph: str,
    lower: list[float],
    upper: list[float],
    expected: list[list[float]] | None,
    arithmetic: Arithmetic,
) -> None:
    """In either arithmetic: none of these operators rounds, nor does any sum of integers."""
    if graph == "one hot":
        network = network_of(
            tmp_path,
            [
                N("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
                N("OneHot", ["i", "depth", "values"], ["y"], axis=-1),
            ],
            3,
            {"depth": CONSTANTS["depth"], "values": CONSTANTS["values"]},
        )
        expected = [[-0.5, 2.0, -0.5, -0.5], [-0.5, 2.0, -0.5, -0.5]]
    else:
        network = network_with(tmp_path, graph, None)
    assert ends(network, lower, upper, arithmetic) == expected


def test_a_cast_to_an_integer_follows_its_input_over_a_wide_interval(tmp_path: Path) -> None:
    """trunc(x) − x stays within one of zero however wide the box, since the cast has lines of slope one."""
    network = network_with(tmp_path, "towards zero", None)
    engine = engine_of(network)
    context = engine.context(box_of(np.array([-1e3, 0.0, -5.0]), np.array([1e3, 1e4, 0.0])), Method.CROWN)
    rows = []
    for element in range(3):
        for sign in (1.0, -1.0):
            coefficients = np.zeros(3)
            coefficients[element] = sign
            rows.append(LinearConstraint(np.arange(3), coefficients, bound=Fraction(0)))
    margins = engine.margins(context, rows, Method.CROWN).numpy()
    np.testing.assert_allclose(margins, [-1, -1, -1, 0, 0, -1], rtol=0, atol=1e-2)


def test_a_value_that_the_integer_type_does_not_hold_can_become_any(tmp_path: Path) -> None:
    nodes = [N("Cast", ["x"], ["i"], to=TensorProto.INT8), N("Cast", ["i"], ["y"], to=FLOAT)]
    network = network_of(tmp_path, nodes, 3)
    assert ends(network, [-3.5, 100.0, 1e20], [2.5, 128.0, 1e20]) == [[-3, -128, -128], [2, 127, 127]]


def test_what_is_read_beyond_the_data_is_an_error_that_names_the_node(tmp_path: Path) -> None:
    nodes = [
        N("Cast", ["x"], ["i"], to=INT64),
        N("Gather", ["table", "i"], ["y"], "reader", axis=0),
    ]
    network = network_of(tmp_path, nodes, 1, {"table": np.arange(4, dtype=np.float32)})
    assert ends(network, [-2.0], [1.0]) == [[0], [3]]
    assert ends(network, [-2.0], [-1.0]) == [[2], [3]]
    with pytest.raises(BoundError, match=r"reader.*outside an axis of 4"):
        ends(network, [4.0], [5.0])


@pytest.mark.parametrize(
    ("upper", "message"), [(5.0, r"cut.*not the same all over the box"), (4.0, r"cut.*gives shape \[0\]")]
)
def test_a_slice_whose_shape_the_input_decides_is_an_error_that_names_the_node(
    tmp_path: Path, upper: float, message: str
) -> None:
    """A runtime goes on with fewer elements, so that a bound for the static shape would say nothing of it."""
    nodes = [
        N("Cast", ["x"], ["j"], to=INT64),
        N("Reshape", ["j", "long"], ["i"]),
        N("Add", ["i", "one"], ["stop"]),
        N("Slice", ["flat", "i", "stop", "zero"], ["y"], "cut"),
    ]
    constants = {name: CONSTANTS[name] for name in ("one", "zero", "long")}
    network = network_of(tmp_path, nodes, 1, {**constants, "flat": np.arange(4, dtype=np.float32)})
    assert ends(network, [3.0], [3.5]) == [[3], [3]]
    with pytest.raises(BoundError, match=message):
        ends(network, [4.0], [upper])


@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
def test_a_decided_choice_goes_back_exactly(tmp_path: Path, method: Method) -> None:
    """Where the condition is decided the branch is passed on with its slope, so that h − h cancels."""
    nodes = [
        N("Gemm", ["x", "W"], ["h"], "mix", transB=1),
        N("Less", ["h", "far"], ["b"]),
        N("Where", ["b", "h", "far"], ["w"]),
        N("Sub", ["w", "h"], ["y"]),
    ]
    constants = {"W": np.eye(3, dtype=np.float32), "far": np.array([9.0], np.float32)}
    network = network_of(tmp_path, nodes, 3, constants)
    engine = engine_of(network)
    context = engine.context(box_of(-np.ones(3), np.ones(3)), method)
    rows = [LinearConstraint(np.arange(3), np.array([1.0, -2.0, 0.5]), bound=Fraction(0))]
    assert engine.margins(context, rows, method).item() == pytest.approx(0.0, abs=1e-10)


def test_half_precision_inside_a_network_is_refused(tmp_path: Path) -> None:
    """The error terms of float32 do not cover it."""
    nodes = [N("Cast", ["x"], ["d"], to=TensorProto.FLOAT16), N("Cast", ["d"], ["y"], to=FLOAT)]
    network = network_of(tmp_path, nodes, 2)
    rule = rule_of(network.nodes[0].op)
    assert rule is not None
    assert "half precision" in str(rule.supports([True], network.nodes[0].op))


def test_a_large_integer_is_rounded_by_its_cast_to_float32(tmp_path: Path) -> None:
    """2²⁴ + 1 is no float32: the deployed arithmetic gives a neighbour, the real one the number itself."""
    nodes = [
        N("Cast", ["x"], ["i"], to=INT64),
        N("Add", ["i", "large"], ["j"]),
        N("Cast", ["j"], ["y"], to=FLOAT),
    ]
    network = network_of(tmp_path, nodes, 1, {"large": np.array([2**24], np.int64)})
    for arithmetic in Arithmetic:
        context = engine_of(network, arithmetic).context(box_of(np.ones(1), np.ones(1)), Method.IBP)
        interval = context.intervals["y"]
        assert float(interval.lower) <= 2**24 + 1 <= float(interval.upper)
        if arithmetic is not Arithmetic.REAL:
            rounded = float(torch.tensor(2**24 + 1).to(torch.float32))
            assert float(interval.lower) <= rounded <= float(interval.upper)
