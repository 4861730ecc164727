"""Average pooling and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from boundscope_prism.instrument.kernels import Kernels
from boundscope_prism.instrument.operators.accumulations import accumulated
from boundscope_prism.instrument.operators.table import rule

# The windows of one axis: where each begins, how far it reaches within the input, and how far with the padding.
Windows = tuple[list[int], list[int], list[int]]


def _enter_average(axes: int) -> None:
    """Average pooling over `axes` axes and its gradient."""

    def divided(
        shape: Sequence[int],
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> tuple[list[Windows], list[int]]:
        windows = _windows(shape[-axes:], kernel_size, stride, padding, ceil_mode)
        counts = [reach if count_include_pad else inner for _, inner, reach in windows]
        return windows, [divisor_override or math.prod(sizes) for sizes in product(*counts)]

    @rule(f"avg_pool{axes}d")
    def forward(
        k: Kernels,
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        settings = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _average(k, self, *divided(self.shape, *settings))

    @rule(f"avg_pool{axes}d_backward")
    def backward(
        k: Kernels,
        grad_output: Tensor,
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        settings = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _spread(k, grad_output, self.shape, *divided(self.shape, *settings))

    @rule(f"_adaptive_avg_pool{axes}d")
    def adaptive(k: Kernels, self: Tensor, output_size: Sequence[int]) -> Tensor:
        windows = _adaptive_windows(self.shape[-axes:], output_size)
        return _average(k, self, windows, _volumes(windows))

    @rule(f"_adaptive_avg_pool{axes}d_backward")
    def adaptive_backward(k: Kernels, grad_output: Tensor, self: Tensor) -> Tensor:
        windows = _adaptive_windows(self.shape[-axes:], grad_output.shape[-axes:])
        return _spread(k, grad_output, self.shape, windows, _volumes(windows))


def _volumes(windows: list[Windows]) -> list[int]:
    return [math.prod(sizes) for sizes in product(*(inner for _, inner, _ in windows))]


def _average(k: Kernels, x: Tensor, windows: list[Windows], divisors: list[int]) -> Tensor:
    axes = len(windows)
    shape = (*x.shape[:-axes], *(len(begins) for begins, _, _ in windows))
    if x.numel() == 0 or 0 in shape:
        return x.new_zeros(shape)
    if axes == 2:
        planes = x.reshape(-1, *x.shape[-2:])
        down, across = ((begins, reach) for begins, _, reach in windows)
        return k.average_planes(planes, down, across, divisors).view(shape)
    means = []
    volumes = x.reshape(-1, *x.shape[-axes:])
    places = product(*(zip(begins, inner, strict=True) for begins, inner, _ in windows))
    for window, divisor in zip(places, divisors, strict=True):
        part = volumes
        for axis, (begin, size) in enumerate(window):
            part = part.narrow(1 + axis, max(begin, 0), size)
        total = k.sum_rows(part.reshape(part.shape[0], -1))
        means.append(k.divide(total, float(divisor)))
    return torch.stack(means, 1).view(shape)


def _spread(
    k: Kernels, grad: Tensor, shape: torch.Size, windows: list[Windows], divisors: list[int]
) -> Tensor:
    """Each output's gradient over its divisor, added to the inputs of its window."""
    if grad.numel() == 0 or math.prod(shape) == 0:
        return grad.new_zeros(shape)
    axes = len(windows)
    spatial = shape[-axes:]
    places = math.prod(grad.shape[-axes:])
    parts = k.divide(grad.reshape(-1, places), torch.tensor(divisors, dtype=grad.dtype))
    numbering = torch.arange(math.prod(spatial)).view(spatial)
    sources, targets = [], []
    for number, window in enumerate(
        product(*(zip(begins, inner, strict=True) for begins, inner, _ in windows))
    ):
        place = numbering
        for axis, (begin, size) in enumerate(window):
            place = place.narrow(axis, max(begin, 0), size)
        targets.append(place.reshape(-1))
        sources.append(torch.full((place.numel(),), number))
    values = parts.t()[torch.cat(sources)]
    sums = accumulated(k, None, torch.cat(targets), values, math.prod(spatial))
    return sums.t().reshape(shape).contiguous()


def _windows(
    sizes: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
) -> list[Windows]:
    axes = len(sizes)
    kernels, pads = _each(kernel_size, axes), _each(padding, axes)
    strides = _each(stride, axes) if len(stride) else kernels
    result = []
    for size, kernel, step, pad in zip(sizes, kernels, strides, pads, strict=True):
        free = size + 2 * pad - kernel
        count = (free + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and (count - 1) * step >= size + pad:
            count -= 1
        begins = [number * step - pad for number in range(count)]
        inner = [min(begin + kernel, size) - max(begin, 0) for begin in begins]
        reach = [min(begin + kernel, size + pad) - begin for begin in begins]
        result.append((begins, inner, reach))
    return result


def _adaptive_windows(sizes: Sequence[int], outputs: Sequence[int]) -> list[Windows]:
    result = []
    for size, count in zip(sizes, outputs, strict=True):
        begins = [number * size // count for number in range(count)]
        inner = [-(-(number + 1) * size // count) - begin for number, begin in enumerate(begins)]
        result.append((begins, inner, inner))
    return result


def _each(values: Sequence[int], axes: int) -> list[int]:
    return list(values) if len(values) == axes else [values[0]] * axes


for _count in (2, 3):
    _enter_average(_count)


def _enter_max_pool(name: str, axes: int) -> None:
    @rule(name)
    def max_pool_backward(
        k: Kernels, grad_output: Tensor, self: Tensor, *settings: Any, indices: Tensor | None = None
    ) -> Tensor:
        """Each output's gradient added to the input that it is; `indices`, the last argument, count within a plane."""
        chosen: Tensor = settings[-1] if indices is None else indices
        if grad_output.numel() == 0 or self.numel() == 0:
            return torch.zeros_like(self)
        places = math.prod(grad_output.shape[-axes:])
        inputs = math.prod(self.shape[-axes:])
        offsets = torch.arange(self.numel() // inputs)[:, None] * inputs
        targets = (chosen.reshape(-1, places) + offsets).reshape(-1)
        return accumulated(k, None, targets, grad_output.reshape(-1), self.numel()).view(self.shape)

    max_pool_backward.__name__ = name


for _axes_of_pool in (2, 3):
    for _kind in ("max_pool{}d_with_indices", "adaptive_max_pool{}d", "fractional_max_pool{}d"):
        _enter_max_pool(_kind.format(_axes_of_pool) + "_backward", _axes_of_pool)


_PADDINGS = {
    f"{mode}_pad{axes}d_backward": ({"reflection": "reflect", "replication": "replicate"}[mode], axes)
    for mode in ("reflection", "replication")
    for axes in (1, 2, 3)
}


def _enter_padding(name: str, mode: str, axes: int) -> None:
    @rule(name)
    def pad_backward(k: Kernels, grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
        """Each padded position's gradient added to the input that it shows."""
        if grad_output.numel() == 0:
            return torch.zeros_like(self)
        spatial = self.shape[-axes:]
        count = math.prod(spatial)
        numbering = torch.arange(count, dtype=torch.float64).view(1, 1, *spatial)
        targets = functional.pad(numbering, list(padding), mode=mode).reshape(-1).long()
        values = grad_output.reshape(-1, targets.numel()).t()
        return accumulated(k, None, targets, values, count).t().reshape(self.shape).contiguous()

    pad_backward.__name__ = name


for _name, (_mode, _axes) in _PADDINGS.items():
    _enter_padding(_name, _mode, _axes)
