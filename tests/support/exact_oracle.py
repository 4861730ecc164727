"""Whether a small piecewise linear network violates a property, decided over the rational numbers.

Every activation pattern that occurs in an input box is a polytope on which the outputs are linear; there a clause is a
handful of half-spaces, and whether they leave anything is read off the vertices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from support.exact_network import ExactNetwork, Forms
from support.exact_polytope import Polytope, point_of


@dataclass(frozen=True)
class Linear:
    """Σ outputs[j]·y_j + Σ inputs[i]·x_i."""

    outputs: Mapping[int, Fraction] = field(default_factory=dict)
    inputs: Mapping[int, Fraction] = field(default_factory=dict)

    def at(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> Fraction:
        terms = [c * y[j] for j, c in self.outputs.items()] + [c * x[i] for i, c in self.inputs.items()]
        return sum(terms, Fraction(0))

    def row(self, forms: Forms, bound: Fraction = Fraction(0)) -> tuple[list[int], int]:
        """This less a bound as a form of the inputs: integers [inputs + 1], and the denominator of them."""
        width = forms.rows.shape[1]
        total = [Fraction(0)] * width
        for index, coefficient in self.outputs.items():
            for column, value in enumerate(forms.rows[index]):
                total[column] += coefficient * Fraction(value, forms.denominator)
        for index, coefficient in self.inputs.items():
            total[index] += coefficient
        total[-1] -= bound
        denominator = math.lcm(*(value.denominator for value in total))
        return [int(value * denominator) for value in total], denominator


@dataclass(frozen=True)
class Constraint:
    """linear ≤ bound, or < where strict."""

    linear: Linear
    bound: Fraction
    strict: bool = False


Clause = tuple[Constraint, ...]


@dataclass(frozen=True)
class InputBox:
    """Decimals of both ends of every input, as written."""

    lower: tuple[str, ...]
    upper: tuple[str, ...]

    def polytope(self) -> Polytope:
        return Polytope.box([Fraction(text) for text in self.lower], [Fraction(text) for text in self.upper])

    def holds(self, point: Sequence[Fraction]) -> bool:
        ends = zip(self.lower, point, self.upper, strict=True)
        return all(Fraction(low) <= value <= Fraction(high) for low, value, high in ends)


@dataclass(frozen=True)
class Case:
    """One input box, and the clauses of which none may hold in it."""

    box: InputBox
    clauses: tuple[Clause, ...]


@dataclass(frozen=True)
class Least:
    """The least value of a linear function, and a point where it is reached."""

    value: Fraction
    point: tuple[Fraction, ...]


def violates(network: ExactNetwork, cases: Sequence[Case], point: Sequence[Fraction]) -> bool:
    """Whether the point is one that the property forbids."""
    outputs = network.evaluate(point)
    return any(
        case.box.holds(point) and any(_holds(clause, point, outputs) for clause in case.clauses)
        for case in cases
    )


def _holds(clause: Clause, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
    for one in clause:
        value = one.linear.at(x, y)
        if value > one.bound or (one.strict and value == one.bound):
            return False
    return True


def violation(network: ExactNetwork, cases: Sequence[Case]) -> tuple[Fraction, ...] | None:
    """A point that the property forbids; None where there is none at all."""
    for case in cases:
        for region, forms in network.regions(case.box.polytope()):
            for clause in case.clauses:
                part = _part(region, forms, clause)
                # Of a convex part, the middle meets strictly what any point of it meets strictly.
                if part is not None and not _meets_everywhere(part, forms, clause):
                    return tuple(part.middle())
    return None


def least(
    network: ExactNetwork, box: InputBox, objective: Linear, given: Clause = ()
) -> tuple[Least, Least] | None:
    """The least and the greatest value over the closed part of a box where `given` holds; None where it is empty.

    The greatest is given as the value itself, with its point.
    """
    low: Least | None = None
    high: Least | None = None
    for region, forms in network.regions(box.polytope()):
        part = _part(region, forms, given)
        if part is None:
            continue
        row, denominator = objective.row(forms)
        for value, vertex in zip(part.values(row), part.vertices, strict=True):
            exact = Fraction(value, vertex[-1] * denominator)
            if low is None or exact < low.value:
                low = Least(exact, tuple(point_of(vertex)))
            if high is None or exact > high.value:
                high = Least(exact, tuple(point_of(vertex)))
    return None if low is None or high is None else (low, high)


def _part(region: Polytope, forms: Forms, clause: Clause) -> Polytope | None:
    """Where the clause holds, with what is strict taken as not."""
    part: Polytope | None = region
    for one in clause:
        if part is None:
            return None
        part = part.at_most_zero(one.linear.row(forms, one.bound)[0])
    return part


def _meets_everywhere(part: Polytope, forms: Forms, clause: Clause) -> bool:
    """Whether a strict constraint of the clause is met with equality all over a part."""
    strict = (one.linear.row(forms, one.bound)[0] for one in clause if one.strict)
    return any(min(part.values(row)) == 0 for row in strict)
