"""Operations on every element: one rounding each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from boundscope_prism._arrays import (
    FLOAT32,
    FLOAT64,
    SIGNIFICAND_BITS,
    Array,
    as_array,
    as_kind_of,
    is_tensor,
    plain_array,
    result_array,
    significand_bits,
)
from boundscope_prism._native import call, native
from boundscope_prism._rounding import WORD_LIMIT, Rounding, check_integer
from boundscope_prism.errors import PrismArgumentError

A = TypeVar("A", bound=Array)

# What counts as a number rather than an array.
NUMBERS = (int, float, np.integer, np.floating)

# Elementwise of prism/elementwise.h.
_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _SQRT, _FMA, _ROUND = range(7)


def add(
    a: A | float,
    b: A | float,
    rounding: Rounding,
    *,
    operation: int = 0,
    first: int = 0,
    out: A | None = None,
) -> A:
    """a + b, each element rounded once by `rounding`.

    The operands are C-contiguous numpy arrays or torch tensors on the CPU, all of float32 or all of float64, used
    without a copy (other strides: copied once). They broadcast as in numpy: a scalar, a row (trailing axes) and a
    channel (an inner block repeated) without a copy, anything else through one copy of the result's shape. A Python
    number counts as a scalar of the arrays' type, rounded to nearest. At least one operand is an array.

    The random word of element i is a function of (seed, sample, operation, first + i) alone, i in C order. So
    add(a[k:], b[k:], rounding, first=k) gives the bits of add(a, b, rounding)[k:], on every target and with any number
    of threads. The GIL is released meanwhile.

    `out` receives the result and is returned; it may be an operand of the result's shape. Without it the result is
    new: a tensor where the first array is one, else a numpy array.

    Raises PrismArgumentError where an argument is not as described, and PrismUnavailableError where
    BOUNDSCOPE_PRISM_TARGET names no target of this CPU.
    """
    return _run(_ADD, rounding, operation, first, out, a, b)


def subtract(
    a: A | float,
    b: A | float,
    rounding: Rounding,
    *,
    operation: int = 0,
    first: int = 0,
    out: A | None = None,
) -> A:
    """a - b. See add()."""
    return _run(_SUBTRACT, rounding, operation, first, out, a, b)


def multiply(
    a: A | float,
    b: A | float,
    rounding: Rounding,
    *,
    operation: int = 0,
    first: int = 0,
    out: A | None = None,
) -> A:
    """a * b. See add()."""
    return _run(_MULTIPLY, rounding, operation, first, out, a, b)


def divide(
    a: A | float,
    b: A | float,
    rounding: Rounding,
    *,
    operation: int = 0,
    first: int = 0,
    out: A | None = None,
) -> A:
    """a / b. See add()."""
    return _run(_DIVIDE, rounding, operation, first, out, a, b)


def sqrt(a: A, rounding: Rounding, *, operation: int = 0, first: int = 0, out: A | None = None) -> A:
    """The square root of a; NaN for a negative number. See add()."""
    return _run(_SQRT, rounding, operation, first, out, a)


def fma(
    a: A | float,
    b: A | float,
    c: A | float,
    rounding: Rounding,
    *,
    operation: int = 0,
    first: int = 0,
    out: A | None = None,
) -> A:
    """a * b + c with one rounding, that of the sum. See add()."""
    return _run(_FMA, rounding, operation, first, out, a, b, c)


def round_(a: A, rounding: Rounding, *, operation: int = 0, first: int = 0, out: A | None = None) -> A:
    """a itself as the exact result: a cast to the rounding's precision, or one perturbation of an operator's output.

    "rn" rounds to `precision` bits; "sr" and "rr" do by chance and keep what fits, so with the full precision they
    keep everything; "ud" always moves to a neighbour. See add().
    """
    return _run(_ROUND, rounding, operation, first, out, a)


def cast(
    a: Array, rounding: Rounding, *, operation: int = 0, first: int = 0, out: Array | None = None
) -> Any:
    """float64 `a` as float32, each element rounded once by `rounding`. See add(); `out` lies apart from `a`."""
    array = as_array("a", a, FLOAT64)
    result = result_array(out, array.shape, FLOAT32, {"a": array})
    first = check_integer("first", first, 0, WORD_LIMIT - array.size)
    call(native.cast, array, result, rounding.numbers(operation, significand_bits(result)), first)
    return as_kind_of(a, result) if out is None else out


def _run(
    number: int,
    rounding: Rounding,
    operation: int,
    first: int,
    out: A | None,
    *operands: A | float,
) -> A:
    if first == 0:
        numbers = rounding.numbers(operation, SIGNIFICAND_BITS[FLOAT64])
        kind = operands[0]
        if is_tensor(kind):
            arrays = tuple([plain_array(name, x) for name, x in zip("abc", operands, strict=False)])
            plain = call(native.elementwise_plain, number, arrays, plain_array("out", out), numbers, 0)
        else:
            plain = call(native.elementwise_plain, number, operands, out, numbers, 0)
        if plain is not None:
            result: A = as_kind_of(kind, plain) if out is None else out
            return result
    return _run_with_care(number, rounding, operation, first, out, dict(zip("abc", operands, strict=False)))


def _run_with_care(
    number: int,
    rounding: Rounding,
    operation: int,
    first: int,
    out: A | None,
    operands: Mapping[str, A | float],
) -> A:
    """Whatever may come: tensors, numbers, other strides, operands that broadcast, and what is to be refused."""
    arrays, kind = _operand_arrays(operands)
    shape = _result_shape(arrays)
    dtype = next(iter(arrays.values())).dtype
    whole = tuple(name for name, array in arrays.items() if array.shape == shape)
    result = result_array(out, shape, dtype, arrays, may_replace=whole)
    first = check_integer("first", first, 0, WORD_LIMIT - result.size)
    numbers = rounding.numbers(operation, significand_bits(result))
    layouts = [_layout(array, shape) for array in arrays.values()]
    call(native.elementwise, number, layouts, result, numbers, first)
    if out is not None:
        return out
    fresh: A = as_kind_of(kind, result)
    return fresh


def _operand_arrays(operands: Mapping[str, Array | float]) -> tuple[dict[str, NDArray[Any]], Array]:
    """Every operand as an array of the first array's type, and the first array as it came."""
    kind: Array | None = None
    dtype: np.dtype[Any] | None = None
    found: dict[str, NDArray[Any]] = {}
    for name, value in operands.items():
        if isinstance(value, NUMBERS):
            continue
        found[name] = as_array(name, value, dtype)
        if kind is None:
            kind, dtype = value, found[name].dtype
    if kind is None:
        raise PrismArgumentError(
            f"{next(iter(operands))}: expected a numpy array or a torch tensor, got a number alone."
        )
    for name, value in operands.items():
        if isinstance(value, NUMBERS):
            found[name] = _scalar(name, value, dtype)
    return {name: found[name] for name in operands}, kind


def _scalar(name: str, value: float, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    try:
        with np.errstate(over="ignore"):
            return np.asarray(float(value), dtype)
    except OverflowError:
        raise PrismArgumentError(f"{name}: expected a number that a float can hold, got {value}.") from None


def _result_shape(arrays: Mapping[str, NDArray[Any]]) -> tuple[int, ...]:
    shapes = [array.shape for array in arrays.values()]
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        said = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise PrismArgumentError(f"expected shapes that broadcast together, got {said}.") from None


def _layout(array: NDArray[Any], shape: tuple[int, ...]) -> tuple[NDArray[Any], int]:
    """(values, inner): element i of the result reads values[(i // inner) % values.size].

    That fits axes that are broadcast before and after those that the array has; else the array is copied to `shape`.
    """
    if array.shape == shape:
        return array.reshape(-1), 1
    sizes = (1,) * (len(shape) - array.ndim) + array.shape
    own = [axis for axis, size in enumerate(sizes) if size != 1]
    if not own:
        return array.reshape(-1), 1
    first, last = own[0], own[-1]
    if sizes[first : last + 1] != shape[first : last + 1]:
        return np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1), 1
    return array.reshape(-1), math.prod(shape[last + 1 :])
