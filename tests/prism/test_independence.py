"""Draws are independent of each other, and the traps that other tools of this kind fell into are avoided.

Independence of lanes, tiles, steps, rows, operations, stages, samples and seeds is one decision over all. A draw shows
as which of its two neighbours a result became.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import boundscope_prism
from boundscope_prism import add, cast, divide, fma, matmul, mean, multiply, rounding, subtract
from prism.decision import Cells

DRAWS = 65_536
STEPS = 32
GROUP = 16
Floats = NDArray[np.float64]


# ---------------------------------------------------------------- draws as deviations of mean 0


def half_up(count: int = DRAWS, operation: int = 0, first: int = 0, **key: int) -> Floats:
    """SR of 1 + 2^-24, the middle between two numbers: 1/2 where it went up, else -1/2."""
    how = rounding("sr", threads=1, **key)
    result = add(np.ones(count, np.float32), 2.0**-24, how, operation=operation, first=first)
    return (result > 1) - 0.5


def quarter_up(count: int = DRAWS, operation: int = 0, first: int = 0, **key: int) -> Floats:
    """SR in float64 of 1 + 2^-54, a quarter of the way: the deviation from 1/4."""
    how = rounding("sr", threads=1, **key)
    return (add(np.ones(count), 2.0**-54, how, operation=operation, first=first) > 1) - 0.25


def towards_zero(count: int = DRAWS, operation: int = 0, first: int = 0, **key: int) -> Floats:
    """UD of 1.5 * 1."""
    how = rounding("ud", threads=1, **key)
    result = multiply(np.full(count, 1.5, np.float32), 1.0, how, operation=operation, first=first)
    return (result < 1.5) - 0.5


def down(count: int = DRAWS, operation: int = 0, first: int = 0, **key: int) -> Floats:
    """RR of -(1 + 2^-30)."""
    how = rounding("rr", threads=1, **key)
    return (cast(np.full(count, -1 - 2.0**-30), how, operation=operation, first=first) < -1) - 0.5


# The variance of a draw, and a seed of its own: cells must not share random words.
DRAW: dict[str, tuple[Callable[..., Floats], float, int]] = {
    "sr": (half_up, 0.25, 10_000),
    "sr in float64": (quarter_up, 3 / 16, 20_000),
    "ud": (towards_zero, 0.25, 30_000),
    "rr": (down, 0.25, 40_000),
}


def other_keys(seed: int) -> list[dict[str, int]]:
    return [
        *({"seed": seed + n} for n in (1, 2, 255, 2**32, 2**63)),
        *({"sample": n} for n in (1, 2, 255, 2**32, 2**63)),
        *({"operation": n} for n in (1, 2, 255, 256, 2**32, 2**55)),
        {"seed": seed + 1, "sample": 1},
        {"seed": 0, "sample": seed},
        {"first": DRAWS},
        {"first": 2**40},
        {"first": 2**63},
    ]


@pytest.fixture(scope="module")
def found() -> Cells:
    found = Cells()
    for name, (draw, variance, seed) in DRAW.items():
        _compare_keys(found, name, draw, variance, seed)
        _compare_places(found, name, draw(16 * DRAWS, seed=seed + 1000), variance)
        _one_element_under_many_keys(found, name, draw, variance, seed + 2000)
    _compare_modes_and_operations(found)
    _compare_rows(found)
    _compare_stages(found)
    _every_step_of_a_product(found)
    _underflow(found)
    return found


def _compare_keys(found: Cells, name: str, draw: Callable[..., Floats], variance: float, seed: int) -> None:
    here = draw(seed=seed)
    for other in other_keys(seed):
        found.correlation(f"{name}, {other}", here, draw(**{"seed": seed, **other}), variance)


def _compare_places(found: Cells, name: str, long: Floats, variance: float) -> None:
    """Lanes of one group; groups, which are tiles or steps of one tile, some way apart; all lanes at once."""
    groups = long.reshape(-1, GROUP)
    for left, right in itertools.combinations(range(GROUP), 2):
        found.correlation(f"{name}, lanes {left} and {right}", groups[:, left], groups[:, right], variance)
    lags = [*range(1, STEPS), 32, 33, 64, 96, 128, 256, 1024, 4096, 16384]
    for lag in lags:
        found.correlation(
            f"{name}, {lag} groups apart", groups[:-lag].ravel(), groups[lag:].ravel(), variance
        )
    sums = groups.sum(axis=1)
    found.add(f"{name}, spread of groups", _spread(sums, GROUP * variance))
    sums = groups.reshape(-1, STEPS * GROUP).sum(axis=1)
    found.add(f"{name}, spread of 32 groups", _spread(sums, STEPS * GROUP * variance))


def _spread(sums: Floats, variance: float) -> float:
    """How far the mean square is from the variance, squared, in units of its own; for sums that are nearly normal."""
    excess = float(np.mean(sums**4)) / variance**2 - 1
    return float((np.mean(sums**2) / variance - 1) ** 2 * sums.size / excess)


def _one_element_under_many_keys(
    found: Cells, name: str, draw: Callable[..., Floats], variance: float, seed: int
) -> None:
    count = 4096
    for part in ("seed", "sample", "operation"):
        drawn = np.array([draw(1, **{"seed": seed, part: seed + number})[0] for number in range(count)])
        found.add(f"{name}, by {part}", float(drawn.sum()) ** 2 / (count * variance))
        found.correlation(f"{name}, neighbours by {part}", drawn[:-1], drawn[1:], variance)


def _compare_modes_and_operations(found: Cells) -> None:
    """Operations of one network have numbers of their own, and then share nothing."""
    ones = np.ones(DRAWS, np.float32)
    how = rounding("sr", seed=21, threads=1)
    drawn = [
        add(ones, 2.0**-24, how, operation=0),
        subtract(ones, -(2.0**-24), how, operation=1),
        fma(ones, ones, 2.0**-24, how, operation=2),
        cast(np.full(DRAWS, 1 + 2.0**-24), how, operation=3),
        multiply(ones + np.float32(2.0**-12), ones + np.float32(2.0**-12), how, operation=4),
        divide(ones * 3, 7.0, how, operation=5),
    ]
    for left, right in itertools.combinations(range(len(drawn)), 2):
        up = [(drawn[i] > drawn[i].min()).astype(np.float64) for i in (left, right)]
        chances = [_chance(drawn[i]) for i in (left, right)]
        deviations = [u - p for u, p in zip(up, chances, strict=True)]
        variance = math.sqrt(math.prod(p * (1 - p) for p in chances))
        found.correlation(f"operations {left} and {right}", *deviations, variance)


def _chance(results: NDArray[np.float32]) -> float:
    """That of the upper number; the exact results are (1 + 2^-12)^2, 3/7 and 1 + 2^-24."""
    low, high = (float(x) for x in np.unique(results))
    exact = 3 / 7 if high < 1 else (1 + 2.0**-12) ** 2 if low > 1 else 1 + 2.0**-24
    return (exact - low) / (high - low)


def _compare_rows(found: Cells) -> None:
    """Rows of a matrix product at the same step, for depths that leave a counter's low bits alone."""
    for depth in (1, 2, 32, 64, 256):
        rows = DRAWS // 4 // max(depth // 32, 1)
        a = np.zeros((rows, depth), np.float32)
        a[:, -1] = 1
        b = np.full((depth, 16), 2.0**-24, np.float32)
        how = rounding("sr", seed=31 + depth, threads=1)
        up = (matmul(a, b, how, bias=np.ones(16, np.float32)) > 1) - 0.5
        for lag in (1, 2, 4, 8, 64, 256):
            name = f"{lag} rows of {depth} steps apart"
            found.correlation(name, up[:-lag].ravel(), up[lag:].ravel(), 0.25)
        found.add(f"spread of rows of {depth} steps", _spread(up.sum(axis=1), 4.0))


def _compare_stages(found: Cells) -> None:
    """The mean of 1 and 1: UD moves the sum, and then the quotient, up or down."""
    how = rounding("ud", seed=41, threads=1)
    result = mean(np.ones((DRAWS, 2), np.float32), how)
    values, counts = np.unique(result, return_counts=True)
    assert values.tolist() == [1 - 2.0**-23, 1.0, 1 + 2.0**-22]
    found.table("stages", counts, np.array([0.25, 0.5, 0.25]))


def _every_step_of_a_product(found: Cells) -> None:
    """Each of its fused multiply-adds is perturbed: UD makes a walk of `depth` steps of one ulp each."""
    for dtype, precision in ((np.float32, 24), (np.float64, 53)):
        for depth in (64, 200):
            a = np.zeros((256, depth), dtype)
            b = np.zeros((depth, 32), dtype)
            how = rounding("ud", seed=depth, sample=precision, threads=1)
            walk = matmul(a, b, how, bias=np.full(32, 1.5, dtype)) - 1.5
            found.add(
                f"walk of {depth}, {precision} bits", _spread(walk.ravel() * 2.0 ** (precision - 1), depth)
            )


def _underflow(found: Cells) -> None:
    """1.25 * 2^-151 is 5/16 of the smallest float32: products that underflow are perturbed too."""
    tiny = np.full(DRAWS, 1.25 * 2.0**-100, np.float32)
    for seed, mode, chance in ((61, "sr", 5 / 16), (62, "rr", 0.5)):
        how = rounding(mode, seed=seed, threads=1)  # type: ignore[arg-type]
        product = multiply(tiny, 2.0**-51, how)
        assert set(np.unique(product).tolist()) == {0.0, 2.0**-149}
        found.binomial(f"underflow, {mode}", int(np.count_nonzero(product)), DRAWS, chance)


def test_draws_are_independent(found: Cells) -> None:
    assert found.freedom > 800
    assert found.passes(), str(found)


def test_a_dependence_would_be_found(found: Cells) -> None:
    """One lane that repeats another in a tenth of the draws."""
    found = copy.deepcopy(found)
    groups = half_up(16 * DRAWS, seed=78).reshape(-1, GROUP)
    other = groups[:, 5].copy()
    other[::10] = groups[::10, 4]
    found.correlation("a lane that repeats", groups[:, 4], other, 0.25)
    assert not found.passes(), str(found)


# ---------------------------------------------------------------- traps


def keys() -> Iterator[dict[str, int]]:
    for seed in range(8):
        yield {"seed": seed, "sample": seed // 2}


def check_infinity_stays() -> None:
    """UD's bit must not turn Inf into the largest number or NaN, in arrays of any length, whole groups or not."""
    for dtype in (np.float32, np.float64):
        largest = np.finfo(dtype).max
        for count in (1, 3, 15, 16, 17, 64, 1000):
            for sign in (1, -1):
                infinite, one = np.full(count, sign * np.inf, dtype), np.ones(count, dtype)
                for key in keys():
                    how = rounding("ud", threads=1, **key)
                    made = [
                        add(infinite, one, how),
                        multiply(infinite, one, how),
                        fma(infinite, one, one, how),
                        divide(one * sign, np.zeros(count, dtype), how),
                        add(np.full(count, sign * largest, dtype), sign * float(largest), how),
                    ]
                    for result in made:
                        assert np.array_equal(result, infinite), (
                            boundscope_prism.target(),
                            dtype,
                            count,
                            result,
                        )
                    assert np.isnan(subtract(infinite, infinite, how)).all()
                    assert np.isnan(multiply(infinite, np.zeros(count, dtype), how)).all()


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import boundscope_prism
from prism import test_independence
test_independence.check_infinity_stays()
print(boundscope_prism.target())
print(test_independence.half_up(4096, seed=3).tobytes().hex())
"""


def run_elsewhere(target: str) -> list[str]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[1])],
        env={**os.environ, "BOUNDSCOPE_PRISM_TARGET": target},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


def test_infinity_stays_infinite_and_processes_agree_on_every_target() -> None:
    """Seeds are never taken from a process number or a clock: another process draws the very same words."""
    here = half_up(4096, seed=3).tobytes().hex()
    for target in boundscope_prism.targets():
        assert run_elsewhere(target) == [target, here]


def test_up_down_keeps_zero_and_moves_the_smallest_number() -> None:
    for dtype, least in ((np.float32, 2.0**-149), (np.float64, 2.0**-1074)):
        how = rounding("ud", seed=1, threads=1)
        for zero in (0.0, -0.0):
            kept = multiply(np.full(500, zero, dtype), 1.0, how)
            assert (kept == 0).all()
            assert (np.signbit(kept) == np.signbit(zero)).all()
        moved = multiply(np.full(500, least, dtype), 1.0, how)
        assert set(moved.tolist()) == {0.0, 2 * least}


@pytest.mark.parametrize("mode", ["sr", "ud", "rr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_call_uses_up_the_words_of_another(mode: Any, dtype: Any) -> None:
    """Single elements, parts of groups and whole arrays, in any order, draw what belongs to their place."""
    how = rounding(mode, seed=4, sample=2, threads=1)
    a = np.random.default_rng(0).standard_normal(700).astype(dtype)
    b = a[::-1].copy()
    whole = add(a, b, how)
    for start, stop in ((699, 700), (0, 1), (5, 21), (16, 33), (500, 700), (1, 700)):
        assert np.array_equal(add(a[start:stop], b[start:stop], how, first=start), whole[start:stop])
    assert np.array_equal(add(a, b, how), whole)


def test_threads_of_one_call_do_not_share_a_stream() -> None:
    """Pieces of a long array differ from each other, and are those of one thread."""
    count = 1 << 20
    ones = np.ones(count, np.float32)
    for mode in ("sr", "ud"):
        made = [
            add(ones, 2.0**-24, rounding(mode, seed=8, threads=threads))  # type: ignore[arg-type]
            for threads in (1, 2, 5)
        ]
        assert all(np.array_equal(made[0], other) for other in made[1:])
        pieces = made[0].reshape(-1, 1 << 12)
        assert len({piece.tobytes() for piece in pieces}) == len(pieces)


def test_threads_that_run_see_each_call_s_own_rounding() -> None:
    """No setting is there for a running thread to miss: each of concurrent calls follows its own rounding."""
    a = np.random.default_rng(1).standard_normal(1 << 17).astype(np.float32)
    hows = [
        rounding(mode, seed=seed, precision=precision, threads=threads)  # type: ignore[arg-type]
        for mode, precision in (("rn", None), ("sr", None), ("ud", None), ("rr", 11), ("rn", 8))
        for seed, threads in ((0, 1), (1, 3))
    ]
    want = [multiply(a, a, how) for how in hows]
    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            for got, expected in zip(pool.map(lambda how: multiply(a, a, how), hows), want, strict=True):
                assert np.array_equal(got, expected)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_the_number_of_threads_is_honoured_from_call_to_call() -> None:
    program = """
import os
import numpy as np
from boundscope_prism import add, rounding
a = np.ones(1 << 21, np.float32)
def used(threads):
    before = len(os.listdir("/proc/self/task"))
    add(a, a, rounding("sr", threads=threads))
    return len(os.listdir("/proc/self/task")) - before
print(used(1), used(3), used(2), used(1), used(4))
"""
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert output.split() == ["0", "2", "0", "0", "1"]
