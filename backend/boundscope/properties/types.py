"""What a property is once it has been read: cases, each an input box and the clauses that would violate it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from boundscope.protocol import Norm

Float64Array = NDArray[np.float64]
IndexArray = NDArray[np.int64]


@dataclass(frozen=True)
class NormBall:
    """Inputs x with ‖scale · (x − centre)‖ ≤ radius in the L2 or L1 norm; with L0, those that differ from the centre in
    at most `radius` inputs, each of which may have any value of its box.

    `centre_lower_text` and `centre_upper_text` are the centre's decimals, the same where these end, else rounded down
    and up to 25 digits: an input between the two does not differ. `centre_lower` and `centre_upper` are float64
    [inputs] that enclose them. `scale` is what mean and std made of the distances (std, an entry an input, exact);
    `scale_below` and `radius_above` are float64, rounded so that the ball grows.
    """

    norm: Norm
    radius: Fraction
    centre_lower_text: tuple[str, ...]
    centre_upper_text: tuple[str, ...]
    centre_lower: Float64Array
    centre_upper: Float64Array
    scale: tuple[Fraction, ...]
    scale_below: Float64Array
    radius_above: float


@dataclass(frozen=True)
class Box:
    """Bounds of every input, flattened in row-major order of the network's input tensor(s).

    `lower_text` and `upper_text` are the decimals as written; `lower` (rounded down) and `upper` (rounded up)
    are float64 [inputs] that enclose them, equal to them where they are float64 numbers. The box is closed;
    `strict_lower` and `strict_upper` name the inputs whose bound was written with < or >, so that the bound
    itself is not among the points that violate. Where there is a `ball`, only points that lie in it too count; the
    box encloses it.
    """

    lower_text: tuple[str, ...]
    upper_text: tuple[str, ...]
    lower: Float64Array
    upper: Float64Array
    strict_lower: IndexArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    strict_upper: IndexArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ball: NormBall | None = None


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
