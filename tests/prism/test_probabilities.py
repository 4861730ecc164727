"""The probabilities of SR and UD, and that draws are independent: one decision over everything.

Every cell below compares a count of fixed draws with its exact expectation. All their squared deviations make one
chi-square sum, which is judged once, at a level of one in a thousand million. The draws are fixed by their keys: this
either always passes or always fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from boundscope_prism import add
from prism import oracle

DRAWS = 65_536
SHORT = 4_096
QUANTILE = 5.9978  # of the standard normal distribution at 1 - 1e-9

# Cells must not share random words, so each has seeds of its own.
Draw = Callable[[float, float, str, int], np.ndarray]


def by_element(a: float, b: float, mode: str, seed: int) -> np.ndarray:
    return add(np.full(DRAWS, a, np.float32), np.full(DRAWS, b, np.float32), mode=mode, seed=seed)


def by(name: str) -> Draw:
    """Draws that differ in one other part of the key; the same element of each."""

    def draw(a: float, b: float, mode: str, seed: int) -> np.ndarray:
        left, right = np.full(1, a, np.float32), np.full(1, b, np.float32)
        keys = ({"seed": seed * SHORT, name: seed * SHORT + value} for value in range(SHORT))
        return np.array([add(left, right, mode=mode, **key)[0] for key in keys])

    return draw


WAYS: tuple[Draw, ...] = (by_element, by("seed"), by("sample"), by("operation"))


# a + b: both signs, around powers of two, cancellation, wide gaps of exponent, near overflow and underflow.
PAIRS = [
    (1.0, 2.0**-25),
    (1.0, 2.0**-24),
    (1.0, 3 * 2.0**-25),
    (-1.0, -(2.0**-25)),
    (1.0, -(2.0**-26)),
    (-1.0, 2.0**-26),
    (2.0, -(2.0**-25)),
    (1.9999998807907104, 2.0**-24),
    (-2.0, 2.0**-25),
    (1.0, 5 * 2.0**-29),
    (0.1, 0.2),
    (-0.1, -0.7),
    (3.1415927410125732, -2.7182817e-06),
    (1e8, 3.7),
    (-123456.7890625, 0.0123),
    (2.0**-100, 2.0**-124 * 0.7),
    (2.0**-126, 2.0**-149 * 3),
    (2.0**-125, -(2.0**-149)),
    (2.0**-123, 2.0**-149 * 5),
    (2.0**127, 2.0**103 * 0.3),
    (-(2.0**127), -(2.0**103) * 0.3),
    (1.5, 2.0**-33),
]


def probability_of_upper(a: float, b: float) -> tuple[Fraction, Fraction, Fraction]:
    """The two neighbours of the sum and the probability of the upper one."""
    x = Fraction(float(np.float32(a))) + Fraction(float(np.float32(b)))
    low, high = oracle.neighbours(x)
    return low, high, (x - low) / (high - low) if high > low else Fraction(0)


def squared_deviations() -> Iterator[float]:
    yield from _single_draws()
    yield from _pairs_of_draws()
    yield from _uniformity()


def _single_draws() -> Iterator[float]:
    seeds = itertools.count(1000)
    for a, b in PAIRS:
        low, high, p = probability_of_upper(a, b)
        nearest = np.float32(
            float(oracle.nearest(Fraction(float(np.float32(a))) + Fraction(float(np.float32(b)))))
        )
        up, down = np.nextafter(nearest, np.float32(np.inf)), np.nextafter(nearest, np.float32(-np.inf))
        for draw in WAYS:
            result = draw(a, b, "sr", next(seeds)).astype(np.float64)
            assert set(np.unique(result)) <= {float(low), float(high)}
            yield from _binomial(np.count_nonzero(result == float(high)), result.size, float(p))
            result = draw(a, b, "ud", next(seeds))
            assert set(np.unique(result)) <= {up, down}
            yield from _binomial(np.count_nonzero(result == up), result.size, 0.5)


def _binomial(count: int, draws: int, p: float) -> Iterator[float]:
    variance = draws * p * (1 - p)
    if variance < 100:  # the squared deviation would not be near chi-square; exactness has its own tests
        assert p * draws == 0 or abs(count - p * draws) < 200
        return
    yield (count - draws * p) ** 2 / variance


def _pairs_of_draws() -> Iterator[float]:
    """Neighbouring elements, and the same elements under neighbouring keys, are not correlated."""
    for mode, a, b, p in (("sr", 1.0, 2.0**-24, 0.5), ("sr", 1.0, 2.0**-25, 0.25), ("ud", 1.0, 0.0, 0.5)):
        left, right = np.full(DRAWS, a, np.float32), np.full(DRAWS, b, np.float32)
        deviations = [(add(left, right, mode=mode, **key) > 1) - p for key in KEYS]
        for lag in (1, 4, 16, 64, 512, 8192):
            yield _correlation(deviations[0][:-lag], deviations[0][lag:], p)
        for other in deviations[1:]:
            yield _correlation(deviations[0], other, p)


def _correlation(left: np.ndarray, right: np.ndarray, p: float) -> float:
    """The squared sum of products in units of its variance, (p (1 - p))**2 for each product."""
    return float(np.sum(left * right) ** 2 / (left.size * (p * (1 - p)) ** 2))


KEYS: tuple[dict[str, int], ...] = (
    {},
    {"seed": 1},
    {"sample": 1},
    {"operation": 1},
    {"seed": 1, "sample": 1},
    {"seed": 2**63},
    {"first": DRAWS},
)


def _uniformity() -> Iterator[float]:
    """SR's own random numbers, read back by how often ever smaller addends carry: sums of 16 thresholds."""
    word_above = np.zeros((16, DRAWS), bool)
    for k in range(16):
        addend = np.full(DRAWS, (k + 0.5) / 16 * 2.0**-23, np.float32)
        word_above[k] = add(np.ones(DRAWS, np.float32), addend, seed=99) > 1
    assert np.all(word_above[:-1] <= word_above[1:])
    counts = np.diff(np.concatenate([[0], np.count_nonzero(word_above, axis=1), [DRAWS]]))
    expected = np.full(17, DRAWS / 16)
    expected[[0, -1]] /= 2
    yield float(np.sum((counts - expected) ** 2 / expected))
    yield from (0.0,) * 15


def test_probabilities_are_exact_and_draws_are_independent() -> None:
    cells = list(squared_deviations())
    freedom = len(cells)
    assert freedom > 150
    # Wilson and Hilferty's approximation of the quantile.
    limit = freedom * (1 - 2 / (9 * freedom) + QUANTILE * np.sqrt(2 / (9 * freedom))) ** 3
    assert sum(cells) < limit, (
        f"chi-square {sum(cells):.1f} of {freedom} degrees of freedom, limit {limit:.1f}"
    )


def test_the_decision_can_fail() -> None:
    """A generator whose probability is off by one in 64 is found."""
    draws = 10 * DRAWS
    wrong = np.random.default_rng(0).random(draws) < 0.5 + 1 / 64
    assert sum(_binomial(np.count_nonzero(wrong), draws, 0.5)) > QUANTILE**2 * 4
