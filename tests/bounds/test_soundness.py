"""Every interval of every tensor holds what the network computes, whatever the method, chunk or arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.network import load_network
from boundscope.properties.types import LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.enclosure import assert_contains, box_around, engine_of
from support.models import convnet, mlp, save

SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN])
@SETTINGS
@given(
    seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 1e-6, 0.05, 0.5, 3.0]), depth=st.integers(1, 4)
)
def test_fully_connected_values_lie_inside(
    tmp_path: Path, method: Method, seed: int, radius: float, depth: int
) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [5, *[9] * depth, 3], seed))
    centre = np.random.default_rng(seed).standard_normal(5)
    assert_contains(network, box_around(centre, radius), method, Arithmetic.REAL, seed)


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN])
@SETTINGS
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 0.01, 0.3]), side=st.sampled_from([5, 6, 7]))
def test_residual_convolutional_values_lie_inside(
    tmp_path: Path, method: Method, seed: int, radius: float, side: int
) -> None:
    network = load_network(convnet(tmp_path / "n.onnx", seed, side=side))
    centre = np.random.default_rng(seed).standard_normal(2 * side * side)
    assert_contains(network, box_around(centre, radius), method, Arithmetic.REAL, seed)


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN])
@SETTINGS
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 1e-7, 0.02]))
def test_float32_values_lie_inside_the_float32_bounds(
    tmp_path: Path, method: Method, seed: int, radius: float
) -> None:
    """A point box in float32 has no width but the rounding's, so an error term too small would show."""
    network = load_network(convnet(tmp_path / "n.onnx", seed))
    centre = np.random.default_rng(seed).standard_normal(72).astype(np.float32).astype(np.float64)
    assert_contains(network, box_around(centre, radius), method, Arithmetic.FLOAT32, seed)


def test_crown_is_never_looser_than_intervals_on_a_deep_network(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [6, 20, 20, 20, 4], 3))
    box = box_around(np.zeros(6), 0.3)
    engine = engine_of(network)
    ibp, crown = engine.context(box, Method.IBP), engine.context(box, Method.CROWN)
    for name, interval in ibp.intervals.items():
        assert bool((crown.intervals[name].lower >= interval.lower).all()), name
        assert bool((crown.intervals[name].upper <= interval.upper).all()), name
    rows = [LinearConstraint(np.array([0, 1]), np.array([1.0, -1.0]), bound=Fraction(0))]
    assert engine.margins(crown, rows).item() > engine.margins(ibp, rows, Method.IBP).item()


def test_a_linear_network_is_bounded_exactly_up_to_rounding(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 3], 1))
    box = box_around(np.array([0.5, -1.0, 2.0, 0.0]), np.array([0.1, 0.2, 0.0, 1.0]))
    context = engine_of(network).context(box, Method.CROWN)
    weight = network.constants["W1"].astype(np.float64)
    bias = network.constants["b1"].astype(np.float64)
    centre, radius = (box.lower + box.upper) / 2, (box.upper - box.lower) / 2
    lower = weight @ centre + bias - np.abs(weight) @ radius
    np.testing.assert_allclose(context.intervals["y"].lower.flatten().numpy(), lower, rtol=0, atol=1e-13)


@pytest.mark.parametrize("chunk_rows", [16, 32, 64, 256])
def test_bounds_are_the_same_bits_for_every_chunk_size(tmp_path: Path, chunk_rows: int) -> None:
    """Rows are independent, and a product of 16 rows or more takes the same kernel."""
    network = load_network(mlp(tmp_path / "n.onnx", [40, 128, 128, 10], 5))
    box = box_around(np.random.default_rng(0).standard_normal(40), 0.05)
    reference = engine_of(network, chunk_rows=128).context(box, Method.CROWN)
    other = engine_of(network, chunk_rows=chunk_rows).context(box, Method.CROWN)
    for name, interval in reference.intervals.items():
        assert torch.equal(interval.lower, other.intervals[name].lower), name
        assert torch.equal(interval.upper, other.intervals[name].upper), name


def test_a_weight_folded_at_load_is_bounded_with_its_rounding(tmp_path: Path) -> None:
    """x·(A·B) with A·B folded in float32: over the reals the product is another matrix, and must lie inside."""
    random = np.random.default_rng(0)
    constants = {name: random.standard_normal((6, 6)).astype(np.float32) for name in ("A", "B")}
    nodes = [
        helper.make_node("MatMul", ["A", "B"], ["W"], "fold"),
        helper.make_node("MatMul", ["x", "W"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["y"], "relu"),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [1, 6], [1, 6]))
    assert network.rounded_constants["W"] > 0
    exact = constants["A"].astype(np.float64) @ constants["B"].astype(np.float64)
    point = random.standard_normal(6)
    context = engine_of(network).context(box_around(point, 0.0), Method.CROWN)
    hidden = context.intervals["h"]
    assert bool((hidden.lower.flatten().numpy() <= point @ exact).all())
    assert bool((hidden.upper.flatten().numpy() >= point @ exact).all())
    row = LinearConstraint(np.arange(6), np.ones(6), bound=Fraction(0))
    margin = engine_of(network).margins(context, [row]).item()
    assert margin <= np.maximum(point @ exact, 0).sum() < margin + 1e-4


def test_a_constant_folded_at_load_counts_where_it_is_only_compared(tmp_path: Path) -> None:
    """max(x, a·b) with a·b folded in float32: over the reals the product lies elsewhere, and must lie inside."""
    constants = {"a": np.float32([0.1, 1 / 3]), "b": np.float32([0.7, 3.3])}
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"], "fold"),
        helper.make_node("Max", ["x", "c"], ["y"], "max"),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [1, 2], [1, 2]))
    exact = constants["a"].astype(np.float64) * constants["b"].astype(np.float64)
    assert (network.constants["c"].astype(np.float64) != exact).any()
    for method in (Method.IBP, Method.CROWN):
        interval = engine_of(network).context(box_around(np.full(2, -5.0), 0.0), method).intervals["y"]
        assert bool((interval.lower.flatten().numpy() <= exact).all())
        assert bool((interval.upper.flatten().numpy() >= exact).all())
