"""Bounds of parts of a context's box: margins of the clauses that are open on them, first with what their parents knew,
then with hidden bounds of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.domains import Domains
from boundscope.bounds.mixtures import LEAST_WEIGHT, Mixtures, mixed_margins
from boundscope.bounds.parts import Shares, at_free_inputs, blame, margins, refine
from boundscope.monitor import Monitor
from boundscope.search.clipping import Boxes, LinearRows
from boundscope.search.input_clauses import Bounded, ClauseTable, PartsInHand, beside
from boundscope.search.input_layout import PartLayout
from boundscope.search.mixing import best_mixtures

ASCENT = 6  # steps on weights and slopes of the last rows of parts that are still open
NEAR = 1.0  # of what a row varies by on its part: it is not ascended where it is further below zero


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
