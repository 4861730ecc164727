"""What a property says about one input: a short postfix program over the outputs, evaluated exactly."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from boundscope.errors import PropertyError

Number = Decimal | Fraction
COMPARE: dict[str, Callable[[Number, Number], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
# ("number", value), ("output", index), ("+", n), ("<=", n), ("and", n), …
Instruction = tuple[str, int | Number]


@dataclass(frozen=True)
class Limit:
    """A bound on one input that holds on the way to the violating region: x[index] `relation` value."""

    index: int
    relation: str
    value: Decimal


@dataclass(frozen=True)
class Formula:
    """What a property file says about one input.

    `outside` quotes the asserts on inputs alone that fail (the input lies outside the box). `decided` is the truth
    of all other asserts together where that does not depend on the outputs, else None. `limits` are the bounds of
    the box that holds the input. `relates_inputs`: some constraint joins several inputs.
    """

    outside: tuple[str, ...]
    decided: bool | None
    program: tuple[Instruction, ...]
    limits: tuple[Limit, ...]
    relates_inputs: bool

    @property
    def inside_box(self) -> bool:
        """Whether the input satisfies all that the file asks of inputs."""
        return not self.outside and self.decided is not False

    def holds(self, outputs: Sequence[float]) -> bool:
        """Whether the outputs, taken exactly, satisfy every assert that speaks of outputs.

        A comparison with NaN or infinity is false.

        Raises:
            PropertyError: the file speaks of an output that the network does not have.
        """
        if self.decided is not None:
            return self.decided
        stack: list[Number | bool | None] = []
        for name, value in self.program:
            if name == "number":
                assert not isinstance(value, int)
                stack.append(value)
            elif name == "output":
                assert isinstance(value, int)
                stack.append(_output(outputs, value))
            else:
                assert isinstance(value, int)
                arguments = stack[len(stack) - value :]
                del stack[len(stack) - value :]
                stack.append(_apply(name, arguments))
        return bool(stack.pop())


def _output(outputs: Sequence[float], index: int) -> Decimal | None:
    if index >= len(outputs):
        raise PropertyError(f"the property speaks of output {index}; the network has {len(outputs)} outputs")
    return Decimal(outputs[index]) if math.isfinite(outputs[index]) else None


def _apply(name: str, arguments: Sequence[Number | bool | None]) -> Number | bool | None:
    if name == "and":
        return all(arguments)
    if name == "or":
        return any(arguments)
    if name == "not":
        return not arguments[0]
    numbers = [value for value in arguments if isinstance(value, Decimal | Fraction)]
    if len(numbers) < len(arguments):
        return False if name in COMPARE else None
    return compare(name, numbers) if name in COMPARE else calculate(name, numbers)


def compare(relation: str, numbers: Sequence[Number]) -> bool:
    compare = COMPARE[relation]
    if len({type(n) for n in numbers}) > 1:
        numbers = [Fraction(n) for n in numbers]
    return all(compare(a, b) for a, b in itertools.pairwise(numbers))


def calculate(name: str, numbers: Sequence[Number]) -> Fraction | None:
    """The exact result; None of a division by zero."""
    first, *rest = [Fraction(n) for n in numbers]
    if name == "-" and not rest:
        return -first
    for value in rest:
        if name == "+":
            first += value
        elif name == "-":
            first -= value
        elif name == "*":
            first *= value
        elif value == 0:
            return None
        else:
            first /= value
    return first
