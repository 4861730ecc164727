"""A second, tiny reading of VNN-LIB 1.0, to hold the parser against: it evaluates the text at one point."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from boundscope.properties import Box, LinearConstraint, Property

Tree = Any  # str, or list of trees


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def trees(text: str) -> list[Tree]:
    """All S-expressions of the text."""
    stack: list[list[Tree]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text)):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    (found,) = stack
    return found


def satisfied(commands: list[Tree], point: Mapping[str, Fraction]) -> bool:
    """Whether all asserts hold where the variables have these values."""
    return all(condition(command[1], point) for command in commands if command[0] == "assert")


def condition(tree: Tree, point: Mapping[str, Fraction]) -> bool:
    head, *rest = tree
    if head == "and":
        return all(condition(part, point) for part in rest)
    if head == "or":
        return any(condition(part, point) for part in rest)
    values = [term(part, point) for part in rest]
    tests = {
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "=": lambda a, b: a == b,
    }
    return all(tests[head](a, b) for a, b in pairwise(values))


def term(tree: Tree, point: Mapping[str, Fraction]) -> Fraction:
    if isinstance(tree, str):
        return point[tree] if tree in point else Fraction(tree)
    head, *rest = tree
    first, *others = [term(part, point) for part in rest]
    if head == "-" and not others:
        return -first
    for value in others:
        first = {"+": first + value, "-": first - value, "*": first * value}.get(head) or (
            first / value if head == "/" else Fraction(0)
        )
    return first


def variables(inputs: list[Fraction], outputs: list[Fraction]) -> dict[str, Fraction]:
    named = {f"X_{index}": value for index, value in enumerate(inputs)}
    return named | {f"Y_{index}": value for index, value in enumerate(outputs)}


def meaning(found: Property) -> object:
    """What must be equal for two properties to be the same, whatever their names and wording."""
    return (
        found.input_count,
        found.output_count,
        [
            (_box(case.box), [[_constraint(each) for each in clause.constraints] for clause in case.clauses])
            for case in found.cases
        ],
    )


def _box(box: Box) -> object:
    return (
        box.lower_text,
        box.upper_text,
        box.lower.tolist(),
        box.upper.tolist(),
        box.strict_lower.tolist(),
        box.strict_upper.tolist(),
    )


def _constraint(each: LinearConstraint) -> object:
    return (
        each.output_indices.tolist(),
        each.output_coeffs.tolist(),
        each.input_indices.tolist(),
        each.input_coeffs.tolist(),
        each.bound,
        each.strict,
        each.coeff_error,
        each.exact_coeffs,
    )
