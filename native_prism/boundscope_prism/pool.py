"""Average pooling, every addition and division of it rounded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope_prism._arrays import Array, as_array, as_kind_of, result_array, significand_bits
from boundscope_prism._native import call, native
from boundscope_prism._rounding import WORD_LIMIT, Rounding, check_integer
from boundscope_prism.errors import PrismArgumentError

# The axes of an image, by how many there are.
AXES = {1: ("length",), 2: ("height", "width")}
SIZE_LIMIT = 2**31 - 1

Sizes = int | tuple[int, ...]


def avg_pool1d(
    x: Array,
    kernel: Sizes,
    rounding: Rounding,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    operation: int = 0,
    first_plane: int = 0,
    out: Array | None = None,
) -> Any:
    """`avg_pool2d` of x (..., length): a plane has height 1."""
    return _average(x, 1, kernel, stride, padding, ceil_mode, count_include_pad, None, rounding, operation,
                    first_plane, out)  # fmt: skip


def avg_pool2d(
    x: Array,
    kernel: Sizes,
    rounding: Rounding,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
    operation: int = 0,
    first_plane: int = 0,
    out: Array | None = None,
) -> Any:
    """Averages of x (..., height, width) over windows, as torch.nn.functional.avg_pool2d has them.

    `x` is a numpy array or a CPU torch tensor of float32 or float64, C-contiguous memory without a copy. An output is
    the sum of its window's elements, those in the padding left out, one after another in row-major order (stage 0: the
    first is taken as it is, each further addition is rounded and draws at the step of its kernel position), then one
    division (stage 1) by the size of the window, padding counted or not, or by `divisor`.

    Plane p is one image's channel, counted over all axes before the last two. 16 outputs of a plane in turn are a
    group of lanes; group g is stream row (first_plane + p) ceil(outputs / 16) + g, so that a part of the planes gives
    the bits of the whole with `first_plane`.

    `out`, C-contiguous and apart from x, receives the result and is returned. Raises PrismArgumentError where an
    argument is not as described, and where a window has no element.
    """
    if divisor is not None:
        divisor = check_integer("divisor", divisor, 1, SIZE_LIMIT)
    return _average(x, 2, kernel, stride, padding, ceil_mode, count_include_pad, divisor, rounding, operation,
                    first_plane, out)  # fmt: skip


def adaptive_avg_pool1d(
    x: Array,
    size: Sizes,
    rounding: Rounding,
    *,
    operation: int = 0,
    first_plane: int = 0,
    out: Array | None = None,
) -> Any:
    """`adaptive_avg_pool2d` of x (..., length): a plane has height 1."""
    return _adaptive(x, 1, size, rounding, operation, first_plane, out)


def adaptive_avg_pool2d(
    x: Array,
    size: Sizes,
    rounding: Rounding,
    *,
    operation: int = 0,
    first_plane: int = 0,
    out: Array | None = None,
) -> Any:
    """Averages of x (..., height, width) over `size` windows, output o of n the elements floor(o h / n) to
    ceil((o + 1) h / n) - 1 of each axis, as torch has them; the rest is as in `avg_pool2d`, a step for each position
    of the largest window.

    Where `size` is 1 each plane is one row of `mean`, its sum in lanes: the words are those of mean with
    first_row=first_plane.
    """
    return _adaptive(x, 2, size, rounding, operation, first_plane, out)


def _average(
    x: Array,
    axes: int,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
    rounding: Rounding,
    operation: int,
    first_plane: int,
    out: Array | None,
) -> Any:
    array = _images(x, axes)
    kernels = _sizes("kernel", kernel, axes, 1)
    strides = kernels if stride is None else _sizes("stride", stride, axes, 1)
    paddings = _sizes("padding", padding, axes, 0)
    windows = []
    for name, length, k, s, p in zip(
        AXES[axes], array.shape[-axes:], kernels, strides, paddings, strict=True
    ):
        if 2 * p > k:
            raise PrismArgumentError(f"padding: expected at most half of the kernel {k}, got {p}.")
        windows.append(_axis_windows(name, length, k, s, p, ceil_mode))
    counts = []
    for (begins, extents), length, p in zip(windows, array.shape[-axes:], paddings, strict=True):
        ends = begins + extents
        if count_include_pad:
            counts.append(np.minimum(ends, length + p) - begins)
        else:
            counts.append(np.minimum(ends, length) - np.maximum(begins, 0))
    divisors = np.multiply.outer(counts[0], counts[1]) if axes == 2 else counts[0]
    if divisor is not None:
        divisors = np.full_like(divisors, divisor)
    return _pool(x, array, axes, windows, divisors, rounding, operation, first_plane, out)


def _axis_windows(
    name: str, length: int, kernel: int, stride: int, padding: int, ceil_mode: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Begins and sizes, the padding among them."""
    room = length + 2 * padding - kernel
    if room < 0:
        raise PrismArgumentError(
            f"kernel: expected at most the padded {name} {length + 2 * padding}, got {kernel}."
        )
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    # As torch: no window begins in the padding behind.
    if ceil_mode and (count - 1) * stride >= length + padding:
        count -= 1
    begins = np.arange(count, dtype=np.int64) * stride - padding
    return begins, np.full(count, kernel, np.int64)


def _adaptive(
    x: Array, axes: int, size: Sizes, rounding: Rounding, operation: int, first_plane: int, out: Array | None
) -> Any:
    array = _images(x, axes)
    sizes = _sizes("size", size, axes, 1)
    if all(n == 1 for n in sizes):
        shape = (*array.shape[:-axes], *sizes)
        result = result_array(out, shape, array.dtype, {"x": array})
        first_plane = check_integer("first_plane", first_plane, 0, WORD_LIMIT - 1)
        numbers = rounding.numbers(operation, significand_bits(array))
        rows = array.reshape(math.prod(array.shape[:-axes]), math.prod(array.shape[-axes:]))
        call(native.reduce, "mean", rows, None, 0.0, False, result.reshape(-1), None, first_plane, numbers)
        return out if out is not None else as_kind_of(x, result)
    windows = []
    for length, n in zip(array.shape[-axes:], sizes, strict=True):
        outputs = np.arange(n, dtype=np.int64)
        begins = outputs * length // n
        windows.append((begins, -(-(outputs + 1) * length // n) - begins))
    divisors = np.multiply.outer(windows[0][1], windows[1][1]) if axes == 2 else windows[0][1]
    return _pool(x, array, axes, windows, divisors, rounding, operation, first_plane, out)


def _pool(
    x: Array,
    array: NDArray[Any],
    axes: int,
    windows: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    divisors: NDArray[np.int64],
    rounding: Rounding,
    operation: int,
    first_plane: int,
    out: Array | None,
) -> Any:
    outputs = tuple(len(begins) for begins, _ in windows)
    result = result_array(out, (*array.shape[:-axes], *outputs), array.dtype, {"x": array})
    if axes == 1:
        windows = [(np.zeros(1, np.int64), np.ones(1, np.int64)), *windows]
    planes = math.prod(array.shape[:-axes])
    height = 1 if axes == 1 else array.shape[-2]
    first_plane = check_integer("first_plane", first_plane, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(array))
    (top, down), (left, across) = windows
    images = array.reshape(planes, height, array.shape[-1])
    averages = result.reshape(planes, len(top), len(left))
    call(native.average_pool, images, top.tolist(), down.tolist(), left.tolist(), across.tolist(),
         divisors.reshape(-1).tolist(), averages, first_plane, numbers)  # fmt: skip
    return out if out is not None else as_kind_of(x, result)


def _images(x: Array, axes: int) -> NDArray[Any]:
    array = as_array("x", x)
    if array.ndim < axes:
        raise PrismArgumentError(f"x: expected (..., {', '.join(AXES[axes])}), got the shape {array.shape}.")
    if 0 in array.shape[-axes:]:
        raise PrismArgumentError(f"x: expected at least one element to average, got the shape {array.shape}.")
    return array


def _sizes(name: str, value: Sizes, axes: int, least: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * axes
    if len(values) == 1:
        values *= axes
    if len(values) != axes:
        raise PrismArgumentError(f"{name}: expected one number or {axes}, got {value}.")
    return tuple(check_integer(name, number, least, SIZE_LIMIT) for number in values)
