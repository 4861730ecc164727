"""Parts of boxes bounded by sweeps alone, thousands at a time: for few free inputs and many neurons, where a part's
CROWN costs more than to halve every input and sweep again; and for properties of many boxes, which need no context of
their own then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds import BoundEngine
from boundscope.bounds.affine_forms import LEAST, SweptMargins
from boundscope.bounds.context import BoxContext
from boundscope.bounds.operators.base import rule_of
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.bounds.sweep import MOST_FREE_INPUTS, Sweeper, sweepable
from boundscope.errors import BoundError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.network.operators.linear import Conv, ConvTranspose
from boundscope.properties.types import Box, Case
from boundscope.search.clipping import Boxes, LinearRows
from boundscope.search.complete import free_inputs
from boundscope.search.input_clauses import Bounded, ClauseTable, PartsInHand, beside
from boundscope.search.input_layout import PartLayout
from boundscope.search.mixing import best_mixtures
from boundscope.search.task import Key
from boundscope.sharding.zones import Zones

# Of the elements that relaxed nodes compute, those that a part deep in a search has unstable.
UNSTABLE_SHARE = 0.1
ELEMENTS = 1 << 19  # of the widest tensor, on all parts that are swept together
MOST_PARTS = 1024


def sweeps_pay(engine: BoundEngine, cases: Sequence[Case]) -> bool:
    """Whether parts of these boxes are better swept and halved than bounded by CROWN: a sweep takes about 2K + 4 passes
    for K free inputs, CROWN one for each unstable neuron, and halving every input makes 2^K parts."""
    free, network = max((free_inputs(one) for one in cases), default=0), engine.network
    if not 0 < free <= MOST_FREE_INPUTS or Zones.of(network).tensors:
        return False
    # Rows through convolutions live on windows, which makes CROWN cheap there; a sweep has no such short cut.
    if any(isinstance(node.op, Conv | ConvTranspose) for node in network.nodes):
        return False
    passes = UNSTABLE_SHARE * relaxed_elements(network)
    if passes < (2 * free + 4) * 2**free:
        return False
    exact = all(
        not each.coeff_error for case in cases for clause in case.clauses for each in clause.constraints
    )
    return exact and _swept_once(engine, cases[0].box)


def relaxed_elements(network: Network) -> int:
    """Elements of tensors that nodes compute which are not linear."""
    count = 0
    for node in network.nodes:
        rule = rule_of(node.op)
        if rule is None:
            continue
        if rule.use([bool(name) and name not in network.constants for name in node.inputs]).relaxed:
            count += sum(network.tensors[name].size for name in node.outputs if name)
    return count


def _swept_once(engine: BoundEngine, box: Box) -> bool:
    """Whether a sweep of a box comes to its end."""
    context = engine.inputs_of(box)
    if not sweepable(context.network, context.subnormal):
        return False
    layout = PartLayout(context)
    free = layout.free.cpu().numpy()
    boxes = Boxes(
        *(torch.from_numpy(end[None, free]).to(layout.context.device) for end in (box.lower, box.upper))
    )
    try:
        with torch.no_grad():
            Sweeper(layout.context).sweep(*layout.input_ends(boxes), _free_positions(layout, boxes)[0])
    except (BoundError, RuntimeError):  # torch.vmap says by a RuntimeError what it cannot take
        return False
    return True


def _free_positions(layout: PartLayout, boxes: Boxes) -> tuple[Tensor, Tensor]:
    """Of the inputs that are free in each box, first those, as many as the most of any box, [D, K]: their positions
    among all inputs, and among the layout's."""
    # Ends of a fixed input are neighbours where its decimal is no binary fraction.
    wide = torch.nextafter(boxes.lower, torch.full_like(boxes.lower, torch.inf)) < boxes.upper
    most = max(1, int(wide.sum(1).max()))
    place = torch.argsort(wide.to(torch.int8), dim=1, descending=True, stable=True)[:, :most]
    return layout.free[place], place


class SweepBounder:
    """Bounds parts as PartBounder does, by one sweep each."""

    def __init__(
        self, context: BoxContext, cases: Sequence[Case], keys: Sequence[Sequence[Key]], monitor: Monitor
    ):
        """`context` knows its inputs alone; the boxes of the cases lie in its box."""
        self.layout = PartLayout(context)
        self.table = ClauseTable.of(context, cases, keys)
        self._monitor = monitor
        self._sweeper = Sweeper(context)
        self.slice = max(1, min(MOST_PARTS, ELEMENTS // self._sweeper.elements))

    def bound(
        self, rows: Mapping[str, NDArray[Any]], place: NDArray[Any], open_: NDArray[np.bool_]
    ) -> Bounded:
        """As PartBounder.bound."""
        self._monitor.check()
        device = self.layout.context.device
        places = torch.from_numpy(place.astype(np.int64)).to(device)
        boxes = Boxes(*(torch.tensor(rows[name], device=device) for name in ("lower", "upper")))
        index = self.table.of_place[places]
        whole = PartsInHand(boxes, places, torch.tensor(open_, device=device), index.shape[1])
        parts = torch.arange(len(places), device=device)
        start = Boxes(boxes.lower.clone(), boxes.upper.clone())
        positions, at = _free_positions(self.layout, boxes)
        swept = self._sweeper.sweep(*self.layout.input_ends(boxes), positions)
        found = swept.margins(self.table.constraints, index)
        lines = self._rows(found, at, whole.open, self.table.clause[places])
        weight = torch.eye(index.shape[1], dtype=torch.float64, device=device).expand(len(parts), -1, -1)
        if self.table.joint:
            mixed, mixture = self._mixed(start, lines, whole.open)
            lines, weight = beside(lines, mixed), torch.cat([weight, mixture], 1)
        whole.cut(parts, start, lines, weight)
        self._blame(whole, found, at, start)
        nothing = self.layout.nothing(len(parts))
        return whole.result(nothing)

    def _rows(self, found: SweptMargins, at: Tensor, open_: Tensor, clause: Tensor) -> LinearRows:
        """Rows over the layout's inputs, of those constraints whose clause is open."""
        count, constraints, _ = found.slope.shape
        slope = found.slope.new_zeros(count, constraints, self.layout.inputs)
        slope.scatter_(2, at[:, None].expand_as(found.slope), found.slope)
        asked = (clause >= 0) & open_.gather(1, clause.clamp(min=0))
        return LinearRows(found.least, slope, torch.where(asked, clause, -1))

    @staticmethod
    def _mixed(start: Boxes, rows: LinearRows, open_: Tensor) -> tuple[LinearRows, Tensor]:
        """Of each clause [D, K], the row of the best mixture of its rows, and the mixture's weights [D, K, R]. A row
        f ≥ L + Σ|a|·d is f ≥ m + a·(x − middle) too, and such bounds add up."""
        clauses = open_.shape[1]
        weight = best_mixtures(start, rows, clauses).weight
        half = (start.upper - start.lower) / 2
        least, slope = torch.nan_to_num(rows.least, neginf=0.0), rows.slope
        met = (slope.abs() * half[:, None]).sum(2)
        mixed = weight @ slope
        size = (weight @ (least.abs() + 2.0 * met)[:, :, None]).squeeze(2)
        middle = (weight @ (least + met)[:, :, None]).squeeze(2)
        terms = rows.least.shape[1] + slope.shape[2] + 16
        value = middle - (mixed.abs() * half[:, None]).sum(2)
        value = value - size * (4 * gamma(terms, ENGINE.unit) * INFLATION) - ENGINE.absolute(terms)
        # A row of which nothing is known takes no part.
        known = ((weight > 0) <= torch.isfinite(rows.least)[:, None]).all(2)
        several = (weight > 0).sum(2) > 1
        number = torch.arange(clauses, device=open_.device).expand(open_.shape)
        used = open_ & known & several
        return LinearRows(torch.where(used, value, -torch.inf), mixed, torch.where(used, number, -1)), weight

    @staticmethod
    def _blame(whole: PartsInHand, found: SweptMargins, at: Tensor, start: Boxes) -> None:
        """Score inputs by what relaxing the worst row cost because of them, where that is anything, and by how much of
        their width is left."""
        loose = (whole.weight[:, :, None] * found.loose).sum(1)
        left = whole.boxes.width / start.width.clamp(min=LEAST)
        score = torch.zeros_like(whole.score).scatter_(1, at, loose) * left
        useful = (score > 0).any(1, keepdim=True)
        whole.score = torch.where(useful, score, whole.score)


def hull(cases: Sequence[Case]) -> Box:
    """The least box that holds the boxes of some cases."""
    boxes = [case.box for case in cases]
    return dataclasses.replace(
        boxes[0],
        lower=np.min([box.lower for box in boxes], axis=0),
        upper=np.max([box.upper for box in boxes], axis=0),
        ball=None,
    )
