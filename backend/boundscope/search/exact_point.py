"""A network at one point over the reals, in fixed-point numbers of PLACES binary places with one error bound a tensor.

For points that interval arithmetic in float64 does not decide: the interval of a decimal, 1e-17 wide, can grow by some
thirty orders of magnitude on its way through a deep network. Here it starts 2^−PLACES wide instead. Slow, and only for
operators that move, compare, add, multiply and divide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.network.graph import Network, Node
from boundscope.network.operators import (
    activation,
    arithmetic,
    linear,
    logic,
    movement,
    pooling,
    reduction,
    resize,
    shape,
)
from boundscope.network.operators.window import split_pads
from boundscope.properties.types import LinearConstraint

PLACES = 320
ONE = 1 << PLACES
MOST_OPERATIONS = 5e6  # of a network: about a second
Integers = NDArray[Any]  # of Python's own integers


class UndecidedError(Exception):
    """Not computed, or not told apart within the error: never leaves this module."""


@dataclass(frozen=True)
class Fixed:
    """Integers in place of a tensor: values · ONE where `scaled`, each off by at most `error`; else exact integers."""

    values: Integers
    error: int = 0
    scaled: bool = True

    def __post_init__(self) -> None:
        # NumPy gives a bare integer where an array of no axes goes in.
        object.__setattr__(self, "values", np.asarray(self.values, dtype=object))

    @property
    def largest(self) -> int:
        return max((abs(value) for value in self.values.flat), default=0)


def holds_over_the_reals(
    network: Network, inputs: Sequence[Fraction], constraints: Sequence[LinearConstraint]
) -> bool:
    """Whether all constraints hold for certain at this point; False also where that is not decided."""
    try:
        outputs = _outputs(network, inputs)
    except UndecidedError:
        return False
    return all(_holds(constraint, inputs, outputs) for constraint in constraints)


def _holds(
    constraint: LinearConstraint, inputs: Sequence[Fraction], outputs: Sequence[tuple[Fraction, Fraction]]
) -> bool:
    count = len(constraint.output_indices)
    exact = constraint.exact_coeffs or tuple(
        Fraction(float(value)) for value in (*constraint.output_coeffs, *constraint.input_coeffs)
    )
    margin = -constraint.bound
    for index, factor in zip(constraint.output_indices.tolist(), exact[:count], strict=True):
        value, error = outputs[index]
        margin += factor * value + abs(factor) * error
    for index, factor in zip(constraint.input_indices.tolist(), exact[count:], strict=True):
        margin += factor * inputs[index]
    return margin < 0 or (margin == 0 and not constraint.strict)


def _outputs(network: Network, inputs: Sequence[Fraction]) -> list[tuple[Fraction, Fraction]]:
    """Each output and how far it may be off."""
    if network.rounded_constants:
        raise UndecidedError
    values: dict[str, Fixed] = {}
    position = 0
    for info in network.inputs:
        own = inputs[position : position + info.size]
        position += info.size
        exact = all(ONE % each.denominator == 0 for each in own)
        flat = _objects([each.numerator * ONE // each.denominator for each in own])
        values[info.name] = Fixed(flat.reshape(info.shape), 0 if exact else 1)
    for node in network.nodes:
        arguments = [
            values[name] if name in values else _constant(network.constants[name]) if name else None
            for name in node.inputs
        ]
        for name, result in zip(node.outputs, _applied(node, arguments), strict=False):
            if name:
                values[name] = result
    return [
        (Fraction(value, ONE if result.scaled else 1), Fraction(result.error, ONE))
        for info in network.outputs
        for result in (values[info.name] if info.name in values else _constant(network.constants[info.name]),)
        for value in result.values.flat
    ]


def _objects(values: Sequence[int]) -> Integers:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _constant(array: NDArray[Any]) -> Fixed:
    if array.dtype.kind != "f":
        return Fixed(_objects([int(value) for value in array.flat]).reshape(array.shape), 0, scaled=False)
    flat, error = [], 0
    for value in array.flat:
        numerator, denominator = float(value).as_integer_ratio()
        error |= int(ONE % denominator != 0)
        flat.append(numerator * ONE // denominator)
    return Fixed(_objects(flat).reshape(array.shape), error)


def _number(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    if ONE % denominator:
        raise UndecidedError
    return numerator * ONE // denominator


# ------------------------------------------------------------ operators

_MOVING = (
    shape.Reshaping,
    movement.Slice,
    movement.Split,
    movement.Gather,
    movement.Concat,
    resize.NearestTake,
)
_MOVING_BY = {movement.DynamicSlice: (0,), movement.DynamicGather: (0,), movement.ScatterND: (0, 2)}


def _applied(node: Node, inputs: Sequence[Fixed | None]) -> Sequence[Fixed]:
    op = node.op
    if isinstance(op, _MOVING):
        return _moved(node, inputs, tuple(range(len(inputs))))
    if type(op) in _MOVING_BY:
        return _moved(node, inputs, _MOVING_BY[type(op)])
    given = [value for value in inputs if value is not None]
    for kinds, apply in _TABLE:
        if isinstance(op, kinds):
            return [apply(op, *given)]
    raise UndecidedError


def _moved(node: Node, inputs: Sequence[Fixed | None], data: tuple[int, ...]) -> Sequence[Fixed]:
    """Where each element of the outputs comes from is told by the operator itself, applied to places."""
    arguments: list[torch.Tensor | None] = []
    parts: list[Fixed] = []
    count = 0
    for index, value in enumerate(inputs):
        if value is None:
            arguments.append(None)
        elif index in data:
            places = torch.arange(count, count + value.values.size)
            arguments.append(places.reshape(value.values.shape))
            count += value.values.size
            parts.append(value)
        elif value.scaled:
            raise UndecidedError
        else:
            arguments.append(torch.from_numpy(value.values.astype(np.int64)))
    if len({part.scaled for part in parts}) > 1:
        raise UndecidedError
    everything = np.concatenate([part.values.reshape(-1) for part in parts])
    error = max(part.error for part in parts)
    results = node.op.evaluate(arguments)
    return [
        Fixed(everything[result.numpy().reshape(-1)].reshape(result.shape), error, parts[0].scaled)
        for result in results
    ]


def _sum(op: object, a: Fixed, b: Fixed) -> Fixed:
    if a.scaled != b.scaled:
        raise UndecidedError
    values = a.values - b.values if isinstance(op, arithmetic.Sub) else a.values + b.values
    return Fixed(values, a.error + b.error, a.scaled)


def _product(_: object, a: Fixed, b: Fixed) -> Fixed:
    if not a.scaled and not b.scaled:
        return Fixed(a.values * b.values, 0, scaled=False)
    if a.scaled != b.scaled:
        raise UndecidedError
    error = (a.largest * b.error + b.largest * a.error + a.error * b.error) // ONE + 2
    return _rescaled(a.values * b.values, error, exact=not a.error and not b.error)


def _rescaled(products: Integers, error: int, *, exact: bool) -> Fixed:
    """Products of two scaled tensors, scaled once; what exact ones lose by that is often nothing."""
    products = np.asarray(products, dtype=object)
    if exact and all(product % ONE == 0 for product in products.flat):
        error = 0
    return Fixed(products // ONE, error)


def _quotient(_: object, a: Fixed, b: Fixed) -> Fixed:
    least = min((abs(value) for value in b.values.flat), default=0)
    if not (a.scaled and b.scaled) or least <= b.error:
        raise UndecidedError
    values = np.asarray((a.values * ONE) // b.values, dtype=object)
    largest = max((abs(value) for value in values.flat), default=0)
    return Fixed(values, (a.error * ONE + (largest + 1) * b.error) // (least - b.error) + 2)


def _extreme(op: object, *given: Fixed) -> Fixed:
    if len({each.scaled for each in given}) > 1:
        raise UndecidedError
    choose = np.minimum if isinstance(op, arithmetic.Min) else np.maximum
    values = given[0].values
    for each in given[1:]:
        values = choose(values, each.values)
    return Fixed(values, max(each.error for each in given), given[0].scaled)


def _relu(_: object, x: Fixed) -> Fixed:
    return Fixed(np.maximum(x.values, 0), x.error, x.scaled)


def _clip(op: activation.Clip, x: Fixed) -> Fixed:
    if not x.scaled:
        raise UndecidedError
    values = x.values
    if op.lower is not None:
        values = np.maximum(values, _number(op.lower))
    if op.upper is not None:
        values = np.minimum(values, _number(op.upper))
    return Fixed(values, x.error)


def _turned(op: object, x: Fixed) -> Fixed:
    return Fixed(-x.values if isinstance(op, activation.Neg) else abs(x.values), x.error, x.scaled)


def _cast(op: shape.Cast, x: Fixed) -> Fixed:
    if op.to.is_floating_point:
        return x if x.scaled else Fixed(x.values * ONE)
    if not x.scaled:
        values = [int(value != 0) for value in x.values.flat] if op.to is torch.bool else list(x.values.flat)
        return Fixed(_objects(values).reshape(x.values.shape), 0, scaled=False)
    whole: Callable[[int], int] = _sign_of_nothing if op.to is torch.bool else _towards_zero
    low = [whole(value - x.error) for value in x.values.flat]
    if low != [whole(value + x.error) for value in x.values.flat]:
        raise UndecidedError
    if op.to is torch.bool:
        low = [int(value != 0) for value in low]
    return Fixed(_objects(low).reshape(x.values.shape), 0, scaled=False)


def _towards_zero(value: int) -> int:
    return value // ONE if value >= 0 else -(-value // ONE)


def _sign_of_nothing(value: int) -> int:
    return (value > 0) - (value < 0)


def _largest_index(op: reduction.ArgMax, x: Fixed) -> Fixed:
    lines = np.moveaxis(x.values, op.axis, -1)
    found = []
    for line in lines.reshape(-1, lines.shape[-1]):
        best = max(range(len(line)), key=lambda index: line[index])  # the first of equal ones
        others = [line[best] - value for index, value in enumerate(line) if index != best]
        if x.error and min(others, default=math.inf) <= 2 * x.error:
            raise UndecidedError
        found.append(best)
    indices = _objects(found).reshape(lines.shape[:-1])
    return Fixed(np.expand_dims(indices, op.axis) if op.keepdims else indices, 0, scaled=False)


def _equal(_: object, a: Fixed, b: Fixed) -> Fixed:
    if a.scaled != b.scaled:
        raise UndecidedError
    difference, error = np.asarray(a.values - b.values, dtype=object), a.error + b.error
    if error and any(abs(value) <= error for value in difference.flat):
        raise UndecidedError
    return Fixed(
        _objects([int(value == 0) for value in difference.flat]).reshape(difference.shape), 0, scaled=False
    )


def _weighted(weight: Fixed, x: Fixed, columns: Integers, bias: Fixed | None) -> Fixed:
    """weight [M, K] · columns [K, L] + bias, and its error; `columns` are made of x."""
    rows = max((sum(abs(each) for each in row) for row in weight.values), default=0)
    error = (rows * x.error + weight.error * weight.values.shape[1] * (x.largest + x.error)) // ONE + 2
    result = _rescaled(weight.values.dot(columns), error, exact=not weight.error and not x.error)
    if bias is None:
        return result
    return Fixed(result.values + bias.values.reshape(-1, 1), result.error + bias.error)


def _windows(size: tuple[int, ...], op: linear.Conv | pooling.MaxPool) -> NDArray[np.int64]:
    """[prod kernel, *spatial out]: places in a tensor of these spatial axes, −1 in the padding."""
    places = np.arange(math.prod(size)).reshape(size)
    padded = np.pad(places, list(zip(*split_pads(op.pads), strict=True)), constant_values=-1)
    extent = tuple((k - 1) * d + 1 for k, d in zip(op.kernel_shape, op.dilations, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(padded, extent)
    axes = len(size)
    picked = views[
        (*(slice(None, None, s) for s in op.strides), *(slice(None, None, d) for d in op.dilations))
    ]
    return np.moveaxis(picked.reshape(*picked.shape[:axes], -1), -1, 0)


def _with_padding(values: Integers, padding: int) -> Integers:
    """[N·C, elements + 1]: place −1 is the padding."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    return np.concatenate([flat, np.full((len(flat), 1), padding, dtype=object)], axis=1)


def _convolved(op: linear.Conv, x: Fixed, weight: Fixed, bias: Fixed | None = None) -> Fixed:
    batch, channels, *size = x.values.shape
    if batch != 1:
        raise UndecidedError
    windows = _windows(tuple(size), op)
    columns = _with_padding(x.values, 0)[:, windows.reshape(len(windows), -1)]  # [C, kernel, L]
    filters = weight.values.reshape(len(weight.values), -1)
    outs, ins = len(filters) // op.group, channels // op.group
    parts, error = [], 0
    for group in range(op.group):
        own = Fixed(filters[group * outs : (group + 1) * outs], weight.error)
        taken = columns[group * ins : (group + 1) * ins].reshape(ins * len(windows), -1)
        added = None if bias is None else Fixed(bias.values[group * outs : (group + 1) * outs], bias.error)
        result = _weighted(own, x, taken, added)
        parts.append(result.values)
        error = max(error, result.error)
    return Fixed(np.concatenate(parts).reshape(1, -1, *windows.shape[1:]), error)


def _pooled(op: pooling.MaxPool, x: Fixed) -> Fixed:
    windows = _windows(x.values.shape[2:], op)
    least = min(x.values.flat) - 1
    values = _with_padding(x.values, least)[:, windows].max(axis=1)
    return Fixed(values.reshape(*x.values.shape[:2], *windows.shape[1:]), x.error, x.scaled)


_TABLE: tuple[tuple[Any, Callable[..., Fixed]], ...] = (
    (arithmetic.Add | arithmetic.Sub, _sum),
    (arithmetic.Mul, _product),
    (arithmetic.Div, _quotient),
    (arithmetic.Min | arithmetic.Max, _extreme),
    (activation.Relu, _relu),
    (activation.Clip, _clip),
    (activation.Neg | activation.Abs, _turned),
    (shape.Cast, _cast),
    (reduction.ArgMax, _largest_index),
    (logic.Equal, _equal),
    (linear.Conv, _convolved),
    (pooling.MaxPool, _pooled),
)
