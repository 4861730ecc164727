"""Transposed convolution of whole rows as a plain one, where places of each remainder by the strides are channels.

An input place s·i + a is met by the outputs i + δ through the tap a + pad − s·δ of the kernel. With the places of one
remainder a as channels, this is a convolution of stride 1 over i. With channels last the library is then two to three
times as fast as by its transposed kernels, and rows may stay in this form (`support.Phases`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.bounds.support import Block, Phases, Windows
from boundscope.network.operators.linear import Conv
from boundscope.network.operators.window import split_pads
from boundscope.sharding.weights import LARGE_ELEMENTS


@dataclass(frozen=True)
class PhasedWeight:
    """A convolution's weight [C_out, C_in, *kernel] for rows at its output: [C_in·strides, C_out, *taps]."""

    weight: Tensor
    pads: tuple[int, ...]  # of the rows, as F.pad takes them
    support: Phases  # of the carried rows

    @classmethod
    def of(
        cls, weight: Tensor, op: Conv, shape: tuple[int, ...], output_shape: tuple[int, ...]
    ) -> PhasedWeight:
        """`shape` (1, C_in, H, W) of the input, `output_shape` of the output; only where `fits`."""
        begins, _ = split_pads(op.pads)
        taps, pads = [], []
        for axis, (stride, begin) in enumerate(zip(op.strides, begins, strict=True)):
            extent = weight.shape[2 + axis]
            first, last = -((extent - 1 - begin) // stride), (stride - 1 + begin) // stride
            steps = torch.arange(first, last + 1, device=weight.device)
            tap = torch.arange(stride, device=weight.device)[:, None] + begin - stride * steps
            taps.append(torch.where((tap >= 0) & (tap < extent), tap, extent))  # the last is zero
            after = shape[2 + axis] // stride + last - output_shape[2 + axis]
            pads.append((-first, after))
        (down, across), (rows, columns) = taps, pads
        found = F.pad(weight, (0, 1, 0, 1))[:, :, down[:, None, :, None], across[None, :, None, :]]
        found = found.permute(1, 2, 3, 0, 4, 5).flatten(0, 2)
        return cls(
            found.contiguous(memory_format=torch.channels_last),
            (*columns, *rows),
            Phases(shape, (op.strides[0], op.strides[1])),
        )

    def carried(self, rows: Tensor) -> Block:
        """Rows [R, C_out, *size] at the output, channels last, as rows at the input."""
        left, right, top, bottom = self.pads
        if left == right >= 0 and top == bottom >= 0:
            found = F.conv2d(rows, self.weight, padding=(top, left))
        else:
            found = F.conv2d(F.pad(rows, self.pads), self.weight)
        return Block(found.permute(0, 2, 3, 1).reshape(len(rows), -1), self.support)


def fits(op: Conv, weight: Tensor, shape: tuple[int, ...], rows: Tensor) -> bool:
    """Whether float32 rows at an output of a convolution of an input of this shape may be carried so."""
    return (
        len(shape) == 4
        and shape[0] == 1
        and op.group == 1
        and all(dilation == 1 for dilation in op.dilations)
        and all(size % stride == 0 for size, stride in zip(shape[2:], op.strides, strict=True))
        and rows.dtype == torch.float32
        and rows.device.type == "cpu"
        and weight.numel() < LARGE_ELEMENTS
    )


def channels_last(block: Block, shape: tuple[int, ...]) -> Tensor:
    """A block's whole rows at a tensor of shape (1, C, H, W) as [R, C, H, W], channels last."""
    if isinstance(block.support, Phases | Windows):
        return block.support.channels_last(block.rows).permute(0, 3, 1, 2)
    rows = block.whole().reshape(len(block.rows), *shape[1:])
    return rows.contiguous(memory_format=torch.channels_last)
