"""VNN-LIB 2.0: the `vnnlib` package parses and checks types; its typed tree is folded into the normal form here.

The package's own linear terms are float64, so coefficients and bounds are taken from the digits instead.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import vnnlib

from boundscope.errors import PropertyError
from boundscope.properties.assemble import Asserted, Names, assemble
from boundscope.properties.decimals import parse_decimal, shortened
from boundscope.properties.linear import Linear, add, constant, multiply, scale, subtract, variable
from boundscope.properties.normal_form import InputBound, Joiner, Limits, Value, compare
from boundscope.properties.source import Locator
from boundscope.properties.types import Property

FORMAT = "VNN-LIB 2.0"
MAX_DEPTH = 1000  # the package's parser overruns the C stack at some tens of thousands
MAX_ELEMENTS = 100_000_000
_MINOR = re.compile(r"(\(\s*vnnlib-version\s*<2\.)[0-9]+>")
_REAL = re.compile(r"(declare-(?:input|output)\s+\w+\s+)Real\b")  # the package knows it as "real" only
_COMMENT_OR_STRING = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"')
_DECLARED_TYPE = re.compile(r"declare-(?:input|output)\s+(\w+)\s+(\w+)")
_OPERATORS = {
    vnnlib.LessEqual: "<=",
    vnnlib.GreaterEqual: ">=",
    vnnlib.LessThan: "<",
    vnnlib.GreaterThan: ">",
    vnnlib.Equal: "=",
}
_REAL_TYPES = {"Real", "F16", "F32", "F64", "BF16"}


def parse_vnnlib2(text: str, name: str, limits: Limits) -> Property:
    """The property of a VNN-LIB 2.0 text over one network.

    Inputs and outputs are numbered through in the order declared, each tensor in row-major order. Raises
    PropertyError, with the line where the package gives one, for whatever is wrong or not supported.
    """
    locator = Locator(name)
    _check_depth(text, locator)
    try:
        query = vnnlib.parse_query_string(_REAL.sub(r"\1real", _MINOR.sub(r"\g<1>0>", text, count=1)))
    except vnnlib.VNNLibException as error:
        raise _translated(str(error), locator) from error
    except (IndexError, ValueError, OverflowError, RuntimeError) as error:
        what = "a number beyond float64" if str(error) == "stod" else "an integer that is too large"
        raise PropertyError(f"{name}: the vnnlib package cannot read the file: it holds {what}") from error
    if len(query.networks) != 1:
        line = _line_of(r"\(\s*declare-network\b.*?\(\s*declare-network\b", text, end=True)
        count = len(query.networks)
        raise locator.error(line, f"declares {count} networks; properties over one network are supported")
    return _Query(query, text, locator, limits).property()


class _Query:
    def __init__(self, query: Any, text: str, locator: Locator, limits: Limits) -> None:
        self.query = query
        self.text = text
        self.locator = locator
        self.joiner = Joiner(limits)
        self.network = query.networks[0]
        self.types = dict(_DECLARED_TYPE.findall(_blanked(text)))
        if self.network.hidden:
            name = self.network.hidden[0].name
            raise locator.error(
                self._declared(name),
                f"declares the hidden tensor {name}; conditions on inputs and outputs are supported",
            )
        self.inputs, self.input_count = self._offsets(self.network.inputs)
        self.outputs, self.output_count = self._offsets(self.network.outputs)
        self.shapes = {
            tensor.name: tuple(tensor.shape) for tensor in (*self.network.inputs, *self.network.outputs)
        }

    def property(self) -> Property:
        asserted = Asserted(self.locator, self.joiner)
        for assertion in self.query.assertions:
            value, line = self._folded(assertion.expr)
            asserted.add(value, line)
        counts = (self.input_count, self.output_count)
        return assemble(asserted, Names(self.locator.name, FORMAT, *counts, self._line_of, self._label))

    def _tensor_of(self, index: int) -> Any:
        tensors = self.network.inputs
        return tensors[bisect_right([self.inputs[tensor.name] for tensor in tensors], index) - 1]

    def _line_of(self, index: int) -> int:
        return self._declared(self._tensor_of(index).name)

    def _declared(self, tensor: str) -> int:
        return _line_of(rf"declare-(?:input|output|hidden)\s+{tensor}\b", self.text)

    def _label(self, index: int) -> str:
        """The element as the file writes it, such as X[0,3]."""
        tensor = self._tensor_of(index)
        if not tensor.shape:
            return str(tensor.name)
        place = np.unravel_index(index - self.inputs[tensor.name], tuple(tensor.shape))
        return f"{tensor.name}[{','.join(map(str, place))}]"

    def _offsets(self, tensors: Sequence[Any]) -> tuple[dict[str, int], int]:
        offsets, total = {}, 0
        for tensor in tensors:
            self._check_tensor(tensor, several=len(tensors) > 1)
            offsets[tensor.name] = total
            total += math.prod(tensor.shape)
        if total > MAX_ELEMENTS:
            line = self._declared(tensors[0].name)
            raise self.locator.error(line, f"declares {total} elements; at most {MAX_ELEMENTS} are read")
        return offsets, total

    def _check_tensor(self, tensor: Any, *, several: bool) -> None:
        written = self.types.get(tensor.name, "")
        if tensor.dtype.name not in _REAL_TYPES:
            raise self.locator.error(
                self._declared(tensor.name),
                f"{tensor.name} has the element type {written or tensor.dtype.name}; "
                "Real, float16, float32, float64 and bfloat16 are supported",
            )
        if several and tensor.onnx_name:
            raise self.locator.error(
                self._declared(tensor.name),
                f"several tensors of which {tensor.name} is tied to the ONNX name "
                f"{tensor.onnx_name}; leave the names out and declare them in the network's order",
            )

    def _quick(self, node: Any) -> InputBound | None:
        """A comparison of one input with a number, by far the commonest condition, without further steps."""
        op = _OPERATORS.get(type(node))
        if op is None or op == "=":
            return None
        left: Any = node.lhs
        right: Any = node.rhs
        upper = op[0] == "<"
        if type(right) is vnnlib.Var:
            left, right, upper = right, left, not upper
        if (type(left), type(right)) != (vnnlib.Var, vnnlib.Float):
            return None
        code = self._code(left)
        if code < 0:
            return None
        text = right.lexeme
        try:
            value = parse_decimal(text)
        except ValueError:
            return None  # the long way finds it again and says where
        return InputBound(code, upper, value, text, len(op) == 1, right.line)

    def _folded(self, root: Any) -> tuple[Value, int]:
        """The value of a condition and its line, without recursion."""
        stack: list[tuple[Any, list[Any]]] = [(root, [])]
        line = 1
        while True:
            node, values = stack[-1]
            quick = self._quick(node)
            if quick is not None:
                stack.pop()
                if not stack:
                    return quick, quick.position
                stack[-1][1].append(quick)
                continue
            children = node.children()
            if len(values) < len(children):
                stack.append((children[len(values)], []))
                continue
            stack.pop()
            line = getattr(node, "line", line)
            value = self._value(node, values, line)
            if not stack:
                return value, line
            stack[-1][1].append(value)

    def _value(self, node: Any, values: list[Any], line: int) -> Any:
        try:
            if isinstance(node, vnnlib.Connective):
                join = self.joiner.conjoin if isinstance(node, vnnlib.And) else self.joiner.disjoin
                return join(values)
            if isinstance(node, vnnlib.NotEqual):
                return self.joiner.disjoin([compare(op, values[0], values[1], line) for op in ("<", ">")])
            if isinstance(node, vnnlib.Comparison):
                return compare(_OPERATORS[type(node)], values[0], values[1], line)
            return self._term(node, values)
        except ValueError as error:
            raise self.locator.error(line, str(error)) from error

    def _term(self, node: Any, values: list[Linear]) -> Linear:
        if isinstance(node, vnnlib.Literal):
            return constant(Fraction(parse_decimal(node.lexeme)), node.lexeme)
        if isinstance(node, vnnlib.Var):
            return variable(self._code(node))
        if isinstance(node, vnnlib.Negate):
            return scale(values[0], Fraction(-1))
        if isinstance(node, vnnlib.Plus):
            return add(values)
        if isinstance(node, vnnlib.Minus):
            return subtract(values[0], add(values[1:]))
        if isinstance(node, vnnlib.Multiply):
            return multiply(values)
        raise ValueError(f"{shortened(str(node))} is not supported")

    def _code(self, node: Any) -> int:
        """The number of a variable as linear.py has it: i for input i, ~j for output j."""
        index = 0
        name, indices = node.name, node.indices
        for place, size in zip(indices, self.shapes[name], strict=True):
            if not 0 <= place < size:
                raise self.locator.error(node.line, f"{name}{list(indices)} lies outside {name}'s shape")
            index = index * size + place
        if name in self.inputs:
            return self.inputs[name] + index
        return ~(self.outputs[name] + index)


def _line_of(pattern: str, text: str, *, end: bool = False) -> int:
    """The line where a pattern first begins (or ends) outside comments; 1 where it is not found."""
    match = re.search(pattern, _blanked(text), re.DOTALL)
    if match is None:
        return 1
    return text.count("\n", 0, match.end() if end else match.start()) + 1


def _blanked(text: str) -> str:
    """The text with comments and strings turned into spaces."""
    return _COMMENT_OR_STRING.sub(lambda found: " " * len(found.group()), text)


def _check_depth(text: str, locator: Locator) -> None:
    depth = 0
    for match in re.finditer(r"[()]", _blanked(text)):
        depth += 1 if match.group() == "(" else -1
        if depth > MAX_DEPTH:
            line = text.count("\n", 0, match.start()) + 1
            raise locator.error(
                line, f"parentheses nested deeper than {MAX_DEPTH}; write nested or/and flatter"
            )


def _translated(message: str, locator: Locator) -> PropertyError:
    """The package's syntax or type error in our words."""
    syntax = re.search(r"at line (\d+), column (\d+): '(.*)'", message, re.DOTALL)
    if syntax:
        line, column, token = int(syntax[1]), syntax[2], syntax[3]
        if not token:
            return locator.error(line, f"column {column}: the file ends too early; parentheses are missing")
        hint = ""
        if re.fullmatch(r"[eE][+-]?\d*", token):
            hint = "; numbers in VNN-LIB 2.0 have no exponent: write 0.001 in place of 1e-3"
        if token == "(declare-network":
            hint = "; the file must begin with (vnnlib-version <2.0>)"
        return locator.error(line, f"column {column}: {shortened(token)} is not VNN-LIB 2.0 here{hint}")
    try:
        first = json.loads(message)["errors"][0]
        words = f"{first['message']}: {first['offendingSymbol']}. {first['hint']}"
        if "IntConstant" in first["hint"]:
            words += " Write the number with a decimal point."
        return locator.error(int(first["line"]), words)
    except (ValueError, KeyError, IndexError, TypeError):
        return PropertyError(f"{locator.name}: {message}")
