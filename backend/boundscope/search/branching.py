"""Which neuron a domain is split at.

Two scores choose candidates from what one pass left, in the manner of BaBSR (Bunel et al. 2020, arXiv 1909.06588): what
the relaxation of a neuron loses at the point where the bound is reached, and its intercept. Then the children of the
candidates are bounded quickly, and the best split is taken (filtered smart branching, De Palma et al. 2021,
arXiv 2104.06718).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.beta import BetaSearch, Points, Proven, RowBlock
from boundscope.bounds.neurons import Neurons
from boundscope.bounds.spans import Spans
from boundscope.search.split_points import span_scores, split_points

BETTER_CHILD = 0.4  # what the better child's bound counts beside the worse one's


@dataclass(frozen=True)
class Candidates:
    """Where rows may be split: columns [R, K] int64, the best first, −1 where there are no more: neurons, then elements
    of spans. `above`, float32 [R, K], are the coefficients of the row above neurons, and the points to split elements
    of spans at."""

    column: Tensor
    above: Tensor

    def of_rows(self, index: Tensor | slice) -> Candidates:
        return Candidates(self.column[index], self.above[index])


def loss_scores(neurons: Neurons, block: RowBlock, coefficients: Tensor, points: Tensor) -> Tensor:
    """What a row's bound loses to the relaxation of each neuron at the point where it is reached, [R, M] at least 0.

    Args:
        coefficients: of the rows above the neurons, [R, M].
        points: what the neurons read there, [R, M].
    """
    lower, upper = neurons.lower.float(), neurons.upper.float()
    inside = torch.minimum(torch.maximum(points, lower), upper)
    above = (inside - lower) * (upper / (upper - lower))
    value = inside.clamp(min=0)
    loss = torch.where(
        coefficients < 0, -coefficients * (above - value), coefficients * (value - block.values * inside)
    )
    return loss.clamp(min=0)


def intercept_scores(neurons: Neurons, coefficients: Tensor) -> Tensor:
    """What the upper lines' intercepts take from each row, [R, M] at least 0."""
    lower, upper = neurons.lower.float(), neurons.upper.float()
    return coefficients.clamp(max=0) * (upper * lower / (upper - lower))


def candidates(
    neurons: Neurons, block: RowBlock, coefficients: Tensor, points: Points, count: int
) -> Candidates:
    """The free neurons that promise most by one score or the other, `count` of them, in turn."""
    losses, areas = _neuron_scores(neurons, block, coefficients, points)
    found = _in_turn([losses, areas], count)
    above = coefficients.gather(1, found.clamp(min=0)) if len(neurons) else torch.zeros(found.shape)
    return Candidates(found, above)


def all_candidates(
    search: BetaSearch, block: RowBlock, proven: Proven, points: Points, count: int
) -> Candidates:
    """The same of neurons and elements of spans."""
    neurons, spans = search.neurons, search.spans
    if spans is None or not len(spans):
        return candidates(neurons, block, proven.coefficients, points, count)
    of_neurons = _neuron_scores(neurons, block, proven.coefficients, points)
    of_spans = span_scores(search, block, proven, points)
    found = _in_turn([torch.cat(pair, 1) for pair in zip(of_neurons, of_spans, strict=True)], count)
    above = torch.zeros(found.shape, device=found.device)
    if len(neurons):
        above = proven.coefficients.gather(1, found.clamp(min=0, max=len(neurons) - 1))
    at = split_points(search, block, proven, points, found - len(neurons))
    return Candidates(found, torch.where(found >= len(neurons), at, above))


def _neuron_scores(
    neurons: Neurons, block: RowBlock, coefficients: Tensor, points: Points
) -> tuple[Tensor, Tensor]:
    """Of free neurons; −1 where they are held."""
    free = block.states == 0
    return (
        torch.where(free, loss_scores(neurons, block, coefficients, points.neurons), -1.0),
        torch.where(free, intercept_scores(neurons, coefficients), -1.0),
    )


def _in_turn(scores: list[Tensor], count: int) -> Tensor:
    """The best columns by each score [R, C] in turn, [R, count]; none where all scores are below zero."""
    rows, columns = scores[0].shape
    found = torch.full((rows, count), -1, dtype=torch.int64, device=scores[0].device)
    for place in range(min(count, columns)):
        for score in scores[place % 2 :] + scores[: place % 2]:
            best, column = score.max(1)
            unused = found[:, place] < 0
            found[:, place] = torch.where(unused & (best >= 0), column, found[:, place])
        chosen = found[:, place].clamp(min=0)[:, None]
        for score in scores:
            score.scatter_(1, chosen, torch.where(found[:, place, None] >= 0, -1.0, score.gather(1, chosen)))
    return found


def children(
    neurons: Neurons,
    block: RowBlock,
    column: Tensor,
    above: Tensor | None = None,
    spans: Spans | None = None,
) -> RowBlock:
    """Both children of each row when it is split at `column` [R]: rows 2r (side −1) and 2r + 1 (side +1). Slopes and
    multipliers are the parent's.

    The new multiplier is 0, or, with the coefficients `above` the neurons [R], what makes the parent's lower line of
    the piece, so that a child's bound begins with its parent's. Of columns of spans, `above` are the split points.
    """
    if spans is not None and above is not None and len(spans):
        return _children_of_both(neurons, block, column, above, spans)
    count = len(block)
    parents = torch.arange(2 * count, device=column.device) // 2
    both = block.of_rows(parents)
    side = torch.tensor([-1, 1], dtype=torch.int8, device=column.device).repeat(count)
    rows = torch.arange(2 * count, device=column.device)
    chosen = column[parents]
    start = torch.zeros(2 * count, device=column.device)
    if above is not None:
        slope = both.values[rows, chosen]
        tilt = torch.where(side > 0, 1.0 - slope, slope)
        start = above.clamp(min=0)[parents] * tilt / neurons.scales.float()[chosen]
    both.states[rows, chosen] = side
    both.values[rows, chosen] = start
    return both


def _children_of_both(
    neurons: Neurons, block: RowBlock, column: Tensor, above: Tensor, spans: Spans
) -> RowBlock:
    """The same where some rows are split at a neuron and some at an element of a span. What was chosen for the nodes
    that read the element is begun anew."""
    of_span = column >= len(neurons)
    parents = torch.arange(2 * len(block), device=column.device) // 2
    if bool(of_span.all()) or not len(neurons):
        both = block.of_rows(parents)
    else:
        both = children(neurons, block, torch.where(of_span, 0, column), torch.where(of_span, 0.0, above))
        back = of_span[parents, None]
        both.states[:] = torch.where(back, block.states[parents], both.states)
        both.values[:] = torch.where(back, block.values[parents], both.values)
    where = of_span.nonzero().flatten()
    if len(where) and both.ranges is not None:
        element, at = column[where] - len(neurons), above[where]
        both.ranges.high[2 * where, element] = at
        both.ranges.low[2 * where + 1, element] = at
        for side in (0, 1):
            both.ranges.multipliers[2 * where + side, element] = 0.0
            spans.forget(both.ranges.thetas, 2 * where + side, element)
    return both


def filtered(search: BetaSearch, block: RowBlock, found: Candidates, lower: Tensor) -> Candidates:
    """The candidates in the order of what bounds of their children promise, the best first; `lower` are the rows' own.

    A split is as good as its worse child, and of equal ones as its better child.
    """
    count, many = found.column.shape
    if many == 1 or not count:
        return found
    rows = torch.arange(count, device=lower.device).repeat_interleave(many)
    columns = found.column.flatten()
    valid = columns >= 0
    above = found.above.flatten()[valid]
    spans = search.spans
    if spans is not None:
        # As candidates, neurons start without a multiplier.
        above = torch.where(columns[valid] >= len(search.neurons), above, 0.0)
    both = children(
        search.neurons, block.of_rows(rows[valid]), columns[valid], None if spans is None else above, spans
    )
    bounds = torch.maximum(search.estimate(both).reshape(-1, 2), lower[rows[valid], None]).clamp(max=0.0)
    worth = torch.full((count * many,), -torch.inf, dtype=torch.float64, device=lower.device)
    worth[valid] = bounds.min(1).values + BETTER_CHILD * bounds.max(1).values
    order = worth.reshape(count, many).argsort(dim=1, descending=True, stable=True)
    return Candidates(found.column.gather(1, order), found.above.gather(1, order))
