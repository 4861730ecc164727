"""LayerNormalization: values lie inside, for every choice of planes, and no variance is lost in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds.backward import BackwardPass
from boundscope.errors import BoundError
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, box_around, corners_and_points, engine_of, values_at
from support.models import save


def normalised(path: Path, seed: int, axis: int, *, bias: bool = True) -> Network:
    """A layer, LayerNormalization of its [2, 2, 4] output from `axis` on, and a layer after it."""
    random = np.random.default_rng(seed)
    shape = (2, 2, 4)[axis:]
    constants = {
        "W": random.standard_normal((3, 4)).astype(np.float32),
        "gamma": random.standard_normal(shape).astype(np.float32),
        "beta": random.standard_normal(shape).astype(np.float32),
        "V": random.standard_normal((4, 2)).astype(np.float32),
    }
    inputs = ["z", "gamma", "beta"] if bias else ["z", "gamma"]
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["z"], "z"),
        helper.make_node("LayerNormalization", inputs, ["n"], "norm", axis=axis),
        helper.make_node("MatMul", ["n", "V"], ["y"], "y"),
    ]
    return load_network(save(path, nodes, constants, [2, 2, 3], [2, 2, 2], opset=17))


@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
@pytest.mark.parametrize("method", METHODS)
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 10**6),
    radius=st.sampled_from([0.0, 1e-7, 1e-3, 0.03]),
    axis=st.sampled_from([1, 2]),
    bias=st.booleans(),
)
def test_values_lie_inside(
    tmp_path: Path, method: Method, arithmetic: Arithmetic, seed: int, radius: float, axis: int, bias: bool
) -> None:
    network = normalised(tmp_path / "n.onnx", seed, axis, bias=bias)
    box = box_around(
        np.random.default_rng(seed).standard_normal(12).astype(np.float32).astype(np.float64), radius
    )
    dtype = torch.float64 if arithmetic is Arithmetic.REAL else torch.float32
    context = engine_of(network, arithmetic=arithmetic).context(box, method)
    for point in corners_and_points(box, 40, dtype):
        for name, value in values_at(network, point, dtype).items():
            interval = context.intervals[name]
            inside = (interval.lower <= value.double()) & (value.double() <= interval.upper)
            assert bool(inside.all()), f"{name} leaves its {method} interval"


@pytest.mark.parametrize("radius", [1e-9, 0.05, 1.0, 1e6])
@pytest.mark.parametrize("choice", [0.0, 0.3, 1.0])
def test_every_choice_of_planes_is_sound(tmp_path: Path, radius: float, choice: float) -> None:
    """Also where the variance may vanish, and outputs are bounded by √(n − 1) alone."""
    network = normalised(tmp_path / "n.onnx", 1, 2)
    box = box_around(np.random.default_rng(1).standard_normal(12), radius)
    context = engine_of(network).context(box, Method.IBP)
    node = network.nodes[1]
    with context.view(node) as view:
        default = context.rule(node).theta(view)
    assert default is not None
    theta = torch.full((16, *default.shape), choice)
    rows = torch.from_numpy(np.random.default_rng(2).standard_normal((16, 2, 2, 4)))
    bound = BackwardPass(context, thetas={"norm": theta}).lower({"n": rows}, 16)
    assert bool(torch.isfinite(bound).all())
    reach = 3**0.5 * np.abs(network.constants["gamma"]) + np.abs(network.constants["beta"])
    assert bool((context.intervals["n"].magnitude.numpy() <= reach + 1e-4).all())
    for point in corners_and_points(box, 200, torch.float64):
        value = rows.flatten(1) @ values_at(network, point, torch.float64)["n"].flatten()
        assert bool((bound <= value).all())


def test_the_gap_falls_with_the_square_of_the_width(tmp_path: Path) -> None:
    network = normalised(tmp_path / "n.onnx", 3, 2)
    centre = np.random.default_rng(3).standard_normal(12)
    gaps = []
    for radius in (1e-2, 1e-3):
        box = box_around(centre, radius)
        context = engine_of(network).context(box, Method.CROWN)
        bound = BackwardPass(context).lower({"y": torch.eye(8, dtype=torch.float64).reshape(8, 2, 2, 2)}, 8)
        seen = torch.stack(
            [
                values_at(network, point, torch.float64)["y"]
                for point in corners_and_points(box, 4000, torch.float64)
            ]
        )
        gaps.append(float((seen.amin(0).flatten() - bound).max()))
    assert 0 < gaps[1] < gaps[0] / 30


def test_a_variance_lost_in_float32_is_named(tmp_path: Path) -> None:
    """Values near 1000 that differ by 0.01: a float32 variance by mean(x²) − mean(x)² knows nothing of it."""
    node = helper.make_node("LayerNormalization", ["x", "gamma"], ["y"], "norm", axis=-1)
    constants = {"gamma": np.ones(4, dtype=np.float32)}
    network = load_network(save(tmp_path / "n.onnx", [node], constants, [1, 4], [1, 4], opset=17))
    box = box_around(1000 + 0.01 * np.arange(4), 0.0)
    with pytest.raises(BoundError, match="'y'"):
        engine_of(network, arithmetic=Arithmetic.FLOAT32).context(box, Method.IBP)
    real = engine_of(network).context(box, Method.IBP).intervals["y"]
    assert float((real.upper - real.lower).max()) < 1e-3
