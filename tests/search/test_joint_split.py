"""Splitting what matrix products, Softmax and maxima read decides small networks, and never against a sample."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from boundscope.errors import CancelledError
from boundscope.properties.types import Clause, LinearConstraint
from boundscope.protocol import Arithmetic
from boundscope.search.activation_split import ActivationSearch, split_activations
from boundscope.search.checkpoint import SearchState
from boundscope.search.input_split import split_inputs
from boundscope.search.task import SearchOutcome
from support.attention import KINDS, attention, joint, pooled
from support.searches import Search as TaskSearch
from support.searches import case

# How far the box goes, and how far below the least output a bound is that only splits prove.
SPLITS = {
    "Scores": (0.1, 0.02),
    "Attention": (0.3, 0.12),
    "Rectified": (0.3, 0.12),
    "MaxPool": (0.7, 0.2),
    "ReduceMax": (0.3, 0.02),
    "ReduceMin": (0.3, 0.05),
    "Max": (0.3, 0.02),
    "Min": (0.2, 0.05),
}
CENTRE = np.array([0.1, -0.2, 0.15])


def below(bound: float) -> Clause:
    """The first output is at most so much."""
    return Clause((LinearConstraint(np.array([0]), np.array([1.0]), Fraction(bound)),))


class Search(TaskSearch):
    def run(self) -> SearchOutcome:
        return split_activations(self.task)


def box(radius: float) -> tuple[list[float], list[float]]:
    return (CENTRE - radius).tolist(), (CENTRE + radius).tolist()


def least_of(network: Path, radius: float) -> float:
    """The least output at corners and at points that draw closer to the best of them."""
    low, high = box(radius)
    search = Search(network, [case(low, high, below(0.0))])
    random = np.random.default_rng(0)
    best: tuple[float, NDArray[np.float64]] = np.inf, CENTRE
    spread = radius
    for _ in range(3):
        points = best[1] + spread * random.choice([-1.0, 1.0], (100, 3)) * random.random((100, 3)) ** 0.25
        points = np.clip(points, low, high)
        values = search.outputs(points)[:, 0]
        best = min(best, (float(values.min()), points[values.argmin()]), key=lambda found: found[0])
        spread /= 4.0
    return best[0]


class EnoughError(Exception):
    """A search has bounded as many domains as a test allows."""


def proven_by(search: Search, domains: int) -> frozenset[tuple[int, int]]:
    """Clauses that are proven with so many domains."""

    def between(running: ActivationSearch) -> None:
        if search.standings and search.standings[-1].done > domains:
            raise EnoughError

    try:
        return split_activations(search.task, between=between).proven
    except EnoughError:
        return search.standings[-1].proven


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
def test_what_is_below_every_sample_is_proven_and_what_is_not_is_never(
    tmp_path: Path, kind: str, arithmetic: Arithmetic
) -> None:
    network, (radius, gap) = joint(tmp_path / "n.onnx", kind, seed=1), SPLITS[kind]
    least = least_of(network, radius)
    apart = Search(network, [case(*box(radius), below(least - gap))], arithmetic=arithmetic, judged=False)
    assert proven_by(apart, 400) == {(0, 0)}
    assert apart.standings[-1].done > 1
    thin = Search(network, [case(*box(radius), below(least))], arithmetic=arithmetic, judged=False)
    assert proven_by(thin, 20) == frozenset()  # a sample violates it
    for standing in thin.standings:
        assert all(lower <= 1e-9 for lower in standing.lower.values())


@pytest.mark.parametrize("kind", ["Scores", "Attention"])
def test_parts_of_split_inputs_have_planes_of_their_own(tmp_path: Path, kind: str) -> None:
    """With the planes of the whole box no part would ever be bounded better than these allow."""
    network, radius = joint(tmp_path / "n.onnx", kind, seed=1), 0.4
    clause = below(least_of(network, radius) - 0.1)
    search = Search(network, [case(*box(radius), clause)], judged=False)
    assert split_inputs(search.task).proven == {(0, 0)}


def test_a_search_goes_on_from_its_state(tmp_path: Path) -> None:
    """Stopped after a few rounds and begun again with what it left, it ends with the same count of domains."""
    network, (radius, gap) = attention(tmp_path / "n.onnx", relu=True, seed=1), SPLITS["Rectified"]
    cases = [case(*box(radius), below(least_of(network, radius) - gap))]
    whole = Search(network, cases, judged=False, batch=2)
    assert whole.run().proven == {(0, 0)}
    first = Search(network, cases, judged=False, batch=2)
    kept: list[SearchState] = []

    def between(search: ActivationSearch) -> None:
        kept.append(search.state())
        if len(kept) == 2:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        split_activations(first.task, between=between)
    second = Search(network, cases, judged=False, batch=2)
    assert split_activations(second.task, kept[-1]).proven == {(0, 0)}
    assert second.standings[-1].done == whole.standings[-1].done > 3


def test_two_ranks_bound_the_same_domains(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("test_activation_split.py")
    found = {}
    for size in (1, 2):
        folder = tmp_path / str(size)
        folder.mkdir()
        pooled(folder / "n.onnx", inputs=5, seed=3)
        workers = [
            subprocess.Popen([sys.executable, script, str(rank), str(size), str(folder)], env=environment)
            for rank in range(size)
        ]
        assert [worker.wait(120) for worker in workers] == [0] * size
        found[size] = [(folder / f"found{rank}").read_text() for rank in range(size)]
    assert found[2] == found[1] * 2
