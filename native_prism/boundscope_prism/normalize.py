"""Normalizations and softmax, every elementary operation of them rounded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope_prism._arrays import Array, as_array, as_kind_of, as_strided, result_array, significand_bits
from boundscope_prism._native import call, native
from boundscope_prism._rounding import WORD_LIMIT, Rounding, check_integer
from boundscope_prism.errors import PrismArgumentError
from boundscope_prism.reduce import as_rows, axes_of


def layer_norm(
    x: Array,
    rounding: Rounding,
    *,
    normalized_axes: int = 1,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
    statistics: bool = False,
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """Layer normalization over the last `normalized_axes` axes (Ba, Kiros, Hinton 2016).

    `x` is a numpy array or a CPU torch tensor of float32 or float64, C-contiguous memory without a copy; `weight` and
    `bias` have the shape of those axes. Each row, n elements, is computed so, every operation rounded: mean and
    variance with correction 0 (stages 0 to 4 of `variance`), v + epsilon (5), its square root (6), 1 / root (7),
    d * that (8) with d = x - mean of stage 2, then fma(y, weight, bias), y * weight or y + bias (9). Stages 5 to 7 draw
    at lane 0 of the row, stages 8 and 9 at lane i % 16, step i // 16 for element i. epsilon is rounded to x's type.

    Row r draws the words of stream row `first_row` + r. `out`, C-contiguous, receives the result and is returned; it
    may be x. With `statistics` the result is (y, mean, 1 / root), the last two of one element a row.
    Raises PrismArgumentError where an argument is not as described.
    """
    array = as_array("x", x)
    count = check_integer("normalized_axes", normalized_axes, 1, max(array.ndim, 1))
    if array.ndim == 0:
        raise PrismArgumentError("x: expected at least one axis, got a number.")
    shape = array.shape[-count:]
    leading = array.shape[:-count]
    _check_elements(array, shape)
    return _rows(
        x, array, leading, shape, weight, bias, 1, epsilon, statistics, rounding, operation, first_row, out
    )


def group_norm(
    x: Array,
    groups: int,
    rounding: Rounding,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
    statistics: bool = False,
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """Group normalization of x (batch, channels, ...) (Wu, He 2018): a row is one group of channels of one image.

    `weight` and `bias` have an element for each channel. Row n * groups + g is as in `layer_norm`. With `groups` as
    many as channels this is instance normalization.
    """
    array = as_array("x", x)
    if array.ndim < 2:
        raise PrismArgumentError(f"x: expected (batch, channels, ...), got the shape {array.shape}.")
    channels = array.shape[1]
    groups = check_integer("groups", groups, 1, max(channels, 1))
    if channels % groups != 0:
        raise PrismArgumentError(f"groups: expected a divisor of the {channels} channels, got {groups}.")
    shape = (channels // groups, *array.shape[2:])
    _check_elements(array, shape)
    length = math.prod(array.shape[2:])
    weights, biases = (
        None
        if value is None
        else np.repeat(_each(name, value, array, channels), length).reshape(groups, *shape)
        for name, value in (("weight", weight), ("bias", bias))
    )
    leading = (array.shape[0], groups)
    return _rows(x, array, leading, shape, weights, biases, groups, epsilon, statistics, rounding, operation,
                 first_row, out)  # fmt: skip


def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    rounding: Rounding,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
    operation: int = 0,
    first_batch: int = 0,
    out: Array | None = None,
) -> Any:
    """Batch normalization of x (batch, channels, ...) by moments that are given (Ioffe, Szegedy 2015; inference).

    All others have an element for each channel. Every operation is rounded: v + epsilon (stage 5), its square root (6)
    and 1 / root (7), each at lane 0 of row c for channel c; d = x - mean (10), d * that (8), fma(y, weight, bias),
    y * weight or y + bias (9), in rows of one channel of one image, row (first_batch + n) channels + c; for x of
    (batch, channels) alone in rows of one image, row first_batch + n. `out` may be x. The rest is as in `layer_norm`.
    """
    array = as_array("x", x)
    if array.ndim < 2:
        raise PrismArgumentError(f"x: expected (batch, channels, ...), got the shape {array.shape}.")
    _check_elements(array, array.shape[1:])
    channels = array.shape[1]
    means = _each("mean", mean, array, channels)
    variances = _each("variance", variance, array, channels)
    weights, biases = (
        None if value is None else _each(name, value, array, channels)
        for name, value in (("weight", weight), ("bias", bias))
    )
    inputs = {"x": array, "mean": means, "variance": variances} | _named(weights, biases)
    result = result_array(out, array.shape, array.dtype, inputs, may_replace=("x",))
    first_batch = check_integer("first_batch", first_batch, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(array))
    three = (array.shape[0], channels, math.prod(array.shape[2:]))
    call(native.normalize_channels, array.reshape(three), means, variances, weights, biases, _epsilon(epsilon),
         result.reshape(three), first_batch, numbers)  # fmt: skip
    return out if out is not None else as_kind_of(x, result)


def batch_norm_training(
    x: Array,
    rounding: Rounding,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
    operation: int = 0,
    out: Array | None = None,
) -> tuple[Any, Any, Any]:
    """Batch normalization of x (batch, channels, ...) by its own moments: (y, mean, variance), one a channel.

    Channel c is row c of a copy with the channels in front, the batch outermost in a row; mean and variance (correction
    0) are those of `variance` (stages 0 to 4), y is that of `batch_norm` with them (stages 5 to 10).
    """
    array = as_array("x", x)
    if array.ndim < 2:
        raise PrismArgumentError(f"x: expected (batch, channels, ...), got the shape {array.shape}.")
    _check_elements(array, array.shape)
    rows, _ = as_rows(array, axes_of(array, tuple(i for i in range(array.ndim) if i != 1)))
    mean, variance = (np.empty(array.shape[1], array.dtype) for _ in range(2))
    numbers = rounding.numbers(operation, significand_bits(array))
    call(native.reduce, "variance", rows, None, 0.0, False, variance, mean, 0, numbers)
    kind = (as_kind_of(x, mean), as_kind_of(x, variance))
    y = batch_norm(
        x, mean, variance, rounding, weight=weight, bias=bias, epsilon=epsilon, operation=operation, out=out
    )
    return y, *kind


def softmax(
    x: Array,
    rounding: Rounding,
    *,
    axis: int = -1,
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """Softmax over `axis`, every operation rounded.

    With m the row's largest element, which is not perturbed: t = x - m (stage 0), e = exp(t) (1), their `sum` in lanes
    (2), e / sum (3); element i draws at lane i % 16, step i // 16 of row `first_row` + r. exp is evaluated in float64,
    to a relative 2**-46 for float32 and 2**-51 for float64, and that is rounded as if it were exact; so at the full
    precision of float64 only "ud" perturbs it.

    The last axis of C-contiguous memory is read where it is, others are moved there by one copy. `out` may be x then.
    Raises PrismArgumentError where an argument is not as described.
    """
    return _softmax(x, rounding, axis, False, operation, first_row, out)


def log_softmax(
    x: Array,
    rounding: Rounding,
    *,
    axis: int = -1,
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """The logarithm of `softmax`: t, e and their sum as there, log(sum) as exp there (stage 3), t - that (stage 4)."""
    return _softmax(x, rounding, axis, True, operation, first_row, out)


def _softmax(
    x: Array,
    rounding: Rounding,
    axis: int,
    logarithm: bool,
    operation: int,
    first_row: int,
    out: Array | None,
) -> Any:
    array = as_strided("x", x)
    axes = axes_of(array, axis)
    if len(axes) != 1:
        raise PrismArgumentError("x: expected at least one axis, got a number.")
    rows, kept = as_rows(array, axes)
    result = result_array(out, array.shape, array.dtype, {"x": array}, may_replace=("x",))
    last = axes[0] == array.ndim - 1
    target = result if last else np.empty((*kept, array.shape[axes[0]]), array.dtype)
    first_row = check_integer("first_row", first_row, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(array))
    call(native.softmax, rows, logarithm, target.reshape(rows.shape), first_row, numbers)
    if not last:
        np.copyto(result, np.moveaxis(target, -1, axes[0]))
    return out if out is not None else as_kind_of(x, result)


def _rows(
    x: Array,
    array: NDArray[Any],
    leading: tuple[int, ...],
    shape: tuple[int, ...],
    weight: Array | None,
    bias: Array | None,
    lines: int,
    epsilon: float,
    statistics: bool,
    rounding: Rounding,
    operation: int,
    first_row: int,
    out: Array | None,
) -> Any:
    columns = math.prod(shape)
    weights, biases = (
        None if value is None else _line(name, value, array, lines, shape)
        for name, value in (("weight", weight), ("bias", bias))
    )
    inputs = {"x": array} | _named(weights, biases)
    result = result_array(out, array.shape, array.dtype, inputs, may_replace=("x",))
    first_row = check_integer("first_row", first_row, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(array))
    two = (math.prod(leading), columns)
    mean, inverse = (np.empty(two[0], array.dtype) if statistics else None for _ in range(2))
    call(native.normalize_rows, array.reshape(two), weights, biases, _epsilon(epsilon), result.reshape(two), mean,
         inverse, first_row, numbers)  # fmt: skip
    y = out if out is not None else as_kind_of(x, result)
    if mean is None or inverse is None:
        return y
    return y, as_kind_of(x, mean.reshape(leading)), as_kind_of(x, inverse.reshape(leading))


def _line(name: str, value: Array, array: NDArray[Any], lines: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """One for each element of a row; where there are several lines they were made here."""
    line = as_array(name, value, array.dtype)
    if line.shape not in (shape, (lines, *shape)):
        raise PrismArgumentError(f"{name}: expected the shape {shape}, got {line.shape}.")
    return line


def _check_elements(array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if math.prod(shape) == 0:
        raise PrismArgumentError(
            f"x: expected at least one element to normalize over, got the shape {array.shape}."
        )


def _epsilon(epsilon: float) -> float:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise PrismArgumentError(f"epsilon: expected a finite number of at least 0, got {epsilon}.")
    return float(epsilon)


def _each(name: str, value: Array, array: NDArray[Any], channels: int) -> NDArray[Any]:
    one = as_array(name, value, array.dtype)
    if one.shape != (channels,):
        raise PrismArgumentError(f"{name}: expected the shape {(channels,)}, got {one.shape}.")
    return one


def _named(weight: NDArray[Any] | None, bias: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    return {name: line for name, line in (("weight", weight), ("bias", bias)) if line is not None}
