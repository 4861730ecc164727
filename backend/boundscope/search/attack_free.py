"""Looking for a violation without gradients, for networks whose outputs jump.

Where few inputs are free and what matters is their whole part, every cell of the grid of whole numbers is tried. Else
blocks of inputs are thrown to the ends of their intervals and kept where that brings a clause nearer, in blocks that
shrink (Andriushchenko et al. 2020, Square Attack, arXiv 1912.00049).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from boundscope.search.regions import Region

MOST_CELLS = 20_000
MOST_GRID_INPUTS = 3
FIRST_BLOCK = 0.3  # of the free inputs
MOST_ROUNDS = 200
CHILDREN = 16

# [B, inputs] -> the least margin of the open clauses at each point [B], noted by the caller on the way.
Rate = Callable[[Tensor], Tensor]


def grid(lower: Tensor, upper: Tensor, free: Tensor, group: int) -> Iterator[Tensor] | None:
    """One point of every cell between whole numbers, in blocks of `group` points; None where that is too many."""
    if not 0 < len(free) <= MOST_GRID_INPUTS:
        return None
    cells = [_cells(float(lower[index]), float(upper[index])) for index in free.tolist()]
    if math.prod(len(each) for each in cells) > MOST_CELLS:
        return None
    return _blocks(lower, free, itertools.product(*cells), group)


def _cells(lower: float, upper: float) -> list[float]:
    """The ends, the whole numbers and a point between each two of them."""
    if upper - lower > MOST_CELLS:
        return [math.nan] * (MOST_CELLS + 1)
    first, last = math.ceil(lower), math.floor(upper)
    inner = sorted({lower, *(float(whole) for whole in range(first, last + 1)), upper})
    middles = [(a + b) / 2 for a, b in itertools.pairwise(inner)]
    return middles if middles else inner


def _blocks(lower: Tensor, free: Tensor, cells: Iterator[tuple[float, ...]], group: int) -> Iterator[Tensor]:
    while chosen := list(itertools.islice(cells, group)):
        points = lower.repeat(len(chosen), 1)
        points[:, free] = torch.tensor(chosen, dtype=lower.dtype)
        yield points


def throw_blocks(
    start: Tensor,
    lower: Tensor,
    upper: Tensor,
    free: Tensor,
    region: Region,
    rate: Rate,
    rounds: int,
    go_on: Callable[[], bool],
    generator: torch.Generator,
) -> None:
    """From one point [inputs], for some rounds or until `go_on` says no; `free`: indices of the inputs to change."""
    if not len(free):
        return
    best, least = start.clone(), float(rate(start[None])[0])
    for number in range(rounds):
        if not go_on():
            return
        size = max(1, int(len(free) * FIRST_BLOCK * 0.5 ** (6 * number / rounds)))
        children = best.repeat(CHILDREN, 1)
        for child in children:
            if torch.rand((), generator=generator) < 0.5:  # neighbours together
                first = int(torch.randint(len(free), (), generator=generator))
                chosen = free[(torch.arange(size) + first) % len(free)]
            else:
                chosen = free[torch.randperm(len(free), generator=generator)[:size]]
            together = torch.rand((), generator=generator) < 0.5
            up = torch.randint(2, (1 if together else size,), generator=generator).bool()
            child[chosen] = torch.where(up, upper[chosen], lower[chosen])
        children = region.within(children)
        values = rate(children)
        winner = int(values.argmin())
        if float(values[winner]) <= least:  # sideways too: plateaus are wide
            best, least = children[winner].clone(), float(values[winner])
        if least <= 0:
            return
