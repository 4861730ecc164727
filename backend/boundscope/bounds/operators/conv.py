"""Convolutions in one to three dimensions with constant weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import Enclosure, NodeView, Rule, bounds
from boundscope.bounds.operators.linear import affine_interval, midpoint
from boundscope.bounds.operators.relaxation import Parts
from boundscope.network.operators.linear import TRANSPOSED_CONVOLUTIONS, Conv
from boundscope.network.operators.window import split_pads


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
        padded = [size + begin + end for size, begin, end in zip(shape[2:], begins, ends, strict=True)]
        flat = coefficients.reshape(-1, *coefficients.shape[2:])  # rows and batch as one batch
        # The transposed convolution gives the padded input's coefficients, short of what the strides skipped.
        reached = [
            (out - 1) * stride + dilation * (kernel - 1) + 1
            for out, stride, dilation, kernel in zip(
                flat.shape[2:], op.strides, op.dilations, weight.shape[2:], strict=True
            )
        ]
        transpose = TRANSPOSED_CONVOLUTIONS[len(shape) - 2]
        carried = transpose(flat, weight, stride=op.strides, dilation=op.dilations, groups=op.group)
        trims = [
            (-begin, full - end - got)
            for full, begin, end, got in zip(padded, begins, ends, reached, strict=True)
        ]
        carried = F.pad(carried, [trim for pair in reversed(trims) for trim in pair])
        return (carried.reshape(coefficients.shape[0], *shape), None, None)

    def select(self, view: NodeView[Conv], elements: Tensor, signs: Tensor) -> Parts | None:
        weight, op = self._weight(view), view.op
        shape = view.interval(0).lower.shape
        if shape[0] != 1:
            return None
        begins, ends = split_pads(op.pads)
        padded = [size + begin + end for size, begin, end in zip(shape[2:], begins, ends, strict=True)]
        channel, *place = torch.unravel_index(elements, view.output_shapes[0][1:])
        axes, count = len(place), len(elements)
        rows = weight.new_zeros(count, *shape[1:2], *padded)
        # Every row gets one kernel, at the window that its element looks through.
        per_group = weight.shape[1]
        first = channel // (weight.shape[0] // op.group) * per_group
        index = [torch.arange(count, device=weight.device).reshape(-1, *[1] * (axes + 1))]
        inner = torch.arange(per_group, device=weight.device)
        index.append((first[:, None] + inner).reshape(count, per_group, *[1] * axes))
        for axis in range(axes):
            offsets = torch.arange(weight.shape[2 + axis], device=weight.device) * op.dilations[axis]
            where = place[axis][:, None] * op.strides[axis] + offsets
            index.append(where.reshape(count, 1, *[1] * axis, -1, *[1] * (axes - axis - 1)))
        rows[tuple(index)] = weight[channel] * signs.reshape(-1, *[1] * (axes + 1))
        inside = [slice(begin, begin + size) for begin, size in zip(begins, shape[2:], strict=True)]
        rows = rows[(slice(None), slice(None), *inside)].contiguous()
        return (rows.reshape(count, *shape), None, None)
