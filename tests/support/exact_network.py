"""Small piecewise linear networks over the rational numbers: their values, and the pieces that they are linear on.

Reads the ONNX file by itself and shares nothing with the engine that it is there to test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from support.exact_polytope import Polytope

Exact = NDArray[Any]  # of Fraction, or of int where said
Attributes = Mapping[str, Any]


def exact_array(values: NDArray[Any]) -> Exact:
    """The same numbers as Fractions; integers stay integers."""
    if values.dtype.kind != "f":
        return values
    return _each(lambda value: Fraction(float(value)), values)


def _each(function: Callable[[Any], Any], values: NDArray[Any]) -> Exact:
    out = np.empty(values.shape, dtype=object)
    for index in np.ndindex(*values.shape):
        out[index] = function(values[index])
    return out


# ---------------------------------------------------------------- operators


def _gemm(inputs: Sequence[Exact], attributes: Attributes) -> Exact:
    a, b = inputs[0], inputs[1]
    a = a.T if attributes.get("transA") else a
    b = b.T if attributes.get("transB") else b
    out: Exact = np.matmul(a, b) * Fraction(attributes.get("alpha", 1.0))
    return out + inputs[2] * Fraction(attributes.get("beta", 1.0)) if len(inputs) > 2 else out


def _windows(x: Exact, attributes: Attributes, size: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    """Each output position with the part of [C, *spatial] that its window holds: (position, [(offset, index)])."""
    axes = len(size)
    strides = attributes.get("strides", [1] * axes)
    pads = attributes.get("pads", [0] * (2 * axes))
    counts = [
        (x.shape[1 + axis] + pads[axis] + pads[axes + axis] - size[axis]) // strides[axis] + 1
        for axis in range(axes)
    ]
    for position in product(*map(range, counts)):
        inside = []
        for offset in product(*map(range, size)):
            index = tuple(
                p * stride - pad + o
                for p, stride, pad, o in zip(position, strides, pads[:axes], offset, strict=True)
            )
            if all(0 <= i < n for i, n in zip(index, x.shape[1:], strict=True)):
                inside.append((offset, index))
        yield position, inside


def _conv(inputs: Sequence[Exact], attributes: Attributes) -> Exact:
    x, weight = inputs[0][0], inputs[1]
    found: dict[tuple[int, ...], Any] = {}
    for channel in range(len(weight)):
        start = inputs[2][channel] if len(inputs) > 2 else Fraction(0)
        for position, inside in _windows(x, attributes, weight.shape[2:]):
            total = start
            for offset, index in inside:
                for source in range(weight.shape[1]):
                    total = total + weight[(channel, source, *offset)] * x[(source, *index)]
            found[(channel, *position)] = total
    return _from_places(found)


def _pool_groups(shape: Sequence[int], attributes: Attributes) -> dict[tuple[int, ...], list[int]]:
    """For each output place the flat indices of the input [1, C, *spatial] that it is the greatest of."""
    numbers = np.arange(math.prod(shape)).reshape(shape)[0]
    return {
        (channel, *position): [int(numbers[(channel, *index)]) for _, index in inside]
        for channel in range(shape[1])
        for position, inside in _windows(numbers, attributes, attributes["kernel_shape"])
    }


def _max_pool(inputs: Sequence[Exact], attributes: Attributes) -> Exact:
    flat = inputs[0].reshape(-1)
    groups = _pool_groups(inputs[0].shape, attributes)
    return _from_places({place: max(flat[index] for index in group) for place, group in groups.items()})


def _from_places(found: Mapping[tuple[int, ...], Any]) -> Exact:
    shape = tuple(max(place[axis] for place in found) + 1 for axis in range(len(next(iter(found)))))
    out = np.empty((1, *shape), dtype=object)
    for place, value in found.items():
        out[(0, *place)] = value
    return out


def _reshape(inputs: Sequence[Exact], attributes: Attributes) -> Exact:
    return inputs[0].reshape([int(size) for size in inputs[1]])


LINEAR: dict[str, Callable[[Sequence[Exact], Attributes], Exact]] = {
    "Gemm": _gemm,
    "MatMul": lambda inputs, _: np.matmul(inputs[0], inputs[1]),
    "Conv": _conv,
    "Add": lambda inputs, _: inputs[0] + inputs[1],
    "Sub": lambda inputs, _: inputs[0] - inputs[1],
    "Mul": lambda inputs, _: inputs[0] * inputs[1],
    "Flatten": lambda inputs, _: inputs[0].reshape(inputs[0].shape[0], -1),
    "Reshape": _reshape,
    "Identity": lambda inputs, _: inputs[0],
}


@dataclass(frozen=True)
class Pieces:
    """A continuous function of one number: slope and intercept from −∞ to the first kink, on to the next, …, to ∞."""

    kinks: tuple[Fraction, ...]
    lines: tuple[tuple[Fraction, Fraction], ...]

    def at(self, value: Fraction) -> Fraction:
        slope, intercept = self.lines[sum(value > kink for kink in self.kinks)]
        return slope * value + intercept


def _pieces(kind: str, attributes: Attributes, limits: Sequence[Exact]) -> Pieces:
    zero, one = Fraction(0), Fraction(1)
    if kind == "Clip":
        low, high = (Fraction(value.item()) for value in limits)
        return Pieces((low, high), ((zero, low), (one, zero), (zero, high)))
    slope = {"Relu": zero, "Abs": -one, "LeakyRelu": Fraction(attributes.get("alpha", 0.01))}[kind]
    return Pieces((zero,), ((slope, zero), (one, zero)))


ELEMENTWISE = ("Relu", "Abs", "LeakyRelu", "Clip")


# ---------------------------------------------------------------- networks


@dataclass(frozen=True)
class Forms:
    """Affine forms of the network's inputs, one for each element of a tensor: integers [elements, inputs + 1], the
    constant last, over one positive denominator."""

    rows: Exact
    denominator: int

    def over(self, denominator: int) -> Exact:
        """The rows over a multiple of the denominator."""
        return self.rows * (denominator // self.denominator)

    @classmethod
    def joined(cls, rows: Sequence[Exact], denominators: Sequence[int]) -> Forms:
        common = math.lcm(*denominators)
        return cls(
            np.stack([row * (common // own) for row, own in zip(rows, denominators, strict=True)]), common
        )


@dataclass(frozen=True)
class _Step:
    """One node: where it is linear a matrix [out, in] for each input and a bias [out], else `pieces` or `groups`."""

    inputs: tuple[str, ...]
    output: str
    shape: tuple[int, ...]
    evaluate: Callable[[Sequence[Exact]], Exact]
    linear: tuple[tuple[Forms, ...], Forms] | None = None
    pieces: Pieces | None = None
    groups: tuple[tuple[int, ...], ...] = ()


class ExactNetwork:
    """A network of Gemm, MatMul, Conv, Add, Sub, Mul, Relu, LeakyRelu, Abs, Clip, MaxPool and shapes, on Fractions."""

    def __init__(self, path: Path) -> None:
        graph = onnx.load(path).graph
        self.constants = {one.name: exact_array(numpy_helper.to_array(one)) for one in graph.initializer}
        (own_input,) = (one for one in graph.input if one.name not in self.constants)
        self.input = own_input.name
        self.input_shape = tuple(size.dim_value for size in own_input.type.tensor_type.shape.dim)
        self.inputs = math.prod(self.input_shape)
        self.output = graph.output[0].name
        self._shapes = {self.input: self.input_shape}
        self._steps = [self._step(node) for node in graph.node]
        self.outputs = math.prod(self._shapes[self.output])
        self.nonlinear = sum(step.linear is None for step in self._steps)

    def _step(self, node: onnx.NodeProto) -> _Step:
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        moving = tuple(name for name in node.input if name not in self.constants)
        fixed = [self.constants[name] for name in node.input if name in self.constants]

        def values(given: Sequence[Exact]) -> list[Exact]:
            rest = iter(given)
            return [self.constants[n] if n in self.constants else next(rest) for n in node.input if n]

        kind, output = node.op_type, node.output[0]
        shape = self._shapes[moving[0]]
        if kind in ELEMENTWISE:
            pieces = _pieces(kind, attributes, fixed)
            step = _Step(moving, output, shape, lambda given: _each(pieces.at, given[0]), pieces=pieces)
        elif kind == "MaxPool":
            places = _pool_groups(shape, attributes)
            groups = tuple(tuple(group) for group in places.values())
            pooled = _max_pool([np.full(shape, Fraction(0))], attributes).shape
            step = _Step(moving, output, pooled, lambda given: _max_pool(given, attributes), groups=groups)
        else:
            step = self._linear(moving, output, lambda given: LINEAR[kind](values(given), attributes))
        self._shapes[output] = step.shape
        return step

    def _linear(
        self, moving: tuple[str, ...], output: str, evaluate: Callable[[Sequence[Exact]], Exact]
    ) -> _Step:
        zeros = [np.full(self._shapes[name], Fraction(0)) for name in moving]
        fixed = evaluate(zeros)
        matrices = []
        for position, zero in enumerate(zeros):
            columns = []
            for index in range(zero.size):
                unit = zero.copy().reshape(-1)
                unit[index] = Fraction(1)
                given = [*zeros[:position], unit.reshape(zero.shape), *zeros[position + 1 :]]
                columns.append((evaluate(given) - fixed).reshape(-1))
            matrices.append(_integers(np.stack(columns, axis=1)))
        return _Step(
            moving, output, fixed.shape, evaluate, linear=(tuple(matrices), _integers(fixed.reshape(-1)))
        )

    def evaluate(self, point: Sequence[Fraction]) -> list[Fraction]:
        """All outputs at a point, [outputs]."""
        values = {self.input: np.array(list(point), dtype=object).reshape(self.input_shape)}
        for step in self._steps:
            values[step.output] = step.evaluate([values[name] for name in step.inputs])
        return list(values[self.output].reshape(-1))

    def regions(self, polytope: Polytope) -> Iterator[tuple[Polytope, Forms]]:
        """Parts of a polytope that cover it, on each of which the outputs are the forms beside it."""
        identity = np.zeros((self.inputs, self.inputs + 1), dtype=object)
        for index in range(self.inputs):
            identity[index, index] = 1
        yield from self._walk(0, {self.input: Forms(identity, 1)}, polytope)

    def _walk(self, at: int, known: dict[str, Forms], polytope: Polytope) -> Iterator[tuple[Polytope, Forms]]:
        if at == len(self._steps):
            yield polytope, known[self.output]
            return
        step = self._steps[at]
        if step.linear is not None:
            forms = _through(step.linear, [known[name] for name in step.inputs])
            yield from self._walk(at + 1, {**known, step.output: forms}, polytope)
            return
        before = known[step.inputs[0]]
        parts = (
            _split_elements(before, step.pieces, polytope)
            if step.pieces is not None
            else _split_groups(before, step.groups, polytope)
        )
        for part, forms in parts:
            yield from self._walk(at + 1, {**known, step.output: forms}, part)


def _integers(values: Exact) -> Forms:
    denominator = math.lcm(*(value.denominator for value in values.reshape(-1)))
    return Forms(_each(lambda value: int(value * denominator), values), denominator)


def _through(linear: tuple[tuple[Forms, ...], Forms], inputs: Sequence[Forms]) -> Forms:
    matrices, bias = linear
    denominator = math.lcm(
        bias.denominator, *(m.denominator * x.denominator for m, x in zip(matrices, inputs, strict=True))
    )
    rows: Exact = np.zeros((len(bias.rows), inputs[0].rows.shape[1]), dtype=object)
    rows[:, -1] = bias.over(denominator)
    for matrix, x in zip(matrices, inputs, strict=True):
        rows = rows + np.matmul(matrix.rows, x.rows) * (denominator // (matrix.denominator * x.denominator))
    return Forms(rows, denominator)


def _split_elements(before: Forms, pieces: Pieces, polytope: Polytope) -> Iterator[tuple[Polytope, Forms]]:
    def walk(
        element: int, part: Polytope, rows: list[Exact], dens: list[int]
    ) -> Iterator[tuple[Polytope, Forms]]:
        if element == len(before.rows):
            yield part, Forms.joined(rows, dens)
            return
        row = before.rows[element]
        rest: Polytope | None = part
        for number, (slope, intercept) in enumerate(pieces.lines):
            here = rest
            if number < len(pieces.kinks) and rest is not None:
                kink = pieces.kinks[number]
                shifted = row * kink.denominator
                shifted[-1] -= kink.numerator * before.denominator
                values = rest.values(shifted)
                if max(values) <= 0:
                    rest = None
                elif min(values) >= 0:
                    here = None
                else:
                    here, rest = rest.split(values)
            if here is not None:
                scale = math.lcm(slope.denominator, intercept.denominator)
                moved = row * int(slope * scale)
                moved[-1] += int(intercept * scale) * before.denominator
                yield from walk(element + 1, here, [*rows, moved], [*dens, before.denominator * scale])
            if rest is None:
                return

    yield from walk(0, polytope, [], [])


def _split_groups(
    before: Forms, groups: Sequence[Sequence[int]], polytope: Polytope
) -> Iterator[tuple[Polytope, Forms]]:
    def walk(number: int, part: Polytope, rows: list[Exact]) -> Iterator[tuple[Polytope, Forms]]:
        if number == len(groups):
            yield part, Forms(np.stack(rows), before.denominator)
            return
        for greatest, here in leaders(list(groups[number]), part):
            yield from walk(number + 1, here, [*rows, before.rows[greatest]])

    def leaders(group: list[int], part: Polytope) -> Iterator[tuple[int, Polytope]]:
        """Each element with the part where it is the greatest of its group."""
        if len(group) == 1:
            yield group[0], part
            return
        one, other, *others = group
        values = part.values(before.rows[one] - before.rows[other])
        if min(values) >= 0:
            yield from leaders([one, *others], part)
        elif max(values) <= 0:
            yield from leaders([other, *others], part)
        else:
            below, above = part.split(values)
            assert below is not None
            assert above is not None
            yield from leaders([other, *others], below)
            yield from leaders([one, *others], above)

    yield from walk(0, polytope, [])
