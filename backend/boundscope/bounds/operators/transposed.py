"""Transposed convolutions in one to three dimensions with constant weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.linear import affine_interval, midpoint
from boundscope.bounds.operators.relaxation import Parts
from boundscope.network.operators.linear import CONVOLUTIONS, ConvTranspose
from boundscope.network.operators.window import split_pads, torch_pads


@bounds(ConvTranspose)
class ConvTransposeRule(Rule[ConvTranspose]):
    """Carried back by the convolution that it transposes; weights are [in, out/groups, *kernel]."""

    mixing = True

    def supports(self, view_perturbed: Sequence[bool], op: ConvTranspose) -> str | None:
        return "weights that depend on the network's input" if any(view_perturbed[1:]) else None

    def _weight(self, view: NodeView[ConvTranspose]) -> Tensor:
        weight = view.constant(1)
        assert weight is not None
        return weight

    def _apply(self, view: NodeView[ConvTranspose], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (y,) = view.op.evaluate([x, weight, bias])
        return y

    def interval(self, view: NodeView[ConvTranspose]) -> tuple[Interval, ...]:
        weight = self._weight(view)
        centre, radius = midpoint(view.interval(0))
        moved = self._apply(view, centre, weight, view.constant(2))
        return (affine_interval(moved, self._apply(view, radius, weight.abs(), None)),)

    def terms(self, view: NodeView[ConvTranspose]) -> int:
        weight = self._weight(view)
        return weight.shape[0] // view.op.group * weight[0, 0].numel() + 2

    def backward_terms(self, view: NodeView[ConvTranspose]) -> int:
        return self._weight(view)[0].numel() + 2

    def magnitude(self, view: NodeView[ConvTranspose]) -> tuple[Tensor, ...]:
        bias = view.constant(2)
        magnitude = view.interval(0).magnitude
        return (self._apply(view, magnitude, self._weight(view).abs(), None if bias is None else bias.abs()),)

    def constant_error(self, view: NodeView[ConvTranspose]) -> Tensor | None:
        return self.magnitude(view)[0]

    def backward(self, view: NodeView[ConvTranspose], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        weight, op = self._weight(view), view.op
        flat = coefficients.reshape(-1, *coefficients.shape[2:])  # rows and batch as one batch
        # What was cut off the full result has no coefficients, and what was added to it no weights.
        begins, ends = split_pads(op.pads)
        uncut = tuple(end - extra for end, extra in zip(ends, op.output_padding, strict=True))
        full = F.pad(flat, torch_pads(begins, uncut))
        convolve = CONVOLUTIONS[len(op.kernel_shape)]
        carried = convolve(full, weight, None, op.strides, 0, op.dilations, op.group)
        return (carried.reshape(coefficients.shape[0], *view.interval(0).lower.shape), None, None)
