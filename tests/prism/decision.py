"""One decision over everything that a statistical test counts.

Every cell compares a count of fixed draws with its exact expectation. All squared deviations make one chi-square sum,
judged once, from both sides. The draws are fixed by their keys: a test either always passes or always fails, and there
is nothing to retry. Two tests decide so, at half of a level of one in a thousand million each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ALPHA = 1e-9
LEVEL = ALPHA / 2


class Cells:
    """Squared deviations in units of their variance."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.freedom = 0
        self.largest: list[tuple[float, str]] = []

    def add(self, name: str, chi_square: float, freedom: int = 1) -> None:
        self.sum += chi_square
        self.freedom += freedom
        self.largest = sorted([*self.largest, (chi_square / freedom, name)], reverse=True)[:5]

    def binomial(self, name: str, count: int, draws: int, probability: float) -> None:
        """`count` of `draws`. A count whose variance is too small to be nearly normal is the test's own mistake."""
        variance = draws * probability * (1 - probability)
        assert variance > 100, f"{name}: too few draws for the probability {probability}"
        self.add(name, (count - draws * probability) ** 2 / variance)

    def correlation(
        self, name: str, left: NDArray[np.float64], right: NDArray[np.float64], variance: float
    ) -> None:
        """Deviations of pairs of draws, each of mean 0 and of this variance."""
        self.add(name, float(np.sum(left * right)) ** 2 / (left.size * variance**2))

    def table(self, name: str, counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> None:
        expected = counts.sum() * probabilities
        assert expected.min() > 20, f"{name}: too few draws"
        self.add(name, float(np.sum((counts - expected) ** 2 / expected)), counts.size - 1)

    def limits(self) -> tuple[float, float]:
        from scipy import stats  # type: ignore[import-untyped]  # a second, which processes for one target need not wait

        return (
            float(stats.chi2.ppf(LEVEL / 2, self.freedom)),
            float(stats.chi2.isf(LEVEL / 2, self.freedom)),
        )

    def passes(self) -> bool:
        low, high = self.limits()
        return low < self.sum < high

    def __str__(self) -> str:
        low, high = self.limits()
        worst = "; ".join(f"{name}: {value:.1f}" for value, name in self.largest)
        return (
            f"chi-square {self.sum:.1f} of {self.freedom} degrees of freedom, limits {low:.1f} and {high:.1f}; "
            f"largest a degree: {worst}"
        )
