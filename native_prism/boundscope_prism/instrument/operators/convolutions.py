"""Convolutions and what their gradients are: convolutions too."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import Kernels
from boundscope_prism.instrument.operators.reductions import Rows
from boundscope_prism.instrument.operators.table import rule

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


@rule("convolution", "convolution_overrideable")
def convolution(
    k: Kernels,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    axes = input.dim() - 2
    if input.numel() == 0 or weight.numel() == 0:
        return torch.convolution(
            input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
    out = k.convolution(
        input,
        weight,
        bias,
        stride=_each(stride, axes),
        padding=[(before, before) for before in _each(padding, axes)],
        dilation=_each(dilation, axes),
        transposed=transposed,
        output_padding=_each(output_padding, axes) if transposed else [0] * axes,
        groups=groups,
    )
    if axes == 2 and (_channels_last(input) or _channels_last(weight)):
        out = out.contiguous(memory_format=torch.channels_last)
    return out


@rule("convolution_backward")
def convolution_backward(
    k: Kernels,
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    if grad_output.numel() == 0 or input.numel() == 0 or weight.numel() == 0:
        empty: Gradients = torch.ops.aten.convolution_backward(
            grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
            output_mask,
        )  # fmt: skip
        return empty
    axes = input.dim() - 2
    stride, padding, dilation = (_each(values, axes) for values in (stride, padding, dilation))
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        grad_input = _input_gradient(
            k, grad_output, input, weight, stride, padding, dilation, transposed, groups
        )
    if output_mask[1]:
        seen, moved = (grad_output, input) if transposed else (input, grad_output)
        grad_weight = _weight_gradient(k, seen, moved, weight.shape, stride, padding, dilation, groups)
    if output_mask[2]:
        rows = Rows(grad_output, [axis for axis in range(grad_output.dim()) if axis != 1], keepdim=False)
        grad_bias = k.sum_rows(rows.matrix)
    return grad_input, grad_weight, grad_bias


def _input_gradient(
    k: Kernels,
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Tensor:
    """The convolution of the gradient the other way."""
    axes = range(len(stride))
    missing = [0 for _ in axes]
    if not transposed:
        missing = [
            input.shape[2 + axis]
            - ((grad.shape[2 + axis] - 1) * stride[axis] - 2 * padding[axis])
            - dilation[axis] * (weight.shape[2 + axis] - 1)
            - 1
            for axis in axes
        ]
    out = k.convolution(
        grad,
        weight,
        None,
        stride=stride,
        padding=[(before, before) for before in padding],
        dilation=dilation,
        transposed=not transposed,
        output_padding=missing,
        groups=groups,
    )
    return _cropped(out, input.shape[2:])


def _weight_gradient(
    k: Kernels,
    seen: Tensor,
    moved: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """What the kernel sees, convolved with the gradient (or the other way round), over the batch as channels."""
    batch, channels = seen.shape[:2]
    spatial = seen.shape[2:]
    each = channels // groups
    images = seen.reshape(batch, groups, each, *spatial).permute(2, 1, 0, *range(3, 3 + len(spatial)))
    out = k.convolution(
        images.reshape(each, groups * batch, *spatial),
        moved.transpose(0, 1).contiguous(),
        None,
        stride=dilation,
        padding=[(before, before) for before in padding],
        dilation=stride,
        transposed=False,
        output_padding=[0] * len(spatial),
        groups=groups,
    )
    return _cropped(out, shape[2:]).transpose(0, 1).contiguous()


def _cropped(x: Tensor, spatial: Sequence[int]) -> Tensor:
    for axis, size in enumerate(spatial):
        x = x.narrow(2 + axis, 0, size)
    return x.contiguous()


def _each(values: Sequence[int], axes: int) -> list[int]:
    return [int(value) for value in values] if len(values) == axes else [int(values[0])] * axes


def _channels_last(x: Tensor) -> bool:
    return (
        math.prod(x.shape[2:]) > 1
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )
