"""Disjunctive normal form: comparisons joined by and/or become conjunctions of atoms.

An atom is a bound on one input or a linear constraint. `assemble.py` sorts the conjunctions into cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from boundscope.properties.decimals import exact_text, rounded_text
from boundscope.properties.linear import Linear, make_constraint, subtract
from boundscope.properties.types import LinearConstraint


@dataclass(frozen=True)
class Limits:
    """Where normal forms stop with an error instead of filling the memory."""

    conjunctions: int = 1_000_000
    atoms: int = 20_000_000  # copied on the way, in all
    box_numbers: int = 50_000_000  # bounds of all cases' boxes together


class InputBound(NamedTuple):
    """X_input ≤ value (upper) or ≥ value, or < / > where strict; `text` is the decimal as written."""

    input: int
    upper: bool
    value: Decimal
    text: str
    strict: bool
    position: int

    @property
    def words(self) -> str:
        return f"X_{self.input} {'≤' if self.upper else '≥'} {self.text}"


Atom = InputBound | LinearConstraint
Conjunction = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A disjunction of conjunctions; none at all is false, an empty conjunction is true."""

    conjunctions: tuple[Conjunction, ...]


_WRITTEN_OUT = "written out as a disjunction of conjunctions it has"
_REMEDY = "split the property into several files"
TRUE = Formula(((),))
FALSE = Formula(())
Value = Atom | Formula


class Joiner:
    """Joins values under limits, and counts what it has copied so that no nesting can take for ever."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.copied = 0

    def conjoin(self, values: Sequence[Value]) -> Formula:
        """All of the values. Raises ValueError where the normal form passes the limits."""
        common: list[Atom] = []
        choices: list[Formula] = []
        for value in values:
            if not isinstance(value, Formula):
                common.append(value)
            elif len(value.conjunctions) == 1:
                common.extend(value.conjunctions[0])
            else:
                choices.append(value)
        self.charge(choices, len(common))
        if not choices:
            return Formula((tuple(common),))
        return Formula(tuple(_combined(tuple(common), choices)))

    def disjoin(self, values: Sequence[Value]) -> Formula:
        """Any of the values. Raises ValueError where the normal form passes the limits."""
        found: list[Conjunction] = []
        for value in values:
            if isinstance(value, Formula):
                found.extend(value.conjunctions)
            else:
                found.append((value,))
        self._check(len(found), len(found))
        return Formula(tuple(found))

    def charge(self, choices: Sequence[Formula], common: int) -> None:
        """Account for all ways of choosing one conjunction of each formula beside `common` atoms.

        Raises ValueError, before anything is written out, where these pass the limits.
        """
        count = math.prod(len(choice.conjunctions) for choice in choices)
        atoms = common * count
        for choice in choices:
            if choice.conjunctions:
                atoms += sum(map(len, choice.conjunctions)) * (count // len(choice.conjunctions))
        self._check(count, atoms)

    def _check(self, conjunctions: int, copies: int) -> None:
        limit = self.limits.conjunctions
        if conjunctions > limit:
            size = str(conjunctions) if conjunctions < 10**15 else f"about 10^{int(math.log10(conjunctions))}"
            raise ValueError(f"{_WRITTEN_OUT} {size} conjunctions; the limit is {limit}: {_REMEDY}")
        self.copied += copies
        if self.copied > self.limits.atoms:
            raise ValueError(f"{_WRITTEN_OUT} more than {self.limits.atoms} comparisons: {_REMEDY}")


def combinations(choices: Sequence[Formula]) -> Iterator[Conjunction]:
    """One conjunction for each way of choosing one from every formula."""
    return _combined((), choices)


def compare(op: str, left: Linear, right: Linear, position: int) -> Value:
    """The value of `left op right`, op being one of <=, >=, <, >, =. Raises ValueError as linear.py does."""
    if op == "=":
        pair = [compare(each, left, right, position) for each in ("<=", ">=")]
        return Joiner(Limits()).conjoin(pair)
    difference = subtract(left, right)
    if not difference.terms:
        return TRUE if _holds(op, difference.constant) else FALSE
    if len(difference.terms) > 1 or next(iter(difference.terms)) < 0:
        return make_constraint(op, left, right, difference)
    ((index, coefficient),) = difference.terms.items()
    limit = -difference.constant / coefficient
    upper = (op[0] == "<") == (coefficient > 0)
    exact = _text_as_written(left, right) or exact_text(limit)
    # A limit whose decimals never end: the box encloses it, and the constraint beside it keeps it exact.
    text = exact if exact is not None else rounded_text(limit, up=upper)
    bound = InputBound(index, upper, Decimal(text), text, len(op) == 1 and exact is not None, position)
    if exact is not None:
        return bound
    return Formula(((bound, make_constraint(op, left, right, difference)),))


def _text_as_written(left: Linear, right: Linear) -> str:
    """The decimal that a lone variable is compared with, if that is all that the comparison holds."""
    for name, number in ((left, right), (right, left)):
        if number.text and not name.constant and list(name.terms.values()) == [1]:
            return number.text
    return ""


def _combined(common: Conjunction, choices: Sequence[Formula]) -> Iterator[Conjunction]:
    for chosen in product(*(choice.conjunctions for choice in choices)):
        yield common + tuple(atom for conjunction in chosen for atom in conjunction)


def _holds(op: str, value: Fraction) -> bool:
    if value == 0:
        return len(op) == 2
    return (value < 0) == (op[0] == "<")
