"""Lagrange terms of ranges: γ·(z − e) for what a tensor holds, added to rows that are bounded where its elements lie in
ranges of their own (β of Wang et al. 2021, arXiv 2103.06624, at split points as in Shi et al. 2024, arXiv 2405.21063).

An element z of a row lies in [l, u] there. γ·(z − u) is at most 0 for γ ≥ 0, and γ·(z − l) for γ ≤ 0: whatever γ is,
what is bounded with the term is below the function wherever the ranges hold. One signed γ serves both ends, for of two
multipliers the smaller one would only be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.rounding import ENGINE, INFLATION, gamma


@dataclass(frozen=True)
class Pull:
    """Multipliers γ [R, k] of elements `index` [k] (flat) of one tensor, and their rows' ranges, float64 [R, k]."""

    index: Tensor
    multiplier: Tensor
    lower: Tensor
    upper: Tensor

    def through(self, rows: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [R, n] at the tensor's distance from `reference` [n] → rows, their constant [R] float64, and what that
        may have rounded, [R]."""
        at = reference[self.index]
        end = torch.where(self.multiplier > 0, self.upper, self.lower)
        pulled = rows.index_add(1, self.index, self.multiplier.to(rows.dtype))
        force = self.multiplier.to(rows.dtype).double()
        size = (force.abs() * (at.abs() + end.abs())).sum(1)
        error = size * (gamma(len(self.index) + 16, ENGINE.unit) * INFLATION) + ENGINE.absolute(
            len(self.index)
        )
        return pulled, (force * (at - end)).sum(1), error

    def searched(
        self, rows: Tensor, reference: Tensor, note: Callable[[Tensor], None] | None = None
    ) -> tuple[Tensor, Tensor]:
        """`through` for a search: differentiable in rows and multipliers. Once it is differentiated, `note` is told how
        far the elements are from the reference where the bound is reached, [R, k]."""
        at = reference[self.index]
        low, high = (self.lower - at).to(rows.dtype), (self.upper - at).to(rows.dtype)
        pulled, constant = _Searched.apply(rows, self.multiplier, self.index, low, high, note)  # type: ignore[no-untyped-call]
        return pulled, constant


class _Searched(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        multiplier: Tensor,
        index: Tensor,
        low: Tensor,
        high: Tensor,
        note: Callable[[Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(multiplier, index, low, high)
        ctx.note = note
        end = torch.where(multiplier > 0, high, low)
        return rows.index_add(1, index, multiplier), -(multiplier * end).sum(1)

    @staticmethod
    def backward(
        ctx: Any, carried: Tensor, constant: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None, None]:
        multiplier, index, low, high = ctx.saved_tensors
        # The rows' gradient is how far the minimiser is from the reference point.
        at = carried.index_select(1, index)
        if ctx.note is not None:
            ctx.note(at)
        nearest = torch.minimum(torch.maximum(at, low), high)
        end = torch.where(multiplier > 0, high, torch.where(multiplier < 0, low, nearest))
        return carried, at - constant[:, None] * end, None, None, None, None
