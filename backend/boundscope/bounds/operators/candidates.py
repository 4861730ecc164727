"""Where the candidates of a maximum come from: K values for each output element, and their way back to the inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.relaxation import sum_to
from boundscope.network.operators.window import split_pads, torch_pads

Index = slice | EllipsisType


class Candidates:
    """K candidates for each output element."""

    @property
    def overlap(self) -> int:
        """To how many output elements one input element can be a candidate."""
        raise NotImplementedError

    def with_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> Candidates:
        """The same of inputs of these shapes; constant ones stay out."""
        return self

    def stack(self, operands: Sequence[Tensor], fill: float) -> Tensor:
        """The candidates of these values of the node's inputs, `fill` where there is none: [K, *S_out]; of values
        [D, *S_in] for each of many boxes, [K, D, *S_out]."""
        raise NotImplementedError

    def carry(
        self, positive: Tensor, lower: Tensor, negative: Tensor, upper: Tensor
    ) -> tuple[Tensor | None, ...]:
        """positive·lower + negative·upper of each candidate, at the input element that it is.

        Args:
            positive: coefficients [R, *S_out] that go through the lower slopes.
            lower: [K, *S_out] or [R, K, *S_out].
            negative: coefficients [R, *S_out] that go through the upper slopes.
            upper: as `lower`.

        Returns:
            For each of the node's inputs [R, *S_in], or None where it is constant.
        """
        raise NotImplementedError

    def ends(self, lowers: Sequence[Tensor], uppers: Sequence[Tensor]) -> Interval:
        """Ends of the candidates' intervals, [K, *S_out]; where there is no candidate, one below all others."""
        least = min(float(lower.min()) for lower in lowers)
        fill = least - abs(least) - 1.0
        return Interval(self.stack(lowers, fill), self.stack(uppers, fill))


def _part(positive: Tensor, lower: Tensor, negative: Tensor, upper: Tensor, k: int) -> Tensor:
    """What goes to candidate k: [R, *S_out]."""
    below = lower[:, k] if lower.dim() > positive.dim() else lower[k]
    above = upper[:, k] if upper.dim() > positive.dim() else upper[k]
    return torch.addcmul(positive * below, negative, above)


@dataclass(frozen=True)
class Operands(Candidates):
    """Candidate k is operand k, broadcast to the output; `shapes` are the operands' own, None of a constant one."""

    output_shape: tuple[int, ...]
    shapes: tuple[tuple[int, ...] | None, ...]

    @property
    def overlap(self) -> int:
        size = math.prod(self.output_shape)
        return max(size // max(math.prod(shape), 1) for shape in self.shapes if shape is not None)

    def with_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> Operands:
        pairs = zip(self.shapes, shapes, strict=True)
        return Operands(self.output_shape, tuple(None if own is None else shape for own, shape in pairs))

    def stack(self, operands: Sequence[Tensor], fill: float) -> Tensor:
        first = next((x.shape[:1] for x in operands if x.dim() > len(self.output_shape)), torch.Size())
        return torch.stack([x.expand((*first, *self.output_shape)) for x in operands])

    def carry(
        self, positive: Tensor, lower: Tensor, negative: Tensor, upper: Tensor
    ) -> tuple[Tensor | None, ...]:
        return tuple(
            None
            if shape is None
            else sum_to(_part(positive, lower, negative, upper, k), (len(positive), *shape))
            for k, shape in enumerate(self.shapes)
        )


@dataclass(frozen=True)
class Reduced(Candidates):
    """Candidates are the elements along `axes` of an input of shape [*S_in]."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    keepdims: bool

    @property
    def _kept(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    @property
    def _output_shape(self) -> tuple[int, ...]:
        if not self.keepdims:
            return tuple(self.shape[axis] for axis in self._kept)
        return tuple(1 if axis in self.axes else size for axis, size in enumerate(self.shape))

    @property
    def overlap(self) -> int:
        return 1

    def stack(self, operands: Sequence[Tensor], fill: float) -> Tensor:
        (x,) = operands
        before = x.dim() - len(self.shape)  # an axis of boxes
        order = (
            *(before + axis for axis in self.axes),
            *range(before),
            *(before + one for one in self._kept),
        )
        return x.permute(order).reshape(-1, *x.shape[:before], *self._output_shape)

    def carry(
        self, positive: Tensor, lower: Tensor, negative: Tensor, upper: Tensor
    ) -> tuple[Tensor | None, ...]:
        parts = torch.addcmul(positive.unsqueeze(1) * lower, negative.unsqueeze(1), upper)
        order = (*self.axes, *self._kept)
        apart = parts.reshape(len(positive), *(self.shape[axis] for axis in order))
        return (apart.permute(0, *(1 + order.index(axis) for axis in range(len(order)))),)


@dataclass(frozen=True)
class Windowed(Candidates):
    """Candidates are the elements of a window over [N, C, *spatial]; those in the padding are none."""

    shape: tuple[int, ...]
    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def padded_sizes(self) -> tuple[int, ...]:
        begins, ends = split_pads(self.pads)
        return tuple(b + size + e for b, size, e in zip(begins, self.shape[2:], ends, strict=True))

    def places(self) -> list[tuple[Index, ...]]:
        """For each element of the kernel, where in the padded input it lies as the window moves."""
        ranges = []
        for size, kernel, stride, dilation in zip(
            self.padded_sizes, self.kernel_shape, self.strides, self.dilations, strict=True
        ):
            span = (size - (kernel - 1) * dilation - 1) // stride * stride + 1
            ranges.append([slice(k * dilation, k * dilation + span, stride) for k in range(kernel)])
        return [(..., *place) for place in itertools.product(*ranges)]

    @property
    def overlap(self) -> int:
        return math.prod(self.kernel_shape)

    def stack(self, operands: Sequence[Tensor], fill: float) -> Tensor:
        padded = F.pad(operands[0], torch_pads(*split_pads(self.pads)), value=fill)
        return torch.stack([padded[place] for place in self.places()])

    def carry(
        self, positive: Tensor, lower: Tensor, negative: Tensor, upper: Tensor
    ) -> tuple[Tensor | None, ...]:
        spread = _Spread.apply(positive, lower, negative, upper, self)  # type: ignore[no-untyped-call]
        begins, _ = split_pads(self.pads)
        inside: list[Index] = [slice(b, b + size) for b, size in zip(begins, self.shape[2:], strict=True)]
        return (spread[(..., *inside)],)


class _Spread(torch.autograd.Function):
    """Adds what each window gives to its candidates, on the padded input [R, N, C, *padded].

    Autograd's own way, through views of one sum, copies the sum once for each element of the kernel.
    """

    @staticmethod
    def forward(
        ctx: Any, positive: Tensor, lower: Tensor, negative: Tensor, upper: Tensor, windows: Windowed
    ) -> Tensor:
        ctx.save_for_backward(positive, lower, negative, upper)
        ctx.windows = windows
        spread = positive.new_zeros(len(positive), *windows.shape[:2], *windows.padded_sizes)
        for k, place in enumerate(windows.places()):
            spread[place] += _part(positive, lower, negative, upper, k)
        return spread

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        positive, lower, negative, upper = ctx.saved_tensors
        rows, slopes = (positive, negative), (lower, upper)
        of_rows = [torch.zeros_like(row) for row in rows]
        of_slopes = [
            torch.zeros_like(slope) if needed else None
            for slope, needed in zip(slopes, ctx.needs_input_grad[1:4:2], strict=True)
        ]
        for k, place in enumerate(ctx.windows.places()):
            there = gradient[place]
            for row, slope, of_row, of_slope in zip(rows, slopes, of_rows, of_slopes, strict=True):
                own = slope.dim() > row.dim()
                of_row.addcmul_(there, slope[:, k] if own else slope[k])
                if of_slope is not None:
                    part = there * row
                    (of_slope[:, k] if own else of_slope[k]).copy_(part if own else part.sum(0))
        return of_rows[0], of_slopes[0], of_rows[1], of_slopes[1], None
