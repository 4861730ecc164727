"""Splitting at general points decides small networks of any element-wise operator, and never against a sample."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from boundscope.errors import CancelledError
from boundscope.properties.types import Clause, LinearConstraint
from boundscope.protocol import Arithmetic
from boundscope.search.activation_split import ActivationSearch, split_activations
from boundscope.search.checkpoint import SearchState
from boundscope.search.task import SearchOutcome
from support.searches import Search as TaskSearch
from support.searches import case
from support.smooth import ACTIVATIONS, smooth

JUMPS = {"Sign", "Floor"}
LOW, HIGH = [-0.6, -0.5], [0.8, 0.9]


def below(bound: float) -> Clause:
    """The first output is at most so much."""
    return Clause((LinearConstraint(np.array([0]), np.array([1.0]), Fraction(bound)),))


class Search(TaskSearch):
    def run(self) -> SearchOutcome:
        return split_activations(self.task)


def least_of(network: Path, finer: int = 2) -> float:
    """The least output on a grid that is refined around its least points."""
    search = Search(network, [case(LOW, HIGH, below(0.0))])
    low, high = np.array(LOW), np.array(HIGH)
    best = np.inf
    for _ in range(finer):
        points = np.array(list(itertools.product(*np.linspace(low, high, 21).T)))
        values = search.outputs(points)[:, 0]
        best = min(best, float(values.min()))
        centre, width = points[values.argmin()], (high - low) / 10
        low, high = np.maximum(LOW, centre - width), np.minimum(HIGH, centre + width)
    return best


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


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
def test_what_is_below_every_sample_is_proven_and_what_is_not_is_never(
    tmp_path: Path, name: str, arithmetic: Arithmetic
) -> None:
    widths = (
        [2, 6, 1] if name == "Mul" else [2, 6, 5, 1]
    )  # products of products are too loose for so few domains
    network = smooth(tmp_path / "n.onnx", name, widths, seed=4, scale=1.2)
    least = least_of(network)
    apart = below(least - 0.1 - 0.1 * abs(least))
    found = Search(network, [case(LOW, HIGH, apart)], arithmetic=arithmetic, judged=False)
    if name not in JUMPS:
        assert proven_by(found, 400) == {(0, 0)}
    thin = Search(network, [case(LOW, HIGH, below(least))], arithmetic=arithmetic, judged=False)
    assert proven_by(thin, 60) == frozenset()  # a sample violates it
    for standing in thin.standings:
        assert all(lower <= 1e-9 for lower in standing.lower.values())


def test_a_search_goes_on_from_its_state(tmp_path: Path) -> None:
    """Stopped after a few rounds and begun again with what it left, it ends with the same count of domains."""
    network = smooth(tmp_path / "n.onnx", "Both", [2, 6, 5, 1], seed=4, scale=1.2)
    clause = below(least_of(network, finer=1) - 0.15)
    whole = Search(network, [case(LOW, HIGH, clause)], judged=False, batch=2)
    assert whole.run().proven == {(0, 0)}
    first = Search(network, [case(LOW, HIGH, clause)], judged=False, batch=2)
    kept: list[SearchState] = []

    def between(search: ActivationSearch) -> None:
        kept.append(search.state())
        if len(kept) == 2:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        split_activations(first.task, between=between)
    second = Search(network, [case(LOW, HIGH, clause)], judged=False, batch=2)
    assert split_activations(second.task, kept[-1]).proven == {(0, 0)}
    assert second.standings[-1].done == whole.standings[-1].done > 3


def test_two_ranks_bound_the_same_domains(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("test_activation_split.py")
    found = {}
    for size in (1, 2):
        folder = tmp_path / str(size)
        folder.mkdir()
        smooth(folder / "n.onnx", "Both", [5, 12, 12, 1], seed=3)
        workers = [
            subprocess.Popen([sys.executable, script, str(rank), str(size), str(folder)], env=environment)
            for rank in range(size)
        ]
        assert [worker.wait(120) for worker in workers] == [0] * size
        found[size] = [(folder / f"found{rank}").read_text() for rank in range(size)]
    assert found[2] == found[1] * 2
