"""Rows bounded where elements lie in ranges of their own: whatever multipliers and parameters they have, they are below
the function there."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds.aims import Aims
from boundscope.bounds.ascent import BetaSettings
from boundscope.bounds.beta import BetaSearch, RowBlock
from boundscope.bounds.context import BoxContext
from boundscope.bounds.neurons import Neurons
from boundscope.bounds.pulls import Pull
from boundscope.bounds.spans import Ranges, Spans
from boundscope.network import load_network
from boundscope.properties.types import Clause, LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.attention import KINDS, joint
from support.enclosure import box_around, engine_of, points_of, values_at
from support.models import save
from support.smooth import ACTIVATIONS, smooth

ROWS = 5
NAMES = [*sorted(ACTIVATIONS), *KINDS]


def clause_of(row: list[float], bound: float = 0.0) -> Clause:
    return Clause((LinearConstraint(np.arange(len(row)), np.array(row), Fraction(bound)),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spans")


def _smooth(path: Path, activation: str, outputs: int, seed: int) -> Path:
    return smooth(path, activation, [3, 8, 6, outputs], seed)


def begun(folder: Path, activation: str, seed: int, arithmetic: Arithmetic = Arithmetic.REAL) -> BetaSearch:
    """A search over a box, of random sums of the outputs as clauses."""
    made = joint if activation in KINDS else _smooth
    network = load_network(made(folder / "n.onnx", activation, outputs=2, seed=seed))
    context = engine_of(network, arithmetic).context(box_around(0.2 * np.ones(3), 0.7), Method.CROWN)
    neurons, spans = Neurons.of(context), Spans.of(context)
    random = np.random.default_rng(seed)
    aims = Aims(context, [clause_of(random.standard_normal(2).tolist()) for _ in range(ROWS)])
    neurons = neurons.scaled(torch.ones(1, len(neurons)))
    return BetaSearch(context, neurons, aims, lambda: None, spans.scaled(torch.ones(1, len(spans))))


def read_at(context: BoxContext, spans: Spans, point: np.ndarray) -> torch.Tensor:
    """What every element of the spans reads at a point, [G]."""
    values = values_at(context.network, point, torch.float64)
    return torch.cat([values[n].flatten()[i] for n, i in zip(spans.tensors, spans.index, strict=True)])


def block_around(search: BetaSearch, points: list[np.ndarray], seed: int) -> RowBlock:
    """Rows that hold some elements to ranges with what they read at a point of their own, and choose at random."""
    spans, neurons = search.spans, search.neurons
    assert spans is not None
    random = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=random)

    ranges = spans.whole(ROWS)
    read = torch.stack([read_at(search.context, spans, point) for point in points])
    lower, upper = spans.lower, spans.upper
    below = (read - uniform(ROWS, len(spans)) ** 3 * (read - lower)).float()
    above = (read + uniform(ROWS, len(spans)) ** 3 * (upper - read)).float()
    low = torch.where((uniform(ROWS, len(spans)) < 0.4) & (below.double() <= read), below, -torch.inf)
    high = torch.where((uniform(ROWS, len(spans)) < 0.4) & (above.double() >= read), above, torch.inf)
    multipliers = 3.0 * torch.randn(ROWS, len(spans), generator=random)
    thetas = uniform(*ranges.thetas.shape)
    thetas[uniform(*thetas.shape) < 0.3] = torch.nan
    return RowBlock(
        torch.arange(ROWS),
        torch.zeros(ROWS, len(neurons), dtype=torch.int8),
        uniform(ROWS, len(neurons)),
        torch.ones(ROWS, 1),
        Ranges(low, high, multipliers, thetas),
    )


@settings(deadline=None, max_examples=90)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(NAMES), float32=st.booleans())
def test_a_bound_on_a_domain_is_below_the_function_there(
    folder: Path, seed: int, name: str, float32: bool
) -> None:
    search = begun(folder, name, seed % 7, Arithmetic.FLOAT32 if float32 else Arithmetic.REAL)
    context, spans = search.context, search.spans
    assert spans is not None
    assert len(spans)
    points = list(points_of(box_around(0.2 * np.ones(3), 0.7), 3 * ROWS, seed, np.float32))[-ROWS:]
    block = block_around(search, points, seed)
    others = list(points_of(box_around(0.2 * np.ones(3), 0.7), 40, seed + 1, np.float32))
    for one in (block, search.search(block, BetaSettings(steps=5))):
        proven = search.prove(one)
        assert one.ranges is not None
        for point in (*points, *others):
            read = read_at(context, spans, point)
            inside = (one.ranges.low <= read) & (read <= one.ranges.high)
            output = values_at(context.network, point, torch.float64)[context.network.outputs[0].name]
            for row in inside.all(1).nonzero().flatten().tolist():
                coefficients = np.random.default_rng(seed % 7).standard_normal((ROWS, 2))[row]
                value = float(output.flatten() @ torch.from_numpy(coefficients))
                assert float(proven.lower[row]) <= value + 1e-9 * (1.0 + abs(value))


@pytest.mark.parametrize("name", NAMES)
def test_halves_together_hold_all_there_is(folder: Path, name: str) -> None:
    """Split at the middle of its widest range, one half of a row or the other is below every value."""
    search = begun(folder, name, 3)
    spans, neurons = search.spans, search.neurons
    assert spans is not None
    whole = RowBlock(
        torch.arange(ROWS),
        torch.zeros(ROWS, len(neurons), dtype=torch.int8),
        neurons.starts.expand(ROWS, -1).clone(),
        torch.ones(ROWS, 1),
        spans.whole(ROWS),
    )
    long = BetaSettings(steps=30, least_steps=30)
    halves = []
    widest = int((spans.upper - spans.lower).argmax())
    for side in ("low", "high"):
        ranges = spans.whole(ROWS)
        getattr(ranges, side)[:, widest] = float((spans.lower[widest] + spans.upper[widest]) / 2)
        spans.forget(ranges.thetas, torch.arange(ROWS), torch.full((ROWS,), widest))
        half = dataclasses.replace(whole, ranges=ranges)
        halves.append(search.prove(search.search(half, long)).lower)
    worse = torch.minimum(*halves)
    outputs = torch.stack(
        [
            values_at(search.context.network, point, torch.float64)[
                search.context.network.outputs[0].name
            ].flatten()
            for point in points_of(box_around(0.2 * np.ones(3), 0.7), 200, 0, np.float64)
        ]
    )
    rows = torch.from_numpy(np.random.default_rng(3).standard_normal((ROWS, 2)))
    assert bool((worse <= (outputs @ rows.T).amin(0) + 1e-9).all())


def test_the_search_has_the_gradients_of_what_is_proven() -> None:
    """At the points where they are defined: multipliers that are not zero."""
    random = torch.Generator().manual_seed(0)
    index = torch.tensor([1, 3, 4])
    lower = torch.randn(4, 3, generator=random, dtype=torch.float64)
    upper = lower + torch.rand(4, 3, generator=random, dtype=torch.float64)
    reference = torch.randn(6, generator=random, dtype=torch.float64)
    weigh = torch.randn(4, 6, generator=random, dtype=torch.float64)
    start = torch.randn(4, 6, generator=random, dtype=torch.float64)
    force = torch.randn(4, 3, generator=random, dtype=torch.float64)
    found = []
    for searched in (False, True):
        rows, multiplier = start.clone().requires_grad_(), force.clone().requires_grad_()
        pull = Pull(index, multiplier, lower, upper)
        carried, constant = pull.searched(rows, reference) if searched else pull.through(rows, reference)[:2]
        ((carried * weigh).sum() + constant.sum()).backward()
        found.append((carried.detach(), constant.detach(), rows.grad, multiplier.grad))
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other)


def test_an_empty_range_is_excluded_and_only_by_its_multipliers(folder: Path) -> None:
    """tanh(x) of elements that read x and −x cannot have both in the upper half of their ranges, far from 0."""
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["z"], "fc", transB=1),
        helper.make_node("Tanh", ["z"], ["a"], "tanh"),
        helper.make_node("Gemm", ["a", "V", "c"], ["y"], "out", transB=1),
    ]
    constants = {
        "W": np.array([[1.0], [-1.0]], np.float32),
        "b": np.zeros(2, np.float32),
        "V": np.array([[1.0, 1.0]], np.float32),
        "c": np.array([-3.0], np.float32),
    }
    network = load_network(save(folder / "empty.onnx", nodes, constants, [1, 1], [1, 1]))
    context = engine_of(network).context(box_around(np.zeros(1), 1.0), Method.CROWN)
    neurons, spans = Neurons.of(context), Spans.of(context)
    search = BetaSearch(context, neurons, Aims(context, [clause_of([1.0])]), lambda: None, spans)
    ranges = spans.whole(1)
    ranges.low[:] = 0.25
    block = RowBlock(
        torch.zeros(1, dtype=torch.int64),
        torch.zeros(1, 0, dtype=torch.int8),
        torch.zeros(1, 0),
        torch.ones(1, 1),
        ranges,
    )
    assert float(search.prove(block).lower[0]) < -1.0
    assert float(search.prove(search.search(block, BetaSettings(steps=100))).lower[0]) > 0.0
