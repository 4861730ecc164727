"""From asserted atoms and formulas to a Property: the common box, then one case for each different box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from boundscope.errors import PropertyError
from boundscope.properties.decimals import enclosure
from boundscope.properties.normal_form import (
    Conjunction,
    Formula,
    InputBound,
    Joiner,
    Value,
    combinations,
)
from boundscope.properties.source import Locator
from boundscope.properties.types import Box, Case, Clause, Float64Array, LinearConstraint, Property

Bounds = dict[int, InputBound]  # by input
Difference = frozenset[tuple[object, ...]]  # of a box from the common one


@dataclass
class Asserted:
    """Everything that a file asserts, joined by AND: bounds on inputs, constraints, and choices."""

    locator: Locator
    joiner: Joiner
    lower: Bounds = field(default_factory=dict)
    upper: Bounds = field(default_factory=dict)
    constraints: list[LinearConstraint] = field(default_factory=list)
    choices: list[Formula] = field(default_factory=list)
    last_choice: int = 0  # position of the newest choice, for errors

    def add(self, value: Value, position: int) -> None:
        """Assert one more value."""
        if isinstance(value, InputBound):
            tighten(self.upper if value.upper else self.lower, value)
        elif isinstance(value, LinearConstraint):
            self.constraints.append(value)
        elif len(value.conjunctions) == 1:
            for atom in value.conjunctions[0]:
                self.add(atom, position)
        else:
            self.choices.append(value)
            self.last_choice = position


@dataclass(frozen=True)
class Names:
    """What the property is called and how many variables it has.

    `input_position` finds an input's declaration; `input_label` is what the file calls it.
    """

    name: str
    format: str
    input_count: int
    output_count: int
    input_position: Callable[[int], int]
    input_label: Callable[[int], str] = "X_{}".format


def tighten(bounds: Bounds, bound: InputBound) -> None:
    """Keep the tightest bound of an input; of two equal ones the strict one."""
    known = bounds.get(bound.input)
    if known is None:
        bounds[bound.input] = bound
        return
    tighter = bound.value < known.value if bound.upper else bound.value > known.value
    if tighter or (bound.strict and not known.strict and bound.value == known.value):
        bounds[bound.input] = bound


def crossed(lower: InputBound | None, upper: InputBound | None) -> bool:
    """Whether no value satisfies both."""
    if lower is None or upper is None or lower.value < upper.value:
        return False
    return lower.value > upper.value or lower.strict or upper.strict


def assemble(asserted: Asserted, names: Names) -> Property:
    """The property. Raises PropertyError for bounds that are missing or cross, and beyond the limits."""
    return _Assembly(asserted, names).property()


class _Assembly:
    def __init__(self, asserted: Asserted, names: Names) -> None:
        self.asserted = asserted
        self.names = names
        self.locator = asserted.locator
        self.empty: tuple[InputBound, InputBound] | None = None  # bounds of a disjunct without any input
        self.found: dict[Difference, tuple[Box, list[Clause]]] = {}
        self.boxes = 0
        for index, lower in asserted.lower.items():
            upper = asserted.upper.get(index)
            if upper is not None and crossed(lower, upper):
                raise self._crossed_error(lower, upper)
        self.common = _Columns(self.locator, asserted.lower, asserted.upper, names.input_count)

    def property(self) -> Property:
        choices = self.asserted.choices
        try:
            self.asserted.joiner.charge(choices, 0)
        except ValueError as error:
            raise self.locator.error(
                self.asserted.last_choice, f"joined with all asserts, {error}"
            ) from error
        for conjunction in combinations(choices):
            self._add(conjunction)
        names = self.names
        return Property(names.name, names.format, names.input_count, names.output_count, self._cases())

    def _add(self, conjunction: Conjunction) -> None:
        lower: Bounds = {}
        upper: Bounds = {}
        constraints = list(self.asserted.constraints)
        for atom in conjunction:
            if isinstance(atom, InputBound):
                tighten(upper if atom.upper else lower, atom)
            else:
                constraints.append(atom)
        self._keep_tighter(lower, self.asserted.lower)
        self._keep_tighter(upper, self.asserted.upper)
        for index in {**lower, **upper}:
            low = lower.get(index) or self.asserted.lower.get(index)
            high = upper.get(index) or self.asserted.upper.get(index)
            if low is not None and high is not None and crossed(low, high):
                self.empty = self.empty or (low, high)
                return
        changes = (*lower.values(), *upper.values())
        difference = frozenset((bound.input, bound.upper, bound.value, bound.strict) for bound in changes)
        if difference not in self.found:
            self._check_missing(lower, upper)
            self._check_boxes()
            self.found[difference] = (self.common.box(lower, upper), [])
        self.found[difference][1].append(make_clause(constraints))

    def _cases(self) -> tuple[Case, ...]:
        if self.found:
            return tuple(Case(box, tuple(clauses)) for box, clauses in self.found.values())
        if self.empty is not None:
            error = self._crossed_error(*self.empty)
            raise PropertyError(f"{error} Every disjunct asks for inputs that do not exist.")
        self._check_missing({}, {})
        return (Case(self.common.box({}, {}), ()),)

    @staticmethod
    def _keep_tighter(bounds: Bounds, common: Bounds) -> None:
        for index, bound in list(bounds.items()):
            if index in common:
                kept = {index: common[index]}
                tighten(kept, bound)
                if kept[index] is not bound:
                    del bounds[index]

    def _check_boxes(self) -> None:
        self.boxes += 1
        limit = self.asserted.joiner.limits.box_numbers
        if self.boxes * self.names.input_count * 2 > limit:
            raise self.locator.error(
                self.asserted.last_choice,
                f"more than {self.boxes - 1} different input boxes of {self.names.input_count} inputs; "
                f"the limit is {limit} bounds in all: split the property into several files",
            )

    def _check_missing(self, lower: Bounds, upper: Bounds) -> None:
        no_lower = self.common.no_lower - lower.keys()
        no_upper = self.common.no_upper - upper.keys()
        if not no_lower and not no_upper:
            return
        index = min(no_lower | no_upper)
        side = "lower" if index in no_lower else "upper"
        changes = (*lower.values(), *upper.values())
        inside = ""
        if changes:
            line = self.locator.line(min(bound.position for bound in changes))
            inside = f" in the disjunct on line {line}"
        others = len(no_lower | no_upper) - 1
        more = f" ({others} more {'input lacks' if others == 1 else 'inputs lack'} a bound)" if others else ""
        raise self.locator.error(
            self.names.input_position(index),
            f"{self.names.input_label(index)} has no {side} bound{inside}; every input needs a lower and an "
            f"upper bound{more}",
        )

    def _crossed_error(self, lower: InputBound, upper: InputBound) -> PropertyError:
        low_line, high_line = self.locator.line(lower.position), self.locator.line(upper.position)
        relation = "is above" if lower.value > upper.value else "meets"
        strict = "" if lower.value > upper.value else ", and one of them is strict"
        label = self.names.input_label(lower.input)
        return self.locator.error(
            max(lower.position, upper.position),
            f"the lower bound {lower.text} of {label} (line {low_line}) {relation} its upper bound "
            f"{upper.text} (line {high_line}){strict}, so no input is left; exchange or correct them.",
        )


class _Columns:
    """The common bounds as columns of text and float64, to be copied and changed for each box."""

    def __init__(self, locator: Locator, lower: Bounds, upper: Bounds, count: int) -> None:
        self.locator = locator
        self.no_lower = {index for index in range(count) if index not in lower}
        self.no_upper = {index for index in range(count) if index not in upper}
        self._lower = self._column(lower, count, side=0)
        self._upper = self._column(upper, count, side=1)

    def box(self, lower: Bounds, upper: Bounds) -> Box:
        """The common box with these bounds in place of the common ones."""
        lower_text, lower_float, lower_strict = self._changed(self._lower, lower, side=0)
        upper_text, upper_float, upper_strict = self._changed(self._upper, upper, side=1)
        return Box(
            lower_text,
            upper_text,
            lower_float,
            upper_float,
            np.array(sorted(lower_strict), dtype=np.int64),
            np.array(sorted(upper_strict), dtype=np.int64),
        )

    def _column(self, bounds: Bounds, count: int, *, side: int) -> tuple[list[str], Float64Array, set[int]]:
        texts = [""] * count
        floats = [0.0] * count
        for index, bound in bounds.items():
            texts[index] = bound.text
            floats[index] = self._enclosed(bound)[side]
        strict = {index for index, bound in bounds.items() if bound.strict}
        return texts, np.array(floats, dtype=np.float64), strict

    def _changed(
        self, column: tuple[list[str], Float64Array, set[int]], bounds: Bounds, *, side: int
    ) -> tuple[tuple[str, ...], Float64Array, set[int]]:
        texts, floats, strict = column[0].copy(), column[1].copy(), column[2] - bounds.keys()
        for index, bound in bounds.items():
            texts[index] = bound.text
            floats[index] = self._enclosed(bound)[side]
            if bound.strict:
                strict.add(index)
        return tuple(texts), floats, strict

    def _enclosed(self, bound: InputBound) -> tuple[float, float]:
        try:
            return enclosure(bound.text, bound.value)
        except ValueError as error:
            raise self.locator.error(bound.position, f"in {bound.words}: {error}") from error


def make_clause(constraints: list[LinearConstraint]) -> Clause:
    """The conjunction with its text."""
    return Clause(tuple(constraints), " and ".join(constraint.text for constraint in constraints))
