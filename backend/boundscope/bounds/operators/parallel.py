"""Where ranks meet that hold a layer in parts (`sharding.zones`): the entry of a zone and the sums at its end.

Going back, coefficients are summed over the ranks at the entry; going forward, a layer's partial sums at the end. Each
is the other's derivative: a search that differentiates a pass sums gradients at the end of the zone, and lets them
through at its entry. All ranks then hold the same bits, for each adds the parts in the order of ranks itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import Enclosure, NodeView, Rule, bounds
from boundscope.bounds.operators.conv import ConvRule
from boundscope.bounds.operators.linear import GemmRule, MatMulRule
from boundscope.bounds.operators.relaxation import Parts
from boundscope.bounds.support import Block, Elements
from boundscope.sharding.sums import spread_over, summed, summed_parts
from boundscope.sharding.zones import SummedConv, SummedGemm, SummedMatMul, ZoneEntry


@bounds(ZoneEntry)
class ZoneEntryRule(Rule[ZoneEntry]):
    exact = True

    def interval(self, view: NodeView[ZoneEntry]) -> tuple[Interval, ...]:
        return (view.interval(0),)

    def enclose(self, view: NodeView[ZoneEntry]) -> Enclosure:
        deviation = view.deviations[0]
        assert deviation is not None
        return Enclosure(self.interval(view), None, (deviation,))

    def magnitude(self, view: NodeView[ZoneEntry]) -> tuple[Tensor, ...]:
        return (view.interval(0).magnitude,)

    def backward_terms(self, view: NodeView[ZoneEntry]) -> int:
        return view.op.ranks.size

    def backward(self, view: NodeView[ZoneEntry], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        return (summed_parts(coefficients, view.op.ranks),)


class _SummedRule(Rule[Any]):
    """A linear rule over a part of the summed axis. What it tells of the output it tells of the whole sum; coefficients
    go back to this rank's part of the input alone.

    Class attributes:
        part: the rule of the part.
        beside: what `part.terms` counts beside the summed axis.
    """

    mixing = True
    collective = True
    part: Rule[Any]
    beside: int

    def enclose(self, view: NodeView[Any]) -> Enclosure:
        mine = self.part.enclose(view)
        (interval,), magnitudes, deviations = mine.intervals, mine.magnitudes, mine.deviations
        assert magnitudes is not None
        assert deviations is not None
        parts = torch.stack([interval.lower, interval.upper, magnitudes[0], deviations[0]])
        lower, upper, magnitude, deviation = summed(parts, view.op.ranks)
        return Enclosure((Interval(lower, upper),), (magnitude,), (deviation,))

    def interval(self, view: NodeView[Any]) -> tuple[Interval, ...]:
        (mine,) = self.part.interval(view)
        lower, upper = summed(torch.stack([mine.lower, mine.upper]), view.op.ranks)
        return (Interval(lower, upper),)

    def image(self, view: NodeView[Any], inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        (mine,) = self.part.image(view, inputs)
        return (summed(mine, view.op.ranks),)

    def magnitude(self, view: NodeView[Any]) -> tuple[Tensor, ...]:
        (mine,) = self.part.magnitude(view)
        return (summed(mine, view.op.ranks),)

    def terms(self, view: NodeView[Any]) -> int:
        # As of the layer on one rank. Every other rank has a term at least, so that this covers the sum of parts, too.
        return int(view.op.fan_in) + self.beside

    def backward_terms(self, view: NodeView[Any]) -> int:
        return self.part.backward_terms(view)

    def backward(self, view: NodeView[Any], rows: tuple[Tensor | None, ...]) -> Parts:
        whole = tuple(None if one is None else spread_over(one, view.op.ranks) for one in rows)
        return self.part.backward(view, whole)

    def backward_on(
        self, view: NodeView[Any], block: Block, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        whole = dataclasses.replace(block, rows=spread_over(block.rows, view.op.ranks))
        return self.part.backward_on(view, whole, wanted)

    def select(
        self, view: NodeView[Any], elements: Tensor, signs: Tensor, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        return self.part.select(view, elements, signs, wanted)


@bounds(SummedGemm)
class SummedGemmRule(_SummedRule):
    part = GemmRule()
    beside = 3
    as_stored = GemmRule.as_stored


@bounds(SummedMatMul)
class SummedMatMulRule(_SummedRule):
    part = MatMulRule()
    beside = 0
    as_stored = MatMulRule.as_stored
    as_sparse = MatMulRule.as_sparse

    def backward_terms(self, view: NodeView[Any]) -> int:
        # Of the whole weight: parts may be unequal, and all ranks charge the output alike.
        return int(view.op.fan_in) * view.output_shapes[0][-1]


@bounds(SummedConv)
class SummedConvRule(_SummedRule):
    part = ConvRule()
    beside = 2
