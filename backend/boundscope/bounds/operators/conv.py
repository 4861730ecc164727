"""Convolutions in one to three dimensions with constant weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import Enclosure, NodeView, Rule, bounds
from boundscope.bounds.operators.linear import affine_interval, kept, midpoint
from boundscope.bounds.operators.phases import PhasedWeight, channels_last, fits
from boundscope.bounds.operators.relaxation import Parts
from boundscope.bounds.support import Block, Elements, Windows
from boundscope.network.operators.linear import TRANSPOSED_CONVOLUTIONS, Conv
from boundscope.network.operators.window import split_pads

# A window over more of its input than this is carried as a whole row.
WINDOW_SHARE = 0.6
FEW_CHANNELS = 4
PATCHED_ROWS = 64  # carried at a time to patches that do not overlap


@bounds(Conv)
class ConvRule(Rule[Conv]):
    mixing = True

    def supports(self, view_perturbed: Sequence[bool], op: Conv) -> str | None:
        return "weights that depend on the network's input" if any(view_perturbed[1:]) else None

    def _weight(self, view: NodeView[Conv]) -> Tensor:
        weight = view.constant(1)
        assert weight is not None
        return weight  # [out, in/groups, *kernel]

    def _apply(self, view: NodeView[Conv], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (y,) = view.op.evaluate([x, weight, bias])
        return y

    def interval(self, view: NodeView[Conv]) -> tuple[Interval, ...]:
        return self.enclose(view).intervals

    def enclose(self, view: NodeView[Conv]) -> Enclosure:
        weight, bias = self._weight(view), view.constant(2)
        x = view.interval(0)
        centre, radius = midpoint(x)
        moved = self._apply(view, centre, weight, bias)
        deviation = view.deviations[0] if view.deviations else radius
        assert deviation is not None
        three = self._apply(view, torch.cat([radius, x.magnitude, deviation]), weight.abs(), None)
        spread, magnitude, far = three.tensor_split(3)
        if bias is not None:
            magnitude = magnitude + bias.abs().reshape(-1, *[1] * (magnitude.dim() - 2))
        return Enclosure((affine_interval(moved, spread),), (magnitude,), (far,))

    def terms(self, view: NodeView[Conv]) -> int:
        return self._weight(view)[0].numel() + 2

    def backward_terms(self, view: NodeView[Conv]) -> int:
        weight = self._weight(view)
        return weight.shape[0] // view.op.group * weight[0, 0].numel() + 2

    def magnitude(self, view: NodeView[Conv]) -> tuple[Tensor, ...]:
        bias = view.constant(2)
        magnitude = view.interval(0).magnitude
        return (self._apply(view, magnitude, self._weight(view).abs(), None if bias is None else bias.abs()),)

    def constant_error(self, view: NodeView[Conv]) -> Tensor | None:
        return self.magnitude(view)[0]

    def backward(self, view: NodeView[Conv], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        weight, op = self._weight(view), view.op
        shape = view.interval(0).lower.shape
        begins, ends = split_pads(op.pads)
        flat = coefficients.reshape(-1, *coefficients.shape[2:])  # rows and batch as one batch
        if begins == ends and all(
            pad <= step * (size - 1)
            for pad, step, size in zip(begins, op.dilations, weight.shape[2:], strict=True)
        ):
            carried = transposed(flat, weight, op, _Cut(tuple(shape[2:]), begins))
            return (carried.reshape(coefficients.shape[0], *shape), None, None)
        padded = [size + begin + end for size, begin, end in zip(shape[2:], begins, ends, strict=True)]
        # The transposed convolution gives the padded input's coefficients, short of what the strides skipped.
        reached = _reached(tuple(flat.shape[2:]), weight, op)
        carried = transposed(flat, weight, op)
        trims = [
            (-begin, full - end - got)
            for full, begin, end, got in zip(padded, begins, ends, reached, strict=True)
        ]
        carried = F.pad(carried, [trim for pair in reversed(trims) for trim in pair])
        return (carried.reshape(coefficients.shape[0], *shape), None, None)

    def _windows(
        self, view: NodeView[Conv], places: Tensor, size: tuple[int, ...], which: Tensor | None
    ) -> Windows:
        """What windows of `size` at these places [P, axes] of the output look at in the input; row r is at place
        `which[r]`."""
        op = view.op
        begins, _ = split_pads(op.pads)
        corners = places * places.new_tensor(op.strides) - places.new_tensor(begins)
        reached = _reached(size, self._weight(view), op)
        return Windows(tuple(view.interval(0).lower.shape), corners, reached, which)

    def _carried(self, view: NodeView[Conv], rows: Tensor) -> Tensor:
        """Transposed convolution of rows [R, C, *size], to as far as they reach."""
        return transposed(rows, self._weight(view), view.op)

    def backward_on(
        self, view: NodeView[Conv], block: Block, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        support, weight = block.support, self._weight(view)
        if isinstance(support, Windows):
            windows = self._windows(view, support.corners, support.size, support.which)
            if windows.share <= WINDOW_SHARE:
                return (Block(windows.inside(self._carried(view, block.rows)), windows), None, None)
        shape, output_shape = tuple(view.interval(0).lower.shape), view.output_shapes[0]
        if not fits(view.op, weight, shape, block.rows):
            return None
        phased = kept(view, ("phased",), lambda: PhasedWeight.of(weight, view.op, shape, output_shape))
        return (phased.carried(channels_last(block, output_shape)), None, None)

    def select(
        self, view: NodeView[Conv], elements: Tensor, signs: Tensor, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        weight, op = self._weight(view), view.op
        shape = view.interval(0).lower.shape
        if shape[0] != 1:
            return None
        spatial = view.output_shapes[0][2:]
        axes, plane = len(spatial), math.prod(spatial)
        channel = elements // plane
        places, which = torch.unique(elements % plane, return_inverse=True)
        place = torch.stack(torch.unravel_index(places, spatial), dim=1)
        windows = self._windows(view, place, (1,) * axes, which)
        if op.group == 1 and all(dilation == 1 for dilation in op.dilations):
            rows = weight[channel]
        else:
            single = weight.new_zeros(len(elements), weight.shape[0], *[1] * axes)
            single[torch.arange(len(elements), device=weight.device), channel] = 1.0
            rows = self._carried(view, single)
        rows = windows.inside(rows * signs.reshape(-1, *[1] * (axes + 1)))
        if windows.share > WINDOW_SHARE:
            return (Block(windows.whole(rows)), None, None)
        return (Block(rows, windows), None, None)


def _reached(size: tuple[int, ...], weight: Tensor, op: Conv) -> tuple[int, ...]:
    """How much of the padded input windows over this much of the output look at."""
    return tuple(
        (count - 1) * stride + dilation * (extent - 1) + 1
        for count, stride, dilation, extent in zip(
            size, op.strides, op.dilations, weight.shape[2:], strict=True
        )
    )


@dataclass(frozen=True)
class _Cut:
    """The part of a transposed convolution's result that is an input of this size within the same pads on both sides;
    what the strides skipped at its end is zero."""

    size: tuple[int, ...]
    pads: tuple[int, ...]


def _tiles(weight: Tensor, op: Conv) -> bool:
    """Whether its windows lie side by side, and none overlaps."""
    return op.group == 1 and tuple(weight.shape[2:]) == tuple(op.strides) and set(op.dilations) == {1}


def _patches(rows: Tensor, weight: Tensor) -> Tensor:
    """Rows [R, C, H, W] where each place has a patch of the input of its own: plain products, some rows at a time."""
    count, _, down, across = rows.shape
    channels, height, width = weight.shape[1:]
    flat = weight.reshape(len(weight), -1)

    def carried(part: Tensor) -> Tensor:
        patches = part.permute(0, 2, 3, 1).reshape(-1, len(weight)) @ flat
        return patches.reshape(-1, down, across, channels, height, width).permute(0, 3, 1, 4, 2, 5)

    shape = (count, channels, down * height, across * width)
    if rows.requires_grad:
        return carried(rows).reshape(shape)
    found = rows.new_empty(count, channels, down, height, across, width)
    for first in range(0, count, PATCHED_ROWS):
        found[first : first + PATCHED_ROWS] = carried(rows[first : first + PATCHED_ROWS])
    return found.reshape(shape)


def transposed(rows: Tensor, weight: Tensor, op: Conv, cut: _Cut | None = None) -> Tensor:
    """Transposed convolution of rows [R, C, *size] by a convolution's weight, to as far as they reach, or a cut."""
    axes = rows.dim() - 2
    reached = _reached(tuple(rows.shape[2:]), weight, op)
    cut = cut or _Cut(reached, (0,) * axes)
    if axes == 2 and cut == _Cut(reached, (0, 0)) and _tiles(weight, op):
        return _patches(rows, weight)
    if axes == 2 and op.group == 1 and weight.shape[1] <= FEW_CHANNELS and rows.device.type == "cpu":
        # The library's kernel is several times slower where there are few channels to go to.
        columns = weight.reshape(len(weight), -1).T @ rows.reshape(len(rows), len(weight), -1)
        return F.fold(columns, cut.size, weight.shape[2:], op.dilations, cut.pads, op.strides)
    if axes == 2 and max(op.strides) > 1:
        rows = rows.contiguous(memory_format=torch.channels_last)  # its faster kernel
    carried = TRANSPOSED_CONVOLUTIONS[axes](
        rows,
        weight,
        stride=op.strides,
        padding=cut.pads,
        output_padding=[
            size + 2 * pad - got for size, pad, got in zip(cut.size, cut.pads, reached, strict=True)
        ],
        dilation=op.dilations,
        groups=op.group,
    )
    return carried.contiguous()
