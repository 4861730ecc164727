"""Rows bounded on chosen sides of neurons: whatever their slopes and multipliers, they are below the function there."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds.aims import Aims
from boundscope.bounds.alpha import AlphaSettings
from boundscope.bounds.ascent import BetaSettings
from boundscope.bounds.beta import BetaSearch, RowBlock
from boundscope.bounds.context import BoxContext
from boundscope.bounds.neurons import Neurons
from boundscope.bounds.splits import SplitStep
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box, Clause, LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.enclosure import box_around, engine_of, points_of, values_at
from support.models import convnet, mlp, save


def clause_of(*rows: list[float], bound: float = 0.0) -> Clause:
    return Clause(
        tuple(
            LinearConstraint(
                output_indices=np.arange(len(row)), output_coeffs=np.array(row), bound=Fraction(bound)
            )
            for row in rows
        )
    )


def network_named(name: str, folder: Path, seed: int) -> tuple[Network, Box]:
    if name == "conv":
        return load_network(convnet(folder / "n.onnx", seed=seed)), box_around(np.zeros(72), 0.3)
    network = load_network(mlp(folder / "n.onnx", [4, 12, 10, 8, 3], seed=seed))
    return network, box_around(0.2 * np.ones(4), 0.8)


def held_sides(context: BoxContext, neurons: Neurons, network: Network, point: np.ndarray) -> torch.Tensor:
    """The side of every neuron at a point: int8 [M]."""
    values = values_at(network, point, torch.float64)
    parts = [values[node.inputs[0]].flatten()[context.free_slopes(node)] for node in neurons.nodes]
    return torch.where(torch.cat(parts) >= 0, 1, -1).to(torch.int8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("splits")


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(["mlp", "conv"]), float32=st.booleans())
def test_a_bound_on_a_domain_is_below_the_function_there(
    folder: Path, seed: int, name: str, float32: bool
) -> None:
    network, box = network_named(name, folder, seed % 7)
    arithmetic = Arithmetic.FLOAT32 if float32 else Arithmetic.REAL
    context = engine_of(network, arithmetic).context(box, Method.CROWN)
    neurons = Neurons.of(context)
    random = np.random.default_rng(seed)
    rows = random.standard_normal((5, 3))
    aims = Aims(context, [clause_of(row.tolist()) for row in rows])
    points = list(points_of(box, 6, seed, np.float32 if float32 else np.float64))
    # A point's own domain is never empty: each row holds some neurons as they are at its point.
    sides = torch.stack(
        [held_sides(context, neurons, network, points[row % len(points)]) for row in range(5)]
    )
    held = torch.from_numpy(random.random((5, len(neurons))) < random.random())
    block = RowBlock(
        which=torch.arange(5),
        states=torch.where(held, sides, 0).to(torch.int8),
        values=torch.from_numpy(random.random((5, len(neurons))) * np.where(held, 3.0, 1.0)).float(),
        weights=torch.ones(5, 1),
    )
    search = BetaSearch(context, neurons.scaled(torch.ones(1, len(neurons))), aims, lambda: None)
    for one in (block, search.search(block, BetaSettings(steps=5))):
        proven = search.prove(one)
        for row in range(5):
            output = values_at(network, points[row % len(points)], torch.float64)[network.outputs[0].name]
            slack = 1e-9 if not float32 else 0.0
            assert float(proven.lower[row]) <= float(output.flatten() @ torch.from_numpy(rows[row])) + slack


@pytest.mark.parametrize("seed", range(3))
def test_without_splits_rows_are_bounded_as_by_crown_or_alpha_crown(folder: Path, seed: int) -> None:
    network, box = network_named("mlp", folder, seed)
    engine = engine_of(network)
    context = engine.context(box, Method.CROWN)
    neurons = Neurons.of(context)
    # Far away, for a search ends where a row passes its goal.
    clause = clause_of([1.0, -1.0, 0.0], bound=10.0)
    block = RowBlock(
        torch.zeros(1, dtype=torch.int64),
        torch.zeros(1, len(neurons), dtype=torch.int8),
        neurons.starts[None].clone(),
        torch.ones(1, 1),
    )
    search = BetaSearch(context, neurons, Aims(context, [clause]), lambda: None)
    crown = float(engine.margins(context, clause.constraints, Method.CROWN)[0])
    assert float(search.prove(block).lower[0]) == pytest.approx(crown, rel=1e-9)
    engine.alpha = AlphaSettings(steps=100)
    alpha = float(engine.margins(context, clause.constraints, Method.ALPHA_CROWN)[0])
    found = search.prove(search.search(block, BetaSettings(steps=100, least_steps=100))).lower
    assert float(found[0]) >= alpha - 0.01
    assert float(found[0]) > crown


def step_and_values(folder: Path, seed: int) -> tuple[SplitStep, dict[str, torch.Tensor]]:
    network, box = network_named("mlp", folder, seed)
    context = engine_of(network).context(box, Method.CROWN)
    node = Neurons.of(context).nodes[1]
    step = SplitStep.of(context, node, context.facts[node.name].local, None, torch.float64)  # type: ignore[arg-type]
    random = torch.Generator().manual_seed(seed)
    size, many = len(step.slope), len(step.x)
    return step, {
        "rows": torch.randn(6, size, generator=random, dtype=torch.float64),
        "values": torch.rand(6, many, generator=random, dtype=torch.float64),
        "state": torch.randint(-1, 2, (6, many), generator=random).to(torch.int8),
        "scale": 0.1 + torch.rand(many, generator=random, dtype=torch.float64),
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_search_has_the_gradients_of_what_is_proven(folder: Path, seed: int) -> None:
    step, given_values = step_and_values(folder, seed)
    state, scale = given_values["state"], given_values["scale"]
    weigh = torch.randn(
        6, len(step.slope), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    found = []
    for through in (
        lambda r, v: step.through(r, state, v, scale)[:2],
        lambda r, v: step.searched(r, state, v, scale),
    ):
        rows = given_values["rows"].clone().requires_grad_()
        values = given_values["values"].clone().requires_grad_()
        carried, constant = through(rows, values)
        ((carried * weigh).sum() + constant.sum()).backward()
        found.append((carried.detach(), constant.detach(), rows.grad, values.grad))
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other)


def test_an_empty_domain_is_excluded_and_only_by_its_multipliers(folder: Path) -> None:
    """No input has z1 ≤ 0 and z2 = −z1 − 0.1 ≤ 0 … both held to a side that they never share."""

    weight = np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0]], np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["z"], "fc", transB=1),
        helper.make_node("Relu", ["z"], ["a"], "relu"),
        helper.make_node("Gemm", ["a", "V", "c"], ["y"], "out", transB=1),
    ]
    constants = {
        "W": weight,
        "b": np.array([-0.1, -0.1, 0.0], np.float32),
        "V": np.ones((1, 3), np.float32),
        "c": np.array([-0.5], np.float32),
    }
    network = load_network(save(folder / "empty.onnx", nodes, constants, [1, 2], [1, 1]))
    context = engine_of(network).context(box_around(np.zeros(2), 1.0), Method.CROWN)
    neurons = Neurons.of(context)
    search = BetaSearch(context, neurons, Aims(context, [clause_of([1.0])]), lambda: None)
    # z1 = x1 − 0.1 ≥ 0 and z2 = −x1 − 0.1 ≥ 0 contradict each other; elsewhere the margin is below 0.
    block = RowBlock(
        torch.zeros(1, dtype=torch.int64),
        torch.tensor([[1, 1, 0]], dtype=torch.int8),
        torch.zeros(1, 3),
        torch.ones(1, 1),
    )
    assert float(search.prove(block).lower[0]) < -0.5
    assert float(search.prove(search.search(block, BetaSettings(steps=100))).lower[0]) > 0.0
