"""Which elements of spans a domain gains most from splitting, and where.

Both questions are answered by what the relaxations that read an element lose, in units of the bound: at the point where
the bound is reached, and on average over the element's range. A split point is the candidate that leaves the smallest
area between the function and the lines on both sides (Shi et al. 2024, arXiv 2405.21063, choose by the same area).
Nothing here is proven.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.beta import BetaSearch, Points, Proven, RowBlock
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.operators.relaxation import Parts, Relaxation, sum_to
from boundscope.bounds.spans import RangedRows, Spans, splittable, wide
from boundscope.network.graph import Node

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of a range, where what is lost is looked at
SCATTERED = 6  # points all over the ranges of a node whose outputs read many elements
GOLDEN = 0.5 * (5.0**0.5 - 1.0)
SPLITS = (0.25, 0.375, 0.625, 0.75)  # of a range, where it may be split beside the middle
MARGIN = 1.0 / 16  # of a range, that each side of a split has at least


@dataclass(frozen=True)
class _Reader:
    """A node that reads elements of spans, its relaxation on the rows' parts, and the rows' coefficients above it."""

    node: Node
    rule: Rule[Any]
    relaxation: Relaxation
    coefficients: Tensor  # [R, *S_out]
    constants: tuple[Tensor | None, ...]

    def losses(self, points: dict[str, Tensor]) -> dict[str, Tensor] | None:
        """What rows lose where the tensors that are read have values [R, *S], at least 0, laid to their elements."""
        inputs = tuple(points.get(n, c) for n, c in zip(self.node.inputs, self.constants, strict=True))
        found = self._by_input(self.relaxation.losses(self.coefficients, inputs))
        if found is None:
            lost = self._lost(points)
            found = None if lost is None else {name: sum_to(lost, at.shape) for name, at in points.items()}
        return found

    def mean_losses(self, ends: dict[str, Interval]) -> dict[str, Tensor] | None:
        """The same on average over ranges [R, *S]."""
        found = self._by_input(self.relaxation.losses(self.coefficients, None))
        if found is not None:
            return found
        samples = _samples(ends) if self.rule.by_element else _scattered(ends)
        lost = [one for where in samples if (one := self.losses(where)) is not None]
        if not lost:
            return None
        return {name: torch.stack([one[name] for one in lost]).mean(0) for name in ends}

    def _by_input(self, parts: Parts | None) -> dict[str, Tensor] | None:
        if parts is None:
            return None
        found: dict[str, Tensor] = {}
        for name, part in zip(self.node.inputs, parts, strict=True):
            if part is not None:
                found[name] = found[name] + part if name in found else part
        return found

    def _lost(self, points: dict[str, Tensor]) -> Tensor | None:
        """What rows lose at each output, [R, *S_out] at least 0."""
        rank = self.coefficients.dim()
        inputs = tuple(
            _ranked(points[name], rank) if name in points else constant
            for name, constant in zip(self.node.inputs, self.constants, strict=True)
        )
        ends = self.relaxation.at(inputs)
        if ends is None:
            return None
        (value,) = self.node.op.evaluate(inputs)
        below, above = (value - ends[0]).clamp(min=0), (ends[1] - value).clamp(min=0)
        c = self.coefficients
        return torch.where(c > 0, c * below, -c * above)


def _ranked(values: Tensor, rank: int) -> Tensor:
    """Values [R, *S] with as many axes as the output's."""
    return values.reshape(len(values), *(1,) * (rank - values.dim()), *values.shape[1:])


def _readers(search: BetaSearch, ranged: RangedRows, proven: Proven) -> Iterator[_Reader]:
    context, spans = search.context, search.spans
    assert spans is not None
    thetas = spans.parameters(ranged.thetas)
    for node in context.network.nodes:
        rule = context.rule(node)
        if node.name not in proven.at_outputs or not splittable(rule):
            continue
        theta, part, relaxation = thetas.get(node.name), None, None
        if ranged.domains is not None:
            part = (
                ranged.domains.facts(node)
                if theta is None
                else ranged.domains.facts_with(node, theta, proven=False)
            )
        with context.view(node) as view:
            if part is not None:
                relaxation = part.relaxation
            elif theta is not None:
                relaxation = rule.relax(view, theta.double())
            else:
                relaxation = context.facts[node.name].relaxation
            constants = view.constants
        if relaxation is not None:
            shape = context.network.tensors[node.outputs[0]].shape
            above = proven.at_outputs[node.name].double()
            yield _Reader(node, rule, relaxation, above.reshape(len(above), *shape), constants)


def _ends(search: BetaSearch, ranged: RangedRows, name: str, count: int) -> Interval:
    """Of a tensor on every row's part, [R, *S]."""
    if ranged.domains is not None:
        return ranged.domains.interval(name)
    root = search.context.intervals[name]
    shape = (count, *root.lower.shape)
    return Interval(root.lower.expand(shape), root.upper.expand(shape))


def span_scores(search: BetaSearch, block: RowBlock, proven: Proven, points: Points) -> tuple[Tensor, Tensor]:
    """What rows lose at each element, [R, G] float32: where the bound is reached, and twice the mean over the element's
    range (what a rectifier's upper line loses at its kink is twice its mean, too). −1 where a range is too narrow, or
    nothing is lost on it for all that read it."""
    spans, ranged = search.spans, search.ranged(block)
    assert spans is not None
    assert ranged is not None
    assert block.ranges is not None
    count = len(block)
    here: dict[str, dict[str, Tensor]] = {"point": {}, "mean": {}, "wanted": {}}
    at_point = _at_points(search, ranged, points, count)
    for reader in _readers(search, ranged, proven):
        names = [name for name in dict.fromkeys(reader.node.inputs) if name in search.context.intervals]
        ends = {name: _ends(search, ranged, name, count) for name in names}
        lost = reader.losses({name: at_point.get(name, _middle(ends[name])) for name in names})
        typical = reader.mean_losses(ends)
        if lost is None or typical is None:
            continue
        for name in names:
            wanted = reader.rule.wanted_each(reader.node.op, reader.node.inputs.index(name), ends[name])
            for kind, found in (
                ("point", lost[name]),
                ("mean", 2.0 * typical[name]),
                ("wanted", wanted.double()),
            ):
                flat = found.reshape(count, -1)
                here[kind][name] = here[kind][name] + flat if name in here[kind] else flat
    point, mean, wanted = (_gathered(spans, here[kind], count) for kind in ("point", "mean", "wanted"))
    splits = wide(*block.ranges.ends(spans)) & (wanted > 0)
    return torch.where(splits, point, -1.0), torch.where(splits, mean, -1.0)


def _gathered(spans: Spans, dense: dict[str, Tensor], count: int) -> Tensor:
    """Columns [R, G] of values [R, n] by tensor."""
    index = dict(zip(spans.tensors, spans.index, strict=True))
    return spans.together(
        {name: dense[name][:, index[name]] for name in spans.tensors if name in dense}, count
    )


def _middle(ends: Interval) -> Tensor:
    return (ends.lower + ends.upper) / 2


def _samples(ends: dict[str, Interval]) -> Iterator[dict[str, Tensor]]:
    """Points all over the ranges: along the diagonal, and of two tensors along the other one, too."""
    names = list(ends)
    for turned in range(1 if len(names) == 1 else 2):
        for share in SHARES:
            shares = [share if place == 0 or not turned else 1.0 - share for place in range(len(names))]
            yield {
                name: ends[name].lower + one * (ends[name].upper - ends[name].lower)
                for name, one in zip(names, shares, strict=True)
            }


def _scattered(ends: dict[str, Interval]) -> Iterator[dict[str, Tensor]]:
    """Points where neighbouring elements are at different shares of their ranges."""
    for turn in range(SCATTERED):
        found = {}
        for name, one in ends.items():
            place = torch.arange(one.lower[0].numel(), device=one.lower.device, dtype=one.lower.dtype)
            share = ((place + 1) * GOLDEN + (turn + 0.5) / SCATTERED).remainder(1.0)
            found[name] = one.lower + share.reshape(one.lower.shape[1:]) * (one.upper - one.lower)
        yield found


def _at_points(search: BetaSearch, ranged: RangedRows, points: Points, count: int) -> dict[str, Tensor]:
    """What tensors read where the bound is reached, within the rows' ranges, [R, *S]."""
    spans = search.spans
    assert spans is not None
    assert points.spans is not None
    found = {}
    for name, read in spans.apart(points.spans).items():
        ends = _ends(search, ranged, name, count)
        index = spans.index[spans.tensors.index(name)]
        at = _middle(ends).reshape(count, -1).clone()
        at[:, index] = read.double()
        found[name] = torch.minimum(torch.maximum(at.reshape(ends.lower.shape), ends.lower), ends.upper)
    return found


# ------------------------------------------------------------ where


def split_points(
    search: BetaSearch, block: RowBlock, proven: Proven, points: Points, columns: Tensor
) -> Tensor:
    """Where to split the elements `columns` [R, K] of each row (below 0: none), float32 [R, K], strictly inside."""
    spans = search.spans
    assert spans is not None
    assert block.ranges is not None
    assert points.spans is not None
    row, place = (columns >= 0).nonzero(as_tuple=True)
    column = columns[row, place]
    lower, upper = (end[row, column] for end in block.ranges.ends(spans))
    at = points.spans[row, column].double()
    chosen = torch.zeros(len(row), device=columns.device)
    for name, mine, element in _by_tensor(spans, column):
        readers = [node for node in search.context.network.nodes if name in node.inputs]
        bends = _bends(search, readers)
        trials = _trials(lower[mine], upper[mine], at[mine], bends)
        area = torch.zeros_like(trials)
        for node in readers:
            if node.name not in proven.at_outputs:
                continue
            areas = _areas(search, node, name, trials, lower[mine], upper[mine])
            if areas is not None:
                above = proven.at_outputs[node.name][row[mine], element].double()[:, None]
                below, over = areas
                area += torch.where(above > 0, above * below, -above * over)
        chosen[mine] = trials.gather(1, area.argmin(1, keepdim=True)).flatten().float()
    found = torch.zeros(columns.shape, device=columns.device)
    found[row, place] = chosen
    return found


def _bends(search: BetaSearch, readers: list[Node]) -> list[float]:
    found: list[float] = []
    for node in readers:
        rule = search.context.rule(node)
        if splittable(rule):
            with search.context.view(node) as view:
                found += rule.bends(view)
    return list(dict.fromkeys(found))


def _trials(lower: Tensor, upper: Tensor, at: Tensor, bends: list[float]) -> Tensor:
    """Candidates [N, T] for ranges [N], the middle first; where the bound is reached, and bends, if well inside."""
    width = upper - lower
    middle = lower + width / 2
    trials = [middle, *(lower + share * width for share in SPLITS)]
    for special in (at, *(torch.full_like(lower, one) for one in bends)):
        inside = (special > lower + MARGIN * width) & (special < upper - MARGIN * width)
        trials.append(torch.where(inside, special, middle))
    return torch.stack(trials, 1).float().double()


def _by_tensor(spans: Spans, column: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The columns [N] tensor by tensor: its name, which of them are its own, and their flat indices."""
    first = 0
    for name, index in zip(spans.tensors, spans.index, strict=True):
        mine = ((column >= first) & (column < first + len(index))).nonzero().flatten()
        if len(mine):
            yield name, mine, index[column[mine] - first]
        first += len(index)


def _areas(
    search: BetaSearch, node: Node, name: str, trials: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Areas [N, T] between a node's function and its lines below, and above, when ranges [N] are split at `trials`;
    None where the node reads anything else that varies from element to element."""
    context = search.context
    rule = context.rule(node)
    tensors = context.network.tensors
    if not splittable(rule) or not rule.by_element or tensors[name].shape != tensors[node.outputs[0]].shape:
        return None
    starts, stops = (
        torch.stack([lower[:, None].expand_as(trials), trials]),
        torch.stack([trials, upper[:, None].expand_as(trials)]),
    )
    flat = Interval(starts.flatten(), stops.flatten())
    with context.view(node) as view:
        others = [value for value in view.constants if value is not None]
        if len(view.perturbed) > 1 or any(value.numel() != 1 for value in others):
            return None
        some = _of_elements(view, flat)
        relaxation = rule.relax(some)
        constants = some.constants
    below, above = torch.zeros_like(flat.lower), torch.zeros_like(flat.lower)
    for share in SHARES:
        at = flat.lower + share * (flat.upper - flat.lower)
        inputs = tuple(at if one == name else c for one, c in zip(node.inputs, constants, strict=True))
        ends = relaxation.at(inputs)
        if ends is None:
            return None
        (value,) = node.op.evaluate(inputs)
        below, above = below + (value - ends[0]), above + (ends[1] - value)
    width = (flat.upper - flat.lower) / len(SHARES)
    shape = starts.shape
    return (below * width).reshape(shape).sum(0), (above * width).reshape(shape).sum(0)


def _of_elements(view: NodeView[Any], ends: Interval) -> NodeView[Any]:
    """The node as if it read elements in these ranges, [N], and no more."""
    inputs = tuple(None if interval is None else ends for interval in view.inputs)
    constants = tuple(None if value is None else value.reshape(()) for value in view.constants)
    return dataclasses.replace(
        view,
        inputs=inputs,
        constants=constants,
        output_shapes=(tuple(ends.lower.shape),),
        kept=None,
        root=None,
        deviations=(),
    )
