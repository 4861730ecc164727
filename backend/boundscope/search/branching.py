"""Which neuron a domain is split at: BaBSR (Bunel et al. 2020, arXiv 1909.06588) ranks all of them by what one backward
pass left, filtered smart branching (De Palma et al. 2021, arXiv 2104.06718) bounds the children of the best ones."""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope.bounds.beta import BetaSearch, Neurons, RowBlock


def babsr_scores(neurons: Neurons, coefficients: Tensor, states: Tensor) -> Tensor:
    """How much a split at each neuron may lift a row's bound, [R, M] at least 0; −1 where the neuron is held already.

    Args:
        coefficients: of rows above the neurons, [R, M].
        states: int8 [R, M].
    """
    lower, upper = neurons.lower.float(), neurons.upper.float()
    slope = upper / (upper - lower)
    intercept = -lower * slope
    bias = neurons.reference.float()
    negative = coefficients.clamp(max=0)
    moved = torch.maximum(coefficients * bias * (slope - 1.0), coefficients * bias * slope)
    score = (moved + negative * intercept).abs()
    return torch.where(states == 0, score, -1.0)


def candidates(scores: Tensor, count: int) -> Tensor:
    """The `count` best columns of each row, [R, count] int64, best first; −1 where a row has no more free neurons."""
    best, index = scores.topk(min(count, scores.shape[1]), dim=1)
    found = torch.where(best >= 0, index, -1)
    if found.shape[1] < count:
        found = torch.nn.functional.pad(found, (0, count - found.shape[1]), value=-1)
    return found


def children(block: RowBlock, column: Tensor) -> RowBlock:
    """Both children of each row when it is split at `column` [R]: rows 2r (side −1) and 2r + 1 (side +1). Slopes and
    multipliers are the parent's, and the new multiplier is 0."""
    count = len(block)
    parents = torch.arange(2 * count, device=column.device) // 2
    both = block.of_rows(parents)
    side = torch.tensor([-1, 1], dtype=torch.int8, device=column.device).repeat(count)
    rows = torch.arange(2 * count, device=column.device)
    both.states[rows, column[parents]] = side
    both.values[rows, column[parents]] = 0.0
    return both


def filtered(search: BetaSearch, block: RowBlock, found: Tensor) -> Tensor:
    """The candidates [R, K] in the order of what bounds of their children promise, the best first.

    A split is as good as its worse child, and of equal ones as its better child.
    """
    count, many = found.shape
    if many == 1 or not count:
        return found
    rows = torch.arange(count, device=found.device).repeat_interleave(many)
    columns = found.flatten()
    valid = columns >= 0
    both = children(block.of_rows(rows[valid]), columns[valid])
    bounds = search.estimate(both).reshape(-1, 2).clamp(max=0.0)
    worth = torch.full((count * many,), -torch.inf, dtype=torch.float64, device=found.device)
    worth[valid] = bounds.min(1).values + 1e-2 * bounds.max(1).values
    order = worth.reshape(count, many).argsort(dim=1, descending=True, stable=True)
    return found.gather(1, order)
