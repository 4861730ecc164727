"""How results are rounded: what every operation of this package takes."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from boundscope_prism.errors import PrismArgumentError

Mode: TypeAlias = Literal["rn", "sr", "ud", "rr"]

MODES: dict[str, int] = {"rn": 0, "sr": 1, "ud": 2, "rr": 3}
WORD_LIMIT = 2**64
OPERATION_LIMIT = 2**56
# Asked once: the operating system takes longer to say it than a small array to be added.
_CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Rounding:
    """One sample's rounding. See `rounding()`."""

    mode: Mode = "sr"
    seed: int = 0
    sample: int = 0
    precision: int | None = None
    threads: int | None = None

    def of_sample(self, sample: int) -> Rounding:
        return replace(self, sample=sample)

    def numbers(self, operation: int, dtype_bits: int) -> tuple[int, int, int, int, int, int]:
        """As the native module takes them, for results of `dtype_bits` significand bits (24 or 53).

        Raises PrismArgumentError where the precision is more than that or the operation is out of range.
        """
        if self.precision is not None and self.precision > dtype_bits:
            raise PrismArgumentError(
                f"precision: expected at most the {dtype_bits} significand bits of the arrays, got {self.precision}."
            )
        operation = check_integer("operation", operation, 0, OPERATION_LIMIT - 1)
        precision = 0 if self.precision is None else self.precision
        threads = _CORES if self.threads is None else self.threads
        return MODES[self.mode], precision, self.seed, self.sample, operation, threads


def rounding(
    mode: Mode = "sr",
    *,
    seed: int = 0,
    sample: int = 0,
    precision: int | None = None,
    threads: int | None = None,
) -> Rounding:
    """The rounding of one sample, checked.

    With x the exact real result of one operation, and floats those of `precision` bits:

    - "sr", stochastic rounding: x where it is a float, else one of its two neighbours, the upper one with
      probability (x - lower) / (upper - lower), to within 2**-29.
    - "ud", up-down: x rounded to nearest, then the next float above or below, each with probability 1/2, also
      where x was exact. Zero, infinities and NaN stay.
    - "rr", random: x where it is a float, else one of its two neighbours, each with probability 1/2.
    - "rn": x rounded to nearest, ties to even.

    In every mode a result beyond the largest float overflows as in "rn", signed zeros are as IEEE 754 has
    them, and a NaN is the quiet one.

    `seed` and `sample` key the random words, 0 to 2**64 - 1 each. `precision` is the significand's bits, the
    hidden one included: None for all of the array's type, 8 for bfloat16, 11 for float16 and TF32; exponents
    stay those of the type. `threads` is the most that a call uses, None for every core; the bits do not depend on it.

    Raises PrismArgumentError where an argument is not as described.

    Definitions: Gonzalez-Pepe et al., "Fuzzy PyTorch" (2026), PRISM's SR and UD; RR is Verrou's and CADNA's random
    rounding.
    """
    if mode not in MODES:
        raise PrismArgumentError(f"mode: expected one of {', '.join(map(repr, MODES))}, got {mode!r}.")
    if precision is not None:
        precision = check_integer("precision", precision, 2, 53)
    if threads is not None:
        threads = check_integer("threads", threads, 1, 4096)
    seed = check_integer("seed", seed, 0, WORD_LIMIT - 1)
    sample = check_integer("sample", sample, 0, WORD_LIMIT - 1)
    return Rounding(mode, seed, sample, precision, threads)


def check_integer(name: str, value: int, least: int, most: int) -> int:
    """`value` as an int from `least` to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise PrismArgumentError(f"{name}: expected an integer, got {type(value).__name__}.") from None
    if not least <= number <= most:
        raise PrismArgumentError(f"{name}: expected an integer from {least} to {most}, got {number}.")
    return number
