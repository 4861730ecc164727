"""Bounds over L2, L1 and L0 balls cut by a box: sound at every point tried, exact where the network is linear."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds import BoundEngine, MemoryLedger, norms
from boundscope.bounds.norms import BallSet
from boundscope.network import load_network
from boundscope.network.graph import Network, Node
from boundscope.properties.exact import inside
from boundscope.properties.types import Box, LinearConstraint, NormBall
from boundscope.protocol import Arithmetic, Method, Norm
from boundscope.sharding.weights import WholeWeights
from support.models import mlp, save

CPU = torch.device("cpu")
BALLS = (Norm.L2, Norm.L1, Norm.L0)
SETTINGS = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def engine_of(network: Network, **options: object) -> BoundEngine:
    ledger = MemoryLedger()
    weights = WholeWeights(network.constants, ledger, CPU, torch.float64)
    return BoundEngine(network, weights, ledger, **options)  # type: ignore[arg-type]


def cut_ball(
    norm: Norm,
    centre: np.ndarray,
    radius: float,
    lower: np.ndarray,
    upper: np.ndarray,
    scale: np.ndarray | None = None,
) -> Box:
    """A ball around a centre of few binary digits (so that its texts are exact), and the box that cuts it."""
    scale = np.ones_like(centre) if scale is None else scale
    ball = NormBall(
        norm=norm,
        radius=Fraction(radius),
        centre_lower_text=tuple(map(repr, centre.tolist())),
        centre_upper_text=tuple(map(repr, centre.tolist())),
        centre_lower=centre,
        centre_upper=centre,
        scale=tuple(map(Fraction, scale.tolist())),
        scale_below=scale,
        radius_above=radius,
    )
    texts = tuple(map(repr, lower.tolist())), tuple(map(repr, upper.tolist()))
    return Box(*texts, lower, upper, ball=ball)


def dyadic(random: np.random.Generator, shape: int, scale: float = 1.0) -> np.ndarray:
    """Numbers of few binary digits, whose repr is exact."""
    return np.round(random.standard_normal(shape) * scale * 64) / 64


def random_box(norm: Norm, seed: int, n: int) -> Box:
    """A ball that its box cuts on some sides, touches on others and leaves alone on the rest."""
    random = np.random.default_rng(seed)
    centre = dyadic(random, n)
    radius = float(random.integers(0, n + 1)) if norm is Norm.L0 else float(random.integers(1, 96)) / 64
    reach = 0.5 if norm is Norm.L0 else radius
    down = reach * random.choice([0.0, 0.25, 1.0], n)
    up = reach * random.choice([0.0, 0.5, 1.0], n)
    scale = random.choice([0.5, 1.0, 2.0], n)
    return cut_ball(norm, centre, radius, centre - down, centre + up, scale)


def points_of(box: Box, random: np.random.Generator, count: int) -> np.ndarray:
    """Points of a ball cut by its box, [count, n]: random directions, sparse ones and corners, most on the boundary."""
    assert box.ball is not None
    ball, n = box.ball, len(box.lower)
    steps = random.standard_normal((count, n))
    steps[::3] = np.sign(steps[::3])
    steps[1::3] *= random.random((len(steps[1::3]), n)) < 0.3
    radius = float(ball.radius)
    if ball.norm is Norm.L0:
        ranks = random.random((count, n)).argsort(1).argsort(1)
        chosen = ranks < int(radius)
        ends = np.where(random.random((count, n)) < 0.5, box.lower, box.upper)
        anywhere = box.lower + random.random((count, n)) * (box.upper - box.lower)
        return np.where(chosen, np.where(random.random((count, 1)) < 0.7, ends, anywhere), ball.centre_lower)
    power = 2 if ball.norm is Norm.L2 else 1
    best = np.clip(ball.centre_lower + steps * radius * 4, box.lower, box.upper) - ball.centre_lower
    size = np.linalg.norm(best * ball.scale_below, ord=power, axis=1, keepdims=True)
    return ball.centre_lower + best * np.minimum(1.0, radius / np.maximum(size, 1e-300)) * (1 - 1e-14)


def is_inside(box: Box, point: np.ndarray) -> bool:
    return inside(box, [Fraction(value) for value in point.tolist()])


def linear_network(path: Path, weights: np.ndarray) -> Network:
    """y = W·x, in float64 so that no weight is rounded."""
    nodes = [helper.make_node("MatMul", ["x", "W"], ["y"], "linear")]
    constants = {"W": weights.T.astype(np.float32)}
    return load_network(save(path, nodes, constants, [1, weights.shape[1]], [1, weights.shape[0]]))


def row(coefficients: list[float]) -> LinearConstraint:
    return LinearConstraint(np.arange(len(coefficients)), np.array(coefficients), bound=Fraction(0))


def margin(network: Network, box: Box, coefficients: list[float], method: Method = Method.CROWN) -> float:
    engine = engine_of(network)
    return float(engine.margins(engine.context(box, method), [row(coefficients)], method))


@pytest.mark.parametrize("norm", BALLS)
def test_of_a_linear_network_the_bound_is_the_dual_norm_to_rounding(norm: Norm, tmp_path: Path) -> None:
    """centre − ε·‖w‖ of the dual norm where no box interferes; with L0, the k largest gains."""
    random = np.random.default_rng(0)
    w, centre = dyadic(random, 12), dyadic(random, 12)
    network = linear_network(tmp_path / "n.onnx", w[None])
    radius = 3.0 if norm is Norm.L0 else 0.5
    box = cut_ball(norm, centre, radius, centre - 0.5, centre + 0.5)
    gain = {
        Norm.L2: 0.5 * np.linalg.norm(w),
        Norm.L1: 0.5 * np.abs(w).max(),
        Norm.L0: 0.5 * np.sort(np.abs(w))[-3:].sum(),
    }[norm]
    expected = w @ centre - gain
    for method in (Method.IBP, Method.CROWN):
        bound = margin(network, box, [1.0], method)
        assert bound <= expected + 1e-15
        assert bound == pytest.approx(expected, abs=1e-12)


def cut_optimum(box: Box, w: np.ndarray) -> float:
    """min w·x over a ball cut by its box, by other means: bisection on the multiplier, or a look at every subset."""
    ball = box.ball
    assert ball is not None
    centre, scale, radius = ball.centre_lower, ball.scale_below, float(ball.radius)
    caps = np.where(w > 0, centre - box.lower, box.upper - centre)
    gains = np.abs(w)
    if ball.norm is Norm.L0:
        subsets = combinations(range(len(w)), min(int(radius), len(w)))
        return float(w @ centre - max(sum(gains[i] * caps[i] for i in chosen) for chosen in subsets))
    if ball.norm is Norm.L1:  # as a linear program
        from scipy.optimize import linprog

        done = linprog(-gains, A_ub=scale[None], b_ub=[radius], bounds=list(zip(0 * caps, caps, strict=True)))
        return float(w @ centre + done.fun)

    def moves(multiplier: float) -> np.ndarray:
        return np.minimum(caps, gains / (multiplier * scale**2))

    low, high = 1e-12, 1e12
    for _ in range(400):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if np.linalg.norm(scale * moves(middle)) > radius else (low, middle)
    return float(w @ centre - gains @ moves(high))


@pytest.mark.parametrize("norm", BALLS)
@SETTINGS
@given(seed=st.integers(0, 10**6))
def test_the_bound_is_below_the_least_value_in_rational_numbers(norm: Norm, seed: int) -> None:
    """However the sums round: numbers of all sizes that nearly cancel, judged by fractions without any rounding."""
    random = np.random.default_rng(seed)
    n = 40
    w = random.standard_normal(n) * 10.0 ** random.integers(-8, 8, n)
    centre = random.standard_normal(n) / w
    radius = 3.0 if norm is Norm.L0 else random.random() * float(random.choice([1.0, 2.0**-60]))
    reach = random.random(n) if norm is Norm.L0 else np.full(n, 2.0)
    box = cut_ball(norm, centre, radius, centre - reach, centre + reach)
    assert box.ball is not None
    ball = BallSet.of(box.ball, torch.from_numpy(box.lower), torch.from_numpy(box.upper))
    rows = torch.from_numpy(np.stack([w, -w]))
    for sign, value, error in zip((1, -1), *(part.tolist() for part in ball.lower(rows)), strict=True):
        coefficients = [sign * Fraction(one) for one in w.tolist()]
        start = sum(a * Fraction(b) for a, b in zip(coefficients, centre.tolist(), strict=True))
        gain = start - (Fraction(value) - Fraction(error))  # how far the bound lies below the centre's value
        if norm is Norm.L2:
            assert gain > 0
            assert gain**2 >= Fraction(radius) ** 2 * sum(a * a for a in coefficients)
        elif norm is Norm.L1:
            assert gain >= Fraction(radius) * max(map(abs, coefficients))
        else:
            ends = zip(coefficients, centre.tolist(), box.lower.tolist(), box.upper.tolist(), strict=True)
            gains = [a * (Fraction(c) - Fraction(low if a > 0 else high)) for a, c, low, high in ends]
            assert gain >= sum(sorted(gains)[-3:])


def test_rows_in_blocks_are_bounded_as_each_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    box = random_box(Norm.L2, 0, 9)
    assert box.ball is not None
    ball = BallSet.of(box.ball, torch.from_numpy(box.lower), torch.from_numpy(box.upper))
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((7, 9)))
    whole = ball.lower(rows)[0], ball.lowest(rows)
    monkeypatch.setattr(norms, "BLOCK_ELEMENTS", 20)
    assert torch.allclose(ball.lower(rows)[0], whole[0], rtol=0, atol=1e-14)
    assert torch.equal(ball.lowest(rows), whole[1])


@pytest.mark.parametrize("norm", BALLS)
@SETTINGS
@given(seed=st.integers(0, 10**6))
def test_a_ball_cut_by_its_box_is_bounded_exactly(norm: Norm, seed: int) -> None:
    """Not only by the better of ball and box, but by both together: the least value over their intersection."""
    box = random_box(norm, seed, 9)
    assert box.ball is not None
    w = dyadic(np.random.default_rng(seed + 1), 9)
    ball = BallSet.of(box.ball, torch.from_numpy(box.lower), torch.from_numpy(box.upper))
    value, error = ball.lower(torch.from_numpy(w)[None])
    expected = cut_optimum(box, w)
    assert float(value - error) <= expected + 1e-9 * abs(expected) + 1e-12
    assert float(value - error) == pytest.approx(expected, abs=1e-7)
    reference = (box.lower + box.upper) / 2
    near, its_error = ball.lower(torch.from_numpy(w)[None], torch.from_numpy(reference))
    assert float(near - its_error) == pytest.approx(expected - w @ reference, abs=1e-7)
    lowest = ball.lowest(torch.from_numpy(w)[None])[0].numpy()
    assert w @ lowest == pytest.approx(expected, abs=1e-7)  # and the point that reaches it is told
    estimate = ball.estimate(torch.from_numpy(w)[None], torch.from_numpy(reference))
    assert float(estimate) == pytest.approx(expected - w @ reference, abs=1e-7)


def _record(seen: dict[str, torch.Tensor], node: Node, outputs: tuple[torch.Tensor, ...]) -> None:
    seen.update(zip(node.outputs, outputs, strict=False))


@pytest.mark.parametrize("norm", BALLS)
@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
@SETTINGS
@given(seed=st.integers(0, 10**6))
def test_every_tensor_stays_within_its_interval_over_the_ball(
    norm: Norm, arithmetic: Arithmetic, seed: int, tmp_path: Path
) -> None:
    network = load_network(mlp(tmp_path / f"n{seed}.onnx", [8, 12, 12, 3], seed))
    box = random_box(norm, seed, 8)
    context = engine_of(network, arithmetic=arithmetic).context(box, Method.CROWN)
    random = np.random.default_rng(seed + 2)
    dtype = torch.float64 if arithmetic is Arithmetic.REAL else torch.float32
    constants = {name: torch.from_numpy(np.array(a)).to(dtype) for name, a in network.constants.items()}
    tried = 0
    for point in points_of(box, random, 60):
        if not is_inside(box, point):
            continue
        if dtype is torch.float32 and not is_inside(box, point.astype(np.float32).astype(np.float64)):
            continue
        tried += 1
        seen: dict[str, torch.Tensor] = {}
        x = torch.from_numpy(point).reshape(1, 8).to(dtype)
        record = partial(_record, seen)
        network.evaluate({"x": x}, constants=constants, visit=record)
        for name, value in seen.items():
            interval = context.intervals[name]
            assert bool((interval.lower <= value.double()).all()), (norm, name)
            assert bool((value.double() <= interval.upper).all()), (norm, name)
    assert tried >= 10


@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
@pytest.mark.parametrize("norm", BALLS)
def test_margins_hold_at_the_points_that_come_closest(norm: Norm, method: Method, tmp_path: Path) -> None:
    """Sampling the sphere and its corners; and what is proven is not far from what is seen on a small ball."""
    network = load_network(mlp(tmp_path / "n.onnx", [6, 16, 16, 2], 3))
    centre = dyadic(np.random.default_rng(1), 6)
    radius = 1.0 if norm is Norm.L0 else 0.125
    box = cut_ball(norm, centre, radius, centre - 0.125, centre + 0.125)
    bound = margin(network, box, [1.0, -1.0], method)
    constants = {name: torch.from_numpy(np.array(a)).double() for name, a in network.constants.items()}
    least, middle = np.inf, 0.0
    for point in (centre, *points_of(box, np.random.default_rng(2), 3000)):
        y = network.evaluate({"x": torch.from_numpy(point).reshape(1, 6)}, constants=constants)["y"]
        value = float(y[0, 0] - y[0, 1])
        middle = value if point is centre else middle
        least = min(least, value)
    assert bound <= least
    assert middle - bound < 2.0 * (middle - least)


def test_the_l2_ball_is_bounded_at_least_as_tightly_as_the_box_around_it(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [10, 20, 20, 2], 5))
    centre = dyadic(np.random.default_rng(4), 10)
    ball = cut_ball(Norm.L2, centre, 0.25, centre - 0.25, centre + 0.25)
    around = dataclasses.replace(ball, ball=None)
    inner, outer = (engine_of(network).context(box, Method.CROWN) for box in (ball, around))
    first, wider = (context.intervals["z1"] for context in (inner, outer))
    assert bool((first.lower >= wider.lower).all() and (first.upper <= wider.upper).all())
    widths = [context.intervals["z2"].upper - context.intervals["z2"].lower for context in (inner, outer)]
    assert float(widths[0].mean()) < 0.75 * float(widths[1].mean())
    assert margin(network, ball, [1.0, -1.0]) > margin(network, around, [1.0, -1.0])


def test_l1_lies_in_l2_lies_in_the_box_and_so_do_their_bounds(tmp_path: Path) -> None:
    network = linear_network(tmp_path / "n.onnx", dyadic(np.random.default_rng(7), 20)[None])
    centre = dyadic(np.random.default_rng(8), 20)
    around = cut_ball(Norm.L2, centre, 0.25, centre - 0.25, centre + 0.25)
    bounds = [
        margin(network, cut_ball(norm, centre, 0.25, around.lower, around.upper), [1.0])
        for norm in (Norm.L1, Norm.L2)
    ]
    bounds.append(margin(network, dataclasses.replace(around, ball=None), [1.0]))
    assert bounds[0] > bounds[1] > bounds[2]


def test_an_l0_ball_of_all_inputs_is_its_box(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [7, 15, 15, 2], 9))
    centre = dyadic(np.random.default_rng(3), 7)
    ball = cut_ball(Norm.L0, centre, 7.0, centre - 0.25, centre + 0.5)
    same = margin(network, dataclasses.replace(ball, ball=None), [1.0, -1.0])
    assert margin(network, ball, [1.0, -1.0]) == pytest.approx(same, abs=1e-10)
    fewer = dataclasses.replace(
        ball, ball=dataclasses.replace(ball.ball, radius=Fraction(2), radius_above=2.0)
    )
    assert margin(network, fewer, [1.0, -1.0]) > same


@pytest.mark.parametrize("norm", BALLS)
def test_alpha_is_never_below_crown_over_a_ball(norm: Norm, tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [8, 24, 24, 2], 11))
    centre = dyadic(np.random.default_rng(6), 8)
    box = cut_ball(norm, centre, 2.0 if norm is Norm.L0 else 0.75, centre - 0.75, centre + 0.75)
    plain, optimised = (
        margin(network, box, [1.0, -1.0], method) for method in (Method.CROWN, Method.ALPHA_CROWN)
    )
    assert optimised > plain


@pytest.mark.parametrize("norm", BALLS)
@pytest.mark.parametrize(
    ("radius", "size"), [(0.0, 1.0), (2.0**-40, 1.0), (2.0**20, 1.0), (1.0, 2.0**500), (1.0, 0.0)]
)
def test_extreme_radii_and_coefficients_give_finite_sound_bounds(
    norm: Norm, radius: float, size: float
) -> None:
    """NaN never proves; a ball of one point is bounded as that point; nothing overflows."""
    centre = np.array([0.5, -0.25, 0.0, 1.0])
    radius = float(int(radius)) if norm is Norm.L0 else radius
    reach = max(radius, 2.0**-40) if norm is not Norm.L0 else 1.0
    box = cut_ball(norm, centre, radius, centre - reach, centre + reach)
    assert box.ball is not None
    ball = BallSet.of(box.ball, torch.from_numpy(box.lower), torch.from_numpy(box.upper))
    w = np.array([1.0, -2.0, 3.0, 0.0]) * size
    value, error = ball.lower(torch.from_numpy(w)[None])
    assert bool(torch.isfinite(value - error).all())
    lowest = ball.lowest(torch.from_numpy(w)[None])[0].numpy()
    assert np.isfinite(lowest).all()
    assert float(value - error) <= w @ centre
    assert float(value - error) <= w @ lowest + 1e-12 * abs(w @ lowest)


def test_a_centre_and_deviations_that_no_float64_equals_are_enclosed() -> None:
    """Rounded outward: the bound of the exact ball 1/3 ± 1/3 with deviation 1/3 is not above its least value."""
    third = Fraction(1, 3)
    ball = NormBall(
        norm=Norm.L2,
        radius=third,
        centre_lower_text=("0.3333333333333333333333333",) * 2,
        centre_upper_text=("0.3333333333333333333333334",) * 2,
        centre_lower=np.nextafter(np.full(2, 1 / 3), -1),
        centre_upper=np.nextafter(np.full(2, 1 / 3), 1),
        scale=(third,) * 2,
        scale_below=np.full(2, 1 / 3),
        radius_above=float(np.nextafter(1 / 3, 1)),
    )
    one = BallSet.of(
        ball, torch.full((2,), -1.0, dtype=torch.float64), torch.full((2,), 2.0, dtype=torch.float64)
    )
    assert Fraction(one.radius) > third
    assert max(Fraction(value) for value in one.scale.tolist()) < third
    value, error = one.lower(torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    least = third - 1  # radius / deviation = 1 away from 1/3
    assert Fraction(float(value - error)) <= least
    assert float(value - error) == pytest.approx(float(least), abs=1e-12)
