"""Projected gradient descent on the clauses' margins, many walks at a time.

Madry et al. 2018 (arXiv 1706.06083), with steps whose length shrinks. A walk follows one clause, or at every step the
clause that is nearest; its loss is the largest margin of the clause's constraints, or the sum of those that fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.search.evaluation import BatchedNetwork
from boundscope.search.objectives import Objectives, finite
from boundscope.search.regions import Region

NEAREST = -1  # in place of a clause: whichever is nearest
BEYOND = 3  # steps that walks go on after the first violation, for slack


@dataclass
class Walks:
    """Where walks are, [B, inputs], and what they follow: `case`, `clause` (or NEAREST), and two choices, [B] each."""

    points: Tensor
    case: Tensor
    clause: Tensor
    plain: Tensor  # steps along the gradient, else along its signs
    summed: Tensor  # the sum of the constraints that fail, else the largest

    def __len__(self) -> int:
        return len(self.points)

    def part(self, rows: slice) -> Walks:
        return Walks(
            self.points[rows], self.case[rows], self.clause[rows], self.plain[rows], self.summed[rows]
        )


@dataclass(frozen=True)
class Pace:
    """How many steps, how long the first one is (of the set's width), and what remains of it at each next one."""

    steps: int
    first: float
    decay: float


@dataclass(frozen=True)
class Walked:
    """The best point of every walk [B, inputs], its margin [B], and whether any gradient told a direction."""

    points: Tensor
    margins: Tensor
    led: bool


# Told of all points and their tables of margins at each step; says whether something violates.
Note = Callable[[Tensor, Tensor, Tensor], bool]


def descend(
    network: BatchedNetwork,
    objectives: Objectives,
    region: Region,
    walks: Walks,
    pace: Pace,
    open_clauses: Tensor,
    free: Tensor,
    note: Note,
    go_on: Callable[[], bool],
) -> Walked:
    """Walk.

    Args:
        region: of these walks, in order.
        open_clauses: [cases, clauses] booleans, those worth following.
        free: [inputs] booleans, those worth changing.
        note: called at each step with case [B], margins [B, clauses] and points [B, inputs].
        go_on: asked before each step; may raise.
    """
    points, case = walks.points, walks.case
    best = points.clone()
    least = torch.full((len(walks),), torch.inf, dtype=points.dtype)
    chosen_open = open_clauses[case]
    step, led, beyond = pace.first, False, None
    for number in range(pace.steps + 1):
        if not go_on():
            break
        points = points.detach().requires_grad_()
        outputs = network.outputs(points)
        values = objectives.constraints(points, outputs, case)
        table = finite(values.detach().amax(2), outputs.detach())
        clause = _followed(table, walks.clause, chosen_open)
        margin = table.gather(1, clause[:, None])[:, 0]
        better = margin < least
        least = torch.where(better, margin, least)
        best = torch.where(better[:, None], points.detach(), best)
        if note(case, table, points.detach()) and beyond is None:
            beyond = number + BEYOND
        if number == pace.steps or (beyond is not None and number >= beyond):
            break
        gradient = _gradient(points, values, clause, walks.summed, margin)
        if gradient is None:
            break
        gradient = torch.where(free, gradient, 0.0)
        if not led and not bool(gradient.any()):
            break  # nothing leads anywhere, such as between the jumps of a step function
        led = True
        points = region.step(points.detach(), gradient, step, walks.plain)
        step *= pace.decay
    return Walked(best, least, led)


def _followed(table: Tensor, clause: Tensor, chosen_open: Tensor) -> Tensor:
    """The clause [B] that each walk follows now."""
    nearest = torch.where(chosen_open, table, torch.inf).argmin(1)
    return torch.where(clause == NEAREST, nearest, clause)


def _gradient(
    points: Tensor, values: Tensor, clause: Tensor, summed: Tensor, margin: Tensor
) -> Tensor | None:
    """Of every walk's loss; zero where there is none; None where no output depends on the inputs smoothly."""
    if not values.requires_grad:
        return None
    own = values.gather(1, clause[:, None, None].expand(-1, 1, values.shape[2]))[:, 0]
    loss = own.amax(1)
    if bool(summed.any()):
        failing = torch.where(own > 0, own, 0.0).sum(1)
        loss = torch.where(summed & (margin > 0), failing, loss)
    loss = torch.where(torch.isfinite(margin), loss, 0.0)
    (gradient,) = torch.autograd.grad(loss.sum(), points, allow_unused=True)
    return None if gradient is None else torch.nan_to_num(gradient)
