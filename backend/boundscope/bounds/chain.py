"""α-CROWN's search along a chain of matrix products and rectifiers, with the gradient written out.

Most networks that are searched are such chains, and all that a step must remember of one are the coefficients that
meet each rectifier from above: no graph is recorded, the products read the weights where they are, and the slopes
move while the gradient passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from boundscope.bounds.backward import BackwardPass, Blocks
from boundscope.bounds.context import BoxContext
from boundscope.bounds.ledger import MemoryLedger
from boundscope.bounds.operators.linear import GemmRule, Matrix, blocked_product, product
from boundscope.bounds.operators.moves import ReshapeRule
from boundscope.bounds.operators.relaxation import Lines, per_row
from boundscope.bounds.steps import SlopeStep
from boundscope.bounds.support import Elements, Support, Windows
from boundscope.bounds.total import Total
from boundscope.network.graph import Node
from boundscope.sharding.matrices import LentMatrix


class Slopes(Protocol):
    """Slopes [R, m] of one node's free elements, and what makes a step of them."""

    values: Tensor

    def ascend(self, gradient: Tensor, step: int, rate: float) -> None:
        """Step number `step` up the gradient [R, m]."""


class _Beginning(BackwardPass):
    """A search pass that stops where rows have begun, before they meet any relaxation."""

    def __init__(self, context: BoxContext) -> None:
        super().__init__(context, search=True)
        self.blocks: Blocks = {}
        self.constant: Tensor | None = None

    def _finish(self, pending: Blocks, total: Total) -> Tensor:
        for name, block in pending.items():
            if name in self._context.references:  # a constant output has none, and is no chain
                self._to_distance(name, block, total)
        self.blocks, self.constant = dict(pending), total.lower()
        return self.constant


@dataclass(frozen=True)
class _Product:
    """Rows [R, k] through a matrix [k, n] of a Gemm, and gradients [R, n] back."""

    context: BoxContext
    node: Node
    rule: GemmRule
    support: Support | None
    wanted: Elements | None
    factor: float
    held: Tensor | None  # the matrix, where it is at hand; else it is lent for each use

    @classmethod
    def of(cls, context: BoxContext, node: Node, rule: GemmRule, support: Support | None) -> _Product:
        wanted = context.live(node.inputs[0])
        with context.view(node, torch.float32) as view:
            held = rule.between(view, support, wanted) if view.kept is not None else None
        if isinstance(held, LentMatrix):
            held = None
        return cls(context, node, rule, support, wanted, view.op.alpha, held)

    def _with(self, multiply: Callable[[Matrix], Tensor]) -> Tensor:
        if self.held is not None:
            carried = multiply(self.held)
        else:
            with self.context.view(self.node, torch.float32) as view:
                carried = multiply(self.rule.between(view, self.support, self.wanted))
        self.context.ledger.hold(carried, "rows")
        return carried if self.factor == 1.0 else carried.mul_(self.factor)

    def through(self, rows: Tensor) -> Tensor:
        return self._with(lambda matrix: blocked_product(rows, matrix))

    def back(self, gradient: Tensor) -> Tensor:
        return self._with(lambda matrix: product(gradient, matrix))


@dataclass(frozen=True)
class _Spread:
    """Rows on some elements of a tensor as rows on all of them."""

    support: Elements

    def through(self, rows: Tensor) -> Tensor:
        return per_row(self.support.whole(rows))

    def back(self, gradient: Tensor) -> Tensor:
        return gradient.index_select(1, self.support.index)


class _Kink:
    """Rows [R, k] through lines whose lower slopes are each row's own; remembers what the gradient needs.

    As SlopeStep.searched, in place.
    """

    def __init__(self, ledger: MemoryLedger, step: SlopeStep, slopes: Slopes | None) -> None:
        self._ledger, self._step, self._slopes = ledger, step, slopes
        others = step.slope[: step.free.start] if isinstance(step.free, slice) else step.slope
        self._plain = bool((others == 1.0).all()) and (isinstance(step.free, slice) or not len(step.free))
        self._positive: Tensor | None = None

    def through(self, rows: Tensor, constant: Tensor) -> Tensor:
        step, slopes = self._step, self._slopes
        if slopes is None:
            return rows if self._plain else rows.mul_(step.slope)
        tail = rows[:, step.free]
        positive = tail.clamp(min=0)
        weighed = positive * slopes.values
        negative = tail.sub_(positive)
        constant += weighed @ step.x - positive @ step.y + negative @ step.upper_intercept
        met = negative.mul_(step.upper_slope).add_(weighed)
        self._positive = self._ledger.hold(positive, "rows")
        self._others(rows)
        if not isinstance(step.free, slice):
            rows[:, step.free] = met
        return rows

    def _others(self, rows: Tensor) -> None:
        """The elements without a slope of their own."""
        step = self._step
        if self._plain:
            return
        if isinstance(step.free, slice):
            rows[:, : step.free.start].mul_(step.slope[: step.free.start])
        else:
            rows.mul_(step.slope)

    def back(self, gradient: Tensor, number: int, rate: float, *, last: bool) -> Tensor:
        """The gradient [R, k] at what `through` gave as that at what it took, where something is above; the slopes
        make a step up theirs."""
        step, slopes = self._step, self._slopes
        if slopes is None:
            return gradient if self._plain else gradient.mul_(step.slope)
        positive, self._positive = self._positive, None
        assert positive is not None
        tail = gradient[:, step.free]
        along = tail + step.x
        if last:
            slopes.ascend(positive.mul_(along), number, rate)
            return gradient
        above = tail.mul_(step.upper_slope).add_(step.upper_intercept)
        of_slopes = positive * along
        below = along.mul_(slopes.values).sub_(step.y)
        met = torch.where(positive > 0, below, above)
        del positive, below
        slopes.ascend(of_slopes, number, rate)
        self._others(gradient)
        gradient[:, step.free] = met
        return gradient


class ChainSearch:
    """Steps of a search for the slopes of one chunk of rows."""

    def __init__(
        self,
        rows: Tensor,
        constant: Tensor,
        steps: list[_Product | _Spread | _Kink],
        radius: Tensor,
        shift: Tensor | None,
    ) -> None:
        """
        Args:
            rows, constant: [R, k] float32 and [R] float64, where the rows have begun.
            steps: on the way from there to the input, in order.
            radius, shift: [n] float32, the input's interval from its reference point.
        """
        self._rows, self._constant, self._steps = rows, constant, steps
        self._radius, self._shift = radius, shift
        self._at_input: Tensor | None = None
        kinks = (number for number, one in enumerate(steps) if isinstance(one, _Kink))
        self._first_kink = next(kinks, len(steps))

    def forward(self) -> Tensor:
        """Lower bounds [R] float64 with the slopes as they are; no proof."""
        constant = self._constant.clone()
        rows = self._rows
        for one in self._steps:
            if isinstance(one, _Kink):
                rows = one.through(rows.clone() if rows is self._rows else rows, constant)
            else:
                rows = one.through(rows)
        self._at_input = rows
        spread = rows.abs() @ self._radius
        constant -= spread if self._shift is None else spread - rows @ self._shift
        return constant

    def ascend(self, number: int, rate: float) -> None:
        """Step `number` of the slopes up the gradient of the bounds that `forward` has just given."""
        rows, self._at_input = self._at_input, None
        assert rows is not None
        gradient = torch.copysign(self._radius, rows).neg_()
        del rows
        if self._shift is not None:
            gradient += self._shift
        for index in range(len(self._steps) - 1, self._first_kink - 1, -1):
            one = self._steps[index]
            if isinstance(one, _Kink):
                gradient = one.back(gradient, number, rate, last=index == self._first_kink)
            else:
                gradient = one.back(gradient)


@dataclass(frozen=True)
class Chain:
    """The way of one chunk of rows to the input, past nodes that each read one tensor: [R, k] coefficients of a block
    and their constant [R] float64, where they have begun, and the nodes from there on."""

    context: BoxContext
    rows: Tensor
    support: Elements | None
    constant: Tensor
    nodes: list[Node]

    @classmethod
    def of(cls, context: BoxContext, bound: Callable[[BackwardPass], Tensor]) -> Chain | None:
        """Of the rows that `bound` carries; None where they meet anything that is unknown here."""
        if context.zones.tensors or context.balls:
            return None
        beginning = _Beginning(context)
        bound(beginning)
        if len(beginning.blocks) != 1:
            return None
        ((name, block),) = beginning.blocks.items()
        if isinstance(block.support, Windows):
            return None
        nodes = _path(context, name)
        if not nodes:
            return None
        assert block.support is None or isinstance(block.support, Elements)
        assert beginning.constant is not None
        return cls(context, per_row(block.rows), block.support, beginning.constant, nodes)

    @property
    def relaxed_nodes(self) -> list[Node]:
        return [node for node in self.nodes if self.context.rule(node).relaxed]

    def search(self, slopes: Mapping[str, Slopes]) -> ChainSearch:
        """The search by the slopes of each node that has any, by its name."""
        context, support, steps = self.context, self.support, list[_Product | _Spread | _Kink]()
        for node in self.nodes:
            rule = context.rule(node)
            if isinstance(rule, GemmRule):
                made = _Product.of(context, node, rule, support)
                steps.append(made)
                support = made.wanted
            elif rule.slope_free:
                step = _slope_step(context, node, support)
                steps.append(_Kink(context.ledger, step, slopes.get(node.name)))
            elif support is not None:
                steps.append(_Spread(support))
                support = None
        name = self.nodes[-1].inputs[0]
        centre, radius = context.intervals[name].ball
        ends = [part.flatten() for part in (radius, centre - context.references[name])]
        ends = ends if support is None else [support.take(part) for part in ends]
        reach, shift = (part.to(torch.float32) for part in ends)
        moved = shift if bool((shift != 0).any()) else None
        return ChainSearch(self.rows, self.constant, steps, reach, moved)


def _path(context: BoxContext, name: str) -> list[Node] | None:
    """The nodes from a tensor back to an input of the network, where each is known and reads one tensor."""
    inputs = {info.name for info in context.network.inputs}
    path = []
    while name not in inputs:
        node = next((node for node in context.network.nodes if name in node.outputs), None)
        if node is None or node.inputs[0] in context.network.constants or not _is_known(context, node):
            return None
        path.append(node)
        name = node.inputs[0]
    return path


def _is_known(context: BoxContext, node: Node) -> bool:
    rule, facts = context.rule(node), context.facts.get(node.name)
    if facts is None or context.intervals[node.inputs[0]].lower.shape[:1] != (1,):
        return False
    return isinstance(rule, GemmRule | ReshapeRule) or (rule.slope_free and isinstance(facts.local, Lines))


def _slope_step(context: BoxContext, node: Node, support: Elements | None) -> SlopeStep:
    local = context.facts[node.name].local
    assert isinstance(local, Lines)
    x, y = context.references[node.inputs[0]], context.references[node.outputs[0]]
    return SlopeStep.of(local, x, y, context.free_slopes(node), support, torch.float32)
