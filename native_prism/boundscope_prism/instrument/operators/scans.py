"""Running sums and products, one element after another."""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import ADD, MULTIPLY, Kernels
from boundscope_prism.instrument.operators.table import rule


@rule("cumsum")
def running_sum(k: Kernels, self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return _scan(k, ADD, self, dim)


@rule("cumprod")
def running_product(k: Kernels, self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return _scan(k, MULTIPLY, self, dim)


def _scan(k: Kernels, number: int, x: Tensor, dim: int) -> Tensor:
    """One operation number for the whole: step i draws the words of the elements from i times a slice's size on."""
    if x.dim() == 0 or x.numel() == 0:
        return x.clone()
    slices = x.movedim(dim, 0).contiguous()
    out = torch.empty_like(slices)
    out[0] = slices[0]
    numbers = k.numbers(x.dtype)
    size = slices[0].numel()
    for step in range(1, slices.shape[0]):
        out[step] = k.at(number, (out[step - 1], slices[step]), step * size, numbers)
    return out.movedim(0, dim).contiguous()
