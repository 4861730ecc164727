"""Sums over an axis: every addition of them rounded, in an order that is stated."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boundscope_prism._arrays import Array, as_array, as_kind_of, as_strided, result_array, significand_bits
from boundscope_prism._native import call, native
from boundscope_prism._rounding import WORD_LIMIT, Rounding, check_integer
from boundscope_prism.errors import PrismArgumentError

Order: TypeAlias = Literal["lanes", "sequential"]

ORDERS = ("lanes", "sequential")


def sum(
    x: Array,
    rounding: Rounding,
    *,
    axis: int | tuple[int, ...] | None = -1,
    keepdims: bool = False,
    order: Order = "lanes",
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """The sums of `x` over `axis`, every addition rounded.

    `x` is a numpy array or a CPU torch tensor of float32 or float64. `axis` is one axis, several or None for all; last
    axes of C-contiguous memory are read where they are, others are moved there by one copy. What is left, in C order,
    are the rows. A row of n elements takes n - 1 additions:

    - order "lanes": lane l of 16 starts from element l and adds elements l + 16, l + 32, ... in turn; then lane l adds
      lane l + 8, of what is left l + 4, l + 2 and l + 1, where there is such a lane. Element i draws at lane i % 16,
      step i // 16; the tree's four levels are the steps after ceil(n / 16).
    - order "sequential": one element after another; element i draws at lane i % 16, step i // 16.

    Row r draws the words of stream row `first_row` + r, so that sum(x[k:], first_row=k) gives the bits of sum(x)[k:].
    The bits depend neither on threads nor on the target.

    `out`, C-contiguous and apart from x, receives the result and is returned; else the result is of the kind of `x`,
    of the shape of `x` without `axis` (with `keepdims`: of size 1 there). Raises PrismArgumentError where an argument
    is not as described, and where there is nothing to add.
    """
    return _reduce("sum", x, None, rounding, axis, keepdims, 0.0, order, operation, first_row, out)


def dot(
    a: Array,
    b: Array,
    rounding: Rounding,
    *,
    axis: int = -1,
    keepdims: bool = False,
    order: Order = "lanes",
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """The sums of a * b over `axis` by fused multiply-adds, each rounded: sum = fma(a, b, sum) from zero.

    `a` and `b` have one shape and one type. Orders, words and the rest are as in `sum`, but that a row of n elements
    takes n fused multiply-adds (a lane starts from zero) and, in lanes, the additions of the tree.
    """
    return _reduce("dot", a, b, rounding, axis, keepdims, 0.0, order, operation, first_row, out)


def sum_of_squares(
    x: Array,
    rounding: Rounding,
    *,
    axis: int | tuple[int, ...] | None = -1,
    keepdims: bool = False,
    order: Order = "lanes",
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """`dot(x, x)`, over one axis or several as in `sum`."""
    return _reduce("dot", x, x, rounding, axis, keepdims, 0.0, order, operation, first_row, out)


def mean(
    x: Array,
    rounding: Rounding,
    *,
    axis: int | tuple[int, ...] | None = -1,
    keepdims: bool = False,
    order: Order = "lanes",
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """The `sum` (stage 0), then one division by the number of elements (stage 1; row r draws at lane 0 of its row)."""
    return _reduce("mean", x, None, rounding, axis, keepdims, 0.0, order, operation, first_row, out)


def variance(
    x: Array,
    rounding: Rounding,
    *,
    axis: int | tuple[int, ...] | None = -1,
    keepdims: bool = False,
    correction: float = 1,
    order: Order = "lanes",
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """The variance of `x` over `axis`, every operation rounded; the rest is as in `sum`.

    With m the `mean` (stages 0 and 1): d = x - m (stage 2; element i draws at lane i % 16, step i // 16), the chain of
    fma(d, d, sum) in the order of `dot` (stage 3), and one division by n - `correction` (stage 4). As in torch the
    division is by zero where there are not more elements than `correction`.
    """
    if not math.isfinite(correction):
        raise PrismArgumentError(f"correction: expected a finite number, got {correction}.")
    return _reduce(
        "variance", x, None, rounding, axis, keepdims, float(correction), order, operation, first_row, out
    )


def _reduce(
    name: str,
    x: Array,
    other: Array | None,
    rounding: Rounding,
    axis: int | tuple[int, ...] | None,
    keepdims: bool,
    correction: float,
    order: str,
    operation: int,
    first_row: int,
    out: Array | None,
) -> Any:
    if order not in ORDERS:
        raise PrismArgumentError(f"order: expected one of {', '.join(map(repr, ORDERS))}, got {order!r}.")
    array = as_strided("a" if name == "dot" else "x", x)
    axes = axes_of(array, axis)
    rows, kept = as_rows(array, axes)
    inputs = {"x": array}
    others = None
    if other is not None:
        second = array if other is x else as_strided("b", other, array.dtype)
        if second.shape != array.shape:
            raise PrismArgumentError(f"b: expected the shape of a, {array.shape}, got {second.shape}.")
        inputs = {"a": array, "b": second}
        others = rows if other is x else as_rows(second, axes)[0]
    shape = tuple(1 if i in axes else n for i, n in enumerate(array.shape)) if keepdims else kept
    result = result_array(out, shape, array.dtype, inputs)
    first_row = check_integer("first_row", first_row, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(array))
    call(native.reduce, name, rows, others, correction, order == "sequential", result.reshape(-1), None, first_row,
         numbers)  # fmt: skip
    return out if out is not None else as_kind_of(x, result)


def axes_of(array: NDArray[Any], axis: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """`axis` as axes counted from the front, in order. Raises PrismArgumentError where there is no such axis."""
    if axis is None:
        return tuple(range(array.ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    counted = []
    for number in axes:
        if not -array.ndim <= (place := check_integer("axis", number, -64, 63)) < array.ndim:
            raise PrismArgumentError(f"axis: expected an axis of the shape {array.shape}, got {place}.")
        counted.append(place % array.ndim)
    if len(set(counted)) != len(counted):
        raise PrismArgumentError(f"axis: expected each axis once, got {axis}.")
    return tuple(sorted(counted))


def as_rows(array: NDArray[Any], axes: tuple[int, ...]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """`array` as C-contiguous (rows, elements of `axes`), and the shape of what is left: one copy where need be.

    Raises PrismArgumentError where an axis is empty.
    """
    if any(array.shape[axis] == 0 for axis in axes):
        raise PrismArgumentError(
            f"axis: expected at least one element along it, got the shape {array.shape}."
        )
    others = tuple(axis for axis in range(array.ndim) if axis not in axes)
    kept = tuple(array.shape[axis] for axis in others)
    columns = math.prod(array.shape[axis] for axis in axes)
    rows = array.transpose(others + axes).reshape(math.prod(kept), columns)
    return as_array("x", np.ascontiguousarray(rows)), kept
