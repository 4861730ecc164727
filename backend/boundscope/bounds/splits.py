"""Rows that are bounded on chosen pieces of neurons: β-CROWN (Wang et al. 2021, arXiv 2103.06624).

A row may hold any number of neurons to one side of their kink. The neuron is then linear, and the side is one more
constraint s·x ≥ 0 (s = ±1), whose multiplier β ≥ 0 takes −β·s·x into the row: whatever β is, what is bounded is below
the function wherever the constraint holds. Neurons that are not held keep their free slope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.operators.relaxation import Lines
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.bounds.support import Elements
from boundscope.network.graph import Node


@dataclass(frozen=True)
class Splits:
    """Pieces and parameters of R rows, by the name of the `slope_free` node, over its m free elements.

    states: int8 [R, m], +1 held to x ≥ 0, −1 held to x ≤ 0, 0 not held.
    values: [R, m], the lower line's slope in 0 … 1 where not held, and the multiplier ≥ 0 in units of `scales` where
        held.
    scales: [m], above 0.
    """

    states: dict[str, Tensor]
    values: dict[str, Tensor]
    scales: dict[str, Tensor]

    def of_rows(self, index: Tensor) -> Splits:
        """Those of some rows."""
        return Splits(
            {name: one[index] for name, one in self.states.items()},
            {name: one[index] for name, one in self.values.items()},
            self.scales,
        )


@dataclass(frozen=True)
class SplitStep:
    """How rows go through one `slope_free` node: tensors [k] of the elements that rows live on, or [m] of the `free`
    ones among them, in the rows' dtype. `x` and `y` are the node's reference points, `deviation` how far x goes."""

    free: slice | Tensor
    slope: Tensor  # of the elements that are not free
    upper_slope: Tensor
    upper_intercept: Tensor
    x: Tensor
    y: Tensor
    deviation: Tensor

    @classmethod
    def of(
        cls, context: BoxContext, node: Node, local: Lines, support: Elements | None, dtype: torch.dtype
    ) -> SplitStep:
        """On a part of the tensor the free elements come last."""
        matters = context.free_slopes(node)
        x_name = node.inputs[local.position]

        def free_of(values: Tensor) -> Tensor:
            return values.flatten()[matters].to(dtype)

        slope = local.lower_slope if support is None else support.take(local.lower_slope)
        return cls(
            free=matters if support is None else slice(len(support.index) - len(matters), None),
            slope=slope.flatten().to(dtype),
            upper_slope=free_of(local.upper_slope),
            upper_intercept=free_of(local.upper_intercept),
            x=free_of(context.references[x_name]),
            y=free_of(context.references[node.outputs[0]]),
            deviation=free_of(context.deviation(x_name)),
        )

    def through(
        self, rows: Tensor, state: Tensor, values: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [R, k] float64 with pieces and values [R, m] → rows [R, k], their constant [R], and what the multipliers
        may have rounded, [R]."""
        held, piece = state != 0, (state > 0).to(rows.dtype)
        tail = rows[:, self.free]
        negative = tail.clamp(max=0)
        positive = tail - negative
        lower = torch.where(held, piece, values.clamp(0.0, 1.0))  # no other slope is below the function
        upper = torch.where(held, piece, self.upper_slope)
        below = lower * self.x - self.y
        above = torch.where(held, below, self.upper_intercept)
        pull = torch.where(held, values.clamp(min=0) * scale, 0.0) * state
        carried = rows * self.slope
        carried[:, self.free] = positive * lower + negative * upper - pull
        constant = (positive * below + negative * above - pull * self.x).sum(1)
        size = (pull.abs() * (self.x.abs() + self.deviation)).sum(1)
        error = size * (gamma(len(self.x) + 16, ENGINE.unit) * INFLATION) + ENGINE.absolute(len(self.x))
        return carried, constant, error

    def searched(
        self,
        rows: Tensor,
        state: Tensor,
        values: Tensor,
        scale: Tensor,
        note: Callable[[Tensor], None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`through` for a search: differentiable in rows and values. Once it is differentiated, `note` is told what
        the free elements read, [R, m], at the point where the bound is reached."""
        carried, constant = _Searched.apply(rows, values, state, scale, self, note)  # type: ignore[no-untyped-call]
        return carried, constant


class _Searched(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        values: Tensor,
        state: Tensor,
        scale: Tensor,
        step: SplitStep,
        note: Callable[[Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        sign = state.to(rows.dtype)
        held, piece = state != 0, sign.clamp(min=0)
        tail = rows[:, step.free]
        positive = tail.clamp(min=0)
        lower = torch.where(held, piece, values)
        through_lower = held | (tail > 0)
        pull = sign * values * scale
        carried = rows * step.slope
        carried[:, step.free] = tail * torch.where(through_lower, lower, step.upper_slope) - pull
        each = torch.where(through_lower, lower * step.x - step.y, step.upper_intercept)
        constant = torch.linalg.vecdot(tail, each) - pull @ step.x
        ctx.save_for_backward(positive, lower, through_lower, sign, scale)
        ctx.step, ctx.note = step, note
        return carried, constant

    @staticmethod
    def backward(
        ctx: Any, carried: Tensor, constant: Tensor
    ) -> tuple[Tensor | None, Tensor, None, None, None, None]:
        positive, lower, through_lower, sign, scale = ctx.saved_tensors
        step = ctx.step
        tail, each = carried[:, step.free], constant[:, None]
        # The rows' gradient is how far the minimiser is from the reference point.
        along = torch.addcmul(tail, each, step.x)
        if ctx.note is not None:
            ctx.note(along)
        of_values = torch.where(sign != 0, -sign * scale, positive) * along
        if not ctx.needs_input_grad[0]:
            return None, of_values, None, None, None, None
        of_rows = carried * step.slope
        below = torch.addcmul(lower * along, each, step.y, value=-1)
        above = torch.addcmul(tail * step.upper_slope, each, step.upper_intercept)
        of_rows[:, step.free] = torch.where(through_lower, below, above)
        return of_rows, of_values, None, None, None, None
