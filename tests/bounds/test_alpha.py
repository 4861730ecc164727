"""α-CROWN: sound for whatever the search does, never looser than CROWN, and as tight as it is known to be."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.alpha import AlphaSettings
from boundscope.bounds.backward import BackwardPass
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties import read_property
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Method
from boundscope.sharding.weights import WholeWeights
from support.models import convnet, mlp, save

SETTINGS = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
UNREACHED = Fraction(10**6)  # a goal that no margin reaches, so that the search goes on to its end


def engine_of(network: Network, alpha: AlphaSettings | None = None) -> BoundEngine:
    ledger = MemoryLedger()
    weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
    return BoundEngine(network, weights, ledger, alpha=alpha)


def around(centre: np.ndarray, radius: float) -> Box:
    low, high = centre - radius, centre + radius
    return Box(tuple(map(repr, low.tolist())), tuple(map(repr, high.tolist())), low, high)


def differences(outputs: int) -> list[LinearConstraint]:
    return [
        LinearConstraint(np.array([0, other]), np.array([sign, -sign]), bound=UNREACHED)
        for other in range(1, outputs)
        for sign in (1.0, -1.0)
    ]


def margins(engine: BoundEngine, box: Box, rows: list[LinearConstraint], method: Method) -> np.ndarray:
    context = engine.context(box, method)
    return engine.margins(context, rows, method).numpy() + float(UNREACHED)


def least_seen(network: Network, box: Box, rows: list[LinearConstraint], seed: int) -> np.ndarray:
    """Least value of each row's left side over sampled points, most of them corners."""
    random = np.random.default_rng(seed)
    share = random.random((400, len(box.lower)))
    share[::3] = share[::3].round()
    share[1::3] = share[1::3].round()
    (info,), (output,) = network.inputs, network.outputs
    least = np.full(len(rows), np.inf)
    for point in box.lower + share * (box.upper - box.lower):
        y = network.evaluate({info.name: torch.from_numpy(point).reshape(info.shape)})[output.name].flatten()
        sides = [float((y[r.output_indices] * torch.from_numpy(r.output_coeffs)).sum()) for r in rows]
        least = np.minimum(least, sides)
    return least


@SETTINGS
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([0.01, 0.2, 1.0]), convolutional=st.booleans())
@example(seed=4242, radius=1.0, convolutional=False)
def test_margins_and_layers_are_sound_and_never_looser_than_crown(
    tmp_path: Path, seed: int, radius: float, convolutional: bool
) -> None:
    path = tmp_path / "n.onnx"
    network = load_network(convnet(path, seed) if convolutional else mlp(path, [4, 16, 16, 16, 3], seed))
    box = around(np.random.default_rng(seed).standard_normal(network.input_count), radius)
    rows, engine = differences(3), engine_of(network)
    crown, alpha = engine.context(box, Method.CROWN), engine.context(box, Method.ALPHA_CROWN)
    for name, interval in crown.intervals.items():
        assert bool((alpha.intervals[name].lower >= interval.lower).all()), name
        assert bool((alpha.intervals[name].upper <= interval.upper).all()), name
    by_crown = engine.margins(crown, rows, Method.CROWN).numpy()
    by_alpha = engine.margins(alpha, rows, Method.ALPHA_CROWN).numpy()
    assert (by_alpha >= by_crown - 1e-6).all()
    assert (by_alpha + float(UNREACHED) <= least_seen(network, box, rows, seed) + 1e-9).all()


@SETTINGS
@given(
    seed=st.integers(0, 10**6), steps=st.sampled_from([0, 1, 2, 3, 7]), rate=st.sampled_from([0.1, 0.5, 5.0])
)
def test_a_search_may_be_left_after_any_step(tmp_path: Path, seed: int, steps: int, rate: float) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 16, 16, 3], seed))
    box = around(np.random.default_rng(seed).standard_normal(4), 0.3)
    engine = engine_of(network, AlphaSettings(steps=steps, learning_rate=rate))
    found = margins(engine, box, differences(3), Method.ALPHA_CROWN)
    assert (found <= least_seen(network, box, differences(3), seed) + 1e-9).all()


def test_a_search_without_time_gives_crowns_bounds(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 16, 16, 3], 1))
    box, engine = around(np.zeros(4), 0.3), engine_of(network)
    crown, alpha = (margins(engine, box, differences(3), m) for m in (Method.CROWN, Method.ALPHA_CROWN))
    assert (alpha > crown).any()
    engine.search_until_s = time.monotonic()
    assert (margins(engine, box, differences(3), Method.ALPHA_CROWN) == crown).all()


@SETTINGS
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["random", "zeros", "ones", "binary"]))
def test_every_choice_of_the_free_parameters_is_sound(tmp_path: Path, seed: int, kind: str) -> None:
    """Each row with parameters of its own, as far from the search's as can be."""
    network = load_network(convnet(tmp_path / "n.onnx", seed))
    box = around(np.random.default_rng(seed).standard_normal(72), 0.3)
    context = engine_of(network).context(box, Method.CROWN)
    rows = differences(3)
    coefficients = torch.zeros(len(rows), 1, 3, dtype=torch.float64)
    for index, one in enumerate(rows):
        coefficients[index, 0, one.output_indices] = torch.from_numpy(one.output_coeffs)
    generator = torch.Generator().manual_seed(seed)
    thetas = {}
    for node in network.nodes:
        with context.view(node) as view:
            default = context.rule(node).theta(view) if context.rule(node).relaxed else None
        if default is None:
            continue
        values = torch.rand(len(rows), *default.shape, generator=generator)
        thetas[node.name] = {
            "random": values,
            "zeros": torch.zeros_like(values),
            "ones": torch.ones_like(values),
            "binary": values.round(),
        }[kind]
    assert len(thetas) == 2
    lower = BackwardPass(context, thetas=thetas).lower({"y": coefficients}, len(rows)).numpy()
    assert (lower <= least_seen(network, box, rows, seed) + 1e-9).all()
    assert (lower > -1e4).all()


def test_a_network_whose_neurons_are_all_stable_gets_crowns_bounds(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 16, 16, 3], 2, bias=3.0))
    box = around(np.random.default_rng(2).standard_normal(4), 1e-5)
    engine = engine_of(network)
    context = engine.context(box, Method.CROWN)
    for name in ("z1", "z2"):
        interval = context.intervals[name]
        assert not bool(((interval.lower < 0) & (interval.upper > 0)).any())
    crown = margins(engine, box, differences(3), Method.CROWN)
    assert (margins(engine, box, differences(3), Method.ALPHA_CROWN) == crown).all()


def test_linear_nodes_in_a_row_and_nothing_to_optimise(tmp_path: Path) -> None:
    """Gemm–Gemm–Relu–Gemm, and Gemm–Gemm alone: the linear part is exact, with and without a search."""
    random = np.random.default_rng(0)
    constants = {
        "A": random.standard_normal((8, 4)).astype(np.float32),
        "B": random.standard_normal((8, 8)).astype(np.float32),
        "C": random.standard_normal((3, 8)).astype(np.float32),
    }
    first = [
        helper.make_node("Gemm", ["x", "A"], ["a"], "fc1", transB=1),
        helper.make_node("Gemm", ["a", "B"], ["b"], "fc2", transB=1),
    ]
    last = [
        helper.make_node("Relu", ["b"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "C"], ["y"], "fc3", transB=1),
    ]
    box, rows = around(np.zeros(4), 0.5), differences(3)
    network = load_network(save(tmp_path / "n.onnx", [*first, *last], constants, [1, 4], [1, 3]))
    engine = engine_of(network)
    context = engine.context(box, Method.ALPHA_CROWN)
    product = constants["B"].astype(np.float64) @ constants["A"].astype(np.float64)
    reach = 0.5 * np.abs(product).sum(axis=1)
    np.testing.assert_allclose(context.intervals["b"].upper.numpy().ravel(), reach, rtol=1e-5)
    crown, alpha = (margins(engine, box, rows, m) for m in (Method.CROWN, Method.ALPHA_CROWN))
    assert (alpha >= crown - 1e-9).all()
    assert alpha.sum() > crown.sum()
    assert (alpha <= least_seen(network, box, rows, 0) + 1e-9).all()

    gemm = helper.make_node("Gemm", ["b", "C"], ["y"], "fc3", transB=1)
    linear = load_network(save(tmp_path / "l.onnx", [*first, gemm], constants, [1, 4], [1, 3]))
    exact = constants["C"].astype(np.float64) @ product
    wanted = [-0.5 * np.abs(exact[0] - exact[i]).sum() for i in (1, 1, 2, 2)]
    found = margins(engine_of(linear), box, rows, Method.ALPHA_CROWN)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_the_known_margins_of_mnist_256x2(vnncomp: Path) -> None:
    """prop_0 at 0.03: CROWN 0.3408, joint α by auto_LiRPA 0.6717, layer-wise α by an independent prototype 0.6721."""
    folder = vnncomp / "mnist_fc"
    network = load_network(folder / "onnx/mnist-net_256x2.onnx.gz")
    prop = read_property(folder / "vnnlib/prop_0_0.03.vnnlib.gz", input_count=784, output_count=10)
    (case,) = prop.cases
    rows = [
        LinearConstraint(one.output_indices, one.output_coeffs, bound=UNREACHED)
        for clause in case.clauses
        for one in clause.constraints
    ]
    assert len(rows) == 9
    engine = engine_of(network)
    crown = margins(engine, case.box, rows, Method.CROWN).min()
    alpha = margins(engine, case.box, rows, Method.ALPHA_CROWN).min()
    assert crown == pytest.approx(0.3408, abs=2e-4)
    assert alpha >= 0.6717 - 5e-4
    assert alpha == pytest.approx(0.6721, abs=3e-3)
