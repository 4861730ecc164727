"""Linear terms over inputs and outputs with exact coefficients, and the constraints made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from boundscope.properties.decimals import check_size, rational_text
from boundscope.properties.types import Float64Array, LinearConstraint

SIGNS = {"<=": "≤", ">=": "≥", "<": "<", ">": ">"}


@dataclass(frozen=True, slots=True)
class Linear:
    """Σ terms[v]·v + constant. Variable i ≥ 0 is input X_i; variable ~j (negative) is output Y_j.

    `text` is the decimal that a lone constant was written as, where it was.
    """

    terms: dict[int, Fraction]
    constant: Fraction
    text: str = ""


def variable(code: int) -> Linear:
    return Linear({code: Fraction(1)}, Fraction(0))


def constant(value: Fraction, text: str = "") -> Linear:
    return Linear({}, value, text)


def add(parts: Iterable[Linear]) -> Linear:
    """The sum; variables that cancel disappear. Raises ValueError for numbers that grow too long."""
    terms: dict[int, Fraction] = {}
    total = Fraction(0)
    for part in parts:
        total += part.constant
        for code, coefficient in part.terms.items():
            terms[code] = terms.get(code, 0) + coefficient
    return Linear({c: check_size(v) for c, v in terms.items() if v}, check_size(total))


def scale(part: Linear, factor: Fraction) -> Linear:
    """The multiple; nothing but zero is left where factor is 0. Raises ValueError as `add` does."""
    if not factor:
        return constant(Fraction(0))
    terms = {code: check_size(coefficient * factor) for code, coefficient in part.terms.items()}
    return Linear(terms, check_size(part.constant * factor))


def subtract(left: Linear, right: Linear) -> Linear:
    return add((left, scale(right, Fraction(-1))))


def multiply(parts: Sequence[Linear]) -> Linear:
    """The product, of which at most one factor may hold variables; ValueError otherwise."""
    factor, rest = Fraction(1), None
    for part in parts:
        if not part.terms:
            factor = check_size(factor * part.constant)
        elif rest is None:
            rest = part
        else:
            raise ValueError(f"({side_text(rest)}) times ({side_text(part)}) is not linear")
    return scale(constant(Fraction(1)) if rest is None else rest, factor)


def side_text(side: Linear) -> str:
    """One side of a comparison as people write it: 2·Y_0 - Y_1 + 0.5."""
    words: list[str] = []
    for code, coefficient in side.terms.items():
        name = f"X_{code}" if code >= 0 else f"Y_{~code}"
        size = abs(coefficient)
        term = name if size == 1 else f"{rational_text(size)}·{name}"
        words.append(_signed(term, coefficient < 0, first=not words))
    if side.constant or not words:
        words.append(_signed(rational_text(abs(side.constant)), side.constant < 0, first=not words))
    return " ".join(words)


def make_constraint(op: str, left: Linear, right: Linear, difference: Linear) -> LinearConstraint:
    """The constraint `left op right`, op being one of <=, >=, <, >; `difference` is left − right.

    Raises ValueError where a coefficient is beyond the range of float64.
    """
    sign = -1 if op[0] == ">" else 1
    outputs = sorted((~code, sign * value) for code, value in difference.terms.items() if code < 0)
    inputs = sorted((code, sign * value) for code, value in difference.terms.items() if code >= 0)
    exact = tuple(value for _, value in outputs + inputs)
    rounded = [_to_float(value) for value in exact]
    error = max((abs(value - Fraction(near)) for value, near in zip(exact, rounded, strict=True)), default=0)
    return LinearConstraint(
        output_indices=np.array([index for index, _ in outputs], dtype=np.int64),
        output_coeffs=_float_array(rounded[: len(outputs)]),
        bound=-sign * difference.constant,
        strict=len(op) == 1,
        input_indices=np.array([index for index, _ in inputs], dtype=np.int64),
        input_coeffs=_float_array(rounded[len(outputs) :]),
        coeff_error=_float_above(Fraction(error)),
        text=f"{side_text(left)} {SIGNS[op]} {side_text(right)}",
        exact_coeffs=exact if error else (),
    )


def _signed(term: str, negative: bool, *, first: bool) -> str:
    if first:
        return f"-{term}" if negative else term
    return f"- {term}" if negative else f"+ {term}"


def _to_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"the coefficient {rational_text(value)} is beyond the range of float64") from None


def _float_above(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value else float(np.nextafter(near, np.inf))


def _float_array(values: list[float]) -> Float64Array:
    return np.array(values, dtype=np.float64)
