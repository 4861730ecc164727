"""Average pooling: every bit against rational arithmetic in row-major order of the window, and values against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from boundscope_prism import PrismArgumentError, pool, reduce, rounding
from prism.rows import GROUP, MODES, Reference, bits, check_targets, expect

TYPES = (np.float32, np.float64)


def averaged(
    x: np.ndarray,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    reference: Reference,
    first_plane: int,
) -> list[list[float]]:
    """The planes' outputs; padding is counted."""
    planes = x.astype(float).tolist()
    height, width = x.shape[-2:]
    down = (height + 2 * padding[0] - kernel[0]) // stride[0] + 1
    across = (width + 2 * padding[1] - kernel[1]) // stride[1] + 1
    groups = -(-down * across // GROUP)
    steps = kernel[0] * kernel[1]
    result = []
    for p, plane in enumerate(planes, start=first_plane):
        outputs = []
        for o in range(down * across):
            row, lane = p * groups + o // GROUP, o % GROUP
            top, left = o // across * stride[0] - padding[0], o % across * stride[1] - padding[1]
            total = None
            for step in range(steps):
                i, j = top + step // kernel[1], left + step % kernel[1]
                if 0 <= i < height and 0 <= j < width:
                    at = step * GROUP + lane
                    value = plane[i][j]
                    total = value if total is None else reference.do("add", (total, value), 0, row, steps, at)
            assert total is not None
            outputs.append(reference.do("divide", (total, float(steps)), 1, row, 1, lane))
        result.append(outputs)
    return result


@pytest.mark.parametrize("precision", [None, 8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((2, 2), (2, 2), (0, 0)), ((3, 2), (2, 1), (1, 1)), ((6, 6), (1, 1), (3, 2)), ((1, 1), (1, 1), (0, 0))],
)
def test_every_bit_is_that_of_rational_arithmetic(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], dtype: Any, mode: Any,
    precision: int | None,
) -> None:  # fmt: skip
    random = np.random.default_rng(1)
    x = random.standard_normal((4, 8, 9)).astype(dtype)
    x[1] *= np.finfo(dtype).tiny
    x[2] *= np.finfo(dtype).max / 8
    x[3, 4, 4] = np.inf
    x[3, 1, 1] = np.nan
    r = rounding(mode, seed=6, precision=precision, threads=1)
    got = pool.avg_pool2d(x, kernel, r, stride=stride, padding=padding, operation=5, first_plane=7)
    wanted = averaged(x, kernel, stride, padding, Reference(r, dtype, 5), 7)
    expect(got.reshape(4, -1), wanted)


@pytest.mark.parametrize("mode", MODES)
def test_a_part_of_the_planes_gives_the_bits_of_the_whole(mode: Any) -> None:
    x = np.random.default_rng(2).standard_normal((6, 3, 10, 11)).astype(np.float32)
    r = rounding(mode, seed=1, threads=1)
    for function in (
        lambda part, first: pool.avg_pool2d(part, 3, r, padding=1, first_plane=first),
        lambda part, first: pool.adaptive_avg_pool2d(part, (4, 3), r, first_plane=first),
        lambda part, first: pool.adaptive_avg_pool2d(part, 1, r, first_plane=first),
    ):
        whole = function(x, 0)
        parts = [function(x[i:j], 3 * i) for i, j in ((0, 1), (1, 6))]
        assert np.array_equal(bits(whole), bits(np.concatenate(parts)))


def test_threads_do_not_change_a_bit() -> None:
    x = np.random.default_rng(2).standard_normal((40, 64, 64)).astype(np.float32)
    for mode in ("sr", "ud"):
        one = pool.avg_pool2d(x, 3, rounding(mode, threads=1), stride=1)
        assert np.array_equal(bits(one), bits(pool.avg_pool2d(x, 3, rounding(mode, threads=3), stride=1)))


def test_every_target_gives_the_same_bits() -> None:
    check_targets(
        "import hashlib, numpy as np\n"
        "from boundscope_prism import pool, rounding\n"
        "for dtype in (np.float32, np.float64):\n"
        "  x = np.random.default_rng(1).standard_normal((3, 14, 13)).astype(dtype)\n"
        "  for mode in ('rn', 'sr', 'ud', 'rr'):\n"
        "    for precision in (None, 8):\n"
        "      r = rounding(mode, seed=3, precision=precision, threads=1)\n"
        "      y = pool.avg_pool2d(x, 3, r, padding=1), pool.avg_pool2d(x, 6, r, stride=1)\n"
        "      y += (pool.adaptive_avg_pool2d(x, 5, r), pool.adaptive_avg_pool2d(x, 1, r))\n"
        "      print([hashlib.sha256(z.tobytes()).hexdigest()[:12] for z in y])\n"
    )


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("size", [(9, 9), (10, 7), (5, 12)])
def test_windows_are_those_of_torch(size: tuple[int, int], ceil_mode: bool, count_include_pad: bool) -> None:
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    r = rounding("rn", threads=1)
    functional = torch.nn.functional
    options: dict[str, Any] = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 1), ((3, 4), (2, 3), (1, 2)), (4, 3, 2), (5, 1, 0)):
        wanted = functional.avg_pool2d(x, kernel, stride, padding, **options)
        got = pool.avg_pool2d(x, kernel, r, stride=stride, padding=padding, **options)
        assert torch.allclose(got, wanted, rtol=1e-13), (kernel, stride, padding)
    wanted = functional.avg_pool1d(x[0], 3, 2, 1, **options)
    assert torch.allclose(pool.avg_pool1d(x[0], 3, r, stride=2, padding=1, **options), wanted, rtol=1e-13)
    wanted = functional.avg_pool2d(x, 3, divisor_override=5)
    assert torch.allclose(pool.avg_pool2d(x, 3, r, divisor=5), wanted, rtol=1e-13)


def test_adaptive_windows_are_those_of_torch() -> None:
    x = torch.randn(2, 3, 10, 7, generator=torch.Generator().manual_seed(0))
    r = rounding("sr", seed=1, threads=1)
    for size in (1, 3, (4, 2), (10, 7), (12, 9)):
        wanted = torch.nn.functional.adaptive_avg_pool2d(x, size)
        assert torch.allclose(pool.adaptive_avg_pool2d(x, size, r), wanted, rtol=1e-4, atol=1e-6)
    wanted = torch.nn.functional.adaptive_avg_pool1d(x[0], 4)
    assert torch.allclose(pool.adaptive_avg_pool1d(x[0], 4, r), wanted, rtol=1e-4, atol=1e-6)


def test_the_global_average_is_the_mean_of_a_plane() -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 9, 9)).astype(np.float32)
    for mode in MODES:
        r = rounding(mode, seed=2)
        wanted = reduce.mean(x, r, axis=(2, 3))
        assert np.array_equal(bits(pool.adaptive_avg_pool2d(x, 1, r)), bits(wanted[..., None, None]))


def test_arguments_that_are_refused() -> None:
    r = rounding("sr")
    x = np.ones((2, 4, 4), np.float32)
    with pytest.raises(PrismArgumentError, match="at least one element"):
        pool.avg_pool2d(np.ones((2, 0, 4), np.float32), 1, r)
    with pytest.raises(PrismArgumentError, match="padded height"):
        pool.avg_pool2d(x, 5, r)
    with pytest.raises(PrismArgumentError, match="half of the kernel"):
        pool.avg_pool2d(x, 2, r, padding=2)
    with pytest.raises(PrismArgumentError, match="kernel"):
        pool.avg_pool2d(x, (2, 2, 2), r)
    with pytest.raises(PrismArgumentError, match="stride"):
        pool.avg_pool2d(x, 2, r, stride=0)
    with pytest.raises(PrismArgumentError, match="height, width"):
        pool.avg_pool2d(np.ones(3, np.float32), 2, r)
