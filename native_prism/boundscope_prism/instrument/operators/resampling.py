"""Linear and cubic upsampling, and their gradients. Coordinates and weights are torch's; what they weigh is rounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import Kernels
from boundscope_prism.instrument.operators.accumulations import accumulated
from boundscope_prism.instrument.operators.table import rule

# The places that an output of one axis reads, and their weights: (outputs,) each.
Taps = list[tuple[Tensor, Tensor]]
CUBIC = -0.75


def _coordinates(
    size: int, outputs: int, align_corners: bool, scale: float | None, dtype: torch.dtype
) -> Tensor:
    """Where each output lies in the input, in the tensor's own type as torch has it."""
    places = torch.arange(outputs, dtype=dtype)
    if align_corners:
        return places * ((size - 1) / (outputs - 1) if outputs > 1 else 0.0)
    step = 1.0 / scale if scale is not None and scale > 0 else size / outputs
    return (places + 0.5) * step - 0.5


def _linear(size: int, outputs: int, align_corners: bool, scale: float | None, dtype: torch.dtype) -> Taps:
    where = _coordinates(size, outputs, align_corners, scale, dtype).clamp(min=0)
    low = where.long().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    share = (where - low).clamp(0, 1)
    return [(low, 1 - share), (high, share)]


def _cubic(size: int, outputs: int, align_corners: bool, scale: float | None, dtype: torch.dtype) -> Taps:
    where = _coordinates(size, outputs, align_corners, scale, dtype)
    low = where.floor()
    share = where - low
    taps = []
    for offset in (-1, 0, 1, 2):
        distance = (share - offset).abs()
        near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
        far = ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
        weight = torch.where(distance <= 1, near, far)
        taps.append(((low.long() + offset).clamp(0, size - 1), weight))
    return taps


def _interpolate(k: Kernels, x: Tensor, taps: Sequence[Taps]) -> Tensor:
    """Axis after axis, the last one first."""
    for axis in reversed(range(len(taps))):
        dim = x.dim() - len(taps) + axis
        ones = [1] * (len(taps) - axis - 1)
        total: Tensor | None = None
        for places, weight in taps[axis]:
            part = x.index_select(dim, places)
            factor = weight.view(-1, *ones)
            total = k.multiply(part, factor) if total is None else k.fma(part, factor, total)
        assert total is not None
        x = total
    return x


def _spread(k: Kernels, grad: Tensor, taps: Sequence[Taps], spatial: Sequence[int]) -> Tensor:
    """The transpose of `_interpolate`."""
    for axis, size in enumerate(spatial):
        dim = grad.dim() - len(spatial) + axis
        ones = [1] * (len(spatial) - axis - 1)
        parts = [k.multiply(grad, weight.view(-1, *ones)).movedim(dim, 0) for _, weight in taps[axis]]
        places = torch.cat([places for places, _ in taps[axis]])
        grad = accumulated(k, None, places, torch.cat(parts), size).movedim(0, dim).contiguous()
    return grad


def _enter(name: str, axes: int, taps_of: Callable[..., Taps]) -> None:

    def taps(
        sizes: Sequence[int],
        outputs: Sequence[int],
        align_corners: bool,
        scales: Sequence[float | None],
        dtype: torch.dtype,
    ) -> list[Taps]:
        scales = [*scales, *(None for _ in range(axes - len(scales)))]
        return [
            taps_of(size, count, align_corners, scale, dtype)
            for size, count, scale in zip(sizes[-axes:], outputs, scales, strict=True)
        ]

    @rule(f"{name}.default")
    def forward(
        k: Kernels, self: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
    ) -> Tensor:
        if self.numel() == 0:
            return self.new_zeros((*self.shape[:-axes], *output_size))
        return _interpolate(k, self, taps(self.shape, output_size, align_corners, scales, self.dtype))

    @rule(f"{name}.vec")
    def by_factors(
        k: Kernels,
        input: Tensor,
        output_size: Sequence[int] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> Tensor:
        if output_size is not None:
            return forward(k, input, output_size, align_corners)
        assert scale_factors is not None
        outputs = [
            int(size * factor) for size, factor in zip(input.shape[-axes:], scale_factors, strict=True)
        ]
        return forward(k, input, outputs, align_corners, *scale_factors)

    @rule(f"{name}_backward.default")
    def backward(
        k: Kernels,
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        *scales: float | None,
    ) -> Tensor:
        if grad_output.numel() == 0:
            return grad_output.new_zeros(tuple(input_size))
        places = taps(input_size, output_size, align_corners, scales, grad_output.dtype)
        return _spread(k, grad_output, places, list(input_size[-axes:]))


_enter("upsample_linear1d", 1, _linear)
_enter("upsample_bilinear2d", 2, _linear)
_enter("upsample_trilinear3d", 3, _linear)
_enter("upsample_bicubic2d", 2, _cubic)
