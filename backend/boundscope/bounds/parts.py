"""Bounds over many parts of one context's box at a time: hidden tensors, then margins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.constraints import Constraints
from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.relaxation import Lines, per_row
from boundscope.errors import BoundError
from boundscope.monitor import Monitor

LEAST_WIDTH = 2.0**-1000  # of an element, so that shares of none are zero
ROWS = 2048  # carried together, so that a row block of a small network stays in the cache


@dataclass(frozen=True)
class PartMargins:
    """Lower bounds of margins [R] float64, and each row's coefficients at the network's inputs, [R, n] by name."""

    lower: Tensor
    at_inputs: dict[str, Tensor]


@dataclass(frozen=True)
class Shares:
    """How much of the width of elements [N] of a tensor, on parts [N], each of the chosen inputs makes: [N, F]."""

    part: Tensor
    element: Tensor
    share: Tensor


def refine(
    domains: Domains, monitor: Monitor, *, rows: int = ROWS, free: Tensor | None = None
) -> dict[str, Shares]:
    """Tighten, on each part, the tensors that non-linear nodes read, in the network's order, by CROWN.

    Args:
        domains: the parts, which are changed.
        monitor: asked between blocks of rows whether to go on.
        rows: to carry together.
        free: flat indices, over all network inputs in order, of those whose shares are wanted.

    Returns:
        Of each tensor, the shares of the elements that were bounded; nothing where `free` is None.

    Raises:
        BoundError: a bound is not finite, or bounds cross; names the tensor.
        DeadlineError, CancelledError: from the monitor.
    """
    found: dict[str, Shares] = {}
    width = None if free is None else _input_widths(domains, free)
    for name in refinable(domains.context):
        part, element = (
            wanted_elements(domains.context, name, domains.interval(name))
            .reshape(domains.count, -1)
            .nonzero(as_tuple=True)
        )
        if len(part):
            lower, upper, reach = element_bounds(domains, name, part, element, monitor, rows=rows, free=free)
            domains.tighten(name, part, element, lower, upper)
            if width is not None and reach is not None:
                moved = reach * width.index_select(0, part)
                share = moved / moved.sum(1, keepdim=True).clamp(min=LEAST_WIDTH)
                found[name] = Shares(part, element, share)
    return found


def _input_widths(domains: Domains, free: Tensor) -> Tensor:
    """Of chosen inputs on each part, [D, F]."""
    ends = [domains.interval(info.name) for info in domains.context.network.inputs]
    return torch.cat([per_row(one.upper - one.lower) for one in ends], 1).index_select(1, free)


def at_free_inputs(context: BoxContext, at_inputs: Mapping[str, Tensor], count: int, free: Tensor) -> Tensor:
    """Coefficients [R, F] float64 of chosen inputs, out of those that a pass of `count` rows kept by name."""
    parts = [
        at_inputs[info.name].to(torch.float64)
        if info.name in at_inputs
        else torch.zeros(count, info.size, dtype=torch.float64, device=context.device)
        for info in context.network.inputs
    ]
    return torch.cat(parts, 1).index_select(1, free)


def refinable(context: BoxContext) -> tuple[str, ...]:
    """The tensors that non-linear nodes read and other nodes compute, in the network's order."""
    produced = {name for node in context.network.nodes for name in node.outputs}
    found: dict[str, None] = {}
    for node in context.network.nodes:
        if context.rule(node).relaxed:
            found |= {name: None for name in node.inputs if name in produced and name in context.intervals}
    return tuple(found)


def wanted_elements(context: BoxContext, name: str, interval: Interval) -> Tensor:
    """Boolean [D, *S], as the interval on D parts: elements whose tighter bounds would tighten some relaxation."""
    wanted = torch.zeros(interval.lower.shape, dtype=torch.bool, device=interval.lower.device)
    for node in context.network.nodes:
        rule = context.rule(node)
        if rule.relaxed:
            for position, read in enumerate(node.inputs):
                if read == name:
                    wanted |= rule.wanted_each(node.op, position, interval)
    return wanted


def element_bounds(
    domains: Domains,
    name: str,
    part: Tensor,
    element: Tensor,
    monitor: Monitor,
    *,
    rows: int = ROWS,
    free: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """CROWN bounds of elements [N] (flat indices) of a tensor on parts [N]: [N] float64 both; and, of the inputs
    `free`, the sizes of their coefficients in both together, [N, F]."""
    count = len(part)
    context = domains.context
    found = torch.zeros(2 * count, dtype=torch.float64, device=part.device)
    reaches: list[Tensor] = []
    rows = max(2, rows // 2 * 2)  # both rows of an element
    for first in range(0, 2 * count, rows):
        monitor.check()
        index = torch.arange(first, min(first + rows, 2 * count), device=part.device)
        pair = index // 2
        signs = (1.0 - 2.0 * (index % 2)).to(torch.float64)
        one = BackwardPass(context, domains=domains, which=part[pair], keep=free is not None)
        found[index] = one.lower_elements(name, element[pair], signs)
        if free is not None:
            sizes = at_free_inputs(context, one.at_inputs, len(pair), free).abs()
            reaches.append(sizes.reshape(len(pair) // 2, 2, -1).sum(1))
    pairs = found.reshape(count, 2)
    return pairs[:, 0], -pairs[:, 1], torch.cat(reaches) if reaches else None


def blame(
    domains: Domains,
    of_rows: Mapping[str, Tensor],
    part: Tensor,
    shares: Mapping[str, Shares],
    monitor: Monitor,
    *,
    rows: int = ROWS,
) -> Tensor | None:
    """How much of the looseness of rows, [R, *S] by tensor and one a part at most, comes with each input: [R, F].

    What a row loses at a relaxed element is its coefficient there times the distance of the two lines in the middle of
    the interval; and the interval is as wide as the inputs make it. Halving an input halves its share of that. None
    where there are no such elements.
    """
    if not shares:
        return None
    blames = [
        _blame_of_block(
            domains,
            {name: one[first : first + rows] for name, one in of_rows.items()},
            part[first : first + rows],
            shares,
            monitor,
        )
        for first in range(0, len(part), rows)
    ]
    return torch.cat(blames)


def _blame_of_block(
    domains: Domains,
    of_rows: dict[str, Tensor],
    part: Tensor,
    shares: Mapping[str, Shares],
    monitor: Monitor,
) -> Tensor:
    monitor.check()
    one = BackwardPass(domains.context, domains=domains, which=part, keep=True)
    one.lower(of_rows, len(part))
    inputs = next(iter(shares.values())).share.shape[1]
    total = torch.zeros(len(part), inputs, dtype=torch.float64, device=part.device)
    row_of = torch.full((domains.count,), -1, dtype=torch.int64, device=part.device)
    row_of[part] = torch.arange(len(part), device=part.device)
    for node in one.relaxed_nodes:
        facts = domains.facts(node)
        if facts is None or node.name not in one.at_outputs or not isinstance(facts.relaxation, Lines):
            continue
        lines = facts.relaxation
        name = node.inputs[lines.position]
        if name not in shares:
            continue
        ends, share = domains.interval(name), shares[name]
        gap = _gap(lines, (ends.lower + ends.upper) / 2)
        row = row_of[share.part]
        there = (row >= 0).nonzero().flatten()
        row, element = row[there], share.element[there]
        loss = one.at_outputs[node.name][row, element].abs() * gap[share.part[there], element]
        total.index_add_(0, row, loss[:, None] * share.share[there])
    return total


def _gap(lines: Lines, at: Tensor) -> Tensor:
    """How far the upper line is above the lower one at points [D, *S]: [D, n]."""
    gap = (lines.upper_slope - lines.lower_slope) * at + lines.upper_intercept
    return per_row(gap if lines.lower_intercept is None else gap - lines.lower_intercept)


def margins(
    domains: Domains,
    constraints: Constraints,
    part: Tensor,
    constraint: Tensor,
    monitor: Monitor,
    *,
    rows: int = ROWS,
) -> PartMargins:
    """Lower bounds of the margins of constraints [R] (their numbers) on parts [R].

    Raises:
        BoundError: a margin is NaN.
    """
    lowers: list[Tensor] = []
    inputs: list[dict[str, Tensor]] = []
    for first in range(0, len(part), rows):
        monitor.check()
        chosen = slice(first, first + rows)
        one = BackwardPass(domains.context, domains=domains, which=part[chosen], keep=True)
        of_rows = constraints.of_rows(constraint[chosen])
        lowers.append(one.lower(of_rows, len(part[chosen])))
        inputs.append(one.at_inputs)
    lower = torch.cat(lowers)
    if bool(torch.isnan(lower).any()):
        raise BoundError("the margin of a part of the box is NaN")
    moved = lower - constraints.goals[constraint]
    infinity = torch.full((), -torch.inf, dtype=moved.dtype, device=moved.device)
    exact = constraints.goals[constraint] == 0  # a bound of zero stays zero
    names = inputs[0].keys()
    return PartMargins(
        torch.where(exact, moved, torch.nextafter(moved, infinity)),
        {name: torch.cat([one[name] for one in inputs]) for name in names},
    )
