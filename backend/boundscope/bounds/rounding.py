"""Rounding errors of sums of products, for the deployed network and for the engine itself.

γ(k) = k·u / (1 − k·u) bounds the relative error of k roundings in any order, fused or not
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1 and §3.4).
"""

from __future__ import annotations

from dataclasses import dataclass

from boundscope.protocol import Arithmetic

UNIT_FLOAT32 = 2.0**-24
UNIT_FLOAT64 = 2.0**-53
LEAST_NORMAL_FLOAT32 = 2.0**-126
LARGEST_FLOAT32 = (2.0 - 2.0**-23) * 2.0**127
LEAST_NORMAL_FLOAT64 = 2.0**-1022
# Magnitudes and error terms are themselves computed in float64; this factor covers their own rounding for
# every sum shorter than 10¹² terms.
INFLATION = 1.0 + 2.0**-10
# Roundings added for graph optimisations that fold normalisation or constants into weights.
FOLDED = 8


def gamma(count: float, unit: float) -> float:
    """γ(count) for unit roundoff `unit`; infinite where count·unit ≥ 1."""
    product = count * unit
    return product / (1.0 - product) if product < 1.0 else float("inf")


@dataclass(frozen=True)
class RoundingModel:
    """Unit roundoff u and underflow η of the arithmetic whose errors are to be enclosed (0: exact)."""

    unit: float
    underflow: float

    @classmethod
    def of(cls, arithmetic: Arithmetic) -> RoundingModel:
        """`real` has no errors; `float32` also covers runtimes that flush subnormals to zero."""
        if arithmetic is Arithmetic.REAL:
            return cls(0.0, 0.0)
        return cls(UNIT_FLOAT32, LEAST_NORMAL_FLOAT32)

    def relative(self, terms: float) -> float:
        """Relative error of a sum of `terms` products, of their magnitudes' sum."""
        return gamma(terms + 2 + FOLDED, self.unit) if self.unit else 0.0

    def absolute(self, terms: float) -> float:
        """Underflow error of a sum of `terms` products: of each product and, where subnormals are flushed, of each
        partial sum."""
        return (2 * terms + 2) * self.underflow


ENGINE = RoundingModel(UNIT_FLOAT64, LEAST_NORMAL_FLOAT64)
ENGINE_FLOAT32 = RoundingModel(UNIT_FLOAT32, LEAST_NORMAL_FLOAT32)
