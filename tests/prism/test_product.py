"""matmul and gemm: every fused multiply-add is rounded as the text says, in the stated order, on every target."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import boundscope_prism
from boundscope_prism import PrismArgumentError, gemm, matmul, rounding
from prism import oracle

MODES = ("rn", "sr", "ud", "rr")
WIDTHS: dict[Any, int] = {np.float32: 32, np.float64: 64}


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)


def key_of(seed: int, sample: int, operation: int, stage: int = 0) -> oracle.Key:
    return oracle.Key(seed, sample, operation, stage)


def format_of(dtype: Any, precision: int | None) -> oracle.Format:
    if dtype == np.float32:
        return oracle.float32(precision or 24)
    return oracle.float64(precision or 53)


def chain(
    left: np.ndarray,
    right: np.ndarray,
    start: float,
    mode: str,
    precision: int | None,
    key: oracle.Key,
    place: tuple[int, int],
) -> int:
    """The bits of one sum of products: `place` is the stream's row and the lane."""
    row, lane = place
    dtype = left.dtype.type
    fmt, width = format_of(dtype, precision), WIDTHS[dtype]
    total = oracle.bits_of(start + 0.0, width)
    for step, (a, b) in enumerate(zip(left, right, strict=True)):
        x = oracle.exact("fma", float(a), float(b), oracle.from_bits(total, width))
        random = oracle.random_of(key, mode, lane, step, row=row, steps=len(left))
        total = oracle.rounded(x, fmt, mode, random)
    return total


def ordinary(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape)


def mostly_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.where(rng.random(shape) < 0.4, 0.0, rng.standard_normal(shape))


def tiny(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-76, -60, shape)


def huge(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * 2.0 ** rng.integers(58, 66, shape)


def special(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.5, 2.0**-149, 3.4e38, -1e-40])
    return rng.choice(values, shape, p=[0.2, 0.2, 0.02, 0.02, 0.01, 0.2, 0.2, 0.05, 0.05, 0.05])


KINDS: tuple[Callable[[np.random.Generator, tuple[int, ...]], np.ndarray], ...] = (
    ordinary,
    mostly_zero,
    tiny,
    huge,
    special,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_every_step_is_rounded_as_the_text_says(mode: str, kind: Any) -> None:
    rng = np.random.default_rng(3)
    for dtype, precision in ((np.float32, None), (np.float32, 8), (np.float64, None), (np.float64, 30)):
        a = kind(rng, (3, 37)).astype(dtype)
        b = kind(rng, (37, 18)).astype(dtype)
        bias = kind(rng, (18,)).astype(dtype)
        chosen = rounding(mode, seed=11, sample=4, precision=precision)
        result = matmul(a, b, chosen, bias=bias, operation=9, first_row=2)
        key = key_of(11, 4, 9)
        for i, j in itertools.product(range(3), range(18)):
            place = (2 + i) * 2 + j // 16, j % 16
            expected = chain(a[i], b[:, j], float(bias[j]), mode, precision, key, place)
            assert bits(result)[i, j] == expected, (dtype, precision, i, j)


@pytest.mark.parametrize("mode", MODES)
def test_long_sums_go_on_where_the_packed_part_ended(mode: str) -> None:
    """The kernel packs 256 steps at a time; a row of the second part must not begin anew."""
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((1, 300), (300, 2)))
    result = matmul(a, b, rounding(mode, seed=1))
    for j in range(2):
        expected = chain(a[0], b[:, j], 0.0, mode, None, key_of(1, 0, 0), (0, j))
        assert bits(result)[0, j] == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("beta", [None, 1.0, -1.7])
def test_alpha_and_beta_mean_what_blas_says(mode: str, alpha: float, beta: float | None) -> None:
    """alpha a b + beta c: the start of the sums where alpha is 1, else one fused multiply-add at the end."""
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5), (5, 17), (2, 17)))
    chosen = rounding(mode, seed=2, sample=1)
    given = {} if beta is None else {"c": c, "beta": beta}
    result = gemm(a, b.T.copy(), chosen, alpha=alpha, transpose_b=True, operation=3, **given)
    near = alpha * (a.astype(float) @ b.astype(float)) + (0.0 if beta is None else beta * c.astype(float))
    assert np.allclose(result, near, atol=1e-5)

    fmt = oracle.float32()

    def scaled(x: oracle.Value, stage: int, row: int, lane: int) -> float:
        random = oracle.random_of(key_of(2, 1, 3, stage), mode, lane, 0, row=row, steps=1)
        return oracle.from_bits(oracle.rounded(x, fmt, mode, random))

    for i, j in itertools.product(range(2), range(17)):
        row, lane = i * 2 + j // 16, j % 16
        start = 0.0 if beta is None else float(c[i, j])
        if beta == -1.7:
            start = scaled(oracle.exact("multiply", float(np.float32(beta)), start), 1, row, lane)
        begun = start if alpha == 1.0 else 0.0
        total = oracle.from_bits(chain(a[i], b[:, j], begun, mode, None, key_of(2, 1, 3), (row, lane)))
        if alpha != 1.0:
            rounded_alpha = float(np.float32(alpha))
            exact = (
                oracle.exact("multiply", rounded_alpha, total)
                if beta is None
                else oracle.exact("fma", rounded_alpha, total, start)
            )
            total = scaled(exact, 2, row, lane)
        assert bits(result)[i, j] == oracle.bits_of(total)


def test_out_may_be_c() -> None:
    rng = np.random.default_rng(7)
    a, b, c = (rng.standard_normal(s) for s in ((3, 4), (4, 5), (3, 5)))
    for alpha, beta in ((1.0, 1.0), (1.0, 0.5), (2.0, 1.0), (2.0, 0.5)):
        apart = gemm(a, b, rounding("sr", seed=1), c=c, alpha=alpha, beta=beta)
        kept = c.copy()
        assert gemm(a, b, rounding("sr", seed=1), c=kept, alpha=alpha, beta=beta, out=kept) is kept
        assert np.array_equal(apart, kept)


SAME_BITS = """
import hashlib, sys
import numpy as np
import boundscope_prism as prism
rng = np.random.default_rng(1)
digest = hashlib.sha256()
for dtype in (np.float32, np.float64):
    for scale in (1.0, 2.0**-66, 2.0**62):
        a, b = ((rng.standard_normal(s) * scale).astype(dtype) for s in ((29, 70), (70, 35)))
        for mode in ("rn", "sr", "ud", "rr"):
            for precision in (None, 11):
                digest.update(prism.matmul(a, b, prism.rounding(mode, seed=3, precision=precision)).tobytes())
print(digest.hexdigest())
"""


def test_every_target_gives_the_same_bits() -> None:
    digests = set()
    for target in boundscope_prism.targets():
        environment = {**os.environ, "BOUNDSCOPE_PRISM_TARGET": target}
        run = subprocess.run(
            [sys.executable, "-c", SAME_BITS], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_threads_strides_or_the_split(mode: str, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    shape_a, shape_b = ((130, 64), (64, 150)) if dtype == np.float32 or mode != "sr" else ((20, 16), (16, 40))
    a, b = (rng.standard_normal(s).astype(dtype) for s in (shape_a, shape_b))
    whole = matmul(a, b, rounding(mode, seed=5, threads=1), operation=7)
    for threads in (2, 3, 5):
        again = matmul(a, b, rounding(mode, seed=5, threads=threads), operation=7)
        assert np.array_equal(bits(whole), bits(again))
    strided = matmul(np.asfortranarray(a), np.ascontiguousarray(b.T).T, rounding(mode, seed=5), operation=7)
    assert np.array_equal(bits(whole), bits(strided))
    wide = np.zeros((a.shape[0], 2 * a.shape[1]), dtype)
    wide[:, ::2] = a
    assert np.array_equal(bits(whole), bits(matmul(wide[:, ::2], b, rounding(mode, seed=5), operation=7)))
    cut = 7
    parts = [
        matmul(a[:cut], b, rounding(mode, seed=5), operation=7),
        matmul(a[cut:], b, rounding(mode, seed=5), operation=7, first_row=cut),
    ]
    assert np.array_equal(bits(whole), bits(np.concatenate(parts)))
    if mode != "rn":
        assert not np.array_equal(whole, matmul(a, b, rounding(mode, seed=6), operation=7))


def test_leading_axes_broadcast_and_draw_apart() -> None:
    rng = np.random.default_rng(9)
    a = np.broadcast_to(rng.standard_normal((1, 4, 9)), (3, 4, 9))
    b = rng.standard_normal((2, 1, 9, 5))
    near = matmul(a, b, rounding("rn"))
    assert near.shape == (2, 3, 4, 5)
    assert np.allclose(near, a @ b, rtol=1e-13)
    drawn = matmul(a, b, rounding("ud", seed=1))
    assert not np.array_equal(drawn[0, 0], drawn[0, 1])
    assert np.array_equal(drawn[1, 2], matmul(a[2], b[1, 0], rounding("ud", seed=1), first_row=5 * 4))


def test_vectors_are_rows_and_columns() -> None:
    a, b = np.arange(1, 5, dtype=np.float32), np.arange(8, dtype=np.float32).reshape(4, 2)
    assert np.array_equal(matmul(a, b, rounding("rn")), a @ b)
    assert np.array_equal(matmul(b.T, a, rounding("rn")), b.T @ a)
    assert matmul(a, a, rounding("rn")).shape == ()


def test_tensors_give_tensors_and_views_are_read_in_place() -> None:
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    out = torch.empty(3, 6)
    result = matmul(x, weight.T, rounding("sr", seed=2), out=out)
    assert result is out
    assert isinstance(matmul(x, weight.T, rounding("sr")), torch.Tensor)
    assert torch.allclose(out, x @ weight.T, atol=1e-5)


def test_empty_sizes() -> None:
    assert matmul(np.zeros((0, 3)), np.zeros((3, 2)), rounding("sr")).shape == (0, 2)
    bias = np.array([1.5, -2.0])
    assert np.array_equal(matmul(np.zeros((2, 0)), np.zeros((0, 2)), rounding("sr"), bias=bias), [bias, bias])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: matmul(np.ones((2, 3)), np.ones((2, 3)), r), "3 rows"),
        (lambda r: matmul(np.ones((2, 3), np.float32), np.ones((3, 2)), r), "b: expected float32"),
        (lambda r: matmul(np.ones((2, 3), int), np.ones((3, 2)), r), "a: expected float32 or float64"),
        (lambda r: matmul(np.ones((2, 3)), np.ones((3, 2)), r, bias=np.ones(3)), "bias"),
        (lambda r: matmul(np.ones((2, 4, 3)), np.ones((3, 3, 2)), r), "broadcast"),
        (lambda r: matmul(np.ones((2, 3)), np.ones((3, 2)), r, out=np.ones((2, 3))), "out"),
        (lambda r: matmul(np.ones((2, 3)), np.ones((3, 2)), r, first_row=-1), "first_row"),
        (lambda r: matmul(np.ones((2, 3)), np.ones((3, 2)), r, operation=2**56), "operation"),
        (lambda r: gemm(np.ones((2, 3)), np.ones((3, 2)), r, c=np.ones((3, 3))), "c: expected"),
        (lambda r: gemm(np.ones(3), np.ones((3, 2)), r), "matrices"),
    ],
)
def test_arguments_that_do_not_fit_are_named(call: Callable[[Any], object], said: str) -> None:
    with pytest.raises(PrismArgumentError, match=said):
        call(rounding("sr"))


def test_a_precision_beyond_the_type_is_refused() -> None:
    ones = np.ones((2, 2), np.float32)
    with pytest.raises(PrismArgumentError, match="24 significand bits"):
        matmul(ones, ones, rounding("sr", precision=30))


def test_known_digest() -> None:
    """The bits of a fixed product: a change of the words or of the order must be meant."""
    rng = np.random.default_rng(42)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 40), (40, 20)))
    results = [matmul(a, b, rounding(mode, seed=1, sample=2), operation=3).tobytes() for mode in MODES]
    assert hashlib.sha256(b"".join(results)).hexdigest()[:16] == "8f70a3127e968cdf"
