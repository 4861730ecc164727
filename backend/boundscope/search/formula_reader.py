"""A VNN-LIB file read for one input. A reader of its own: it shares nothing with `properties`.

The text is read once, from left to right, without recursion. Everything that only depends on the input is decided
on the spot in exact decimal arithmetic, so that what is left is a short postfix program over the outputs; a file of
many megabytes leaves a program of a few instructions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NoReturn

from boundscope.errors import PropertyError
from boundscope.search.formula import COMPARE, Formula, Instruction, Limit, Number, calculate, compare

QUOTED = 80  # characters of an assert that a message repeats
LARGEST_EXPONENT = 5000  # beyond, exact arithmetic would fill the memory

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_ATOM = r"[^\s();\[\]]+(?:\[[^\]();]*\])?"
_COMPARISON = rf"\(\s*(<=|>=|==|!=|<|>|=)\s+({_ATOM})\s+({_ATOM})\s*\)"
_TOKEN = re.compile(
    rf"\(\s*assert\s*{_COMPARISON}\s*\)"  # 1 2 3: the commonest line as one token
    rf"|{_COMPARISON}"  # 4 5 6
    r"|\(\s*declare-(?:const|fun)\s[^;)]*(?:\(\s*\)[^;)]*)?\)"
    rf"|\(\s*({_ATOM})"  # 7: an opening parenthesis and the word after it
    r"|(\))"  # 8
    rf"|({_ATOM}|\[[^\]]*\])"  # 9
    r"|(?:\s+|;[^\n]*)"
    r"|(.)",  # 10: nothing that belongs here
    re.DOTALL,
)
_MIRRORED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<", "=": "=", "==": "=="}
_ARITHMETIC = ("+", "-", "*", "/")
_CONNECTIVES = ("and", "or", "not")


class _Residual:
    """Stands for a value that is left in the program because it depends on the outputs."""


_RESIDUAL = _Residual()
_Value = Number | bool | _Residual


@dataclass
class _Frame:
    """An open parenthesis: where its part of the program and of the limits begins, and what it has seen."""

    head: str
    program_start: int
    limits_start: int
    limits_mark: int
    numbers: list[Number] = field(default_factory=list)
    arguments: int = 0
    residuals: int = 0
    decided: bool | None = None  # `and`: False seen; `or`: True seen; `not`: its constant argument
    has_limits: bool = False


@dataclass
class _Tensor:
    """A tensor that a VNN-LIB 2.0 file declares: inputs or outputs from `offset` on, in row-major order."""

    is_input: bool
    offset: int
    shape: tuple[int, ...]


class FormulaReader:
    """Reads one text at one input."""

    def __init__(self, text: str, inputs: Sequence[Decimal], name: str) -> None:
        self.text = text
        self.inputs = inputs
        self.name = name
        self.program: list[Instruction] = []
        self.limits: list[Limit] = []
        self.tensors: dict[str, _Tensor] = {}
        self.relates_inputs = False
        self.outside: list[str] = []
        self.position = 0
        self.assert_start = 0  # of the assert that is being read, in the text
        self.mentions_inputs = self.mentions_outputs = False  # whether it speaks of one
        self.stack: list[_Frame] = []

    def read(self) -> Formula:
        """Read the whole text.

        Raises:
            PropertyError: it is not VNN-LIB, with the line.
        """
        root = _Frame("and", 0, 0, 0)
        self.stack = [root]
        for match in _TOKEN.finditer(self.text):
            self.position = match.start()
            kind = match.lastindex
            if kind is None:
                continue
            if kind == 3:
                if len(self.stack) > 1:
                    self._fail("an assert inside another form")
                self._begin_assert()
                self._add(self._simple(match[1], match[2], match[3]))
            elif kind == 6:
                self._add(self._simple(match[4], match[5], match[6]))
            elif kind == 7:
                self._open(match[7])
            elif kind == 8:
                self._close()
            elif kind == 9:
                self._add(self._atom(match[9]))
            else:
                self._fail(f"'{match[10]}' does not belong here")
        if len(self.stack) > 1:
            self._fail(f"the text ends inside '({self.stack[-1].head}'")
        value = self._connective(root)
        decided = value if isinstance(value, bool) else None
        return Formula(
            tuple(self.outside), decided, tuple(self.program), tuple(self.limits), self.relates_inputs
        )

    def _fail(self, what: str) -> NoReturn:
        line = self.text.count("\n", 0, self.position) + 1
        raise PropertyError(f"{self.name}, line {line}: {what}")

    def _begin_assert(self) -> None:
        self.assert_start = self.position
        self.mentions_inputs = self.mentions_outputs = False

    def _open(self, head: str) -> None:
        if head.startswith("declare-") or head == "vnnlib-version":
            if head == "declare-hidden":
                self._fail("hidden tensors are not read by the replay")
            head = "declare"
        elif head == "assert":
            if len(self.stack) > 1:
                self._fail("an assert inside another form")
            self._begin_assert()
        elif head not in COMPARE and head not in _ARITHMETIC and head not in _CONNECTIVES:
            self._fail(f"unknown operator '{head}'")
        self.stack.append(_Frame(head, len(self.program), len(self.limits), len(self.limits)))

    def _close(self) -> None:
        if len(self.stack) == 1:
            self._fail("a closing parenthesis too many")
        frame = self.stack.pop()
        if frame.head == "declare":
            return
        if not frame.arguments:
            if frame.head in ("and", "or"):
                self._add(frame.head == "and")
                return
            self._fail(f"'({frame.head}' has no arguments")
        if frame.head in COMPARE or frame.head in _ARITHMETIC:
            self._add(self._numeric(frame))
        else:
            self._add(self._connective(frame))

    def _numeric(self, frame: _Frame) -> _Value:
        """Value of a comparison or of arithmetic."""
        if frame.residuals:
            self.program.append((frame.head, frame.arguments))
            return _RESIDUAL
        del self.program[frame.program_start :]
        if frame.head in COMPARE:
            self.relates_inputs = True
            return compare(frame.head, frame.numbers)
        result = calculate(frame.head, frame.numbers)
        if result is None:
            self._fail("a division by zero")
        return result

    def _connective(self, frame: _Frame) -> _Value:
        """Value of and, or, not (an assert is an `and` of one)."""
        if frame.head in ("not", "assert") and frame.arguments != 1:
            self._fail(f"'{frame.head}' takes one argument; here are {frame.arguments}")
        if frame.head == "not":
            del self.limits[frame.limits_start :]
            if frame.decided is not None:
                return not frame.decided
            self.program.append(("not", 1))
            return _RESIDUAL
        if frame.decided is not None:
            del self.program[frame.program_start :]
            if not frame.decided:
                del self.limits[frame.limits_start :]
            return frame.decided
        if not frame.residuals:
            return frame.head != "or"
        if frame.residuals > 1:
            self.program.append(("or" if frame.head == "or" else "and", frame.residuals))
        return _RESIDUAL

    def _add(self, value: _Value) -> None:
        """Hand a value to the innermost open form."""
        frame = self.stack[-1]
        if frame.head == "declare":
            return
        if value is False and len(self.stack) == 1 and self.mentions_inputs and not self.mentions_outputs:
            self.outside.append(self.text[self.assert_start : self.position + QUOTED].split("\n")[0][:QUOTED])
            return
        frame.arguments += 1
        if isinstance(value, _Residual):
            frame.residuals += 1
        elif frame.head in COMPARE or frame.head in _ARITHMETIC:
            if isinstance(value, bool):
                self._fail(f"'{frame.head}' of a truth value")
            frame.numbers.append(value)
            self.program.append(("number", value))
        elif not isinstance(value, bool):
            self._fail(f"a number where '{frame.head}' expects a constraint")
        elif (frame.head == "or") == value or frame.head == "not":
            frame.decided = value
        if frame.head == "or":
            self._keep_first_limits(frame, value)

    def _keep_first_limits(self, frame: _Frame, value: _Value) -> None:
        """Of a disjunction, the limits of the first branch that can hold are those of the box."""
        if frame.has_limits or value is False:
            del self.limits[frame.limits_mark :]
        elif len(self.limits) > frame.limits_mark:
            frame.has_limits = True
        frame.limits_mark = len(self.limits)

    def _simple(self, relation: str, left: str, right: str) -> _Value:
        """A comparison of two atoms."""
        a, b = self._atom(left), self._atom(right)
        if isinstance(a, Decimal) and isinstance(b, Decimal):
            holds = COMPARE[relation](a, b)
            if holds:
                self._note_limit(relation, left, a, right, b)
            return holds
        if isinstance(a, bool) or isinstance(b, bool):
            self._fail(f"'{relation}' of a truth value")
        # _atom has emitted the outputs; constants go in their place.
        if isinstance(a, Decimal):
            self.program.insert(-1, ("number", a))
        elif isinstance(b, Decimal):
            self.program.append(("number", b))
        self.program.append((relation, 2))
        return _RESIDUAL

    def _note_limit(self, relation: str, left: str, a: Decimal, right: str, b: Decimal) -> None:
        left_is_number, right_is_number = NUMBER.fullmatch(left), NUMBER.fullmatch(right)
        if left_is_number and right_is_number:
            return
        if not left_is_number and not right_is_number:
            self.relates_inputs = True
        elif relation in _MIRRORED:
            if right_is_number:
                self.limits.append(Limit(self._variable(left)[1], relation, b))
            else:
                self.limits.append(Limit(self._variable(right)[1], _MIRRORED[relation], a))

    def _atom(self, word: str) -> _Value:
        """A number, an input's value, or an output left in the program."""
        if self.stack[-1].head == "declare":
            return True
        if NUMBER.fullmatch(word):
            value = Decimal(word)
            if abs(value.adjusted()) > LARGEST_EXPONENT:
                self._fail(f"the exponent of {word} is out of range")
            return value
        if word in ("true", "false"):
            return word == "true"
        is_input, index = self._variable(word)
        if is_input:
            self.mentions_inputs = True
            return self.inputs[index]
        self.mentions_outputs = True
        self.program.append(("output", index))
        return _RESIDUAL

    def _variable(self, word: str) -> tuple[bool, int]:
        """Whether a variable is an input, and its place among the inputs or outputs."""
        if word[:2] in ("X_", "Y_") and word[2:].isdigit() and not self.tensors:
            is_input, index = word[0] == "X", int(word[2:])
        else:
            is_input, index = self._element(word)
        if is_input and index >= len(self.inputs):
            self._fail(f"'{word}' is not one of the {len(self.inputs)} inputs")
        return is_input, index

    def _element(self, word: str) -> tuple[bool, int]:
        """An element of a declared tensor (VNN-LIB 2.0)."""
        if not self.tensors:
            self.tensors = _declared_tensors(self.text)
        name, _, rest = word.partition("[")
        tensor = self.tensors.get(name)
        if tensor is None:
            self._fail(f"'{word}' is no number, no input and no output")
        indices = [int(part) for part in rest.rstrip("]").split(",") if part.strip().isdigit()]
        if len(indices) != len(tensor.shape) or any(
            i >= n for i, n in zip(indices, tensor.shape, strict=True)
        ):
            self._fail(f"'{word}' is not an element of a tensor of shape {list(tensor.shape)}")
        index = 0
        for i, size in zip(indices, tensor.shape, strict=True):
            index = index * size + i
        return tensor.is_input, tensor.offset + index


_NETWORK = re.compile(r"\(\s*declare-network\s")
_DECLARED = re.compile(r"\(\s*declare-(input|output)\s+([^\s()]+)\s+[^\s()\[]+\s*(\[[^\]]*\])?")


def _declared_tensors(text: str) -> dict[str, _Tensor]:
    """Tensors of a VNN-LIB 2.0 file with one network."""
    text = re.sub(r";[^\n]*", "", text)
    if len(_NETWORK.findall(text)) > 1:
        raise PropertyError("the replay reads VNN-LIB 2.0 files of one network only")
    tensors: dict[str, _Tensor] = {}
    offsets = {"input": 0, "output": 0}
    for kind, name, shape_text in _DECLARED.findall(text):
        shape = tuple(int(part) for part in re.findall(r"\d+", shape_text))
        tensors[name] = _Tensor(kind == "input", offsets[kind], shape)
        offsets[kind] += math.prod(shape)
    return tensors
