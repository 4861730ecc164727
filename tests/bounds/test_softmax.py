"""Softmax and its logarithm: exact ranges, planes that hold for every free parameter, and no overflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds.backward import BackwardPass
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, assert_contains, box_of, corners_and_points, engine_of, values_at
from support.models import save

SETTINGS = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def alone(path: Path, op: str, shape: list[int], axis: int, opset: int = 13) -> Network:
    return load_network(
        save(path, [helper.make_node(op, ["x"], ["y"], op, axis=axis)], {}, shape, shape, opset=opset)
    )


def head(path: Path, op: str, seed: int) -> Network:
    """A layer, Softmax over rows of its output, and a layer that mixes them again."""
    random = np.random.default_rng(seed)
    constants = {
        "W": (2 * random.standard_normal((4, 5))).astype(np.float32),
        "V": random.standard_normal((5, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["z"], "z"),
        helper.make_node(op, ["z"], ["s"], "s", axis=-1),
        helper.make_node("MatMul", ["s", "V"], ["h"], "h"),
        helper.make_node("Relu", ["h"], ["a"], "a"),
        helper.make_node("MatMul", ["a", "U"], ["y"], "y"),
    ]
    constants["U"] = random.standard_normal((3, 2)).astype(np.float32)
    return load_network(save(path, nodes, constants, [2, 4], [2, 2]))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
@pytest.mark.parametrize("method", METHODS)
@SETTINGS
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 1e-6, 0.03, 0.5, 5.0]))
def test_values_lie_inside(
    tmp_path: Path, method: Method, arithmetic: Arithmetic, op: str, seed: int, radius: float
) -> None:
    network = head(tmp_path / "n.onnx", op, seed)
    centre = np.random.default_rng(seed).standard_normal(8).astype(np.float32).astype(np.float64)
    assert_contains(network, box_of(centre - radius, centre + radius), method, arithmetic)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("choice", [0.0, 1.0, None])
@pytest.mark.parametrize("width", [1e-12, 1e-3, 1.0, 20.0, 1e6])
def test_planes_are_sound_for_every_parameter(
    tmp_path: Path, op: str, choice: float | None, width: float
) -> None:
    """Also where the box is nearly a point, and where exponentials of its ends differ beyond float64."""
    network = alone(tmp_path / "n.onnx", op, [2, 4], -1)
    random = np.random.default_rng(int(width) % 1000)
    lower = random.standard_normal(8) * 3
    box = box_of(lower, lower + width * random.random(8))
    context = engine_of(network).context(box, Method.IBP)
    with context.view(network.nodes[0]) as view:
        default = context.rule(network.nodes[0]).theta(view)
    assert default is not None
    rows = 16
    theta = torch.rand(rows, *default.shape, generator=torch.Generator().manual_seed(0))
    theta = theta if choice is None else torch.full_like(theta, choice)
    coefficients = torch.from_numpy(random.standard_normal((rows, 2, 4)))
    bound = BackwardPass(context, thetas={op: theta}).lower({"y": coefficients}, rows)
    assert bool(torch.isfinite(bound).all())
    for point in corners_and_points(box, 200, torch.float64):
        value = coefficients.flatten(1) @ values_at(network, point, torch.float64)["y"].flatten()
        assert bool((bound <= value + 1e-15 * value.abs()).all())


def test_ranges_are_exact(tmp_path: Path) -> None:
    """The largest softmax_i is at u_i and the others' l, the least at the opposite corner; both are attained."""
    network = alone(tmp_path / "n.onnx", "Softmax", [1, 5], -1)
    random = np.random.default_rng(0)
    lower = random.standard_normal(5)
    upper = lower + random.random(5)
    interval = engine_of(network).context(box_of(lower, upper), Method.IBP).intervals["y"]
    for i in range(5):
        for end, own, others in ((interval.upper, upper, lower), (interval.lower, lower, upper)):
            corner = np.where(np.arange(5) == i, own, others)
            exact = np.exp(corner[i]) / np.exp(corner).sum()
            assert end[0, i].item() == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
def test_huge_logits_stay_finite_and_inside_the_range(
    tmp_path: Path, op: str, method: Method, arithmetic: Arithmetic
) -> None:
    network = alone(tmp_path / "n.onnx", op, [1, 4], -1)
    lower = np.array([-1e4, 1e4 - 3, 9e3, 1e4 - 2])
    for upper in (lower, lower + 1, np.full(4, 1e4)):
        interval = assert_contains(network, box_of(lower, upper), method, arithmetic).intervals["y"]
        assert bool((interval.lower >= (0.0 if op == "Softmax" else -2.1e4)).all())
        assert bool((interval.upper <= (1.0 if op == "Softmax" else 0.0) + 1e-6).all())


def test_a_common_shift_changes_nothing_but_rounding(tmp_path: Path) -> None:
    single = alone(tmp_path / "m.onnx", "Softmax", [2, 4], -1)
    lower = np.random.default_rng(1).standard_normal(8)
    here = engine_of(single).context(box_of(lower, lower + 0.5), Method.CROWN)
    there = engine_of(single).context(box_of(lower + 1000, lower + 1000.5), Method.CROWN)
    rows = torch.eye(8, dtype=torch.float64).reshape(8, 2, 4)
    near, far = (BackwardPass(one).lower({"y": rows}, 8) for one in (here, there))
    torch.testing.assert_close(near, far, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("shape", "axis", "opset"), [([2, 3, 2], 1, 11), ([2, 3, 2], 1, 13), ([2, 1, 3], 1, 13), ([3], 0, 13)]
)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_groups_follow_the_opset(tmp_path: Path, op: str, shape: list[int], axis: int, opset: int) -> None:
    """Before opset 13 all axes from `axis` on share one sum; since then one axis does, a single element too."""
    network = alone(tmp_path / "n.onnx", op, shape, axis, opset)
    centre = np.random.default_rng(2).standard_normal(int(np.prod(shape)))
    for method in METHODS:
        context = assert_contains(network, box_of(centre - 0.3, centre + 0.3), method, Arithmetic.REAL)
    assert bool(torch.isfinite(context.intervals["y"].upper).all())


def test_planes_are_tight_on_a_small_box(tmp_path: Path) -> None:
    """The gap to the true minimum of random rows falls with the square of the width, as of tangents it must."""
    network = alone(tmp_path / "n.onnx", "Softmax", [1, 4], -1)
    random = np.random.default_rng(5)
    centre = random.standard_normal(4)
    coefficients = torch.from_numpy(random.standard_normal((16, 1, 4)))
    gaps = []
    for radius in (0.1, 0.01):
        box = box_of(centre - radius, centre + radius)
        context = engine_of(network).context(box, Method.CROWN)
        bound = BackwardPass(context).lower({"y": coefficients}, 16)
        corners = np.stack(np.meshgrid(*[[-radius, radius]] * 4), -1).reshape(-1, 4) + centre
        least = (coefficients.flatten(1) @ torch.softmax(torch.from_numpy(corners), -1).T).amin(1)
        gaps.append((least - bound).max().item())
    assert 0 <= gaps[1] < gaps[0] / 50
    assert gaps[0] < 0.02


def test_optimised_tangents_beat_the_fixed_ones(tmp_path: Path) -> None:
    network = head(tmp_path / "n.onnx", "Softmax", 7)
    centre = np.random.default_rng(7).standard_normal(8)
    box = box_of(centre - 0.4, centre + 0.4)
    crown = engine_of(network).context(box, Method.CROWN).intervals["h"]
    best = engine_of(network).context(box, Method.ALPHA_CROWN).intervals["h"]
    assert (best.upper - best.lower).mean() < 0.97 * (crown.upper - crown.lower).mean()
