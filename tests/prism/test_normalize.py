"""Normalizations and softmax: every bit against rational arithmetic by the stages that are documented."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch

from boundscope_prism import PrismArgumentError, normalize, rounding
from prism.rows import MODES, Reference, bits, check_targets, exp_of, expect, log_of, rows_of

TYPES = (np.float32, np.float64)
EPSILON = 1e-5


@pytest.mark.parametrize("precision", [None, 8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [1, 16, 37])
def test_layer_norm_is_its_stages(columns: int, dtype: Any, mode: Any, precision: int | None) -> None:
    r = rounding(mode, seed=5, sample=2, precision=precision, threads=1)
    x = rows_of(columns, dtype)
    weight, bias = np.random.default_rng(1).standard_normal((2, columns)).astype(dtype)
    reference = Reference(r, dtype, 9)
    for w, b in ((None, None), (weight, bias), (weight, None), (None, bias)):
        wanted, means, inverses = [], [], []
        for i, row in enumerate(x.astype(float).tolist(), start=3):
            mean, deviations, variance = reference.moments(row, 0, i)
            inverse = reference.inverse(variance, EPSILON, i)
            affine = (None if one is None else one.astype(float).tolist() for one in (w, b))
            wanted.append(reference.scaled(deviations, [inverse] * columns, *affine, i))
            means.append(mean)
            inverses.append(inverse)
        got = normalize.layer_norm(x, r, weight=w, bias=b, statistics=True, operation=9, first_row=3)
        expect(got[0], wanted, "y")
        expect(got[1], means, "mean")
        expect(got[2], inverses, "1 / root")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3), (2, 2, 4, 5)])
def test_batch_norm_is_its_stages(shape: tuple[int, ...], dtype: Any, mode: Any) -> None:
    r = rounding(mode, seed=5, threads=1)
    random = np.random.default_rng(2)
    x = random.standard_normal(shape).astype(dtype)
    x[0, 0] *= 1e-30
    x[-1, -1, ...] = np.inf if mode == "sr" else 0
    channels = shape[1]
    mean, weight, bias = random.standard_normal((3, channels)).astype(dtype)
    variance = random.uniform(0.1, 2, channels).astype(dtype)
    reference = Reference(r, dtype)
    inverses = [reference.inverse(v, EPSILON, c) for c, v in enumerate(variance.astype(float).tolist())]
    m, w, b = (one.astype(float).tolist() for one in (mean, weight, bias))
    wanted = []
    flat = x.astype(float).reshape(shape[0], channels, -1)
    if flat.shape[2] == 1:
        for n in range(shape[0]):
            d = reference.each("subtract", flat[n, :, 0].tolist(), [(one,) for one in m], 10, 4 + n)
            wanted.append(reference.scaled(d, inverses, w, b, 4 + n))
    else:
        for n in range(shape[0]):
            for c in range(channels):
                row, length = (4 + n) * channels + c, flat.shape[2]
                d = reference.each("subtract", flat[n, c].tolist(), [(m[c],)] * length, 10, row)
                wanted.append(
                    reference.scaled(d, [inverses[c]] * length, [w[c]] * length, [b[c]] * length, row)
                )
    got = normalize.batch_norm(x, mean, variance, r, weight=weight, bias=bias, first_batch=4)
    expect(got.reshape(np.shape(wanted)), wanted)


@pytest.mark.parametrize("precision", [None, 8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [1, 16, 37])
def test_softmax_is_its_stages(columns: int, dtype: Any, mode: Any, precision: int | None) -> None:
    r = rounding(mode, seed=5, sample=2, precision=precision, threads=1)
    wide = np.random.default_rng(3).uniform(-120, 0, (2, columns)).astype(dtype)
    nothing = np.full((1, columns), -np.inf, dtype)
    x = np.vstack([rows_of(columns, dtype), wide, nothing])
    reference = Reference(r, dtype, 9)
    rows = list(enumerate(x.astype(float).tolist(), start=3))
    got = normalize.softmax(x, r, operation=9, first_row=3)
    expect(got, [reference.softmax(row, i) for i, row in rows], "softmax")
    got = normalize.log_softmax(x, r, operation=9, first_row=3)
    expect(got, [reference.softmax(row, i, logarithm=True) for i, row in rows], "log_softmax")


def test_exp_and_log_are_as_accurate_as_is_said() -> None:
    random = np.random.default_rng(5)
    with localcontext() as context:
        context.prec = 60
        for dtype, bound, least in ((np.float32, 2.0**-46, -700), (np.float64, 2.0**-51, -708)):
            terms = np.concatenate(
                [random.uniform(least, 0, 1000), random.uniform(-1, 0, 1000), [-1e-9, -math.log(2)]]
            )
            for t in terms.tolist():
                exact = Decimal(t).exp()
                assert abs(Decimal(exp_of(t, dtype)) / exact - 1) <= Decimal(bound)
        assert exp_of(0.0, np.float32) == 1
        for x in (1 + random.exponential(3, 1000) ** 4).tolist() + [1.0000001, 0.9999999, 1.5, 2.0]:
            exact = Decimal(x).ln()
            assert abs(Decimal(log_of(x)) / exact - 1) <= Decimal(2.0**-51)
        assert log_of(1.0) == 0


def test_the_largest_element_is_not_perturbed() -> None:
    """exp(max - max) is 1 exactly, so a row of one element is 1 in every mode but UD, whose exact 1 moves."""
    x = np.array([[7.25]], np.float32)
    for mode in ("rn", "sr", "rr"):
        assert normalize.softmax(x, rounding(mode)).tolist() == [[1.0]]


@pytest.mark.parametrize("mode", MODES)
def test_group_norm_is_layer_norm_of_its_groups(mode: Any) -> None:
    r = rounding(mode, seed=3, threads=1)
    random = np.random.default_rng(6)
    x = random.standard_normal((3, 6, 4, 5)).astype(np.float32)
    weight, bias = random.standard_normal((2, 6)).astype(np.float32)
    got, mean, inverse = normalize.group_norm(x, 3, r, weight=weight, bias=bias, statistics=True)
    assert mean.shape == inverse.shape == (3, 3)
    for n in range(3):
        for g in range(3):
            w, b = (np.repeat(one[2 * g : 2 * g + 2], 20) for one in (weight, bias))
            row = x[n, 2 * g : 2 * g + 2].reshape(-1)
            wanted = normalize.layer_norm(row, r, weight=w, bias=b, first_row=3 * n + g)
            assert np.array_equal(bits(got[n, 2 * g : 2 * g + 2].reshape(-1)), bits(wanted))


Function = Callable[..., Any]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", [normalize.layer_norm, normalize.softmax, normalize.log_softmax])
def test_a_part_of_the_rows_gives_the_bits_of_the_whole(function: Function, mode: Any) -> None:
    x = np.random.default_rng(1).standard_normal((23, 50)).astype(np.float32)
    r = rounding(mode, seed=2, threads=1)
    parts = [function(x[i:j], r, first_row=i) for i, j in ((0, 1), (1, 18), (18, 23))]
    assert np.array_equal(bits(function(x, r)), bits(np.concatenate(parts)))


@pytest.mark.parametrize("function", [normalize.layer_norm, normalize.softmax, normalize.log_softmax])
def test_threads_and_place_do_not_change_a_bit(function: Function) -> None:
    x = np.random.default_rng(2).standard_normal((100, 2000)).astype(np.float32)
    for mode in ("sr", "ud"):
        one = function(x, rounding(mode, threads=1))
        assert np.array_equal(bits(one), bits(function(x, rounding(mode, threads=3))))
        same = x.copy()
        assert function(same, rounding(mode), out=same) is same
        assert np.array_equal(bits(one), bits(same))


def test_every_target_gives_the_same_bits() -> None:
    check_targets(
        "import hashlib, numpy as np\n"
        "from boundscope_prism import normalize, rounding\n"
        "from prism.rows import rows_of\n"
        "for dtype in (np.float32, np.float64):\n"
        "  for columns in (5, 16, 77, 600):\n"
        "    x = rows_of(columns, dtype, 3)\n"
        "    one = np.linspace(0.5, 2, 10).astype(dtype)\n"
        "    for mode in ('rn', 'sr', 'ud', 'rr'):\n"
        "      for precision in (None, 8):\n"
        "        r = rounding(mode, seed=3, precision=precision, threads=1)\n"
        "        y = normalize.layer_norm(x, r), normalize.softmax(x, r), normalize.log_softmax(x, r)\n"
        "        y += (normalize.batch_norm(x[None], one, one, r, weight=one, bias=-one),)\n"
        "        print([hashlib.sha256(z.tobytes()).hexdigest()[:12] for z in y])\n"
    )


def test_values_are_close_to_torch() -> None:
    x = torch.randn(4, 6, 5, 7, generator=torch.Generator().manual_seed(0))
    weight, bias = torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
    r = rounding("sr", seed=1, threads=1)
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
    functional = torch.nn.functional
    assert torch.allclose(
        normalize.layer_norm(x, r, normalized_axes=2), functional.layer_norm(x, (5, 7)), **close
    )
    got = normalize.group_norm(x, 2, r, weight=weight, bias=bias)
    assert isinstance(got, torch.Tensor)
    assert torch.allclose(got, functional.group_norm(x, 2, weight, bias), **close)
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    wanted = functional.batch_norm(x, mean, variance, weight, bias)
    assert torch.allclose(
        normalize.batch_norm(x, mean, variance, r, weight=weight, bias=bias), wanted, **close
    )
    y, m, v = normalize.batch_norm_training(x, r, weight=weight, bias=bias)
    assert torch.allclose(y, wanted, **close)
    assert torch.allclose(m, mean, **close)
    assert torch.allclose(v, variance, **close)
    for axis in (0, 1, -1):
        assert torch.allclose(normalize.softmax(x, r, axis=axis), torch.softmax(x, axis), **close)
        assert torch.allclose(normalize.log_softmax(x, r, axis=axis), torch.log_softmax(x, axis), **close)


def test_arguments_that_are_refused() -> None:
    r = rounding("sr")
    x = np.ones((3, 4), np.float32)
    with pytest.raises(PrismArgumentError, match="at least one element"):
        normalize.softmax(np.ones((3, 0), np.float32), r)
    with pytest.raises(PrismArgumentError, match="at least one element"):
        normalize.layer_norm(np.ones((3, 0), np.float32), r)
    with pytest.raises(PrismArgumentError, match="weight"):
        normalize.layer_norm(x, r, weight=np.ones(3, np.float32))
    with pytest.raises(PrismArgumentError, match="weight"):
        normalize.layer_norm(x, r, weight=np.ones(4))
    with pytest.raises(PrismArgumentError, match="divisor"):
        normalize.group_norm(x, 3, r)
    with pytest.raises(PrismArgumentError, match="mean"):
        normalize.batch_norm(x, np.ones(3, np.float32), np.ones(4, np.float32), r)
    with pytest.raises(PrismArgumentError, match="epsilon"):
        normalize.layer_norm(x, r, epsilon=-1)
    with pytest.raises(PrismArgumentError, match="expected an axis"):
        normalize.softmax(np.array(1, np.float32), r)
