"""The table of rules. A rule computes one aten operator by the kernels and takes the operator's own arguments."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Family(enum.Enum):
    """How the types of an operator's tensors go together.

    ELEMENTWISE: all tensors are broadcast and promoted to one type; whole numbers stay whole.
    FLOATING: the same, and whole numbers become the default floating-point type.
    OTHER: only floating-point tensors are converted, to the widest of them; the first one's type is the result's.
    RAW: nothing is converted; the rule converts what it needs.
    LOWERED: the rule is written in torch's operators, which come back to the mode; it does not get the kernels.
    """

    ELEMENTWISE = enum.auto()
    FLOATING = enum.auto()
    OTHER = enum.auto()
    RAW = enum.auto()
    LOWERED = enum.auto()


@dataclass(frozen=True, slots=True)
class Rule:
    function: Callable[..., Any]
    family: Family
    # The operator writes into its arguments, and the rule does so too.
    mutates: bool = False


# By the operator's name, or by "name.overload" where one overload differs.
RULES: dict[str, Rule] = {}


def rule(*names: str, family: Family = Family.OTHER, mutates: bool = False) -> Callable[[F], F]:
    """Enters a function into the table."""

    def enter(function: F) -> F:
        for name in names:
            if name in RULES:
                raise ValueError(f"the operator {name} has two rules")
            RULES[name] = Rule(function, family, mutates)
        return function

    return enter
