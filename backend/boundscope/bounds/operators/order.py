"""Which element is the largest: exact where the differences of the elements decide, else every index that may be."""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.relaxation import Constants, Parts, Relaxation
from boundscope.network.operators.order import ArgMaxOfDifferences, Differences


@bounds(Differences)
class DifferencesRule(Rule[Differences]):
    mixing = True

    def interval(self, view: NodeView[Differences]) -> tuple[Interval, ...]:
        x, op = view.interval(0), view.op
        return (
            Interval(
                op.picked(x.lower, 0) - op.picked(x.upper, 1), op.picked(x.upper, 0) - op.picked(x.lower, 1)
            ),
        )

    def terms(self, view: NodeView[Differences]) -> int:
        return 2

    def magnitude(self, view: NodeView[Differences]) -> tuple[Tensor, ...]:
        magnitude, op = view.interval(0).magnitude, view.op
        return (op.picked(magnitude, 0) + op.picked(magnitude, 1),)

    def backward_terms(self, view: NodeView[Differences]) -> int:
        return view.op.count

    def backward(self, view: NodeView[Differences], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        op, inner = view.op, view.interval(0).lower.shape
        carried = coefficients.new_zeros(len(coefficients), *inner)
        for which, part in ((0, coefficients), (1, -coefficients)):
            index = torch.tensor(op.pairs[which], device=part.device)
            carried = carried.index_add(op.axis + 1, index, part)
        return (carried,)


@bounds(ArgMaxOfDifferences)
class ArgMaxOfDifferencesRule(Rule[ArgMaxOfDifferences]):
    exact = True
    mixing = True
    relaxed = True
    final = True

    @staticmethod
    def _able(op: ArgMaxOfDifferences, x: Interval) -> Tensor:
        """Which elements can be the largest; an equal one only where it comes first."""
        if op.gap:
            return ~op.beaten(x.upper < -op.gap, x.lower > op.gap)
        return ~op.beaten(x.upper < 0, x.lower >= 0)

    def wanted(self, op: ArgMaxOfDifferences, position: int, interval: Interval) -> Tensor:
        """Differences that are open, of elements that can both be the largest."""
        able = self._able(op, interval)
        open_ = (interval.lower <= op.gap) & (interval.upper >= -op.gap)
        pairs = op.differences
        return open_ & (interval.lower < interval.upper) & pairs.picked(able, 0) & pairs.picked(able, 1)

    def interval(self, view: NodeView[ArgMaxOfDifferences]) -> tuple[Interval, ...]:
        op = view.op
        able = self._able(op, view.interval(0))
        axis, count = op.differences.axis, op.differences.count
        index = torch.arange(count, dtype=torch.float64, device=able.device)
        index = index.reshape(-1, *[1] * (able.dim() - axis - 1))
        first = torch.where(able, index, float(count)).amin(axis, keepdim=op.keepdims)
        last = torch.where(able, index, -1.0).amax(axis, keepdim=op.keepdims)
        return (Interval(first, last),)

    def relax(self, view: NodeView[ArgMaxOfDifferences], theta: Tensor | None = None) -> Relaxation:
        (interval,) = self.interval(view)
        return Constants(interval.lower, interval.upper)

    def relax_magnitude(self, view: NodeView[ArgMaxOfDifferences], relaxation: Relaxation) -> Tensor:
        (interval,) = self.interval(view)
        return interval.magnitude
