"""Convolutions and transposed convolutions, every fused multiply-add of them rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from boundscope_prism._arrays import Array, as_array, as_kind_of, result_array, significand_bits
from boundscope_prism._native import call, native
from boundscope_prism._rounding import WORD_LIMIT, Rounding, check_integer
from boundscope_prism.errors import PrismArgumentError

# One number for every spatial axis, or one an axis.
PerAxis: TypeAlias = int | Sequence[int]
# The same, or a pair (before, after) an axis.
Padding: TypeAlias = int | Sequence[int] | Sequence[tuple[int, int]]

SIZE_LIMIT = 2**31
MOST_AXES = 3


def convolution(
    x: Array,
    weight: Array,
    rounding: Rounding,
    *,
    bias: Array | None = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    transposed: bool = False,
    output_padding: PerAxis = 0,
    operation: int = 0,
    first_image: int = 0,
    out: Array | None = None,
) -> Any:
    """The convolution of x with weight, as torch.nn.functional.conv1d to conv3d and conv_transpose1d to 3d have it.

    `x` is (images, channels, *spatial) with one to three spatial axes, `weight` (out_channels, channels // groups,
    *kernel), or with `transposed` (channels, out_channels // groups, *kernel); `bias` is (out_channels,). All are of
    one type, float32 or float64; what is not C-contiguous is copied once. `padding` may be a pair (before, after) an
    axis; with `transposed` it is cut off the output, to whose end `output_padding` positions are added.

    Every element is, in this order: sum = bias[channel] or 0, then sum = fma(input, weight, sum), rounded, for each
    (channel of the group, kernel position) in row-major order. The zeros of the padding are inputs like others, so that
    "ud" moves a sum there too. A transposed convolution goes in the order of the convolution of its zero-stuffed input
    with the flipped kernel; the stuffed zeros are no steps, those beyond the edges are.

    Random words: output channel c of image n at position p (row-major, of `positions`) draws as stream row
    ((first_image + n) positions + p) ceil(out_channels / 16) + c // 16, lane c % 16, one step an fma: a part of a batch
    gives the bits of the whole with `first_image` where the part begins. For a transposed convolution with strides see
    include/prism/convolution.h.

    `out`, C-contiguous and apart from the operands, receives the result and is returned; else the result is an array of
    the kind of `x`. Raises PrismArgumentError where an argument is not as described.
    """
    image = as_array("x", x)
    kernel = as_array("weight", weight, image.dtype)
    axes = image.ndim - 2
    if not 1 <= axes <= MOST_AXES:
        raise PrismArgumentError(
            f"x: expected (images, channels, *spatial) with one to three spatial axes, got {image.shape}."
        )
    if kernel.ndim != image.ndim:
        raise PrismArgumentError(
            f"weight: expected {image.ndim} axes as x {image.shape} has, got {kernel.shape}."
        )
    groups = check_integer("groups", groups, 1, SIZE_LIMIT)
    out_channels = _out_channels(image.shape[1], kernel.shape, groups, transposed)
    strides = _per_axis("stride", stride, axes, 1)
    dilations = _per_axis("dilation", dilation, axes, 1)
    before, after = _padding(padding, axes)
    added = _per_axis("output_padding", output_padding, axes, 0)
    _check_output_padding(added, strides, dilations, transposed)
    spatial = _output_size(
        image.shape[2:], kernel.shape[2:], strides, dilations, before, after, added, transposed
    )
    start = None
    if bias is not None:
        start = as_array("bias", bias, image.dtype)
        if start.shape != (out_channels,):
            raise PrismArgumentError(f"bias: expected the shape {(out_channels,)}, got {start.shape}.")
    inputs = {"x": image, "weight": kernel} | ({} if start is None else {"bias": start})
    result = result_array(out, (image.shape[0], out_channels, *spatial), image.dtype, inputs)
    first_image = check_integer("first_image", first_image, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(image))
    all_axes = [
        _three(image.shape[2:], 1),
        _three(kernel.shape[2:], 1),
        _three(strides, 1),
        _three(dilations, 1),
        _three(before, 0),
        _three(after, 0),
        _three(added, 0),
    ]
    call(
        native.convolution,
        image,
        kernel,
        start,
        result,
        all_axes,
        groups,
        bool(transposed),
        first_image,
        numbers,
    )
    return out if out is not None else as_kind_of(x, result)


def _out_channels(channels: int, weight: tuple[int, ...], groups: int, transposed: bool) -> int:
    if channels == 0 or channels % groups != 0:
        raise PrismArgumentError(f"groups: expected a divisor of the {channels} channels of x, got {groups}.")
    if 0 in weight:
        raise PrismArgumentError(f"weight: expected sizes of at least 1, got {weight}.")
    expected = channels if transposed else channels // groups
    got = weight[0] if transposed else weight[1]
    if got != expected:
        axis = "first" if transposed else "second"
        raise PrismArgumentError(
            f"weight: expected {expected} on the {axis} axis, for {channels} channels of x in {groups} groups, "
            f"got {weight}."
        )
    if transposed:
        return weight[1] * groups
    if weight[0] % groups != 0:
        raise PrismArgumentError(
            f"groups: expected a divisor of the {weight[0]} output channels, got {groups}."
        )
    return weight[0]


def _per_axis(name: str, value: PerAxis, axes: int, least: int) -> tuple[int, ...]:
    if not isinstance(value, Sequence):
        return (check_integer(name, value, least, SIZE_LIMIT),) * axes
    if len(value) != axes:
        raise PrismArgumentError(f"{name}: expected one number or {axes}, one a spatial axis, got {value!r}.")
    return tuple(check_integer(name, number, least, SIZE_LIMIT) for number in value)


def _padding(padding: Padding, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not isinstance(padding, Sequence) or not any(isinstance(entry, Sequence) for entry in padding):
        both = _per_axis("padding", padding, axes, 0)  # type: ignore[arg-type]
        return both, both
    if len(padding) != axes or not all(isinstance(entry, Sequence) and len(entry) == 2 for entry in padding):
        raise PrismArgumentError(
            f"padding: expected one number, {axes} numbers or {axes} pairs (before, after), got {padding!r}."
        )
    pairs: Sequence[tuple[int, int]] = padding  # type: ignore[assignment]
    before = tuple(check_integer("padding", pair[0], 0, SIZE_LIMIT) for pair in pairs)
    after = tuple(check_integer("padding", pair[1], 0, SIZE_LIMIT) for pair in pairs)
    return before, after


def _check_output_padding(
    added: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], transposed: bool
) -> None:
    if not transposed and any(added):
        raise PrismArgumentError(f"output_padding: expected 0 without transposed=True, got {added}.")
    for more, stride, dilation in zip(added, strides, dilations, strict=True):
        if more >= max(stride, dilation):
            raise PrismArgumentError(
                f"output_padding: expected less than the stride or the dilation ({stride}, {dilation}), got {more}."
            )


def _output_size(
    spatial: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    added: tuple[int, ...],
    transposed: bool,
) -> tuple[int, ...]:
    sizes = []
    for axis, size in enumerate(spatial):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        pads = before[axis] + after[axis]
        if transposed:
            output = (size - 1) * strides[axis] - pads + reach + added[axis]
        else:
            output = (size + pads - reach) // strides[axis] + 1
        if size == 0 or not 1 <= output <= SIZE_LIMIT:
            what = "the padding cuts all off" if transposed else "the kernel is larger than the padded input"
            raise PrismArgumentError(
                f"x: expected spatial sizes that leave an output, got {spatial} with kernel {kernel}, dilation "
                f"{dilations} and padding {before} before and {after} after: on axis {axis} {what}."
            )
        sizes.append(output)
    return tuple(sizes)


def _three(values: tuple[int, ...], filler: int) -> tuple[int, ...]:
    """Depth, height and width: axes that are not there come first."""
    return (filler,) * (MOST_AXES - len(values)) + values
