"""Maxima and minima over windows, axes and operands: sound for every free parameter, and as tight as a plane can be."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds.operators.candidates import Windowed
from boundscope.bounds.operators.maximum import CandidatePlanes
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties import read_property
from boundscope.properties.types import LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, assert_holds, box_of, engine_of, network_of

SETTINGS = settings(
    max_examples=18,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
RADII = st.sampled_from([0.0, 1e-12, 0.05, 1.0, 1e6])


@dataclass(frozen=True)
class Kind:
    """A node on a mixed copy "h" of the input, shaped; further operands are other mixtures "g" or constants."""

    op: str
    shape: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    opset: int = 13


IMAGE = (1, 2, 5, 6)
KINDS = (
    Kind("MaxPool", IMAGE, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Kind("MaxPool", IMAGE, {"kernel_shape": [2, 3], "pads": [1, 0, 0, 2], "strides": [1, 2]}),
    Kind("MaxPool", IMAGE, {"kernel_shape": [3, 2], "strides": [2, 4], "ceil_mode": 1}),
    Kind("MaxPool", IMAGE, {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    Kind("MaxPool", (1, 3, 8), {"kernel_shape": [3], "auto_pad": "SAME_UPPER", "strides": [2]}),
    Kind("GlobalMaxPool", IMAGE),
    Kind("ReduceMax", (2, 3, 4), {"axes": [0, 2]}),
    Kind("ReduceMax", (2, 3, 4), {"keepdims": 0}),
    Kind("ReduceMin", (2, 3, 4), {"axes": [-1], "keepdims": 0}),
    Kind("Max", (2, 3), {}, ("g",)),
    Kind("Min", (2, 3), {}, ("g", "fixed")),
    Kind("Max", (2, 3), {}, ("row", "h")),
    Kind("Min", (2, 3), {}, ("fixed",)),
    Kind("Max", (2, 3), {}, ("fixed",)),
)


def network_with(folder: Path, kind: Kind, seed: int, inputs: int = 4) -> Network:
    """Gemm to the node's operands, the node, and a sum of its outputs with the input's first mixture."""
    random = np.random.default_rng(seed)
    size = int(np.prod(kind.shape))
    last = kind.shape[-1:]  # of a scalar none
    constants = {
        "W": random.standard_normal((size, inputs)).astype(np.float32),
        "V": random.standard_normal((size, inputs)).astype(np.float32),
        "U": random.standard_normal((math.prod(last), inputs)).astype(np.float32),
        "shape": np.array(kind.shape, np.int64),
        "long": np.array(last, np.int64),
        "fixed": random.standard_normal(last).astype(np.float32),
        "flat": np.array([1, -1], np.int64),
        "scale": np.array(1.5, np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["hx"], "mix_h", transB=1),
        helper.make_node("Reshape", ["hx", "shape"], ["h"], "shape_h"),
    ]
    if "g" in kind.more:
        nodes += [
            helper.make_node("Gemm", ["x", "V"], ["gx"], "mix_g", transB=1),
            helper.make_node("Reshape", ["gx", "shape"], ["g"], "shape_g"),
        ]
    if "row" in kind.more:
        nodes += [
            helper.make_node("Gemm", ["x", "U"], ["ux"], "mix_u", transB=1),
            helper.make_node("Reshape", ["ux", "long"], ["row"], "shape_u"),
        ]
    nodes += [
        helper.make_node(kind.op, ["h", *kind.more], ["m"], "tested", **kind.attributes),
        helper.make_node("Reshape", ["m", "flat"], ["f"], "flat"),
        helper.make_node("Mul", ["f", "scale"], ["y"], "scaled"),
    ]
    read = {name for node in nodes for name in node.input}
    used = {name: value for name, value in constants.items() if name in read}
    return network_of(folder, nodes, inputs, used, opset=kind.opset)


@pytest.mark.parametrize("method", METHODS)
@SETTINGS
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10**6), radius=RADII)
def test_values_lie_inside(tmp_path: Path, method: Method, kind: Kind, seed: int, radius: float) -> None:
    network = network_with(tmp_path, kind, seed)
    centre = np.random.default_rng(seed).standard_normal(4)
    assert_holds(network, centre - radius, centre + radius, method, seed=seed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("other", ["g", "fixed", "h"])
def test_of_scalars(tmp_path: Path, method: Method, op: str, other: str) -> None:
    centre = np.random.default_rng(2).standard_normal(4)
    for radius in (0.0, 0.3):
        network = network_with(tmp_path, Kind(op, (), {}, (other,)), seed=1)
        assert_holds(network, centre - radius, centre + radius, method, seed=1)


@pytest.mark.parametrize("method", METHODS)
@SETTINGS
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 1e-6, 0.3]))
def test_float32_values_lie_inside(
    tmp_path: Path, method: Method, kind: Kind, seed: int, radius: float
) -> None:
    """At a point the interval has no width but the rounding's of the products before the node."""
    network = network_with(tmp_path, kind, seed)
    centre = np.random.default_rng(seed).standard_normal(4).astype(np.float32).astype(np.float64)
    assert_holds(network, centre - radius, centre + radius, method, Arithmetic.FLOAT32, seed=seed)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@SETTINGS
@given(
    ends=st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 3)).map(lambda pair: (pair[0], pair[0] + pair[1])),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 10**6),
)
def test_planes_hold_at_every_corner_for_every_theta(
    tmp_path: Path, op: str, ends: list[tuple[int, int]], seed: int
) -> None:
    """The difference of a plane and a maximum is largest at a corner of the box: whole numbers, so ties abound."""
    nodes = [helper.make_node(op, ["x"], ["y"], "tested", axes=[1], keepdims=0)]
    network = network_of(tmp_path, nodes, len(ends))
    lower, upper = (np.array(side, dtype=np.float64) for side in zip(*ends, strict=True))
    context = engine_of(network).context(box_of(lower, upper), Method.IBP)
    (node,) = network.nodes
    rule = context.rule(node)
    random = np.random.default_rng(seed)
    corners = np.array(list(itertools.product(*ends)), dtype=np.float64)
    exact = corners.max(1) if op == "ReduceMax" else corners.min(1)
    with context.view(node) as view:
        default = rule.theta(view)
        count = 12
        theta = torch.from_numpy(random.random((count, *default.shape)).round(1))
        theta[0], theta[1] = 0.0, 1.0
        for relaxation in (rule.relax(view, theta), rule.relax(view)):
            for sign in (1.0, -1.0):
                (slopes,), constant = relaxation.through(torch.full((count, 1), sign, dtype=torch.float64))
                assert slopes is not None
                plane = slopes.reshape(count, -1).numpy() @ corners.T + constant.numpy()[:, None]
                assert (plane <= sign * exact + 1e-12).all()


@SETTINGS
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10**6))
def test_the_upper_plane_touches_and_its_mean_is_no_larger_than_any_constant(
    tmp_path: Path, kind: Kind, seed: int
) -> None:
    """No other plane of the same slopes is lower, and a constant is among the planes to choose from."""
    network = network_with(tmp_path, kind, seed)
    centre = np.random.default_rng(seed).standard_normal(4)
    context = engine_of(network).context(box_of(centre - 0.3, centre + 0.3), Method.IBP)
    (node,) = (node for node in network.nodes if node.name == "tested")
    rule = context.rule(node)
    with context.view(node) as view:
        relaxation = rule.relax(view)
        assert isinstance(relaxation, CandidatePlanes)
        ends = rule._ends(view)
        (interval,) = rule.interval(view)
    slopes, intercept = (
        (relaxation.upper, relaxation.upper_intercept)
        if rule.sign > 0
        else (relaxation.lower, -relaxation.lower_intercept)  # type: ignore[operator]
    )
    assert intercept is not None
    width = ends.upper - ends.lower
    # At the corner where candidate k is at its upper end and all others at their lower ends.
    there = (slopes * ends.lower).sum(0) + intercept + slopes * width
    value = torch.maximum(ends.upper, ends.floor)
    assert torch.allclose((there - value).amin(0), torch.zeros_like(intercept), atol=1e-12)
    mean = (slopes * (ends.lower + ends.upper) / 2).sum(0) + intercept
    largest = interval.upper if rule.sign > 0 else -interval.lower
    assert bool((mean <= largest + 1e-12).all())


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("ends", [((0, 1), (0, 1)), ((-1, 2), (0, 1)), ((-1, 1), (0, 3)), ((-2, 1), (-1, 5))])
def test_two_overlapping_operands_reach_the_exact_optimum_with_alpha(
    tmp_path: Path, op: str, ends: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    """Of a·x + b·y ± max(x, y): from above the free level spans the convex hull's facets, from below the free
    weights every supporting plane. The optimum of the concave ones lies at a corner."""
    constants = {
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
    }
    nodes: list[onnx.NodeProto] = [
        helper.make_node("Slice", ["x", "zero", "one", "one"], ["a"], "first"),
        helper.make_node("Slice", ["x", "one", "two", "one"], ["b"], "second"),
        helper.make_node(op, ["a", "b"], ["m"], "tested"),
        helper.make_node("Concat", ["a", "b", "m"], ["y"], "all", axis=1),
    ]
    network = network_of(tmp_path, nodes, 2, constants)
    lower, upper = (np.array(side, dtype=np.float64) for side in zip(*ends, strict=True))
    grid = np.array(list(itertools.product(*(np.linspace(*pair, 61) for pair in ends))))
    extreme = grid.max(1) if op == "Max" else grid.min(1)
    random = np.random.default_rng(5)
    engine = engine_of(network)
    context = engine.context(box_of(lower, upper), Method.ALPHA_CROWN)
    for sign in (1.0, -1.0):
        rows = [np.array([*random.uniform(-1, 1, 2), sign]) for _ in range(6)]
        constraints = [LinearConstraint(np.arange(3), row, bound=Fraction(0)) for row in rows]
        proven = engine.margins(context, constraints, Method.ALPHA_CROWN).numpy()
        optimum = np.array([(grid @ row[:2] + sign * extreme).min() for row in rows])
        assert (proven <= optimum + 1e-9).all()
        assert (optimum - proven <= 0.05 * float(np.max(upper - lower))).all(), (sign, optimum - proven)


@pytest.mark.parametrize("own", [True, False])
def test_what_windows_give_has_the_right_gradient(own: bool) -> None:
    """Overlapping windows with padding, slopes of each row's own or shared; against finite differences."""
    windows = Windowed((1, 2, 4, 3), (2, 2), (1, 2), (1, 0, 0, 1), (2, 1))
    random = torch.Generator().manual_seed(0)
    sizes = windows.ends([torch.zeros(1, 2, 4, 3)], [torch.ones(1, 2, 4, 3)]).lower.shape

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_()

    slopes = (2, *sizes) if own else sizes
    rows = (2, *sizes[1:])
    assert torch.autograd.gradcheck(
        lambda a, b, c, d: windows.carry(a, b, c, d)[0],
        (some(*rows), some(*slopes), some(*rows), some(*slopes)),
    )


def test_a_dominating_candidate_is_passed_on_exactly(tmp_path: Path) -> None:
    """Where one element of every window is the largest all over the box, the pool is linear and so is its bound."""
    random = np.random.default_rng(0)
    kind = Kind("MaxPool", IMAGE, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})
    network = network_with(tmp_path, kind, 3, inputs=6)
    centre = random.standard_normal(6) * 10
    lower, upper = centre - 1e-4, centre + 1e-4
    engine = engine_of(network)
    context = engine.context(box_of(lower, upper), Method.CROWN)
    weight = network.constants["W"].astype(np.float64)
    pooled = torch.nn.functional.max_pool2d(
        torch.from_numpy(weight @ centre).reshape(IMAGE), 3, 2, 1, return_indices=True
    )[1]
    chosen = (pooled + torch.tensor([0, 30]).reshape(1, 2, 1, 1)).flatten().numpy()
    row = random.standard_normal(len(chosen))
    margin = engine.margins(
        context, [LinearConstraint(np.arange(len(row)), row, bound=Fraction(0))], Method.CROWN
    ).item()
    slope = 1.5 * row @ weight[chosen]
    expected = slope @ centre - np.abs(slope) @ ((upper - lower) / 2)
    assert margin == pytest.approx(expected, abs=1e-7)


def test_elements_that_are_never_the_largest_are_not_wanted(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceMax", ["x"], ["y"], "tested", axes=[1])]
    network = network_of(tmp_path, nodes, 4)
    context = engine_of(network).context(
        box_of(np.array([0.0, 1.0, -3.0, 2.0]), np.array([3.0, 2.5, 1.5, 2.0])), Method.IBP
    )
    (node,) = network.nodes
    wanted = context.rule(node).wanted(node.op, 0, context.intervals["x"])
    assert wanted.tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("arithmetic", list(Arithmetic))
def test_padding_is_never_the_largest(cases: Path, method: Method, arithmetic: Arithmetic) -> None:
    """All inputs are negative: padding with zeros would give zero."""
    network = load_network(cases / "ONX-01" / "model.onnx")
    box = read_property(cases / "ONX-01" / "prop.vnnlib").cases[0].box
    engine = engine_of(network, arithmetic)
    context = engine.context(box, method)
    rows = [LinearConstraint(np.array([0]), np.array([sign]), bound=Fraction(0)) for sign in (1.0, -1.0)]
    lowest, highest = engine.margins(context, rows, method).tolist()
    assert -3.0 - 1e-3 <= lowest <= -3.0
    assert 1.0 - 1e-3 <= highest <= 1.0
    assert_holds(network, box.lower, box.upper, method, arithmetic)
