"""VNN-LIB 1.0: a streaming parser that folds each assert into its normal form as parentheses close.

No syntax tree is kept, and nothing recurses, so depth and length of a file are limited by memory alone.
The commonest shapes (a declaration, an assert of one comparison, a comparison of two plain words) are one
token each; all else goes through a stack of open lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from boundscope.errors import PropertyError
from boundscope.properties.assemble import Asserted, Names, assemble
from boundscope.properties.decimals import parse_decimal, shortened
from boundscope.properties.linear import Linear, add, constant, multiply, scale, subtract, variable
from boundscope.properties.normal_form import (
    FALSE,
    TRUE,
    Formula,
    InputBound,
    Joiner,
    Limits,
    Value,
    compare,
)
from boundscope.properties.source import TextSource
from boundscope.properties.types import LinearConstraint, Property

FORMAT = "VNN-LIB 1.0"
_WORD = r'[^\s();|"]++'
_COMPARISON = rf"\(\s*+([<>]=?|=)\s++({_WORD})\s++({_WORD})\s*+\)"
_TOKEN = re.compile(
    rf"""\s*+(?:
      \(\s*+assert\s*+{_COMPARISON}\s*+\)                # 1-3
    | {_COMPARISON}                                      # 4-6
    | \(\s*+declare-const\s++({_WORD})\s++Real\s*+\)     # 7
    | (\()\s*+({_WORD})?+                                # 8-9: open, perhaps with a head
    | (\))                                               # 10
    | ({_WORD})                                          # 11
    | \|([^|\\]*+)\|                                     # 12: quoted symbol
    | ("(?:[^"]|"")*+")                                  # 13: string
    | (;)[^\n]*+                                         # 14: comment
    )""",
    re.VERBOSE | re.ASCII,
)
_ASSERTED, _COMPARED, _DECLARED, _OPEN, _HEADED, _CLOSE, _PLAIN, _QUOTED, _STRING = (
    3,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
)
_VARIABLE = re.compile(r"([XY])_(0|[1-9][0-9]{0,8})")
_NUMBER_START = frozenset("+-.0123456789")
_COMPARISONS = frozenset({"<=", ">=", "<", ">", "="})
_ARITHMETIC = frozenset({"+", "-", "*", "/"})
_IGNORED = frozenset({"set-logic", "set-info", "set-option", "check-sat", "get-model", "get-value"})
_NEGATIONS = frozenset({"not", "=>", "distinct", "ite", "xor"})


@dataclass(slots=True)
class _OpenList:
    head: str
    position: int
    items: list[object] = field(default_factory=list)


def parse_vnnlib1(source: TextSource, blocks: Iterable[tuple[int, str]], limits: Limits) -> Property:
    """The property of a VNN-LIB 1.0 text. Raises PropertyError with file and line for whatever is wrong."""
    return _Parser(source, limits).parse(blocks)


class _Parser:
    def __init__(self, source: TextSource, limits: Limits) -> None:
        self.source = source
        self.joiner = Joiner(limits)
        self.asserted = Asserted(source, self.joiner)
        self.codes: dict[str, int] = {}  # declared variables; ~j for output j
        self.positions: dict[int, int] = {}  # of the declarations
        self.decimals: dict[str, Decimal] = {}
        self.stack: list[_OpenList] = []
        self.end = 0  # of what has been read

    def parse(self, blocks: Iterable[tuple[int, str]]) -> Property:
        carried, carried_offset = "", 0
        for offset, block in blocks:
            text, start = (carried + block, carried_offset) if carried else (block, offset)
            end = self._scan(text, start)
            self.end = start + len(text) - 1
            carried, carried_offset = text[end:].lstrip(" \t\r\n\f\v"), start + end
            if carried:
                carried_offset += len(text) - end - len(carried)
                if carried[0] not in '|"':
                    raise self._error(carried_offset, f"unexpected character {carried[0]!r}")
        if carried:
            raise self._error(carried_offset, f"a quotation that begins with {carried[0]} is never closed")
        if self.stack:
            raise self._open_error()
        return self._finish()

    def _scan(self, text: str, offset: int) -> int:
        """Take all whole tokens of the text; gives where the last one ended."""
        end = 0
        scanner: Any = _TOKEN.scanner(text)  # type: ignore[attr-defined]
        for match in iter(scanner.match, None):
            kind = match.lastindex
            end = match.end()
            if kind == _ASSERTED:
                position = offset + match.start(1)
                op, left, right = match.group(1, 2, 3)
                value = self._compared(op, left, right, position)
                if self.stack:
                    raise self._error(
                        position, "an assert inside another command; a parenthesis is missing before it"
                    )
                self.asserted.add(value, position)
            elif kind == _COMPARED:
                op, left, right = match.group(4, 5, 6)
                self._take(op, left, right, offset + match.start(4))
            elif kind == _DECLARED:
                if self.stack:
                    raise self._error(offset + match.start(7), "a declaration inside another command")
                self._declare(match.group(7), offset + match.start(7))
            elif kind == _CLOSE:
                self._close(offset + match.start(10))
            elif kind in (_OPEN, _HEADED):
                self.stack.append(_OpenList(match.group(9) or "", offset + match.start(8)))
            elif kind in (_PLAIN, _QUOTED, _STRING):
                self._word(match.group(kind), offset + match.start(kind))
        return end

    def _word(self, word: str, position: int) -> None:
        if not self.stack:
            raise self._error(
                position, f"{shortened(word)} outside parentheses; expected a command such as (assert …)"
            )
        top = self.stack[-1]
        if not top.head and not top.items:
            top.head = word
        else:
            top.items.append(word)

    def _take(self, op: str, left: str, right: str, position: int) -> None:
        if not self.stack:
            raise self._error(
                position, f"({op} {left} {right}) outside an assert; write (assert ({op} {left} {right}))"
            )
        if self.stack[0].head not in _IGNORED:
            self.stack[-1].items.append(self._compared(op, left, right, position))

    def _close(self, position: int) -> None:
        if not self.stack:
            raise self._error(position, "a closing parenthesis that nothing opened")
        done = self.stack.pop()
        if not self.stack:
            self._command(done)
        elif self.stack[0].head not in _IGNORED:
            self.stack[-1].items.append(self._value(done))

    # ------------------------------------------------------------------ commands

    def _command(self, done: _OpenList) -> None:
        head, items, position = done.head, done.items, done.position
        if head == "assert":
            if len(items) != 1:
                raise self._error(
                    position, f"assert takes one condition, not {len(items)}; join several with (and …)"
                )
            self.asserted.add(self._conditions(done)[0], position)
        elif head in ("declare-const", "declare-fun"):
            wanted = 2 if head == "declare-const" else 3
            if len(items) != wanted or not isinstance(items[0], str) or (wanted == 3 and items[1] != ()):
                raise self._error(position, "a declaration must read (declare-const X_0 Real)")
            if items[-1] != "Real":
                raise self._error(position, f"{items[0]} is declared as {items[-1]}; only Real is known")
            self._declare(items[0], position)
        elif head == "vnnlib-version" and items == ["<1.0>"]:
            return
        elif head in ("declare-network", "vnnlib-version"):
            raise self._error(
                position, f"({head} …) belongs to VNN-LIB 2.0 and must be the first command of the file"
            )
        elif head not in _IGNORED:
            known = "declare-const, assert, set-logic, set-info, check-sat"
            what = f"the command {shortened(head)}" if head else "a list without a command"
            raise self._error(position, f"{what} is not known; expected one of {known}")

    def _declare(self, name: str, position: int) -> None:
        match = _VARIABLE.fullmatch(name)
        if match is None:
            raise self._error(
                position, f"{shortened(name)} is neither an input X_0, X_1, … nor an output Y_0, Y_1, …"
            )
        code = int(match.group(2)) if match.group(1) == "X" else ~int(match.group(2))
        if name in self.codes:
            line = self.source.line(self.positions[code])
            raise self._error(position, f"{name} is declared twice (first on line {line})")
        self.codes[name] = code
        self.positions[code] = position

    def _finish(self) -> Property:
        inputs = self._count("X", sum(1 for _ in self._declared("X")))
        outputs = self._count("Y", sum(1 for _ in self._declared("Y")))
        names = Names(self.source.name, FORMAT, inputs, outputs, self.positions.__getitem__)
        return assemble(self.asserted, names)

    def _count(self, letter: str, count: int) -> int:
        kind = "input" if letter == "X" else "output"
        if count == 0:
            raise self._error(
                self.end,
                f"the file ends without declaring an {kind}; expected (declare-const {letter}_0 Real)",
            )
        for index in range(count):
            if f"{letter}_{index}" not in self.codes:
                last = max((code if code >= 0 else ~code) for code in self._declared(letter))
                raise self._error(
                    self.positions[last if letter == "X" else ~last],
                    f"{letter}_{last} is declared but {letter}_{index} is not; {kind}s are numbered without a hole",
                )
        return count

    def _declared(self, letter: str) -> Iterator[int]:
        return (code for code in self.codes.values() if (code >= 0) == (letter == "X"))

    # ------------------------------------------------------------------ values

    def _compared(self, op: str, left: str, right: str, position: int) -> Value:
        """The value of a comparison of two plain words, quickly where it bounds one input."""
        code = self.codes.get(left, -1)
        if code >= 0:
            value, text, upper = self.decimals.get(right), right, op[0] == "<"
        else:
            code = self.codes.get(right, -1)
            value, text, upper = self.decimals.get(left), left, op[0] == ">"
        if code >= 0 and op != "=":
            if value is None and text[0] in _NUMBER_START:
                value = self._decimal(text, position)
            if value is not None:
                return InputBound(code, upper, value, text, len(op) == 1, position)
        return self._folded(op, [self._linear(left, position), self._linear(right, position)], position)

    def _folded(self, op: str, sides: list[Linear], position: int) -> Value:
        try:
            values = [compare(op, a, b, position) for a, b in pairwise(sides)]
            return values[0] if len(values) == 1 else self.joiner.conjoin(values)
        except ValueError as error:
            raise self._error(position, str(error)) from error

    def _value(self, done: _OpenList) -> object:
        """The value of a list inside a command: a condition, a linear term, or () for an empty list."""
        head, items, position = done.head, done.items, done.position
        try:
            if head in ("and", "or"):
                if not items:
                    raise self._error(position, f"({head}) without any condition")
                join = self.joiner.conjoin if head == "and" else self.joiner.disjoin
                return join(self._conditions(done))
            if head in _COMPARISONS:
                if len(items) < 2:
                    raise self._error(position, f"{head} compares two terms, not {len(items)}")
                return self._folded(head, self._terms(done), position)
            if head in _ARITHMETIC:
                return self._arithmetic(done)
        except ValueError as error:
            raise self._error(position, str(error)) from error
        if not head and not items:
            return ()
        if head in _NEGATIONS:
            raise self._error(
                position, f"({head} …) is not supported; write it with and, or, <=, >=, <, > and ="
            )
        what = f"{shortened(head)} is not an operator" if head else "a list without an operator"
        raise self._error(position, f"{what}; expected and, or, <=, >=, <, >, =, +, -, * or /")

    def _arithmetic(self, done: _OpenList) -> Linear:
        head, parts = done.head, self._terms(done)
        if not parts:
            raise self._error(done.position, f"({head}) without any term")
        if head == "+":
            return add(parts)
        if head == "*":
            return multiply(parts)
        if head == "-":
            return scale(parts[0], Fraction(-1)) if len(parts) == 1 else subtract(parts[0], add(parts[1:]))
        if len(parts) < 2:
            raise self._error(done.position, "/ needs a term and a number to divide it by")
        total = parts[0]
        for divisor in parts[1:]:
            if divisor.terms or not divisor.constant:
                raise self._error(done.position, "/ divides by numbers other than 0 only")
            total = scale(total, 1 / divisor.constant)
        return total

    def _conditions(self, done: _OpenList) -> list[Value]:
        values: list[Value] = []
        for item in done.items:
            if isinstance(item, (Formula, InputBound, LinearConstraint)):
                values.append(item)
            elif item in ("true", "false"):
                values.append(TRUE if item == "true" else FALSE)
            else:
                what = shortened(item) if isinstance(item, str) else "a term"
                raise self._error(
                    done.position, f"{what} stands in ({done.head} …), where a condition is expected"
                )
        return values

    def _terms(self, done: _OpenList) -> list[Linear]:
        parts: list[Linear] = []
        for item in done.items:
            if isinstance(item, Linear):
                parts.append(item)
            elif isinstance(item, str):
                parts.append(self._linear(item, done.position))
            else:
                raise self._error(
                    done.position, f"a condition stands in ({done.head} …), where a term is expected"
                )
        return parts

    def _linear(self, word: str, position: int) -> Linear:
        code = self.codes.get(word)
        if code is not None:
            return variable(code)
        if word[:1] in _NUMBER_START:
            return constant(Fraction(self._decimal(word, position)), word)
        raise self._error(position, f"{shortened(word)} is not declared (as a variable) and is not a number")

    def _decimal(self, text: str, position: int) -> Decimal:
        known = self.decimals.get(text)
        if known is None:
            try:
                known = self.decimals[text] = parse_decimal(text)
            except ValueError as error:
                raise self._error(position, str(error)) from error
        return known

    # ------------------------------------------------------------------ errors

    def _error(self, position: int, text: str) -> PropertyError:
        return self.source.error(position, text)

    def _open_error(self) -> PropertyError:
        outer, count = self.stack[0], len(self.stack)
        missing = "1 closing parenthesis is" if count == 1 else f"{count} closing parentheses are"
        return self._error(
            outer.position,
            f"the file ends inside the command ({outer.head or '…'} … that begins here; {missing} missing. "
            "Is the file cut off?",
        )
