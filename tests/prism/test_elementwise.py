"""Element-wise operations against the oracle: every bit, the special values, and the cases PRS-01, 03 and 04."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import boundscope_prism
from boundscope_prism import Rounding, add, cast, divide, fma, multiply, round_, rounding, sqrt, subtract
from prism import oracle

MODES = ("rn", "sr", "ud", "rr")
OPERATIONS = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3, "round_": 1}
TYPES = (np.float32, np.float64)
FULL = {np.float32: 24, np.float64: 53}
INF, NAN = np.inf, np.nan


def operands(count: int, dtype: Any, seed: int = 1) -> list[NDArray[Any]]:
    """Any bit patterns, with triples whose results are inexact, cancel, are subnormal or overflow among them."""
    random = np.random.default_rng(seed)
    info = np.finfo(dtype)
    word = np.uint32 if dtype is np.float32 else np.uint64
    a, b, c = random.integers(0, np.iinfo(word).max, (3, count), dtype=word, endpoint=True).view(dtype)
    with np.errstate(all="ignore"):
        near = slice(0, None, 3)
        b[near] = a[near] * random.uniform(-1, 1, a[near].size) * 2.0 ** -random.integers(0, 40, a[near].size)
        c[near] = -a[near] * b[near]
        b[1::40] = -a[1::40]
        tiny = random.integers(0, 2**20, (2, a[2::40].size)) * float(info.smallest_subnormal)
        a[2::40], b[2::40] = tiny
        a[4::40], b[4::40] = info.max, info.max * 2.0 ** -random.uniform(22, 56, a[4::40].size)
        a[5::20], b[5::20], c[5::20] = random.normal(size=(3, a[5::20].size))
        a[6::40] = random.normal(size=a[6::40].size) * float(info.smallest_normal) ** 0.5
        b[6::40] = random.normal(size=b[6::40].size) * float(info.smallest_normal) ** 0.5
    return [a, b, c]


def bits(x: NDArray[Any]) -> NDArray[Any]:
    x = np.asarray(x)
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint64)


def full(value: float, count: int, dtype: Any = np.float32) -> NDArray[Any]:
    return np.full(count, value, dtype)


def apply(name: str, arrays: list[NDArray[Any]], how: Rounding, **keys: Any) -> NDArray[Any]:
    function = getattr(boundscope_prism, name)
    return function(*arrays[: OPERATIONS[name]], how, **keys)


def expected(
    name: str, numbers: tuple[float, ...], fmt: oracle.Format, mode: str, key: oracle.Key, at: int
) -> int:
    return oracle.expected(name.replace("round_", "cast"), numbers, fmt, mode, key, at)


# ---------------------------------------------------------------- every bit


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_bit_is_what_rational_arithmetic_and_the_random_word_say(
    name: str, mode: str, dtype: Any
) -> None:
    arrays = operands(240, dtype)
    width = 32 if dtype is np.float32 else 64
    for precision, seed, first in ((None, 0, 0), (8, 7, 2**40 + 5), (FULL[dtype] - 1, 2**64 - 1, 2**62)):
        how = rounding(mode, seed=seed, sample=3, precision=precision, threads=1)
        got = bits(apply(name, arrays, how, operation=11, first=first))
        fmt = oracle.Format(width, precision or FULL[dtype])
        key = oracle.Key(seed=seed, sample=3, operation=11)
        for i in range(arrays[0].size):
            numbers = tuple(float(array[i]) for array in arrays[: OPERATIONS[name]])
            want = expected(name, numbers, fmt, mode, key, first + i)
            assert got[i] == want, f"{name}{numbers}, {precision} bits: expected {want:x}, got {got[i]:x}"


@pytest.mark.parametrize("mode", MODES)
def test_every_bit_of_a_cast(mode: str) -> None:
    x = operands(300, np.float64)[0]
    random = np.random.default_rng(2)
    x[::2] = random.normal(size=150) * 2.0 ** random.integers(-155, 129, 150)
    for precision in (None, 11):
        got = bits(cast(x, rounding(mode, seed=5, precision=precision), operation=2, first=77))
        for i, value in enumerate(x):
            key = oracle.Key(seed=5, operation=2)
            want = oracle.expected(
                "cast", (float(value),), oracle.float32(precision or 24), mode, key, 77 + i
            )
            assert got[i] == want, f"{value!r}: expected {want:08x}, got {got[i]:08x}"


@pytest.mark.parametrize("dtype", TYPES)
def test_rn_is_what_numpy_computes(dtype: Any) -> None:
    a, b, _ = operands(20_000, dtype)
    native = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
    for name, function in native.items():
        with np.errstate(all="ignore"):
            want = function(a, b)
        got = apply(name, [a, b], rounding("rn"))
        assert np.array_equal(np.isnan(got), np.isnan(want)), name
        assert np.array_equal(bits(got)[~np.isnan(want)], bits(want)[~np.isnan(want)]), name


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from prism.test_elementwise import digest
import boundscope_prism
print(boundscope_prism.target(), digest())
"""


def digest() -> str:
    """Of many results, so that two targets can be compared across processes."""
    result = hashlib.sha256()
    for dtype in TYPES:
        arrays = operands(2_007, dtype)
        for name in OPERATIONS:
            for mode in MODES:
                for precision in (None, 11):
                    how = rounding(mode, seed=2**63, sample=5, precision=precision)
                    result.update(apply(name, arrays, how, operation=2**40, first=2**50 + 3).tobytes())
    return result.hexdigest()


def run_on(target: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[1])],
        env={**os.environ, "BOUNDSCOPE_PRISM_TARGET": target},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_target_gives_the_same_bits() -> None:
    here = digest()
    for target in boundscope_prism.targets():
        process = run_on(target.lower())
        assert process.stdout.split() == [target, here], process.stderr


def test_an_unknown_target_is_refused_with_the_choices() -> None:
    process = run_on("z80")
    last = process.stderr.strip().splitlines()[-1]
    assert "PrismUnavailableError: environment variable BOUNDSCOPE_PRISM_TARGET: expected" in last
    assert "got 'z80'" in last
    assert all(target in last for target in boundscope_prism.targets())


# ---------------------------------------------------------------- the element's own place


@pytest.mark.parametrize("mode", MODES)
def test_splits_and_threads_give_the_bits_of_the_whole(mode: str) -> None:
    a, b, _ = operands(5000, np.float32)
    how = rounding(mode, seed=3, sample=4)
    whole = bits(multiply(a, b, how, operation=5))
    cuts = [0, 1, 2, 17, 33, 511, 512, 513, 1500, 3333, 5000]
    for threads in (1, 8):
        out = np.empty_like(a)

        def part(start: int, stop: int, out: NDArray[Any] = out) -> None:
            place = slice(start, stop)
            multiply(a[place], b[place], how, operation=5, first=start, out=out[place])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, cuts[:-1], cuts[1:]))
        assert np.array_equal(bits(out), whole)


def test_the_number_of_threads_does_not_show() -> None:
    a, b, _ = operands(300_000, np.float32)
    alone = bits(add(a, b, rounding("sr", threads=1)))
    assert np.array_equal(bits(add(a, b, rounding("sr", threads=5))), alone)


@pytest.mark.parametrize("mode", ["sr", "ud", "rr"])
@pytest.mark.parametrize("name", ["seed", "sample", "operation", "first"])
def test_each_part_of_the_key_changes_the_draw(mode: str, name: str) -> None:
    a, b = full(1.0, 4096), full(2.0**-24, 4096)

    def draw(**key: int) -> NDArray[Any]:
        place = {part: key.pop(part) for part in ("operation", "first") if part in key}
        return bits(add(a, b, rounding(mode, **key), **place))

    reference = draw()
    assert np.array_equal(draw(), reference)
    for value in (1, 2**32, 2**55):
        changed = draw(**{name: value})
        assert 1800 < np.count_nonzero(changed != reference) < 2300


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5, 7), ()),
        ((3, 5, 7), (7,)),
        ((3, 5, 7), (5, 7)),
        ((3, 5, 7), (5, 1)),
        ((3, 5, 7), (3, 1, 1)),
        ((3, 5, 7), (3, 1, 7)),  # fits no pattern: one copy
        ((3, 1, 7), (1, 5, 1)),
        ((2, 4, 30, 40), (4, 1, 1)),
        ((4, 3000), (3000,)),
        ((1, 1), (6, 1)),
        ((0, 3), (3,)),
    ],
)
def test_operands_broadcast_as_in_numpy(left: tuple[int, ...], right: tuple[int, ...], dtype: Any) -> None:
    random = np.random.default_rng(3)
    a, b = (np.asarray(random.normal(size=shape), dtype) for shape in (left, right))
    shape = np.broadcast_shapes(left, right)
    a_full, b_full = (np.ascontiguousarray(np.broadcast_to(x, shape)) for x in (a, b))
    for mode in ("sr", "ud"):
        how = rounding(mode, seed=9)
        want = bits(subtract(a_full, b_full, how, first=5))
        assert np.array_equal(bits(subtract(a, b, how, first=5)), want)
        want = bits(fma(b_full, a_full, b_full, how))
        assert np.array_equal(bits(fma(b, a, b, how)), want)


def test_a_number_is_a_scalar_of_the_arrays_type() -> None:
    a = np.random.default_rng(0).normal(size=50).astype(np.float32)
    how = rounding("sr", seed=1)
    for number in (0.1, np.float32(0.1), np.float64(0.1)):
        assert np.array_equal(multiply(a, number, how), multiply(a, full(0.1, 50), how))
    assert np.array_equal(divide(1, a, how), divide(np.ones_like(a), a, how))


# ---------------------------------------------------------------- special values

LARGEST = float(np.finfo(np.float32).max)
SMALLEST = 2.0**-149
HALF_ULP = 2.0**103
ALWAYS = [
    ("add", (INF, 1.0), INF),
    ("add", (INF, -INF), NAN),
    ("add", (NAN, INF), NAN),
    ("add", (-0.0, -0.0), -0.0),
    ("add", (-0.0, 0.0), 0.0),
    ("add", (1.5, -1.5), 0.0),
    ("add", (SMALLEST, -SMALLEST), 0.0),
    ("add", (LARGEST, LARGEST), INF),
    ("add", (-LARGEST, -HALF_ULP), -INF),
    ("subtract", (-0.0, 0.0), -0.0),
    ("subtract", (INF, INF), NAN),
    ("multiply", (INF, 0.0), NAN),
    ("multiply", (-0.0, 5.0), -0.0),
    ("multiply", (1e30, -1e30), -INF),
    ("divide", (1.0, -0.0), -INF),
    ("divide", (0.0, 0.0), NAN),
    ("divide", (INF, INF), NAN),
    ("divide", (-3.0, INF), -0.0),
    ("sqrt", (-1.0,), NAN),
    ("sqrt", (-0.0,), -0.0),
    ("sqrt", (INF,), INF),
    ("fma", (INF, 0.0, NAN), NAN),
    ("fma", (1e30, 1e30, -INF), -INF),
    ("fma", (2.0, 3.0, -6.0), 0.0),
    ("fma", (1e30, 1e30, -LARGEST), INF),
    ("round_", (NAN,), NAN),
    ("round_", (-0.0,), -0.0),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "values", "result"), ALWAYS)
def test_what_no_draw_changes(name: str, values: tuple[float, ...], result: float, mode: str) -> None:
    got = bits(apply(name, [full(value, 1000) for value in values], rounding(mode)))
    assert set(got.tolist()) == {oracle.bits_of(result)}


@pytest.mark.parametrize("sign", [1, -1])
def test_beyond_the_largest_float_sr_and_rr_round_as_rn(sign: int) -> None:
    """Past the largest float32 there is no upper neighbour: below half a gap it stays, from there it is Inf."""
    below = float(np.nextafter(np.float32(HALF_ULP), np.float32(0)))
    for addend, result in ((below, LARGEST), (HALF_ULP, INF)):
        for mode in ("rn", "sr", "rr"):
            got = add(full(sign * LARGEST, 2000), full(sign * addend, 2000), rounding(mode))
            assert set(got.tolist()) == {sign * result}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("mode", ["sr", "rr"])
def test_just_below_the_largest_float_the_result_is_still_random(mode: str, sign: int) -> None:
    below = float(np.nextafter(np.float32(LARGEST), np.float32(0)))
    got = add(full(sign * below, 2000), full(sign * HALF_ULP, 2000), rounding(mode))
    assert set(got.tolist()) == {sign * below, sign * LARGEST}


@pytest.mark.parametrize("dtype", TYPES)
def test_up_down_moves_every_finite_number_to_its_two_neighbours(dtype: Any) -> None:
    info = np.finfo(dtype)
    a = operands(3000, dtype)[0]
    tiny = info.smallest_subnormal
    extremes = [1, -1, info.smallest_normal, tiny, -tiny, info.max, -info.max, info.smallest_normal - tiny]
    a = np.concatenate([a[np.isfinite(a) & (a != 0)], np.array(extremes, dtype)])
    with np.errstate(over="ignore"):
        up, down = np.nextafter(a, dtype(INF)), np.nextafter(a, dtype(-INF))
    seen_up, seen_down = np.zeros(a.size, bool), np.zeros(a.size, bool)
    for sample in range(64):
        got = bits(round_(a, rounding("ud", sample=sample)))
        is_up, is_down = got == bits(up), got == bits(down)
        assert np.all(is_up | is_down)
        seen_up |= is_up
        seen_down |= is_down
    assert seen_up.all()
    assert seen_down.all()


@pytest.mark.parametrize("mode", ["sr", "rr"])
def test_exact_results_stay(mode: str) -> None:
    """Sums in the subnormal range among them, and an operator's output of the full precision."""
    a, b, _ = operands(30_000, np.float32)
    exact = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        wide = a.astype(np.float64) + b
        narrow = wide.astype(np.float32)
        exact &= (narrow == wide) & (wide - a == b) & (wide - b == a)
    assert np.count_nonzero(exact) > 1000
    assert np.count_nonzero(np.abs(wide[exact]) < 2.0**-126) > 500
    for sample in range(4):
        how = rounding(mode, sample=sample)
        assert np.array_equal(bits(add(a, b, how))[exact], bits(narrow)[exact])
        kept = ~np.isnan(a)
        assert np.array_equal(bits(round_(a, how))[kept], bits(a)[kept])


def test_roots_and_quotients_that_are_exact_stay() -> None:
    whole = np.arange(1, 2000, dtype=np.float32)
    for mode in ("sr", "rr"):
        assert np.array_equal(sqrt(whole * whole, rounding(mode)), whole)
        assert np.array_equal(divide(whole * 3, whole, rounding(mode)), np.full_like(whole, 3))


def test_an_fma_rounds_once() -> None:
    """1 + 2**-23 squared, less its float32: what a product rounded first would lose."""
    a = full(1 + 2.0**-23, 100)
    for mode in ("rn", "sr", "rr"):
        assert set(fma(a, a, full(-(1 + 2.0**-22), 100), rounding(mode)).tolist()) == {2.0**-46}


def test_flush_to_zero_of_the_caller_does_not_reach_us() -> None:
    torch = pytest.importorskip("torch")
    a = np.arange(1000, dtype=np.uint32).view(np.float32)
    want = {mode: bits(add(a, a, rounding(mode))) for mode in MODES}
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormals")
    try:
        assert torch.ones(1).mul(1e-40).item() == 0.0
        for mode in MODES:
            assert np.array_equal(bits(add(a, a, rounding(mode))), want[mode])
        assert torch.ones(1).mul(1e-40).item() == 0.0
    finally:
        torch.set_flush_denormal(False)


# ---------------------------------------------------------------- the shared cases


def prism_case(cases: Path, name: str) -> tuple[dict, NDArray[Any], dict[str, NDArray[Any]]]:
    """What is expected, the one input of the box, and the constants of the network by name."""
    onnx = pytest.importorskip("onnx")
    folder = cases / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    (expected_of_case,) = json.loads((folder / "expected.json").read_text())["props"].values()
    lower = re.findall(r"\(>= X_\d+ ([^\s)]+)\)", (folder / "prop.vnnlib").read_text())
    graph = onnx.load(folder / "model.onnx").graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return expected_of_case, np.array([float(text) for text in lower], np.float32), constants


def test_case_prs_04_addition_with_a_known_probability(cases: Path) -> None:
    want, x, constants = prism_case(cases, "PRS-04")
    c = constants["c"].reshape(-1)
    assert add(x, c, rounding("rn")).tolist() == want["rn_output"]
    for mode, tolerance in (("sr", 0.0169), ("ud", 0.0195)):
        samples = np.stack([add(x, c, rounding(mode, sample=sample)) for sample in range(10_000)])
        for element, values in enumerate(want[mode]["values"]):
            assert set(samples[:, element].tolist()) == set(values)
            frequency = np.mean(samples[:, element] == values[1])
            assert abs(frequency - want[mode]["prob_of_second"][element]) < tolerance


def test_case_prs_03_subnormal_results(cases: Path) -> None:
    """As sums: they are exact, so SR must keep each to the last unit, and UD goes to its two neighbours."""
    want, _, _ = prism_case(cases, "PRS-03")
    unit = np.float32(want["unit"])
    units = np.array([value for pair in want["sr"]["values_units"] for value in pair], np.float32)
    a, b = (3 * units * unit).astype(np.float32), (-2 * units * unit).astype(np.float32)
    with np.errstate(under="ignore"):
        sums = units * unit
    for sample in range(200):
        assert np.array_equal(add(a, b, rounding("sr", sample=sample)), sums)
        moved = add(a, b, rounding("ud", sample=sample)) / unit
        assert np.array_equal(np.abs(moved - units), (units != 0).astype(np.float32))


def test_case_prs_01_exact_results_stay_under_sr_and_move_under_ud(cases: Path) -> None:
    want, x, constants = prism_case(cases, "PRS-01")
    weights = constants["W"]

    def run(mode: str, sample: int) -> list[float]:
        total = np.ascontiguousarray(constants["b"])
        for operation, column in enumerate(weights.T):
            total = fma(
                column,
                x[operation : operation + 1],
                total,
                rounding(mode, sample=sample),
                operation=operation,
            )
        return total.tolist()

    assert all(run("sr", sample) == want["rn_output"] for sample in range(50))
    assert all(run("ud", sample) != want["rn_output"] for sample in range(50))
