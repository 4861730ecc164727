"""The probabilities of SR, UD and RR are those of rational arithmetic, for every operation: one decision over all.

Cases are found by a fixed search: for each operation, type, precision, sign and place of the result (ordinary, on
either side of a power of two, subnormal, next to the largest number), operands whose exact result lies between two
numbers with a probability that is far from 0 and 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import boundscope_prism
from boundscope_prism import rounding
from prism import oracle
from prism.decision import Cells

DRAWS = 32_768
OPERATIONS = ("add", "subtract", "multiply", "divide", "sqrt", "fma", "cast")
PLACES = ("ordinary", "below a power", "above a power", "subnormal", "next to the largest")
PRECISIONS = {32: (24, 11, 8), 64: (53, 24, 11)}


@dataclass(frozen=True)
class Case:
    name: str
    operation: str
    operands: tuple[float, ...]
    format: oracle.Format

    @property
    def exact(self) -> oracle.Value:
        return oracle.exact(self.operation, *self.operands)

    def bits(self, mode: str, seed: int) -> np.ndarray:
        """The bits of DRAWS results."""
        wide = self.operation == "cast" or self.format.width == 64
        arrays = [np.full(DRAWS, x, np.float64 if wide else np.float32) for x in self.operands]
        how: Any = rounding(mode, seed=seed, precision=self.format.precision, threads=1)  # type: ignore[arg-type]
        result = getattr(boundscope_prism, self.operation)(*arrays, how)
        return np.asarray(result).view(np.uint32 if self.format.width == 32 else np.uint64)


def probability(x: oracle.Real, fmt: oracle.Format) -> Fraction:
    """Of SR's result of greater magnitude."""
    low, high = sorted(abs(neighbour) for neighbour in oracle.neighbours(x, fmt))
    if isinstance(x, oracle.Root):
        scale = 2**80
        root = math.isqrt(math.floor(x.square * scale * scale * 2**200))
        return (Fraction(root, scale * 2**100) - low) / (high - low)
    return Fraction(abs(x) - low) / (high - low) if high > low else Fraction(0)


# ---------------------------------------------------------------- cases


def place_of(x: oracle.Real, fmt: oracle.Format) -> str | None:
    """Where an inexact result lies; None where it is exact or beyond the largest number."""
    low, high = sorted(abs(neighbour) for neighbour in oracle.neighbours(x, fmt))
    if low == high or high > fmt.largest:
        return None
    if high <= Fraction(2) ** fmt.least_exponent:
        return "subnormal"
    if high == fmt.largest:
        return "next to the largest"
    if high.numerator.bit_count() == 1:
        return "below a power"
    return "above a power" if low.numerator.bit_count() == 1 else "ordinary"


def target(place: str, fmt: oracle.Format, source: random.Random) -> Fraction:
    """A positive number about where the result should be."""
    exponent = source.randrange(-8, 8)
    part = Fraction(source.randrange(1, 2**60), 2**60)
    if place == "subnormal":
        return (source.randrange(0, 2 ** (fmt.precision - 1)) + part) * Fraction(2) ** fmt.spacing
    if place == "next to the largest":
        return fmt.largest - part * Fraction(2) ** fmt.quantum(fmt.largest)
    if place == "below a power":
        return Fraction(2) ** exponent * (1 - part * Fraction(2) ** -fmt.precision)
    if place == "above a power":
        return Fraction(2) ** exponent * (1 + part * Fraction(2) ** (1 - fmt.precision))
    return Fraction(2) ** exponent * (1 + part)


def operands(
    operation: str, x: Fraction, fmt: oracle.Format, negative: bool, source: random.Random
) -> tuple[float, ...] | None:
    """Of the type, with about the result x; None where one would be out of range."""
    full = oracle.float64() if fmt.width == 64 or operation == "cast" else oracle.float32()
    sign = -1 if negative else 1
    top = math.floor(math.log2(x)) if x.numerator < 2**900 and x.denominator < 2**900 else fmt.quantum(x)
    towards = (top > 60) * 24 - (top < -60) * 24  # a factor's exponent, so that the other is in range
    if operation == "divide":
        towards = -towards
    other = Fraction(source.randrange(2**23, 2**24), 2**23) * Fraction(2) ** (
        source.randrange(-4, 5) + towards
    )
    if operation == "cast":
        found = [sign * x]
    elif operation in ("add", "subtract"):
        small = oracle.nearest(x * Fraction(source.randrange(1, 2**60), 2**63), full)
        found = [sign * (x - small), sign * small if operation == "add" else -sign * small]
    elif operation == "multiply":
        found = [x / other, sign * other]
    elif operation == "divide":
        found = [sign * x * other, other]
    elif operation == "sqrt":
        found = [x * x]
    else:
        addend = oracle.nearest(x / source.randrange(3, 9), full)
        found = [(x - addend) / other, sign * other, sign * addend]
    rounded_to_type = [oracle.nearest(value, full) for value in found]
    if any(value == 0 or abs(value) > full.largest for value in rounded_to_type):
        return None
    return tuple(float(value) for value in rounded_to_type)


def search(operation: str, fmt: oracle.Format, place: str, negative: bool) -> Case | None:
    name = f"{operation} float{fmt.width} {fmt.precision} bits, {place}, {'-' if negative else '+'}"
    source = random.Random(name)
    for _ in range(300):
        found = operands(operation, target(place, fmt, source), fmt, negative, source)
        if found is None:
            continue
        case = Case(name, operation, found, fmt)
        x = case.exact
        if isinstance(x, float) or place_of(x, fmt) != place:
            continue
        if Fraction(1, 20) < probability(x, fmt) < Fraction(19, 20):
            return case
    return None


def is_reachable(operation: str, fmt: oracle.Format, place: str, negative: bool) -> bool:
    if operation == "sqrt":
        return not negative and place not in ("subnormal", "next to the largest")
    if operation == "cast":
        return fmt.width == 32
    if fmt.precision != (24 if fmt.width == 32 else 53):
        return True
    # A sum of two numbers is a multiple of the smallest one; no quotient lies between 1 and the number below it.
    return (operation, place) not in (
        ("add", "subnormal"),
        ("subtract", "subnormal"),
        ("divide", "below a power"),
    )


def cases() -> Iterator[Case]:
    for operation in OPERATIONS:
        for width, precisions in PRECISIONS.items():
            for precision in precisions:
                fmt = oracle.Format(width, precision)
                for place in PLACES:
                    for negative in (False, True):
                        if is_reachable(operation, fmt, place, negative):
                            case = search(operation, fmt, place, negative)
                            assert case is not None, f"no {operation} {fmt} {place} {negative}"
                            yield case


@pytest.fixture(scope="module")
def found() -> list[Case]:
    return list(cases())


@pytest.fixture(scope="module")
def counts(found: list[Case]) -> list[tuple[str, int, float]]:
    """Per case and mode: how many draws went to the greater of the two results, and the probability of that."""
    counted = []
    for seed, case in enumerate(found):
        x = case.exact
        assert not isinstance(x, float)
        for number, mode in enumerate(("sr", "ud", "rr")):
            bits = case.bits(mode, 1000 + 3 * seed + number)
            low, high = outcomes(x, case.format, mode)
            values, times = np.unique(bits, return_counts=True)
            assert set(values.tolist()) == {low, high}, f"{case.name}, {mode}: {case.operands} gave {values}"
            chance = float(probability(x, case.format)) if mode == "sr" else 0.5
            counted.append((f"{case.name}, {mode}", int(times[values == high][0]), chance))
    return counted


def outcomes(x: oracle.Real, fmt: oracle.Format, mode: str) -> tuple[int, int]:
    """The bits of the results of lesser and of greater magnitude."""
    if mode == "sr":
        draws = [oracle.Random(), oracle.Random(word=2**32 - 1, bits29=2**29 - 1)]
    else:
        draws = [oracle.Random(bit=bit) for bit in (True, False)]
    low, high = sorted(oracle.rounded(x, fmt, mode, draw) for draw in draws)
    return low, high


def test_probabilities_are_those_of_rational_arithmetic(counts: list[tuple[str, int, float]]) -> None:
    cells = Cells()
    for name, count, chance in counts:
        cells.binomial(name, count, DRAWS, chance)
    assert cells.freedom > 900
    assert cells.passes(), str(cells)


def test_one_wrong_probability_would_be_found(counts: list[tuple[str, int, float]]) -> None:
    """One case off by 1/16, or all by 1/256."""
    for wrong in (1, len(counts)):
        cells = Cells()
        for number, (name, count, chance) in enumerate(counts):
            error = (1 / 10 if wrong == 1 else 1 / 256) if number < wrong else 0
            cells.binomial(name, count, DRAWS, chance - math.copysign(error, chance - 0.5))
        assert not cells.passes(), str(cells)


# ---------------------------------------------------------------- what no draw changes


def special_cases() -> Iterator[Case]:
    """Exact results, and those beyond the largest number."""
    for width, precisions in PRECISIONS.items():
        for precision in precisions:
            fmt = oracle.Format(width, precision)
            largest, unit = float(fmt.largest), math.ldexp(1.0, fmt.quantum(fmt.largest))
            least = math.ldexp(1.0, fmt.spacing)
            for sign in (1.0, -1.0):
                yield Case("sum that fits", "add", (sign * 1.0, sign * math.ldexp(1.0, 1 - precision)), fmt)
                yield Case("subnormal sum", "add", (sign * least, sign * 2 * least), fmt)
                yield Case("half a unit past the largest", "add", (sign * largest, sign * unit / 2), fmt)
                yield Case("a third of a unit past it", "add", (sign * largest, sign * unit / 3), fmt)
                yield Case("the same by fma", "fma", (sign * largest / 2, 2.0, sign * unit / 3), fmt)
                yield Case("far past it", "multiply", (sign * largest, 3.0), fmt)
                yield Case("far past it by division", "divide", (sign * largest, 0.25), fmt)
                yield Case("product that fits", "multiply", (sign * 1.5, 3.0), fmt)
                yield Case("quotient that fits", "divide", (sign * 4.5, 3.0), fmt)
            yield Case("root that fits", "sqrt", (2.25,), fmt)


def representable(case: Case) -> Case:
    """With operands of the type."""
    if case.format.width == 64:
        return case
    return Case(case.name, case.operation, tuple(float(np.float32(x)) for x in case.operands), case.format)


def test_exact_results_and_overflow_do_not_depend_on_the_draw() -> None:
    """SR and RR: what fits stays, and what is beyond the largest number is as in RN. UD keeps infinities alone."""
    for seed, case in enumerate(map(representable, special_cases())):
        x = case.exact
        nearest = oracle.rounded(x, case.format, "rn", oracle.Random())
        for mode in ("sr", "rr"):
            assert set(case.bits(mode, seed).tolist()) == {nearest}, f"{case} {mode}"
        both = {oracle.rounded(x, case.format, "ud", oracle.Random(bit=bit)) for bit in (False, True)}
        assert set(case.bits("ud", seed).tolist()) == both, f"{case} ud"
