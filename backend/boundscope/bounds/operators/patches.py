"""Transposed convolutions whose windows do not overlap (patch embeddings): one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from boundscope.network.operators.linear import TRANSPOSED_CONVOLUTIONS


def transposed_convolution(
    rows: Tensor, weight: Tensor, strides: Sequence[int], dilations: Sequence[int], groups: int
) -> Tensor:
    """Rows [N, out, *places] at a convolution's output, at its padded input (`weight` is [out, in/groups, *kernel]),
    as far as windows reach: [N, in, *extents]."""
    kernel = weight.shape[2:]
    disjoint = groups == 1 and all(step == 1 for step in dilations) and tuple(strides) == tuple(kernel)
    if disjoint and kernel.numel() > 1:
        return _side_by_side(rows, weight)
    transpose = TRANSPOSED_CONVOLUTIONS[weight.dim() - 2]
    return transpose(rows, weight, stride=strides, dilation=dilations, groups=groups)


def _side_by_side(rows: Tensor, weight: Tensor) -> Tensor:
    """Where each window begins as the one before it ends."""
    (count, _, *places), (_, channels, *kernel) = rows.shape, weight.shape
    axes = len(places)
    patches = torch.matmul(rows.flatten(2).transpose(1, 2), weight.flatten(1))  # [N, places, in·kernel]
    apart = patches.reshape(count, *places, channels, *kernel)
    order = [0, 1 + axes]
    for axis in range(axes):
        order += [1 + axis, 2 + axes + axis]
    extents = [place * size for place, size in zip(places, kernel, strict=True)]
    return apart.permute(order).reshape(count, channels, *extents)
