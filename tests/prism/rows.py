"""What the families over rows must give, in rational arithmetic, written from their docstrings."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import boundscope_prism
from boundscope_prism._rounding import Rounding
from prism import oracle

GROUP = 16
TREE_STEPS = 4
MODES = ("rn", "sr", "ud", "rr")
FULL: dict[Any, int] = {np.float32: 24, np.float64: 53}

Numbers = Sequence[float]


@dataclass(frozen=True)
class Reference:
    """The operations of one row of one call."""

    rounding: Rounding
    dtype: Any
    operation: int = 0

    @property
    def format(self) -> oracle.Format:
        precision = self.rounding.precision or FULL[self.dtype]
        return oracle.float32(precision) if self.dtype is np.float32 else oracle.float64(precision)

    def draw(self, stage: int, row: int, steps: int, index: int) -> oracle.Random:
        key = oracle.Key(self.rounding.seed, self.rounding.sample, self.operation, stage)
        return oracle.random_of(key, self.rounding.mode, index % GROUP, index // GROUP, row=row, steps=steps)

    def round(self, x: oracle.Value, stage: int, row: int, steps: int, index: int) -> float:
        bits = oracle.rounded(x, self.format, self.rounding.mode, self.draw(stage, row, steps, index))
        return float(oracle.from_bits(bits, self.format.width))

    def do(
        self, name: str, operands: tuple[float, ...], stage: int, row: int, steps: int = 1, index: int = 0
    ) -> float:
        return self.round(oracle.exact(name, *operands), stage, row, steps, index)

    # ------------------------------------------------------------ sums

    def tree(self, sums: list[float], stage: int, row: int, steps: int) -> float:
        for level, half in enumerate((8, 4, 2, 1)):
            for lane in range(max(0, min(half, len(sums) - half))):
                index = (steps - TREE_STEPS + level) * GROUP + lane
                sums[lane] = self.do("add", (sums[lane], sums[lane + half]), stage, row, steps, index)
            sums = sums[:half]
        return sums[0]

    def sum(self, x: Numbers, stage: int = 0, row: int = 0, order: str = "lanes") -> float:
        steps = -(-len(x) // GROUP)
        if order == "sequential":
            total = x[0]
            for i in range(1, len(x)):
                total = self.do("add", (total, x[i]), stage, row, steps, i)
            return total
        steps += TREE_STEPS
        sums = list(x[:GROUP])
        for i in range(GROUP, len(x)):
            sums[i % GROUP] = self.do("add", (sums[i % GROUP], x[i]), stage, row, steps, i)
        return self.tree(sums, stage, row, steps)

    def dot(self, a: Numbers, b: Numbers, stage: int = 0, row: int = 0, order: str = "lanes") -> float:
        steps = -(-len(a) // GROUP)
        if order == "sequential":
            total = 0.0
            for i in range(len(a)):
                total = self.do("fma", (a[i], b[i], total), stage, row, steps, i)
            return total
        steps += TREE_STEPS
        sums = [0.0] * min(GROUP, len(a))
        for i in range(len(a)):
            sums[i % GROUP] = self.do("fma", (a[i], b[i], sums[i % GROUP]), stage, row, steps, i)
        return self.tree(sums, stage, row, steps)

    def mean(self, x: Numbers, row: int = 0, order: str = "lanes") -> float:
        return self.do("divide", (self.sum(x, 0, row, order), float(len(x))), 1, row)

    def each(
        self, name: str, x: Numbers, others: Sequence[tuple[float, ...]], stage: int, row: int
    ) -> list[float]:
        steps = -(-len(x) // GROUP)
        return [self.do(name, (x[i], *others[i]), stage, row, steps, i) for i in range(len(x))]

    def moments(
        self, x: Numbers, correction: float, row: int = 0, order: str = "lanes"
    ) -> tuple[float, list[float], float]:
        """The mean, the deviations and the variance."""
        mean = self.mean(x, row, order)
        deviations = self.each("subtract", x, [(mean,)] * len(x), 2, row)
        squares = self.dot(deviations, deviations, 3, row, order)
        return mean, deviations, self.do("divide", (squares, max(0.0, len(x) - correction)), 4, row)

    # ------------------------------------------------------------ normalizations

    def inverse(self, variance: float, epsilon: float, row: int) -> float:
        total = self.do("add", (variance, float(self.dtype(epsilon))), 5, row)
        root = self.do("sqrt", (total,), 6, row)
        return self.do("divide", (1.0, root), 7, row)

    def scaled(
        self, d: Numbers, inverse: Numbers, weight: Numbers | None, bias: Numbers | None, row: int
    ) -> list[float]:
        y = self.each("multiply", d, [(one,) for one in inverse], 8, row)
        if weight is not None and bias is not None:
            return self.each("fma", y, list(zip(weight, bias, strict=True)), 9, row)
        if weight is not None:
            return self.each("multiply", y, [(one,) for one in weight], 9, row)
        return y if bias is None else self.each("add", y, [(one,) for one in bias], 9, row)

    # ------------------------------------------------------------ softmax

    def softmax(self, x: Numbers, row: int = 0, *, logarithm: bool = False) -> list[float]:
        largest = math.nan if any(math.isnan(one) for one in x) else max(x)
        steps = -(-len(x) // GROUP)
        terms = self.each("subtract", x, [(largest,)] * len(x), 0, row)
        exps = [exp_of(t, self.dtype) for t in terms]
        powers = [self.round(oracle.value_of(e), 1, row, steps, i) for i, e in enumerate(exps)]
        total = self.sum(powers, 2, row)
        if logarithm:
            log = self.round(oracle.value_of(log_of(total)), 3, row, 1, 0)
            return self.each("subtract", terms, [(log,)] * len(x), 4, row)
        return self.each("divide", powers, [(total,)] * len(x), 3, row)


def fma(a: float, b: float, c: float) -> float:
    """In float64, rounded once."""
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def exp_of(t: float, dtype: Any) -> float:
    """exp(t) of t <= 0 as the kernels have it in float64: k = t / ln 2 to the nearest, a series of t - k ln 2."""
    if math.isnan(t):
        return t
    if t == -math.inf:
        return 0.0
    degree, least = (11, -700.0) if dtype is np.float32 else (13, -1000.0)
    t = max(t, least)
    k = fma(t, 1.4426950408889634, 1.5 * 2.0**52) - 1.5 * 2.0**52
    r = fma(k, -float.fromhex("0x1.abc9e3b39803fp-56"), fma(k, -float.fromhex("0x1.62e42fefa39efp-1"), t))
    total = 1 / math.factorial(degree)
    for i in range(degree - 1, -1, -1):
        total = fma(total, r, 1 / math.factorial(i))
    return math.ldexp(total, int(k))


def log_of(x: float) -> float:
    """log(x) of x > 0 as the kernels have it in float64."""
    if math.isnan(x) or math.isinf(x):
        return x
    m, k = math.frexp(x)
    if m < math.sqrt(0.5):
        m, k = m * 2, k - 1
    f = m - 1
    s = f / (2 + f)
    total = 1 / 23
    for odd in range(21, 2, -2):
        total = fma(total, s * s, 1 / odd)
    low = fma(float(k), float.fromhex("0x1.abc9e3b39803fp-56"), f - s * (f - 2 * (s * s) * total))
    return fma(float(k), float.fromhex("0x1.62e42fefa39efp-1"), low)


def bits(x: Any) -> NDArray[Any]:
    array = np.ascontiguousarray(x)
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)


def expect(got: NDArray[Any], wanted: Sequence[Any], what: str = "") -> None:
    """The same bits."""
    array = np.asarray(wanted, got.dtype)
    nan = np.isnan(array)
    array[nan] = np.array([oracle.from_bits(0x7FF8000000000000, 64)]).astype(got.dtype)
    different = np.argwhere(bits(got) != bits(array))
    assert different.size == 0, (
        f"{what}: {len(different)} differ, first at {different[0]}: {got} is not {array}"
    )


def rows_of(columns: int, dtype: Any, seed: int = 0) -> NDArray[Any]:
    """Rows whose arithmetic is ordinary and rows that need a guard: zeros, cancelling, tiny, huge, not finite."""
    random = np.random.default_rng(seed)
    info = np.finfo(dtype)
    ordinary = random.standard_normal((3, columns))
    zeros = np.zeros(columns)
    zeros[columns // 2] = -0.0
    cancelling = random.standard_normal(columns) * 2.0 ** random.integers(-20, 20, columns)
    cancelling[1::2] = -cancelling[: columns // 2 * 2 : 2] * (1 + 2.0**-20)
    tiny = random.standard_normal(columns) * float(info.tiny) * 4
    huge = random.standard_normal(columns) * (float(info.max) / 8)
    with np.errstate(all="ignore"):
        infinite = random.standard_normal(columns)
        infinite[columns // 3] = np.inf
        masked = random.standard_normal(columns)
        masked[: columns // 2] = -np.inf
        missing = random.standard_normal(columns)
        missing[columns // 2] = np.nan
    return np.vstack([ordinary, zeros, cancelling, tiny, huge, infinite, masked, missing]).astype(dtype)


def on_target(target: str, program: str) -> str:
    """What `program` prints where `target` is forced."""
    process = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path.insert(0, 'tests')\n" + program],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"BOUNDSCOPE_PRISM_TARGET": target, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def check_targets(program: str) -> None:
    """Every target prints what the best one does."""
    names = boundscope_prism.targets()
    printed = {name: on_target(name, program) for name in names}
    assert len(printed[names[0]]) > 32
    assert all(text == printed[names[0]] for text in printed.values()), printed
