"""What a property is once it has been read: cases, each an input box and the clauses that would violate it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]
IndexArray = NDArray[np.int64]


@dataclass(frozen=True)
class Box:
    """Bounds of every input, flattened in row-major order of the network's input tensor(s).

    `lower_text` and `upper_text` are the decimals as written; `lower` (rounded down) and `upper` (rounded up)
    are float64 [inputs] that enclose them, equal to them where they are float64 numbers. The box is closed;
    `strict_lower` and `strict_upper` name the inputs whose bound was written with < or >, so that the bound
    itself is not among the points that violate.
    """

    lower_text: tuple[str, ...]
    upper_text: tuple[str, ...]
    lower: Float64Array
    upper: Float64Array
    strict_lower: IndexArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    strict_upper: IndexArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class LinearConstraint:
    """Σ output_coeffs·y[output_indices] + Σ input_coeffs·x[input_indices] ≤ bound, or < where `strict`.

    Its margin at a point is left side minus bound: the constraint fails exactly where the margin is positive
    (or zero, where strict). Coefficients are the nearest float64; where one is not exact, `coeff_error` is at
    least the largest |exact − float64| among them (0.0 otherwise), and `exact_coeffs` holds the exact ones,
    outputs then inputs (empty otherwise). `bound` is exact.
    """

    output_indices: IndexArray
    output_coeffs: Float64Array
    bound: Fraction
    strict: bool = False
    input_indices: IndexArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    input_coeffs: Float64Array = field(default_factory=lambda: np.zeros(0, dtype=np.float64))
    coeff_error: float = 0.0
    text: str = ""
    exact_coeffs: tuple[Fraction, ...] = ()


@dataclass(frozen=True)
class Clause:
    """A conjunction: the property is violated at a point of the box where all constraints hold.

    No constraints at all means that every point of the box violates.
    """

    constraints: tuple[LinearConstraint, ...]
    text: str = ""


@dataclass(frozen=True)
class Case:
    """One input box and the clauses that would violate the property inside it (a disjunction)."""

    box: Box
    clauses: tuple[Clause, ...]


@dataclass(frozen=True)
class Property:
    """A whole property: violated where any case holds one of its clauses at a point of its box."""

    name: str
    format: str  # "VNN-LIB 1.0", "VNN-LIB 2.0", "ε-ball"
    input_count: int
    output_count: int
    cases: tuple[Case, ...]
