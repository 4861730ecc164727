"""A property read back for people: sentences, the table of inputs and the table of clauses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from boundscope.properties.decimals import rational_text
from boundscope.properties.types import Box, Case, Clause, Float64Array, NormBall, Property
from boundscope.protocol import ClauseRow, InputRow, Norm, PropertySummary

_CLAUSES_IN_WORDS = 6
_TEXT_IN_WORDS = 200
_TEXT_IN_TABLE = 2000


def summarize(found: Property, rows: int = 200) -> PropertySummary:
    """The property in words, with at most `rows` rows of each table; cases and clauses count from 0."""
    several = len(found.cases) > 1
    return PropertySummary(
        name=found.name,
        format=found.format,
        words=tuple(_words(found)),
        input_count=found.input_count,
        output_count=found.output_count,
        case_count=len(found.cases),
        clause_count=_clause_count(found.cases),
        inputs=tuple(islice(_input_rows(found.cases, several), rows)),
        clauses=tuple(islice(_clause_rows(found.cases), rows)),
        inputs_total=found.input_count * len(found.cases),
        clauses_total=_clause_count(found.cases),
    )


def _words(found: Property) -> Iterator[str]:
    yield f"{_inputs(found)}; {_count(found.output_count, 'output')}, {_range('Y', found.output_count)}."
    if len(found.cases) == 1:
        yield from _box_words(found.cases[0].box)
        if found.cases[0].box.ball is not None:
            yield _ball_words(found.cases[0].box.ball)
    elif found.cases:
        yield (
            f"{len(found.cases)} cases, each an input box of its own with its own clauses: {_varying(found.cases)}."
        )
        yield from _strict_words(found.cases)
    yield _violation(found)
    label = _label(found)
    if label is not None:
        rivals = f"Y_{1 - label}" if found.output_count == 2 else "all other outputs"
        where = "box" if found.cases[0].box.ball is None else "ball"
        yield f"In short: verified means that Y_{label} stays above {rivals} everywhere in the {where}."
    yield from _notes(found)


def _inputs(found: Property) -> str:
    return f"{_count(found.input_count, 'input')}, {_range('X', found.input_count)}"


def _box_words(box: Box) -> Iterator[str]:
    count = len(box.lower_text)
    fixed = _fixed(box)
    free = count - int(fixed.sum())
    apart = _apart((box.upper - box.lower)[~fixed])
    if free == 0:
        what = (
            "the input is fixed to one value"
            if count == 1
            else f"all {count} inputs are fixed to one value each"
        )
        yield f"The input box is a single point: {what}."
    elif count == 1:
        yield f"The input lies between two bounds {apart} apart."
    elif free == count:
        yield f"The input box gives every input a lower and an upper bound, {apart} apart."
    else:
        others = "the other one has" if free == 1 else f"the other {free} have"
        yield f"In the input box {_count(count - free, 'input')} {_be(count - free)} fixed to one value; " + (
            f"{others} a lower and an upper bound {apart} apart."
        )
    yield from _strict_words((Case(box, ()),))


def _ball_words(ball: NormBall) -> str:
    radius = rational_text(ball.radius)
    if ball.norm is Norm.L0:
        inputs = "input differs" if ball.radius == 1 else "inputs differ"
        return f"Of this box only an L0 ball counts: points where at most {radius} {inputs} from the centre."
    what = {
        Norm.L2: "the square root of the sum of their squared changes",
        Norm.L1: "the sum of their changes",
    }[ball.norm]
    before = " (counted before mean and deviation)" if any(scale != 1 for scale in set(ball.scale)) else ""
    return (
        f"Of this box only an {ball.norm.label} ball counts: points whose inputs change by at most {radius} "
        f"together{before}, by {what}."
    )


def _apart(widths: Float64Array) -> str:
    if not len(widths):
        return "0"
    least, most = f"{widths.min():.3g}", f"{widths.max():.3g}"
    return most if least == most else f"{least} to {most}"


def _strict_words(cases: Sequence[Case]) -> Iterator[str]:
    strict: set[str] = set()
    for case in cases:
        strict.update(f"X_{index} > its lower bound" for index in case.box.strict_lower.tolist())
        strict.update(f"X_{index} < its upper bound" for index in case.box.strict_upper.tolist())
    if not strict:
        return
    shown = sorted(strict, key=lambda text: (int(text.split()[0][2:]), text))
    more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
    verb = "is" if len(shown) == 1 else "are"
    bound = "input bound" if len(shown) == 1 else "input bounds"
    yield (
        f"{len(shown)} {bound} {verb} strict ({', '.join(shown[:4])}{more}): the bound itself does not count as "
        "a violation. Proofs are made for the closed box, which holds it too."
    )


def _varying(cases: Sequence[Case]) -> str:
    """Which inputs differ from case to case."""
    first = cases[0].box
    lower = np.zeros(len(first.lower), dtype=bool)
    for case in cases[1:]:
        lower |= (case.box.lower != first.lower) | (case.box.upper != first.upper)
    varying = np.flatnonzero(lower).tolist()
    if not varying:
        return "they differ in digits beyond float64 or in strictness"
    if len(varying) == len(lower):
        return "they differ in every input" if len(lower) > 1 else "they differ in X_0"
    names = ", ".join(f"X_{index}" for index in varying[:4])
    more = f" and {len(varying) - 4} more" if len(varying) > 4 else ""
    return f"they differ in {names}{more} and share the bounds of the others"


def _violation(found: Property) -> str:
    clauses = [clause for case in found.cases for clause in case.clauses]
    if not clauses:
        return "Nothing can violate it: the conditions contradict each other, so it holds whatever the network does."
    if any(not clause.constraints for clause in clauses):
        return "Every input of the box violates it: there is no condition on the outputs."
    shown = [_shortened(clause.text, _TEXT_IN_WORDS) for clause in clauses[:_CLAUSES_IN_WORDS]]
    if any(len(clause.constraints) > 1 for clause in clauses) and len(clauses) > 1:
        shown = [f"({text})" if " and " in text else text for text in shown]
    where = "some input of the box" if len(found.cases) == 1 else "some input of its case's box"
    if len(found.cases) == 1 and found.cases[0].box.ball is not None:
        where = "some input of the ball"
    if len(clauses) == 1:
        together = _together(clauses[0])
        return f"Violated if, at {where}, {together}{shown[0]}."
    more = f", or one of {len(clauses) - len(shown)} more" if len(clauses) > len(shown) else ""
    return f"Violated if, at {where}, any of {len(clauses)} clauses holds: {', or '.join(shown)}{more}."


def _together(clause: Clause) -> str:
    count = len(clause.constraints)
    return "" if count == 1 else f"these {count} conditions hold together: "


def _label(found: Property) -> int | None:
    """k where the clauses are exactly Y_j ≥ Y_k for every other j, in one case."""
    if len(found.cases) != 1 or len(found.cases[0].clauses) != found.output_count - 1:
        return None
    rivals, labels = set(), set()
    for clause in found.cases[0].clauses:
        if len(clause.constraints) != 1:
            return None
        (only,) = clause.constraints
        coefficients = dict(zip(only.output_coeffs.tolist(), only.output_indices.tolist(), strict=True))
        if coefficients.keys() != {1.0, -1.0} or only.bound or only.strict or len(only.input_indices):
            return None
        labels.add(coefficients[1.0])
        rivals.add(coefficients[-1.0])
    if len(labels) == 1 and len(rivals) == found.output_count - 1:
        return int(labels.pop())
    return None


def _notes(found: Property) -> Iterator[str]:
    every = [only for case in found.cases for clause in case.clauses for only in clause.constraints]
    distinct = {id(only): only for only in every}.values()
    mixed = sum(bool(len(only.input_indices)) for only in distinct)
    strict = sum(only.strict for only in distinct)
    inexact = sum(only.coeff_error > 0 for only in distinct)
    if strict:
        yield f"{_count(strict, 'condition')} of the clauses {_be(strict)} strict (< or >): equality does not violate."
    if mixed:
        verb = "involves" if mixed == 1 else "involve"
        yield f"{_count(mixed, 'condition')} of the clauses {verb} inputs, not outputs alone."
    if inexact:
        yield (
            f"{_count(inexact, 'condition')} of the clauses {_have(inexact)} coefficients that are not float64 "
            "numbers; the difference is added to the error term."
        )


def _fixed(box: Box) -> NDArray[np.bool_]:
    """Which inputs have one value only, by their decimals."""
    fixed = np.nextafter(box.lower, np.inf) >= box.upper
    for index in np.flatnonzero(fixed).tolist():
        fixed[index] = Decimal(box.lower_text[index]) == Decimal(box.upper_text[index])
    return fixed


def _input_rows(cases: Sequence[Case], several: bool) -> Iterator[InputRow]:
    for number, case in enumerate(cases):
        before = f"case {number}: " if several else ""
        for index, (lower, upper) in enumerate(zip(case.box.lower_text, case.box.upper_text, strict=True)):
            yield InputRow(variable=f"{before}X_{index}", lower=lower, upper=upper)


def _clause_rows(cases: Sequence[Case]) -> Iterator[ClauseRow]:
    for case_number, case in enumerate(cases):
        for number, clause in enumerate(case.clauses):
            text = _shortened(clause.text, _TEXT_IN_TABLE) or "always (no condition)"
            yield ClauseRow(case=case_number, clause=number, text=text)


def _clause_count(cases: Sequence[Case]) -> int:
    return sum(len(case.clauses) for case in cases)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _range(letter: str, count: int) -> str:
    return f"{letter}_0" if count == 1 else f"{letter}_0 … {letter}_{count - 1}"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
