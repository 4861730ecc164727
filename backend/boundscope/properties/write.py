"""Writing any property as VNN-LIB 1.0 text."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from boundscope.errors import PropertyError
from boundscope.properties.decimals import exact_text
from boundscope.properties.types import Box, Clause, LinearConstraint, Property

_TRUE, _FALSE = "(<= 0.0 1.0)", "(<= 1.0 0.0)"


def to_vnnlib(found: Property, *, enclosing_box: bool = False) -> str:
    """VNN-LIB 1.0 text of the same meaning; reading it back gives equal boxes, clauses and constraints.

    Bounds that all cases share are asserted once; the others stand in the disjunct of each clause. Cases
    without clauses, which nothing can violate, are left out where there are others. VNN-LIB 1.0 has no L2, L1
    or L0 balls: with `enclosing_box` the text says the box around such a ball. Raises PropertyError where it is
    not set, or where there is no case at all.
    """
    if not found.cases:
        raise PropertyError(f"{found.name}: a property without any case cannot be written as VNN-LIB")
    ball = next((case.box.ball for case in found.cases if case.box.ball is not None), None)
    if ball is not None and not enclosing_box:
        raise PropertyError(f"{found.name}: VNN-LIB 1.0 cannot say a ball of the {ball.norm.label} norm")
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Property) -> Iterator[str]:
    yield f"; {' '.join(found.name.split())} ({found.format})"
    yield from (f"(declare-const X_{index} Real)" for index in range(found.input_count))
    yield from (f"(declare-const Y_{index} Real)" for index in range(found.output_count))
    bounds = [_bounds(case.box) for case in found.cases]
    shared = [column[0] if len(set(column)) == 1 else None for column in zip(*bounds, strict=True)]
    yield from (f"(assert {bound})" for bound in shared if bound is not None)
    disjuncts = []
    for case, own in zip(found.cases, bounds, strict=True):
        special = [bound for bound, common in zip(own, shared, strict=True) if common is None]
        disjuncts += [special + _constraints(clause) for clause in case.clauses]
    if not disjuncts:
        yield f"(assert {_FALSE})"
    elif len(disjuncts) == 1:
        yield from (f"(assert {condition})" for condition in disjuncts[0])
    else:
        yield "(assert (or"
        yield from (f"  (and {' '.join(conditions or [_TRUE])})" for conditions in disjuncts)
        yield "))"


def _bounds(box: Box) -> list[str]:
    """Lower and upper bound of every input, as conditions."""
    strict_lower, strict_upper = set(box.strict_lower.tolist()), set(box.strict_upper.tolist())
    conditions = []
    for index, (lower, upper) in enumerate(zip(box.lower_text, box.upper_text, strict=True)):
        conditions.append(f"({'>' if index in strict_lower else '>='} X_{index} {lower})")
        conditions.append(f"({'<' if index in strict_upper else '<='} X_{index} {upper})")
    return conditions


def _constraints(clause: Clause) -> list[str]:
    return [_condition(constraint) for constraint in clause.constraints]


def _condition(constraint: LinearConstraint) -> str:
    coefficients = constraint.exact_coeffs or tuple(
        Fraction(value) for value in (*constraint.output_coeffs.tolist(), *constraint.input_coeffs.tolist())
    )
    names = [f"Y_{index}" for index in constraint.output_indices]
    names += [f"X_{index}" for index in constraint.input_indices]
    less, greater = ("<", ">") if constraint.strict else ("<=", ">=")
    terms = list(zip(names, coefficients, strict=True))
    if len(terms) == 1 and coefficients[0] in (1, -1):
        op = less if coefficients[0] == 1 else greater
        return f"({op} {names[0]} {_number(constraint.bound * coefficients[0])})"
    if sorted(coefficients) == [-1, 1] and constraint.bound == 0:
        larger = names[coefficients.index(Fraction(-1))]
        smaller = names[coefficients.index(Fraction(1))]
        return f"({greater} {larger} {smaller})"
    left = [_term(name, coefficient) for name, coefficient in terms]
    side = left[0] if len(left) == 1 else f"(+ {' '.join(left)})"
    return f"({less} {side} {_number(constraint.bound)})"


def _term(name: str, coefficient: Fraction) -> str:
    if coefficient == 1:
        return name
    return f"(* {_number(coefficient)} {name})"


def _number(value: Fraction) -> str:
    text = exact_text(value)
    if text is None:
        return f"(/ {value.numerator} {value.denominator})"
    return text if "." in text or "e" in text else f"{text}.0"
