"""Statistics of the real kernels: known additions under SR and UD show the deviation that the arithmetic says."""

from __future__ import annotations

import numpy as np
import pytest

from boundscope.variability.compare import compare
from boundscope.variability.digits import Digits, Kind, digits
from boundscope.variability.moments import Moments
from boundscope_prism import Mode, Rounding, matmul, rounding

ROWS, COLUMNS, SAMPLES = 50, 40, 50
ULP = 2.0**-23


def total(a: float, b: float, how: Rounding) -> np.ndarray:
    """a + b in every element: one fused multiply-add each, 1·b + a, rounded once."""
    ones, terms = np.ones((ROWS, 1), np.float32), np.full((1, COLUMNS), b, np.float32)
    return np.asarray(matmul(ones, terms, how, bias=np.full(COLUMNS, a, np.float32)))


def sampled(a: float, b: float, mode: Mode) -> Digits:
    moments = Moments(total(a, b, rounding("rn")))
    for sample in range(SAMPLES):
        moments.update(sample, total(a, b, rounding(mode, seed=3, sample=sample, threads=1)))
    return digits(moments)


def test_inexact_addition() -> None:
    """1 + 2^-25 lies a quarter of an ulp above 1: SR deviates by sqrt(3)/4 ulp, UD by 3/4."""
    sr, ud = sampled(1, 2.0**-25, "sr"), sampled(1, 2.0**-25, "ud")
    assert sr.deviation_bits.mean() == pytest.approx(-np.log2(np.sqrt(3) / 4 * ULP), abs=0.03)
    assert ud.deviation_bits.mean() == pytest.approx(-np.log2(3 / 4 * ULP), abs=0.03)
    lost = compare({"sum": sr}, {"sum": ud}, ("SR", "UD")).mean_difference_bits
    assert lost == pytest.approx(-np.log2(np.sqrt(3)), abs=0.03)


def test_exact_addition() -> None:
    """An exact sum is exact under SR, and moves under UD, which perturbs rounded results: both are reported so."""
    sr, ud = sampled(1.5, 0.25, "sr"), sampled(1.5, 0.25, "ud")
    assert (sr.kind == Kind.EXACT).all()
    assert (ud.kind == Kind.RELATIVE).all()
    assert ud.deviation_bits.mean() == pytest.approx(-np.log2(ULP / 1.75), abs=0.03)


def test_zero_stays_zero() -> None:
    """A sum of zero is exact in every mode."""
    assert (sampled(0.5, -0.5, "sr").kind == Kind.EXACT).all()
    assert (sampled(0.5, -0.5, "ud").kind == Kind.EXACT).all()
