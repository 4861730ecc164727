"""How parts of a context's box are kept in a pool, and how they are bounded: margins of the clauses that are open on
them, first with what their parents knew, then with hidden bounds of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains
from boundscope.bounds.interval import Interval
from boundscope.bounds.mixtures import LEAST_WEIGHT, Mixtures, mixed_margins
from boundscope.bounds.parts import (
    Constraints,
    Shares,
    at_free_inputs,
    blame,
    margins,
    refinable,
    refine,
    wanted_elements,
)
from boundscope.monitor import Monitor
from boundscope.properties.types import Case, LinearConstraint
from boundscope.search.clipping import Boxes, LinearRows, clipped
from boundscope.search.mixing import best_mixtures
from boundscope.search.pool import Column
from boundscope.search.task import Key

Rows = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]

BLOCK_ELEMENTS = 1 << 18  # of the widest tensor, in the rows that are carried together
MOST_ROWS, LEAST_ROWS = 2048, 16
ASCENT = 6  # steps on weights and slopes of the last rows of parts that are still open
NEAR = 1.0  # of what a row varies by on its part: it is not ascended where it is further below zero
HIDDEN = ("hidden_lower", "hidden_upper")  # columns
# Hidden intervals that take more than this for one domain are bounded anew on each part.
MOST_HIDDEN_BYTES = 1 << 18


@dataclass(frozen=True)
class Hidden:
    """Elements of a tensor whose intervals parts keep: flat indices, and their place among all that are kept."""

    name: str
    index: Tensor
    place: slice


class PartLayout:
    """Parts of one context's box as rows of arrays: ends of the free inputs, and of hidden elements."""

    def __init__(self, context: BoxContext) -> None:
        self.context = context
        network = context.network
        ends = [context.intervals[info.name] for info in network.inputs]
        self.lower = torch.cat([one.lower.flatten() for one in ends])
        self.upper = torch.cat([one.upper.flatten() for one in ends])
        self.free = (self.lower < self.upper).nonzero().flatten()
        found: list[Hidden] = []
        count = 0
        for name in refinable(context):
            root = context.intervals[name]
            tall = Interval(root.lower[None], root.upper[None])
            index = wanted_elements(context, name, tall).flatten().nonzero().flatten()
            found.append(Hidden(name, index, slice(count, count + len(index))))
            count += len(index)
        self.hidden_count = count if 8 * count <= MOST_HIDDEN_BYTES else 0
        self.hidden = tuple(found) if self.hidden_count else ()
        widest = max(one.lower.numel() for one in context.intervals.values())
        self.rows = max(LEAST_ROWS, min(MOST_ROWS, BLOCK_ELEMENTS // widest))

    @property
    def inputs(self) -> int:
        """How many inputs are free."""
        return len(self.free)

    @property
    def kept_elements(self) -> NDArray[np.int64]:
        """Which elements the hidden columns belong to: the number of the tensor and the flat index, [2, kept]."""
        tensors = [np.full(len(one.index), number) for number, one in enumerate(self.hidden)]
        indices = [one.index.cpu().numpy() for one in self.hidden]
        if not tensors:
            return np.zeros((2, 0), np.int64)
        return np.stack([np.concatenate(tensors), np.concatenate(indices)]).astype(np.int64)

    @property
    def largest(self) -> Floats:
        """The largest absolute value of each free input."""
        both = torch.maximum(self.lower.abs(), self.upper.abs())
        largest: Floats = both[self.free].cpu().numpy()
        return largest

    def columns(self) -> dict[str, Column]:
        return {
            "lower": Column(np.float64, (self.inputs,)),
            "upper": Column(np.float64, (self.inputs,)),
            **{name: Column(np.float32, (self.hidden_count,)) for name in HIDDEN},
        }

    @cached_property
    def elements(self) -> int:
        """Of all tensors that relaxed nodes read."""
        return sum(math.prod(self.context.network.tensors[name].shape) for name in refinable(self.context))

    def start(self, lower: Floats, upper: Floats) -> Rows:
        """Boxes [D, inputs] as parts of which no more is known."""
        count = len(lower)
        free = self.free.cpu().numpy()
        low = np.full((count, self.hidden_count), -np.inf, np.float32)
        return {
            "lower": lower[:, free],
            "upper": upper[:, free],
            "hidden_lower": low,
            "hidden_upper": -low,
        }

    def nothing(self, count: int) -> tuple[Tensor, Tensor]:
        """Hidden ends of parts of which no more is known than of the root."""
        low = torch.full((count, self.hidden_count), -torch.inf, device=self.context.device)
        return low, -low

    def points(self, free: Floats) -> Floats:
        """Points [N, free inputs] with the inputs that are fixed, [N, inputs]."""
        whole = np.repeat(self.lower.cpu().numpy()[None], len(free), 0)
        whole[:, self.free.cpu().numpy()] = free
        return whole

    def domains(self, boxes: Boxes, hidden: tuple[Tensor, Tensor]) -> Domains:
        """`hidden`: ends [D, kept elements], float32 or float64."""
        context, count = self.context, len(boxes.lower)
        intervals: dict[str, Interval] = {}
        lower, upper = self.input_ends(boxes)
        first = 0
        for info in context.network.inputs:
            part = slice(first, first + info.size)
            first += info.size
            intervals[info.name] = Interval(
                lower[:, part].reshape(count, *info.shape), upper[:, part].reshape(count, *info.shape)
            )
        for one in self.hidden:
            root = context.intervals[one.name]
            shape = root.lower.shape
            low = root.lower.flatten().expand(count, -1).clone()
            high = root.upper.flatten().expand(count, -1).clone()
            kept_low, kept_high = (ends[:, one.place].to(low.dtype) for ends in hidden)
            low[:, one.index] = torch.maximum(low[:, one.index], kept_low)
            high[:, one.index] = torch.minimum(high[:, one.index], kept_high)
            intervals[one.name] = Interval(low.reshape(count, *shape), high.reshape(count, *shape))
        return Domains(context, intervals)

    def input_ends(self, boxes: Boxes) -> tuple[Tensor, Tensor]:
        """Ends of all inputs in order, as a runtime may read them, [D, inputs]."""
        count = len(boxes.lower)
        lower, upper = (end.expand(count, -1).clone() for end in (self.lower, self.upper))
        low, high = boxes.lower, boxes.upper
        least = self.context.model.underflow
        if least:  # as BoxContext.over: a runtime that flushes reads a subnormal input as zero
            low = torch.where((low > 0) & (low < least), 0.0, low)
            high = torch.where((high < 0) & (high > -least), 0.0, high)
        lower[:, self.free], upper[:, self.free] = low, high
        return lower, upper

    def hidden_of(self, domains: Domains) -> tuple[Tensor, Tensor]:
        """What is known of the kept elements on each part: [D, kept] float32, rounded outwards."""
        lows, highs = [], []
        for one in self.hidden:
            ends = domains.interval(one.name)
            lows.append(ends.lower.reshape(domains.count, -1)[:, one.index])
            highs.append(ends.upper.reshape(domains.count, -1)[:, one.index])
        if not lows:
            nothing = torch.zeros(domains.count, 0)
            return nothing, nothing
        return _rounded_down(torch.cat(lows, 1)), -_rounded_down(-torch.cat(highs, 1))


def _rounded_down(values: Tensor) -> Tensor:
    """Float32 at or below float64."""
    nearest = values.to(torch.float32)
    below = torch.nextafter(nearest, torch.full_like(nearest, -torch.inf))
    return torch.where(nearest.to(values.dtype) > values, below, nearest)


@dataclass(frozen=True)
class ClauseTable:
    """The constraints of the clauses that a search has to exclude, of all of its cases.

    Attributes:
        keys: of the clauses, by place and then by number: `keys[place][k]`; a place is one of the search's cases.
        constraints: all of them, in one row block.
        of_place: [places, R] number of each place's constraints, −1 beyond the last.
        clause: [places, R] which of the place's clauses each belongs to, −1 beyond the last.
        there: [places, K] whether there is a clause of that number.
    """

    keys: tuple[tuple[Key, ...], ...]
    constraints: Constraints
    of_place: Tensor
    clause: Tensor
    there: NDArray[np.bool_]

    @property
    def joint(self) -> bool:
        """Whether some clause has several constraints."""
        clause = self.clause
        return bool(((clause[:, 1:] == clause[:, :-1]) & (clause[:, 1:] >= 0)).any())

    @classmethod
    def of(cls, context: BoxContext, cases: Sequence[Case], keys: Sequence[Sequence[Key]]) -> ClauseTable:
        """`keys[p]` are the open clauses of the case at place p; `cases` are all of the property."""
        flat: list[LinearConstraint] = []
        numbers: list[list[int]] = []
        clauses: list[list[int]] = []
        for mine in keys:
            number, clause = [], []
            for local, (case, index) in enumerate(mine):
                for constraint in cases[case].clauses[index].constraints:
                    number.append(len(flat))
                    clause.append(local)
                    flat.append(constraint)
            numbers.append(number)
            clauses.append(clause)
        most = max(1, *(len(number) for number in numbers)) if numbers else 1
        there = np.zeros((len(keys), max(len(mine) for mine in keys)), np.bool_)
        for place, mine in enumerate(keys):
            there[place, : len(mine)] = True
        return cls(
            tuple(tuple(mine) for mine in keys),
            Constraints.of(context, flat),
            torch.tensor([row + [-1] * (most - len(row)) for row in numbers], device=context.device),
            torch.tensor([row + [-1] * (most - len(row)) for row in clauses], device=context.device),
            there,
        )


@dataclass
class Bounded:
    """D parts after they were bounded.

    `rows` as in a pool, shrunk to where open clauses may hold; `open` [D, K]; `lower` [D, K] of the margin of each
    clause on the part (∞ of those that are not open); `score` [D, F] of what each input's width costs the worst row;
    `worst` [D, F] the point where that row is least.
    """

    rows: Rows
    open: NDArray[np.bool_]
    lower: Floats
    score: Floats
    worst: Floats


class PartBounder:
    """Bounds parts of one context's box."""

    def __init__(self, layout: PartLayout, table: ClauseTable, monitor: Monitor) -> None:
        self.layout, self.table, self._monitor = layout, table, monitor
        context = layout.context
        self.slopes = any(context.rule(node).slope_free for node in context.network.nodes)

    def bound(
        self, rows: Mapping[str, NDArray[Any]], place: NDArray[Any], open_: NDArray[np.bool_]
    ) -> Bounded:
        """Parts as a pool keeps them, with the place of each one's case and its open clauses [D, K]; none of these
        arrays is changed."""
        device = self.layout.context.device
        places = torch.from_numpy(place.astype(np.int64)).to(device)
        whole = PartsInHand(
            Boxes(*(torch.tensor(rows[name], device=device) for name in ("lower", "upper"))),
            places,
            torch.tensor(open_, device=device),
            self.table.of_place.shape[1],
        )
        hidden = tuple(torch.tensor(rows[name], device=device) for name in ("hidden_lower", "hidden_upper"))
        domains = self.layout.domains(whole.boxes, (hidden[0], hidden[1]))
        if self.layout.hidden_count:
            self._step(whole, domains, torch.arange(len(place), device=device), ascent=0)
        left = whole.open.any(1).nonzero().flatten()
        if len(left):
            domains = self._on(whole, left, domains)
            shares = refine(domains, self._monitor, rows=self.layout.rows, free=self.layout.free)
            self._step(whole, domains, left, ascent=ASCENT)
            self._blame(whole, domains, left, shares)
            low, high = self.layout.hidden_of(domains)
            hidden[0][left], hidden[1][left] = low, high
        return whole.result(hidden)

    def _on(self, whole: PartsInHand, left: Tensor, domains: Domains) -> Domains:
        """Some parts on their own, with the boxes as they are by now."""
        own = domains.of_parts(left)
        boxes = Boxes(whole.boxes.lower[left], whole.boxes.upper[left])
        known = {one.name: own.intervals[one.name] for one in self.layout.hidden}
        fresh = self.layout.domains(boxes, self.layout.nothing(len(left)))
        return Domains(self.layout.context, {**fresh.intervals, **known})

    def _step(self, whole: PartsInHand, domains: Domains, parts: Tensor, *, ascent: int) -> None:
        """Margins of open clauses on some of the parts, which are those of `domains`, and what they cut off: first
        of each constraint, then of mixtures of a clause's, after so many steps of ascent, where it is still open."""
        start = Boxes(whole.boxes.lower[parts], whole.boxes.upper[parts])
        rows = self._rows(whole, domains, parts)
        whole.cut(parts, start, rows, self._each(rows))
        still = whole.open[parts].any(1).nonzero().flatten()
        if len(still) and (self.table.joint or (ascent and self.slopes)):
            own = LinearRows(rows.least[still], rows.slope[still], rows.clause[still])
            start = Boxes(start.lower[still], start.upper[still])
            mixed, weight = self._mixed(whole, domains, parts, still, start, own, ascent)
            whole.cut(parts[still], start, beside(own, mixed), torch.cat([self._each(own), weight], 1))

    @staticmethod
    def _each(rows: LinearRows) -> Tensor:
        """Weights [D, R, R] of rows that are single constraints."""
        count = rows.least.shape[1]
        one = torch.eye(count, dtype=torch.float64, device=rows.least.device)
        return one.expand(len(rows.least), count, count)

    def _mixed(
        self,
        whole: PartsInHand,
        domains: Domains,
        parts: Tensor,
        still: Tensor,
        start: Boxes,
        rows: LinearRows,
        ascent: int,
    ) -> tuple[LinearRows, Tensor]:
        """Of each open clause of the parts that are `still` open, one row of a mixture, and its weights [D, K, R]."""
        table, chosen = self.table, parts[still]
        open_ = whole.open[chosen]
        clauses = open_.shape[1]
        mixed = best_mixtures(start, rows, clauses)
        weight = mixed.weight
        asked = open_ & (mixed.least > -NEAR * mixed.spread if ascent else (weight > 0).sum(2) > 1)
        part, clause = asked.nonzero(as_tuple=True)
        least = torch.full(open_.shape, -torch.inf, dtype=torch.float64, device=part.device)
        slope = torch.zeros((*open_.shape, self.layout.inputs), dtype=torch.float64, device=part.device)
        if len(part):
            of_clause = rows.clause[part] == clause[:, None]
            index = torch.where(of_clause, table.of_place[whole.place[chosen[part]]], -1)
            # All constraints of the clause take part in an ascent.
            first = torch.where(of_clause, weight[part, clause].clamp(min=LEAST_WEIGHT), 0.0)
            found = mixed_margins(
                domains,
                table.constraints,
                still[part],
                Mixtures.of(index, first),
                self._monitor,
                steps=ascent,
                rows=self.layout.rows,
            )
            least[part, clause] = found.margins.lower
            slope[part, clause] = at_free_inputs(
                self.layout.context, found.margins.at_inputs, len(part), self.layout.free
            )
            weight[part, clause] = found.mixtures.weight
        number = torch.arange(clauses, device=part.device)
        return LinearRows(least, slope, torch.where(asked, number, -1)), weight

    def _rows(self, whole: PartsInHand, domains: Domains, parts: Tensor) -> LinearRows:
        """Of each constraint of an open clause, a row on each part."""
        table = self.table
        place = whole.place[parts]
        clause = table.clause[place]
        open_ = whole.open[parts]
        asked = (clause >= 0) & open_.gather(1, clause.clamp(min=0))
        part, column = asked.nonzero(as_tuple=True)
        found = margins(
            domains,
            table.constraints,
            part,
            table.of_place[place][part, column],
            self._monitor,
            rows=self.layout.rows,
        )
        least = torch.full(asked.shape, -torch.inf, dtype=torch.float64, device=part.device)
        least[part, column] = found.lower
        slope = torch.zeros((*asked.shape, self.layout.inputs), dtype=torch.float64, device=part.device)
        slope[part, column] = at_free_inputs(
            self.layout.context, found.at_inputs, len(part), self.layout.free
        )
        return LinearRows(least, slope, torch.where(asked, clause, -1))

    def _blame(
        self, whole: PartsInHand, domains: Domains, parts: Tensor, shares: Mapping[str, Shares]
    ) -> None:
        """Score inputs by what halving them gains, where that can be told."""
        still = whole.open[parts].any(1).nonzero().flatten()
        if not len(still):
            return
        chosen = parts[still]
        mixtures = Mixtures.of(self.table.of_place[whole.place[chosen]], whole.weight[chosen])
        found = blame(
            domains,
            mixtures.rows(self.table.constraints),
            still,
            shares,
            self._monitor,
            rows=self.layout.rows,
        )
        if found is not None:
            useful = (found > 0).any(1, keepdim=True)
            whole.score[chosen] = torch.where(useful, found, whole.score[chosen])


def beside(rows: LinearRows, more: LinearRows) -> LinearRows:
    """Rows of the same boxes, with more of them behind."""
    return LinearRows(
        torch.cat([rows.least, more.least], 1),
        torch.cat([rows.slope, more.slope], 1),
        torch.cat([rows.clause, more.clause], 1),
    )


class PartsInHand:
    """D parts while they are bounded: what is left of their boxes, their open clauses, and their last rows."""

    def __init__(self, boxes: Boxes, place: Tensor, open_: Tensor, constraints: int) -> None:
        self.boxes, self.place, self.open = boxes, place, open_
        count, inputs = boxes.lower.shape
        self.lower = torch.full(open_.shape, -torch.inf, dtype=torch.float64, device=place.device)
        self.score = torch.zeros(count, inputs, dtype=torch.float64, device=place.device)
        self.worst = boxes.lower.clone()
        # How that row mixes the constraints of its part's place, [D, R].
        self.weight = torch.zeros(count, constraints, dtype=torch.float64, device=place.device)

    def cut(self, parts: Tensor, start: Boxes, rows: LinearRows, weight: Tensor) -> None:
        """Take off some parts what rows on `start` cut off, and keep what they say; `weight` [D, rows, R] tells how
        each mixes constraints."""
        cut = clipped(start, rows, self.open[parts])
        lower = torch.maximum(self.boxes.lower[parts], cut.boxes.lower)
        upper = torch.minimum(self.boxes.upper[parts], cut.boxes.upper)
        # Both hold what is left; where that is nothing, they need not meet.
        self.open[parts] = cut.open & (lower <= upper).all(1, keepdim=True)
        meet = lower <= upper
        self.boxes.lower[parts] = torch.where(meet, lower, cut.boxes.lower)
        self.boxes.upper[parts] = torch.where(meet, upper, cut.boxes.upper)
        self._note(parts, LinearRows(cut.least, rows.slope, rows.clause), weight)

    def _note(self, parts: Tensor, rows: LinearRows, weight: Tensor) -> None:
        """Keep the bounds of clauses, and the row by which the worst of them is the least bad."""
        open_ = self.open[parts]
        there = rows.clause >= 0
        number = rows.clause.clamp(min=0)
        least = torch.where(there, rows.least, -torch.inf)
        of_clause = torch.full(open_.shape, -torch.inf, dtype=torch.float64, device=least.device)
        of_clause = of_clause.scatter_reduce(1, number, least, "amax")
        # What was cut off has a positive margin.
        self.lower[parts] = torch.maximum(self.lower[parts], of_clause.clamp(max=0.0))
        worst = torch.where(open_, of_clause, torch.inf).argmin(1, keepdim=True)
        row = torch.where(there & (number == worst), least, -torch.inf).argmax(1)
        self.weight[parts] = weight[torch.arange(len(parts), device=row.device), row]
        slope = rows.slope[torch.arange(len(parts), device=row.device), row]
        low, high = self.boxes.lower[parts], self.boxes.upper[parts]
        self.score[parts] = slope.abs() * (high - low)
        self.worst[parts] = torch.where(slope > 0, low, high)

    def result(self, hidden: tuple[Tensor, ...]) -> Bounded:
        lower = torch.where(self.open, self.lower, torch.inf)
        return Bounded(
            {
                "lower": self.boxes.lower.cpu().numpy(),
                "upper": self.boxes.upper.cpu().numpy(),
                "hidden_lower": hidden[0].cpu().numpy(),
                "hidden_upper": hidden[1].cpu().numpy(),
            },
            self.open.cpu().numpy(),
            lower.cpu().numpy(),
            self.score.cpu().numpy(),
            self.worst.cpu().numpy(),
        )
