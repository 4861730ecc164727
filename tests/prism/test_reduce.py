"""Sums over rows: every bit against rational arithmetic in the stated order, on every target, for any split."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from boundscope_prism import PrismArgumentError, reduce, rounding
from prism.rows import MODES, Reference, bits, check_targets, expect, rows_of

TYPES = (np.float32, np.float64)
ORDERS: tuple[reduce.Order, ...] = ("lanes", "sequential")


@pytest.mark.parametrize("precision", [None, 8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [1, 7, 16, 37])
def test_every_bit_is_that_of_rational_arithmetic(
    columns: int, dtype: Any, mode: Any, precision: int | None
) -> None:
    r = rounding(mode, seed=5, sample=2, precision=precision, threads=1)
    x = rows_of(columns, dtype)
    y = np.ascontiguousarray(x[::-1])
    reference = Reference(r, dtype, 9)
    a, b = x.astype(float).tolist(), y.astype(float).tolist()
    for order in ORDERS:
        arguments: dict[str, Any] = {"order": order, "operation": 9, "first_row": 3}
        rows = list(enumerate(zip(a, b, strict=True), start=3))
        expect(reduce.sum(x, r, **arguments), [reference.sum(p, 0, i, order) for i, (p, _) in rows], "sum")
        expect(
            reduce.dot(x, y, r, **arguments), [reference.dot(p, q, 0, i, order) for i, (p, q) in rows], "dot"
        )
        expect(reduce.mean(x, r, **arguments), [reference.mean(p, i, order) for i, (p, _) in rows], "mean")
        got = reduce.variance(x, r, correction=1, **arguments)
        expect(got, [reference.moments(p, 1, i, order)[2] for i, (p, _) in rows], "variance")


@pytest.mark.parametrize("mode", ["sr", "ud"])
def test_rows_longer_than_a_tile_of_bits(mode: Any) -> None:
    """Step 32 begins a new tile; the tree's steps are on one side of it or on both."""
    for columns in (461, 525):
        x = np.random.default_rng(columns).standard_normal((2, columns)).astype(np.float32)
        r = rounding(mode, seed=1, threads=1)
        reference = Reference(r, np.float32)
        rows = list(enumerate(x.astype(float).tolist()))
        expect(reduce.sum(x, r), [reference.sum(p, 0, i) for i, p in rows])
        expect(reduce.sum_of_squares(x, r), [reference.dot(p, p, 0, i) for i, p in rows])


def test_a_row_of_one_element_is_that_element() -> None:
    for mode in MODES:
        x = np.array([[3.0], [-0.0]], np.float32)
        assert bits(reduce.sum(x, rounding(mode))).tolist() == bits(x).ravel().tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_part_of_the_rows_gives_the_bits_of_the_whole(mode: Any, dtype: Any) -> None:
    x = np.random.default_rng(1).standard_normal((23, 50)).astype(dtype)
    r = rounding(mode, seed=2, threads=1)
    for function in (reduce.sum, reduce.sum_of_squares, reduce.mean, reduce.variance):
        for order in ORDERS:
            whole = function(x, r, order=order, operation=4)
            parts = [
                function(x[i:j], r, order=order, operation=4, first_row=i)
                for i, j in ((0, 1), (1, 18), (18, 23))
            ]
            assert np.array_equal(bits(whole), bits(np.concatenate(parts)))


@pytest.mark.parametrize("mode", ["sr", "ud"])
def test_threads_do_not_change_a_bit(mode: Any) -> None:
    x = np.random.default_rng(2).standard_normal((300, 3000)).astype(np.float32)
    one = reduce.variance(x, rounding(mode, threads=1))
    assert np.array_equal(bits(one), bits(reduce.variance(x, rounding(mode, threads=3))))


def test_every_target_gives_the_same_bits() -> None:
    check_targets(
        "import hashlib, numpy as np\n"
        "from boundscope_prism import reduce, rounding\n"
        "from boundscope_prism.reduce import variance\n"
        "from prism.rows import rows_of\n"
        "for dtype in (np.float32, np.float64):\n"
        "  for columns in (5, 16, 77, 600):\n"
        "    x = rows_of(columns, dtype, 3)\n"
        "    for mode in ('rn', 'sr', 'ud', 'rr'):\n"
        "      for precision in (None, 8):\n"
        "        r = rounding(mode, seed=3, precision=precision, threads=1)\n"
        "        for f in (reduce.sum, reduce.sum_of_squares, reduce.mean, variance):\n"
        "          print(hashlib.sha256(f(x, r).tobytes() + f(x, r, order='sequential').tobytes()).hexdigest()[:12])\n"
    )


def test_the_harmonic_series_stagnates_in_float32_and_not_under_sr() -> None:
    """One after another, 10^7 terms: float32 stops at 15.40 while the sum is 16.695, which SR finds."""
    n = 10**7
    terms = 1 / np.arange(1, n + 1)
    x = terms.astype(np.float32)

    def total(x: Any, mode: Any) -> float:
        return float(reduce.sum(x, rounding(mode, seed=1, threads=1), order="sequential"))

    assert total(terms, "rn") == pytest.approx(16.695, abs=5e-4)
    assert total(x, "rn") == pytest.approx(15.4037, abs=5e-4)
    assert total(x, "ud") == pytest.approx(15.40, abs=0.1)
    assert total(x, "sr") == pytest.approx(16.695, abs=0.02)


def test_sums_are_close_to_torch() -> None:
    x = torch.randn(6, 5, 40, generator=torch.Generator().manual_seed(0))
    r = rounding("sr", seed=1, threads=1)
    for axis in (0, 1, -1, (0, 2), None):
        got = reduce.sum(x, r, axis=axis)
        assert isinstance(got, torch.Tensor)
        assert torch.allclose(got, x.sum() if axis is None else x.sum(axis), rtol=1e-5, atol=1e-4)
        assert reduce.mean(x, r, axis=axis, keepdims=True).ndim == 3
    assert torch.allclose(reduce.variance(x, r), x.var(-1), rtol=1e-5)
    assert torch.allclose(reduce.variance(x, r, correction=0, axis=1), x.var(1, correction=0), rtol=1e-5)


def test_another_axis_is_moved_to_the_end() -> None:
    x = np.random.default_rng(4).standard_normal((8, 9, 10))
    for mode in MODES:
        r = rounding(mode, seed=1)
        moved = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        assert np.array_equal(reduce.sum(x, r, axis=1), reduce.sum(moved, r))
        assert np.array_equal(reduce.sum(moved.transpose(2, 0, 1), r, axis=0), reduce.sum(moved, r))


def test_a_variance_without_degrees_of_freedom_is_not_a_number() -> None:
    got = reduce.variance(np.ones((2, 1), np.float32), rounding("rn"))
    assert np.isnan(got).all()


def test_out_receives_the_result() -> None:
    x = np.ones((4, 32))
    out = np.empty(4)
    assert reduce.sum(x, rounding("rn"), out=out) is out
    assert out.tolist() == [32.0] * 4


def test_arguments_that_are_refused() -> None:
    r = rounding("sr")
    x = np.ones((3, 4), np.float32)
    with pytest.raises(PrismArgumentError, match="at least one element"):
        reduce.sum(np.ones((3, 0), np.float32), r)
    with pytest.raises(PrismArgumentError, match="expected an axis"):
        reduce.sum(x, r, axis=2)
    with pytest.raises(PrismArgumentError, match="each axis once"):
        reduce.sum(x, r, axis=(1, -1))
    with pytest.raises(PrismArgumentError, match="order"):
        reduce.sum(x, r, order="random")  # type: ignore[arg-type]
    with pytest.raises(PrismArgumentError, match="shape of a"):
        reduce.dot(x, x[:2], r)
    with pytest.raises(PrismArgumentError, match="float32 or float64"):
        reduce.sum(np.ones(3, int), r)
    with pytest.raises(PrismArgumentError, match="precision"):
        reduce.sum(x, rounding("sr", precision=40))
    with pytest.raises(PrismArgumentError, match="correction"):
        reduce.variance(x, r, correction=math.nan)
    with pytest.raises(PrismArgumentError, match="out"):
        reduce.sum(x, r, out=np.empty(4, np.float32))
