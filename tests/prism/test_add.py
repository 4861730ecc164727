"""boundscope_prism.add against the oracle: every bit, the special values, and the kinds of case of PRS-01, 03, 04."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import boundscope_prism
from boundscope_prism import add
from prism import oracle

MODES = ("rn", "sr", "ud")
LARGEST = np.finfo(np.float32).max
SMALLEST = np.float32(2.0**-149)
WORDS = [0, 1, 2**32, 2**64 - 1]


def operands(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Any bit patterns, with pairs whose sum is inexact, cancels, is subnormal or overflows among them."""
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 2**32, (2, count), dtype=np.uint32).view(np.float32)
    near = slice(0, None, 3)
    with np.errstate(all="ignore"):
        b[near] = a[near] * random.uniform(-1, 1, a[near].size) * 2.0 ** -random.integers(0, 40, a[near].size)
    b[1::40] = -a[1::40]
    a[2::40], b[2::40] = random.integers(0, 2**24, (2, a[2::40].size), dtype=np.uint32).view(np.float32)
    a[4::40], b[4::40] = LARGEST, 2.0 ** random.uniform(99, 105, a[4::40].size)
    return a, b


def bits(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float32).view(np.uint32)


def full(value: float, count: int) -> np.ndarray:
    return np.full(count, value, np.float32)


# ---------------------------------------------------------------- every bit


def test_the_oracle_computes_aes() -> None:
    """FIPS 197, appendix B: the first and the last round of the example."""
    state = bytes(
        x ^ y
        for x, y in zip(
            bytes.fromhex("3243f6a8885a308d313198a2e0370734"),
            bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"),
            strict=True,
        )
    )
    first = oracle.aes_round(state, bytes.fromhex("a0fafe1788542cb123a339392a6c7605"))
    assert first.hex() == "a49c7ff2689f352b6b5bea43026a5049"
    before = bytes.fromhex("eb40f21e592e38848ba113e71bc342d2")
    last = oracle.aes_round(before, bytes.fromhex("d014f9a8c9ee2589e13f0cc8b6630ca6"), last=True)
    assert last.hex() == "3925841d02dc09fbdc118597196a0b32"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "key", [(0, 0, 0, 0), (7, 3, 11, 2**40 + 5), (2**64 - 1, 2**64 - 1, 2**64 - 1, 2**62)]
)
def test_every_bit_is_what_rational_arithmetic_and_the_random_word_say(
    mode: str, key: tuple[int, int, int, int]
) -> None:
    a, b = operands(700)
    seed, sample, operation, first = key
    got = bits(add(a, b, mode=mode, seed=seed, sample=sample, operation=operation, first=first))
    for i in range(a.size):
        want = oracle.expected(float(a[i]), float(b[i]), mode, seed, sample, operation, first + i)
        assert got[i] == want, f"element {i}: {a[i]!r} + {b[i]!r}: expected {want:08x}, got {got[i]:08x}"


def test_rn_is_what_numpy_computes() -> None:
    a, b = operands(20_000)
    with np.errstate(all="ignore"):
        want = a + b
    got = add(a, b, mode="rn")
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(bits(got)[~np.isnan(want)], bits(want)[~np.isnan(want)])


PROGRAM = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from prism.test_add import digest
import boundscope_prism
print(boundscope_prism.target(), digest())
"""


def digest() -> str:
    """Of many sums, so that two targets can be compared across processes."""
    a, b = operands(10_007)
    result = hashlib.sha256()
    for mode in MODES:
        for word in WORDS:
            result.update(
                add(a, b, mode=mode, seed=word, sample=5, operation=word // 3, first=word // 7).tobytes()
            )
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


@pytest.mark.parametrize("mode", MODES)
def test_splits_and_threads_give_the_bits_of_the_whole(mode: str) -> None:
    a, b = operands(5000)
    whole = bits(add(a, b, mode=mode, seed=3, sample=4, operation=5))
    cuts = [0, 1, 2, 17, 33, 511, 512, 513, 1500, 3333, 5000]
    for threads in (1, 8):
        out = np.empty_like(a)

        def part(start: int, stop: int, out: np.ndarray = out) -> None:
            place = slice(start, stop)
            add(a[place], b[place], mode=mode, seed=3, sample=4, operation=5, first=start, out=out[place])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, cuts[:-1], cuts[1:]))
        assert np.array_equal(bits(out), whole)


@pytest.mark.parametrize("mode", ["sr", "ud"])
@pytest.mark.parametrize("name", ["seed", "sample", "operation", "first"])
def test_each_part_of_the_key_changes_the_draw(mode: str, name: str) -> None:
    a, b = full(1.0, 4096), full(2.0**-24, 4096)
    reference = bits(add(a, b, mode=mode))
    assert np.array_equal(bits(add(a, b, mode=mode)), reference)
    for value in (1, 2**32, 2**63):
        changed = bits(add(a, b, mode=mode, **{name: value}))
        assert 1800 < np.count_nonzero(changed != reference) < 2300


# ---------------------------------------------------------------- special values

INF, NAN = np.inf, np.nan
HALF_ULP = 2.0**103
ALWAYS = [
    (INF, 1.0, INF),
    (-INF, LARGEST, -INF),
    (INF, -INF, NAN),
    (NAN, 1.0, NAN),
    (NAN, INF, NAN),
    (0.0, 0.0, 0.0),
    (-0.0, -0.0, -0.0),
    (-0.0, 0.0, 0.0),
    (1.5, -1.5, 0.0),
    (SMALLEST, -SMALLEST, 0.0),
    (LARGEST, LARGEST, INF),
    (-LARGEST, -LARGEST, -INF),
    (LARGEST, HALF_ULP, INF),
    (-LARGEST, -HALF_ULP, -INF),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("a", "b", "sum_"), ALWAYS)
def test_what_no_draw_changes(mode: str, a: float, b: float, sum_: float) -> None:
    got = bits(add(full(a, 2000), full(b, 2000), mode=mode))
    assert set(got.tolist()) == {oracle.NAN_BITS if np.isnan(sum_) else int(bits(np.float32(sum_)))}


@pytest.mark.parametrize("sign", [1, -1])
def test_beyond_the_largest_float_sr_rounds_as_rn(sign: int) -> None:
    """Past the largest float32 there is no upper neighbour: below half a gap it stays, from there it is Inf."""
    below, at = np.nextafter(np.float32(HALF_ULP), np.float32(0)), np.float32(HALF_ULP)
    for addend, expected in ((below, LARGEST), (at, INF)):
        for mode in ("rn", "sr"):
            got = add(full(sign * LARGEST, 2000), full(sign * addend, 2000), mode=mode)
            assert set(got.tolist()) == {sign * expected}


@pytest.mark.parametrize("sign", [1, -1])
def test_just_below_the_largest_float_sr_is_still_random(sign: int) -> None:
    below = np.nextafter(LARGEST, np.float32(0))
    got = add(full(sign * below, 2000), full(sign * 2.0**103, 2000), mode="sr")
    assert set(got.tolist()) == {sign * below, sign * LARGEST}


def test_up_down_moves_every_finite_number_to_its_two_neighbours() -> None:
    a, _ = operands(3000)
    extremes = [1.0, -1.0, 2.0**-126, SMALLEST, -SMALLEST, LARGEST, -LARGEST, 2.0**-126 - 2.0**-149]
    a = np.concatenate([a[np.isfinite(a) & (a != 0)], np.array(extremes, np.float32)])
    with np.errstate(over="ignore"):
        up, down = np.nextafter(a, np.float32(INF)), np.nextafter(a, np.float32(-INF))
    seen_up, seen_down = np.zeros(a.size, bool), np.zeros(a.size, bool)
    for sample in range(64):
        got = bits(add(a, np.zeros_like(a), mode="ud", sample=sample))
        is_up, is_down = got == bits(up), got == bits(down)
        assert np.all(is_up | is_down)
        seen_up |= is_up
        seen_down |= is_down
    assert seen_up.all()
    assert seen_down.all()


def test_exact_sums_stay_under_sr() -> None:
    """Also every sum in the subnormal range, and the carrier's own limit: an addend below 2**-53 of the sum."""
    a, b = operands(30_000)
    exact = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        wide = a.astype(np.float64) + b
        narrow = wide.astype(np.float32)
    exact &= (narrow.astype(np.float64) == wide) | (np.abs(wide) < 2.0**-126)
    assert np.count_nonzero(exact) > 1000
    assert np.count_nonzero(np.abs(wide[exact]) < 2.0**-126) > 500
    for sample in range(4):
        got = add(a, b, mode="sr", sample=sample)
        assert np.array_equal(bits(got)[exact], bits(narrow)[exact])
    assert set(add(full(1.0, 2000), full(2.0**-60, 2000)).tolist()) == {1.0}


def test_flush_to_zero_of_the_caller_does_not_reach_us() -> None:
    torch = pytest.importorskip("torch")
    a = np.arange(1000, dtype=np.uint32).view(np.float32)
    want = {mode: bits(add(a, a, mode=mode)) for mode in MODES}
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormals")
    try:
        assert torch.ones(1).mul(1e-40).item() == 0.0
        for mode in MODES:
            assert np.array_equal(bits(add(a, a, mode=mode)), want[mode])
        assert torch.ones(1).mul(1e-40).item() == 0.0
    finally:
        torch.set_flush_denormal(False)


# ---------------------------------------------------------------- the shared cases


def prism_case(cases: Path, name: str) -> tuple[dict, np.ndarray, dict[str, np.ndarray]]:
    """What is expected, the one input of the box, and the constants of the network by name."""
    onnx = pytest.importorskip("onnx")
    folder = cases / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    (expected,) = json.loads((folder / "expected.json").read_text())["props"].values()
    lower = re.findall(r"\(>= X_\d+ ([^\s)]+)\)", (folder / "prop.vnnlib").read_text())
    graph = onnx.load(folder / "model.onnx").graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return expected, np.array([float(text) for text in lower], np.float32), constants


def test_case_prs_04_addition_with_a_known_probability(cases: Path) -> None:
    expected, x, constants = prism_case(cases, "PRS-04")
    c = constants["c"].reshape(-1)
    assert add(x, c, mode="rn").tolist() == expected["rn_output"]
    for mode, tolerance in (("sr", 0.0169), ("ud", 0.0195)):
        samples = np.stack([add(x, c, mode=mode, sample=sample) for sample in range(10_000)])
        for element, values in enumerate(expected[mode]["values"]):
            assert set(samples[:, element].tolist()) == set(values)
            frequency = np.mean(samples[:, element] == values[1])
            assert abs(frequency - expected[mode]["prob_of_second"][element]) < tolerance


def test_case_prs_03_subnormal_results(cases: Path) -> None:
    """As sums: they are exact, so SR must keep each to the last unit, and UD goes to its two neighbours."""
    expected, _, _ = prism_case(cases, "PRS-03")
    unit = np.float32(expected["unit"])
    units = np.array([value for pair in expected["sr"]["values_units"] for value in pair], np.float32)
    a, b = (3 * units * unit).astype(np.float32), (-2 * units * unit).astype(np.float32)
    with np.errstate(under="ignore"):
        want = units * unit
    for sample in range(200):
        assert np.array_equal(add(a, b, mode="sr", sample=sample), want)
        moved = add(a, b, mode="ud", sample=sample) / unit
        assert np.array_equal(np.abs(moved - units), (units != 0).astype(np.float32))


def test_case_prs_01_exact_results_stay_under_sr_and_move_under_ud(cases: Path) -> None:
    expected, x, constants = prism_case(cases, "PRS-01")
    products = (constants["W"] * x).T
    assert np.array_equal(products, products.astype(np.float64))

    def run(mode: str, sample: int) -> list[float]:
        total = np.ascontiguousarray(constants["b"])
        for operation, column in enumerate(products):
            total = add(np.ascontiguousarray(column), total, mode=mode, sample=sample, operation=operation)
        return total.tolist()

    assert all(run("sr", sample) == expected["rn_output"] for sample in range(50))
    assert all(run("ud", sample) != expected["rn_output"] for sample in range(50))


def test_the_oracle_agrees_with_the_case_on_neighbours() -> None:
    """1 + 2**-25 lies a quarter of the way up from 1."""
    x = 1 + Fraction(1, 2**25)
    low, high = oracle.neighbours(x)
    assert (low, high, (x - low) / (high - low)) == (1, 1 + Fraction(1, 2**23), Fraction(1, 4))
