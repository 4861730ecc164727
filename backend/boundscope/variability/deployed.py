"""Where proof and measurement meet: every sample must lie in the interval that is proven for its point.

The proof is an interval of each layer for each single point, which encloses every result that an arithmetic of some
unit roundoff can give, in any order of summation. The units of the stochastic modes, x being the exact result of an
operation with a significand of t bits and u = 2^-t:

- SR and RR give a neighbour of x: off by less than one ulp, at most 2u|x|.
- UD gives a neighbour of RN(x): off by at most u|x| and then one ulp of that, at most 2u(1 + u)|x|.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boundscope.protocol import RoundingMode
from boundscope.variability.moments import Float64, Moments
from boundscope.variability.sampling import Perturbation


def unit_roundoff(mode: RoundingMode, precision: int) -> float:
    """The largest relative error of one operation with so many significand bits."""
    u = 2.0**-precision
    return u + 2 * u * (1 + u) if mode is RoundingMode.UD else 2 * u


@dataclass(frozen=True)
class Meeting:
    """One layer: what is proven between any two results for one point, what samples deviate from the baseline by, and
    the greatest part of the proven that was observed, each the largest over elements; `violation` is a sentence where
    a sample lies outside, "" otherwise."""

    rounding: float
    observed: float
    used: float
    violation: str


def meet(moments: Moments, lower: Float64, upper: Float64, how: Perturbation) -> Meeting:
    """Compare the extremes of all samples, [points, *S], with the proven interval of each point, of the same shape."""
    totals = moments.totals()
    baseline = moments.reference.astype(np.float64)
    least, greatest = totals.least.astype(np.float64), totals.greatest.astype(np.float64)
    wide = upper - lower
    far = np.maximum(baseline - least, greatest - baseline)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(far > 0, far / wide, 0.0)
    outside = ~((least >= lower) & (greatest <= upper)) | ~totals.finite
    violation = ""
    if outside.any():
        place = np.unravel_index(int(np.flatnonzero(outside)[0]), outside.shape)
        violation = _violation(moments, place, (lower, upper), (least, greatest), how)
    return Meeting(float(wide.max()), float(np.nanmax(far)), float(np.nanmax(parts)), violation)


def _violation(
    moments: Moments,
    place: tuple[np.intp, ...],
    proven: tuple[Float64, Float64],
    seen: tuple[Float64, Float64],
    how: Perturbation,
) -> str:
    index = ", ".join(str(int(position)) for position in place[1:])
    numbers = moments.numbers
    return (
        f"{moments.name}, point {int(place[0])}, element [{index}]: proven {proven[0][place]:.17g} to "
        f"{proven[1][place]:.17g}, samples reach from {seen[0][place]:.17g} to {seen[1][place]:.17g} "
        f"(mode {how.mode}, seed {how.seed}, samples {numbers[0]} to {numbers[-1]})"
    )
