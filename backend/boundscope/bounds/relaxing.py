"""Rows through the relaxations of non-linear nodes, in one backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains, PartFacts, taken
from boundscope.bounds.facts import NodeFacts
from boundscope.bounds.operators.relaxation import Lines, Relaxation, dot, per_row
from boundscope.bounds.splits import Splits, SplitStep
from boundscope.bounds.steps import LineStep, PartLines, SearchedLines, SlopeStep
from boundscope.bounds.support import Block, Elements, Phases, Support, Windows
from boundscope.bounds.total import Total
from boundscope.network.graph import Node


@dataclass(frozen=True)
class Choices:
    """What rows choose for themselves at non-linear nodes: see BackwardPass, whose arguments these are."""

    thetas: Mapping[str, Tensor]
    slopes: Mapping[str, Tensor]
    splits: Splits | None
    domains: Domains | None
    which: Tensor | None


@dataclass
class Seen:
    """What a pass keeps of the coefficients that its rows have on their way; see BackwardPass."""

    at_nodes: dict[str, Tensor] = field(default_factory=dict)
    at_outputs: dict[str, Tensor] = field(default_factory=dict)
    at_points: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)  # the non-linear ones that rows went through, last first


class Relaxing:
    """How the rows of one pass meet non-linear nodes."""

    def __init__(
        self,
        context: BoxContext,
        choices: Choices,
        dtype: torch.dtype,
        *,
        rigorous: bool,
        quick: bool,
        keep: bool,
        pulled: Set[str],
    ) -> None:
        """
        Args:
            context, choices, dtype: of the pass.
            rigorous: False for a search.
            quick: whether a search takes free parameters in its own dtype.
            keep: note in `seen` what rows meet.
            pulled: tensors with Lagrange terms.
        """
        self._context = context
        self._thetas, self._slopes, self._splits = choices.thetas, choices.slopes, choices.splits
        self._domains, self._which = choices.domains, choices.which
        self._dtype, self._rigorous, self._quick, self._keep = dtype, rigorous, quick, keep
        self._pulled = pulled
        self.seen = Seen()
        self.kept: list[Tensor] = []  # planes that autograd keeps stay counted as long as the pass lives

    def part_of(self, node: Node, facts: NodeFacts) -> PartFacts | None:
        """The relaxation of the rows' parts; None where the root's serves, or lines that `splits` choose."""
        if self._domains is None or facts.relaxation is None:
            return None
        if self._splits is not None and node.name in self._splits.values:
            return None
        theta = self._thetas.get(node.name)
        return (
            self._domains.facts(node)
            if theta is None
            else self._domains.facts_with(node, theta, proven=self._rigorous)
        )

    def through(self, node: Node, facts: NodeFacts, block: Block, total: Total) -> tuple[Block | None, ...]:
        """Rows at the output's distance from its reference, as rows at the inputs' distances from theirs."""
        self.seen.nodes.append(node)
        if self._keep and not self._pulled.isdisjoint(node.inputs):
            self.seen.at_outputs[node.name] = per_row(block.whole())
        if self._splits is not None and node.name in self._splits.values:
            return (self._with_splits(node, facts, block, self._splits, total),)
        slopes = self._slopes.get(node.name)
        if slopes is not None:
            return (self._with_slopes(node, facts, block, slopes, total),)
        theta = self._thetas.get(node.name)
        if theta is None and isinstance(facts.local, Lines):
            parts, constant = self._line_step(facts, block).through(block.rows)
            total.add(constant)
            return tuple(None if part is None else Block(part, block.support) for part in parts)
        rows = block.whole()
        context = self._context
        (name,) = node.outputs
        references = tuple(context.references.get(one) for one in node.inputs)
        relaxation, local = facts.relaxation, facts.local
        if theta is not None:
            with context.view(node) as view:
                quick = self._quick and context.rule(node).tall
                relaxation = context.rule(node).relax(view, theta if quick else theta.to(torch.float64))
            if quick and isinstance(relaxation, Lines):
                return self._searched_lines(node, relaxation, rows, total)
            local = relaxation.about(references, context.references[name])
            self._count(relaxation)
        assert relaxation is not None
        return self._through_planes(node, relaxation, local, rows, total)

    def _searched_lines(
        self, node: Node, lines: Lines, rows: Tensor, total: Total
    ) -> tuple[Block | None, ...]:
        """Whole rows of a search through lines of each row's own."""
        x, y = (
            self._context.references[name].flatten().to(rows.dtype)
            for name in (node.inputs[lines.position], node.outputs[0])
        )
        of_rows = lines.to(rows.dtype)
        low = of_rows.lower_intercept
        each = (
            of_rows.lower_slope,
            torch.zeros_like(of_rows.lower_slope) if low is None else low,
            of_rows.upper_slope,
            of_rows.upper_intercept,
        )
        slope, low, upper_slope, high = (per_row(one.expand(rows.shape)) for one in each)
        carried, constant = SearchedLines.apply(per_row(rows), slope, low, upper_slope, high, x, y)  # type: ignore[no-untyped-call]
        total.add(constant)
        parts: list[Block | None] = [None] * lines.arity
        parts[lines.position] = Block(carried.reshape(rows.shape))
        return tuple(parts)

    def _through_planes(
        self, node: Node, relaxation: Relaxation, local: Relaxation | None, rows: Tensor, total: Total
    ) -> tuple[Block | None, ...]:
        """Whole rows through a relaxation, by its form about the reference point where there is one."""
        if local is not None:
            whole, constant = local.to(self._dtype).through(rows)
            total.add(constant)
            return blocks_of(whole)
        references = self._context.references
        whole, constant = relaxation.to(self._dtype).through(rows)
        total.add(constant)
        total.add(-dot(rows, references[node.outputs[0]].to(rows.dtype)))
        for name, part in zip(node.inputs, whole, strict=False):
            if part is not None and name in references:
                total.add(dot(part, references[name].to(part.dtype)))
        return blocks_of(whole)

    def through_parts(
        self, node: Node, facts: PartFacts, block: Block, total: Total
    ) -> tuple[Block | None, ...]:
        """Rows through the relaxations of their own parts."""
        self.seen.nodes.append(node)
        assert self._which is not None
        if self._keep:
            self.seen.at_outputs[node.name] = per_row(block.whole())
        if facts.local is None and not self._rigorous and isinstance(facts.relaxation, Lines):
            return self._searched_lines(node, facts.relaxation, block.whole(), total)
        slopes = self._slopes.get(node.name)
        if isinstance(block.support, Phases) or (slopes is not None and isinstance(block.support, Windows)):
            block = Block(block.whole())
        if isinstance(facts.local, Lines) and not isinstance(block.support, Windows):
            step = self._part_lines(facts, facts.local, block.support).of_rows(self._which)
            if slopes is not None:
                step = self._sloped(node, facts.local, step, slopes, block.support)
            flat = per_row(block.rows)
            carried, constant = step.through(flat)
            total.add(constant)
            parts: list[Block | None] = [None] * facts.local.arity
            parts[facts.local.position] = Block(carried.reshape(block.rows.shape), block.support)
            return tuple(parts)
        local = None if facts.local is None else taken(facts.local, self._which)
        return self._through_planes(node, taken(facts.relaxation, self._which), local, block.whole(), total)

    def _part_lines(self, facts: PartFacts, local: Lines, support: Support | None) -> PartLines:
        """The lines of all parts as rows of this dtype on a support meet them, kept for the next rows."""
        key = ("lines", self._dtype, support)
        if key not in facts.kept:
            facts.kept[key] = PartLines.of(local, support, self._dtype)
        lines: PartLines = facts.kept[key]
        return lines

    def _sloped(
        self, node: Node, local: Lines, step: PartLines, slopes: Tensor, support: Support | None
    ) -> PartLines:
        """Each row's own lower slopes [R, n] where its part's interval straddles the kink."""
        context = self._context
        assert self._domains is not None
        assert self._which is not None
        name = node.inputs[local.position]
        free = context.rule(node).wanted(node.op, local.position, self._domains.interval(name))
        x, y = (context.references[one].flatten().to(self._dtype) for one in (name, node.outputs[0]))
        theta, free = slopes.to(self._dtype), per_row(free)
        if isinstance(support, Elements):
            theta, free = theta.index_select(1, support.index), free.index_select(1, support.index)
            x, y = x.index_select(0, support.index), y.index_select(0, support.index)
        return step.with_slopes(theta, free.index_select(0, self._which), x, y)

    def _with_splits(self, node: Node, facts: NodeFacts, block: Block, splits: Splits, total: Total) -> Block:
        """Through the lines of a `slope_free` node, or, where a row is bounded on one of its pieces, through that."""
        support = block.support if isinstance(block.support, Elements) else None
        whole = block if support is not None else Block(block.whole())
        context, local = self._context, facts.local
        assert isinstance(local, Lines)

        def made() -> SplitStep:
            return SplitStep.of(context, node, local, support, self._dtype)

        step: SplitStep = facts.derived(self._dtype, "splits", support, made)
        flat = per_row(whole.rows)
        if self._keep:
            self.seen.at_nodes[node.name] = flat[:, step.free]
        state, values = splits.states[node.name], splits.values[node.name].to(self._dtype)
        scale = splits.scales[node.name].to(self._dtype)
        if self._rigorous:
            carried, constant, error = step.through(flat, state, values, scale)
            total.subtract(error)
        else:
            note = partial(self.seen.at_points.__setitem__, node.name) if self._keep else None
            carried, constant = step.searched(flat, state, values, scale, note)
        total.add(constant)
        return Block(carried.reshape(whole.rows.shape), support)

    def _with_slopes(self, node: Node, facts: NodeFacts, block: Block, slopes: Tensor, total: Total) -> Block:
        """Through lines whose lower slopes are each row's own."""
        support = block.support if isinstance(block.support, Elements) else None
        whole = block if support is not None else Block(block.whole())
        context, local = self._context, facts.local
        assert isinstance(local, Lines)

        def made() -> SlopeStep:
            x, y = context.references[node.inputs[local.position]], context.references[node.outputs[0]]
            return SlopeStep.of(local, x, y, context.free_slopes(node), support, self._dtype)

        step: SlopeStep = facts.derived(self._dtype, "slopes", support, made)
        flat, theta = per_row(whole.rows), slopes.to(self._dtype)
        carried, constant = step.through(flat, theta) if self._rigorous else step.searched(flat, theta)
        total.add(constant)
        return Block(carried.reshape(whole.rows.shape), support)

    def _line_step(self, facts: NodeFacts, block: Block) -> LineStep:
        """The lines of a node as this block meets them, kept where many blocks do."""
        local = facts.local
        assert isinstance(local, Lines)
        whole: LineStep = facts.derived(self._dtype, "lines", None, lambda: LineStep.of(local, self._dtype))
        support = block.support
        if support is None:
            return whole
        taken: LineStep = facts.derived(self._dtype, "lines", support, lambda: whole.on(support))
        return taken

    def _count(self, relaxation: Relaxation) -> None:
        """Planes of each row's own are as large as rows; autograd keeps those of a search pass as long as it lives."""
        for tensor in relaxation.tensors():
            self._context.ledger.hold(tensor, "slopes")
            if not self._rigorous:
                self.kept.append(tensor)


def blocks_of(parts: tuple[Tensor | None, ...]) -> tuple[Block | None, ...]:
    return tuple(None if part is None else Block(part) for part in parts)
