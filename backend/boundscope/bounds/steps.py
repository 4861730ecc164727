"""The steps of a backward pass that many blocks of rows take alike, prepared once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.operators.relaxation import Backward, Lines, dot, per_row
from boundscope.bounds.support import Elements, Support, Windows
from boundscope.sharding.ranks import ROW_UNIT

SLICE_ELEMENTS = 1 << 17


@dataclass(frozen=True)
class LineStep:
    """Lines about a reference point as rows of one dtype meet them, whole rows or those on a part.

    Constants are summed in float64: what rows of float32 lose there is next to nothing, and it costs no more.
    """

    lines: Lines
    tilt: Tensor  # upper slope less lower slope
    lower: Tensor | None  # intercepts in float64
    upper: Tensor

    @classmethod
    def of(cls, local: Lines, dtype: torch.dtype) -> LineStep:
        lines = local.to(dtype)
        tilt = lines.upper_slope - lines.lower_slope
        return cls(lines, tilt, local.lower_intercept, local.upper_intercept)

    def on(self, support: Support) -> LineStep:
        """The same lines as rows on a part of the tensor meet them."""
        if isinstance(support, Windows):
            # Intercepts of each row's own stay in the rows' dtype, and are summed in short blocks there.
            dtype = self.tilt.dtype
            values = [self.lines.lower_slope, self.tilt, self.upper.to(dtype)]
            if self.lower is not None:
                values.append(self.lower.to(dtype))
            slope, tilt, upper, *lower = support.take_all(values)
            lines = dataclasses.replace(self.lines, lower_slope=slope, lower_intercept=None)
            return LineStep(lines, tilt, lower[0] if lower else None, upper)
        lines = dataclasses.replace(
            self.lines, lower_slope=support.take(self.lines.lower_slope), lower_intercept=None
        )
        low = None if self.lower is None else support.take(self.lower)
        return LineStep(lines, support.take(self.tilt), low, support.take(self.upper))

    def through(self, rows: Tensor) -> Backward:
        """As Lines.through."""
        negative = rows.clamp(max=0)
        carried = (rows * self.lines.lower_slope).addcmul_(negative, self.tilt)
        constant = _weighed(negative, self.upper)
        if self.lower is not None:
            constant = constant + _weighed(rows - negative, self.lower)
        parts: list[Tensor | None] = [None] * self.lines.arity
        parts[self.lines.position] = carried
        return tuple(parts), constant


@dataclass(frozen=True)
class PartLines:
    """Lines about the root's reference point on each of D parts of a box, [D, k] of the elements that rows live on, or
    [R, k] of each row's own part; in the rows' dtype."""

    slope: Tensor  # of the lower lines
    upper_slope: Tensor
    lower: Tensor | None  # intercepts
    upper: Tensor

    @classmethod
    def of(cls, local: Lines, support: Support | None, dtype: torch.dtype) -> PartLines:
        def met(values: Tensor) -> Tensor:
            flat = per_row(values.to(dtype))
            return flat if support is None else flat.index_select(1, _index(support))

        low = None if local.lower_intercept is None else met(local.lower_intercept)
        return cls(
            met(local.lower_slope),
            met(local.upper_slope),
            low,
            met(local.upper_intercept),
        )

    def of_rows(self, which: Tensor) -> PartLines:
        low = None if self.lower is None else self.lower.index_select(0, which)
        return PartLines(
            self.slope.index_select(0, which),
            self.upper_slope.index_select(0, which),
            low,
            self.upper.index_select(0, which),
        )

    def with_slopes(self, theta: Tensor, free: Tensor, x: Tensor, y: Tensor) -> PartLines:
        """Lower slopes θ [R, k] of each row's own where `free` [R, k]: lines through the origin, which about the
        reference point x, y [k] have the intercept θ·x − y."""
        low = torch.zeros_like(self.upper) if self.lower is None else self.lower
        return PartLines(
            torch.where(free, theta, self.slope),
            self.upper_slope,
            torch.where(free, theta * x - y, low),
            self.upper,
        )

    def through(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [R, k] → rows [R, k] and their constant [R] float64."""
        negative = rows.clamp(max=0)
        positive = rows - negative
        carried = torch.addcmul(positive * self.slope, negative, self.upper_slope)
        constant = dot(negative, self.upper)
        if self.lower is not None:
            constant = constant + dot(positive, self.lower)
        return carried, constant


def _index(support: Support) -> Tensor:
    assert isinstance(support, Elements)
    return support.index


@dataclass(frozen=True)
class SlopeStep:
    """Lines whose lower slope θ is each row's own on the `free` of the k elements that rows live on; through the
    origin there, so that about the reference point they have the intercept θ·x − y.

    Tensors are [k], or [m] of the free elements, in the rows' dtype.
    """

    free: slice | Tensor
    slope: Tensor  # lower and upper slope of the others
    upper_slope: Tensor
    upper_intercept: Tensor
    x: Tensor  # the reference point
    y: Tensor

    @classmethod
    def of(
        cls, local: Lines, x: Tensor, y: Tensor, matters: Tensor, support: Elements | None, dtype: torch.dtype
    ) -> SlopeStep:
        """`matters` are the flat indices of the free elements; on a part of the tensor they come last."""

        def free_of(values: Tensor) -> Tensor:
            return values.flatten()[matters].to(dtype)

        slope = local.lower_slope if support is None else support.take(local.lower_slope)
        return cls(
            free=matters if support is None else slice(len(support.index) - len(matters), None),
            slope=slope.flatten().to(dtype),
            upper_slope=free_of(local.upper_slope),
            upper_intercept=free_of(local.upper_intercept),
            x=free_of(x),
            y=free_of(y),
        )

    def through(self, rows: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [R, k] and slopes [R, m] → rows [R, k] and their constant, [R] float64; rounded as lines are."""
        tail = rows[:, self.free]
        negative = tail.clamp(max=0)
        positive = tail - negative
        carried = rows * self.slope
        carried[:, self.free] = torch.addcmul(positive * theta, negative, self.upper_slope)
        constant = negative @ self.upper_intercept + (positive * (theta * self.x - self.y)).sum(1)
        return carried, constant

    def searched(self, rows: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """`through` for a search: differentiable in both, in fewer steps than autograd takes."""
        carried, constant = _SearchedSlopes.apply(rows, theta, self)  # type: ignore[no-untyped-call]
        return carried, constant


class _SearchedSlopes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, theta: Tensor, step: SlopeStep) -> tuple[Tensor, Tensor]:
        tail = rows[:, step.free]
        positive = tail.clamp(min=0)
        negative = tail - positive
        weighed = positive * theta
        carried = rows * step.slope
        carried[:, step.free] = torch.addcmul(weighed, negative, step.upper_slope)
        constant = weighed @ step.x - positive @ step.y + negative @ step.upper_intercept
        ctx.save_for_backward(positive, theta)
        ctx.step = step
        return carried, constant

    @staticmethod
    def backward(ctx: Any, carried: Tensor, constant: Tensor) -> tuple[Tensor | None, Tensor, None]:
        positive, theta = ctx.saved_tensors
        step = ctx.step
        tail, each = carried[:, step.free], constant[:, None]
        along = torch.addcmul(tail, each, step.x)
        of_theta = positive * along
        if not ctx.needs_input_grad[0]:
            return None, of_theta, None
        of_rows = carried * step.slope
        below = torch.addcmul(theta * along, each, step.y, value=-1)
        above = torch.addcmul(tail * step.upper_slope, each, step.upper_intercept)
        of_rows[:, step.free] = torch.where(positive > 0, below, above)
        return of_rows, of_theta, None


class SearchedLines(torch.autograd.Function):
    """Rows [R, n] through lines [R, n], or [n], about a reference point x, y [n], for a search: rows [R, n] and their
    constant [R], differentiable in rows and lines, in fewer steps than autograd takes."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        slope: Tensor,
        low: Tensor,
        upper_slope: Tensor,
        high: Tensor,
        x: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, Tensor]:
        below, above = torch.addcmul(low - y, slope, x), torch.addcmul(high - y, upper_slope, x)
        negative = rows.clamp(max=0)
        positive = rows - negative
        ctx.save_for_backward(positive, negative, slope, upper_slope, below, above, x)
        carried = torch.addcmul(positive * slope, negative, upper_slope)
        return carried, torch.addcmul(positive * below, negative, above).sum(1)

    @staticmethod
    def backward(ctx: Any, carried: Tensor, constant: Tensor) -> tuple[Tensor | None, ...]:
        positive, negative, slope, upper_slope, below, above, x = ctx.saved_tensors
        each = constant[:, None]
        through = positive > 0
        of_rows = carried * torch.where(through, slope, upper_slope)
        of_rows.addcmul_(torch.where(through, below, above), each)
        along = torch.addcmul(carried, each, x)
        of_low, of_high = positive * each, negative * each
        return of_rows, positive * along, of_low, negative * along, of_high, None, None


class Spread(torch.autograd.Function):
    """Σ |rows|·radius, [R] of rows [R, k] and radius [k] or [R, k], for a search."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, radius: Tensor) -> Tensor:
        ctx.save_for_backward(rows, radius)
        return rows.abs() @ radius if radius.dim() == 1 else (rows.abs() * radius).sum(1)

    @staticmethod
    def backward(ctx: Any, each: Tensor) -> tuple[Tensor, None]:
        rows, radius = ctx.saved_tensors
        return torch.copysign(radius, rows).mul_(each[:, None]), None


def _weighed(rows: Tensor, vector: Tensor) -> Tensor:
    """Σ rows·vector in float64, [R]; the vector is [*S], or of each row's own in the rows' dtype."""
    if vector.dim() < rows.dim():
        flat, values = per_row(rows), vector.flatten()
        sums = [flat[part].double() @ values for part in row_slices(flat)]
        return sums[0] if len(sums) == 1 else torch.cat(sums)
    return dot(rows, vector)


def row_slices(flat: Tensor) -> Iterator[slice]:
    """A few rows [R, k] after another, so that their float64 copies stay in the cache; in units of which the sums have
    the same bits, row by row, however many rows there are."""
    step = max(1, SLICE_ELEMENTS // max(1, flat.shape[1]) // ROW_UNIT) * ROW_UNIT
    return (slice(first, first + step) for first in range(0, len(flat), step))
