"""Splitting at general points decides small networks of any element-wise operator, and never against a sample."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from boundscope.properties.types import Clause, LinearConstraint
from boundscope.protocol import Arithmetic
from boundscope.search.activation_split import ActivationSearch, split_activations
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
