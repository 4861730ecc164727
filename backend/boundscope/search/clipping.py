"""What linear bounds cut off a box: the part of it where a clause may still hold.

A bounded row says f(x) ≥ L + Σ |a_j|·d_j on a box, where d_j is how far x_j lies from the end that minimises the row. A
clause holds only where each of its rows may be ≤ 0, so that d_j ≤ −L / |a_j| there: the box shrinks to that without a
split, and the rows of one clause shrink it in turn (Clip-and-Verify, arXiv 2512.11087, is the same idea).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDS = 3
SAFE = 2.0**-40  # more than the relative error of a sum of 2^11 products of numbers that are not negative
TINY = 2.0**-1000  # more than a quotient loses among subnormals


@dataclass(frozen=True)
class Boxes:
    """D boxes, [D, F] float64 ends of their F free inputs."""

    lower: Tensor
    upper: Tensor

    @property
    def width(self) -> Tensor:
        return self.upper - self.lower


@dataclass(frozen=True)
class LinearRows:
    """R rows on each of D boxes: `least` [D, R] float64 is below a row's values on its box, and `slope` [D, R, F] are
    its coefficients. `clause` [D, R] is the number of the clause that a row belongs to, −1 where there is no row."""

    least: Tensor
    slope: Tensor
    clause: Tensor


@dataclass(frozen=True)
class Clipped:
    """What is left of D boxes.

    Attributes:
        boxes: where some open clause may hold; as before where none does.
        least: rows' lower bounds where their clause may hold, [D, R].
        open: clauses that may hold somewhere, [D, K] boolean.
    """

    boxes: Boxes
    least: Tensor
    open: Tensor


def clipped(boxes: Boxes, rows: LinearRows, open_: Tensor, *, rounds: int = ROUNDS) -> Clipped:
    """Shrink boxes to where their open clauses, [D, K] boolean, may hold."""
    count, clauses = open_.shape
    inputs = boxes.lower.shape[1]
    there = rows.clause >= 0
    number = rows.clause.clamp(min=0)
    index = number[:, :, None].expand(-1, -1, inputs)
    slope = torch.where(torch.isfinite(rows.slope), rows.slope, 0.0)  # a row is above its least value anyway
    sizes, rising = slope.abs(), slope > 0
    low = boxes.lower[:, None].expand(count, clauses, inputs).contiguous()
    high = boxes.upper[:, None].expand(count, clauses, inputs).contiguous()
    start_low, start_high = boxes.lower[:, None], boxes.upper[:, None]
    mine_low, mine_high = (end.expand(-1, index.shape[1], -1) for end in (start_low, start_high))
    least = rows.least
    for number_of_round in range(rounds):
        limit = _reach(least, sizes)
        new_low = torch.where(rising, mine_low, _beyond(mine_high, -limit))
        new_high = torch.where(rising, _beyond(mine_low, limit), mine_high)
        new_low = torch.where(there[:, :, None], torch.maximum(mine_low, new_low), mine_low)
        new_high = torch.where(there[:, :, None], torch.minimum(mine_high, new_high), mine_high)
        low = low.scatter_reduce(1, index, new_low, "amax")
        high = high.scatter_reduce(1, index, new_high, "amin")
        before = mine_low, mine_high
        mine_low, mine_high = low.gather(1, index), high.gather(1, index)
        moved = torch.where(rising, mine_low - start_low, start_high - mine_high).clamp(min=0)
        gained = (sizes * moved).sum(2)
        infinity = torch.full_like(gained, -torch.inf)
        better = torch.nextafter(rows.least + gained * (1.0 - SAFE), infinity)
        least = torch.where(gained > 0, torch.maximum(rows.least, better), rows.least)
        if (
            number_of_round + 1 < rounds
            and torch.equal(before[0], mine_low)
            and torch.equal(before[1], mine_high)
        ):
            break
    gone = torch.zeros(open_.shape, dtype=torch.int8, device=open_.device)
    gone = gone.scatter_reduce(1, number, ((least > 0) & there).to(torch.int8), "amax")
    still = open_ & (gone == 0) & (low <= high).all(2)
    return Clipped(_hull(boxes, low, high, still), least, still)


def _reach(least: Tensor, sizes: Tensor) -> Tensor:
    """How far from its minimising end each input may be while the row is at most 0, rounded up; [D, R, F]."""
    room = (-least).clamp(min=0)[:, :, None]
    return torch.where(sizes > 0, room / sizes * (1.0 + SAFE) + TINY, torch.inf)


def _beyond(end: Tensor, step: Tensor) -> Tensor:
    """end + step, rounded away from the end."""
    moved = end + step
    return torch.nextafter(moved, torch.where(step > 0, torch.inf, -torch.inf).to(moved.dtype))


def _hull(boxes: Boxes, low: Tensor, high: Tensor, still: Tensor) -> Boxes:
    """The boxes around what is left of each one's open clauses; as before where there are none."""
    some = still.any(1, keepdim=True)
    held = still[:, :, None]
    lower = torch.where(held, low, torch.inf).amin(1)
    upper = torch.where(held, high, -torch.inf).amax(1)
    return Boxes(torch.where(some, lower, boxes.lower), torch.where(some, upper, boxes.upper))
