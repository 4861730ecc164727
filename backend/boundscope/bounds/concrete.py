"""Least values of rows over what a tensor can be: where a backward pass ends. Each with the error of computing it."""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope.bounds.facts import HALVED, Reach
from boundscope.bounds.interval import Interval
from boundscope.bounds.norms import BallSet
from boundscope.bounds.operators.relaxation import per_row
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.bounds.steps import Spread, row_slices
from boundscope.bounds.support import Block


def least_by_distance(block: Block, reach: Reach, rigorous: bool) -> tuple[Tensor, Tensor]:
    """Least Σ coefficients·(x − reference) over a tensor's interval, and the error of computing it: [R] both."""
    flat = per_row(block.rows)
    radius, shift, whole = (
        None if part is None else met(block, part.flatten())
        for part in (reach.radius, reach.shift, reach.whole)
    )
    assert radius is not None
    if not rigorous:
        spread = Spread.apply(flat, radius.to(flat.dtype))  # type: ignore[no-untyped-call]
        found = -spread if shift is None else _sum(flat, shift.to(flat.dtype)) - spread
        return found, torch.zeros_like(found)
    # The sums' errors are relative to |coefficients|·(|shift| + radius); the shift itself is rounded once.
    values, magnitudes = [], []
    for rows in row_slices(flat):
        absolute = flat[rows].abs().double()
        spread = _sum(absolute, _of(radius, rows))
        moved = None if shift is None else _sum(flat[rows].double(), _of(shift, rows))
        values.append(-spread if moved is None else moved - spread)
        magnitudes.append(spread if whole is None else _sum(absolute, _of(whole, rows)))
    count = flat.shape[1] + 8
    error = _joined(magnitudes) * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(count)
    return _joined(values), error


def least_over_parts(flat: Tensor, shift: Tensor, radius: Tensor, rigorous: bool) -> tuple[Tensor, Tensor]:
    """The same over intervals shift ± radius [R, n] of each row's own: coefficients [R, n]."""
    if not rigorous:
        value = (flat * shift.to(flat.dtype)).sum(1) - (flat.abs() * radius.to(flat.dtype)).sum(1)
        return value, torch.zeros_like(value)
    flat = flat.double()
    absolute = flat.abs()
    count = flat.shape[1] + 8
    # The shift is the rounded difference of two numbers, each of which the error must cover.
    magnitude = (absolute * (shift.abs() + radius + HALVED)).sum(1)
    error = magnitude * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(count)
    return (flat * shift).sum(1) - (absolute * radius).sum(1), error


def least_in_ball(flat: Tensor, ball: BallSet, reference: Tensor, rigorous: bool) -> tuple[Tensor, Tensor]:
    """`least_by_distance` over a ball; without proof, an estimate with no error."""
    if not rigorous:
        value = ball.estimate(flat, reference)
        return value, torch.zeros_like(value)
    return ball.lower(flat, reference)


def least_by_ends(flat: Tensor, interval: Interval) -> tuple[Tensor, Tensor]:
    """Least Σ coefficients·x over an interval from the ends that are used, coefficients [R, n] float64, and the error
    of computing it: [R] both. There is none where each end, or its coefficient, is zero.
    """
    lower, upper = interval.lower.flatten().to(flat.dtype), interval.upper.flatten().to(flat.dtype)
    positive, negative = flat.clamp(min=0), flat.clamp(max=0)
    magnitude = positive @ lower.abs() - negative @ upper.abs()
    used = positive.sign() @ lower.abs().sign() - negative.sign() @ upper.abs().sign() > 0
    count = flat.shape[1] + 8
    error = magnitude * (gamma(count, ENGINE.unit) * INFLATION) + used.double() * ENGINE.absolute(count)
    return positive @ lower + negative @ upper, error


def met(block: Block, values: Tensor) -> Tensor:
    """Values [n] of the tensor as they meet the flattened coefficients: [k], or [R, k]."""
    if block.support is None:
        return values
    taken = block.support.take(values)
    return per_row(taken) if taken.dim() > 1 else taken


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _sum(flat: Tensor, values: Tensor) -> Tensor:
    return flat @ values if values.dim() == 1 else (flat * values).sum(1)


def _of(values: Tensor, rows: slice) -> Tensor:
    """The part of values [k], or of each row's own [R, k], that belongs to some rows."""
    return values if values.dim() == 1 else values[rows]
