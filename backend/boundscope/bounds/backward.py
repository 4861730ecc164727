"""Backward bound propagation (CROWN, Zhang et al. 2018, arXiv 1811.00866) of a block of rows over one box."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.context import HALVED, BoxContext, Charge, NodeFacts
from boundscope.bounds.domains import Domains, PartFacts, taken
from boundscope.bounds.interval import Interval
from boundscope.bounds.norms import BallSet
from boundscope.bounds.operators.relaxation import Lines, Relaxation, dot, per_row
from boundscope.bounds.pulls import Pull
from boundscope.bounds.rounding import ENGINE, ENGINE_FLOAT32, INFLATION, gamma
from boundscope.bounds.splits import Splits, SplitStep
from boundscope.bounds.steps import LineStep, PartLines, SearchedLines, SlopeStep, Spread, row_slices
from boundscope.bounds.support import Block, Elements, Phases, Support, Windows, added
from boundscope.bounds.total import Total
from boundscope.network.graph import Node
from boundscope.sharding.sums import summed

Rows = dict[str, Tensor]  # tensor name -> coefficients [R, *S]
Blocks = dict[str, Block]


class BackwardPass:
    """Lower bounds of R linear functions of tensors, over the context's box.

    Rows are carried as functions of each tensor's distance from its reference point, whose values were added when
    the rows started: the smaller the box, the smaller what is rounded on the way.

    Every rounding of the pass itself is bounded and subtracted, so that a bound is a bound of the real number and
    not of what floating point made of it, in a float32 pass as in a float64 one.

    A `search` pass instead runs in float32, takes no account of rounding, and can be differentiated in its
    `thetas`: it looks for good free parameters, whose bound a pass of the first kind then proves.
    """

    def __init__(
        self,
        context: BoxContext,
        *,
        relax: bool = True,
        thetas: Mapping[str, Tensor] | None = None,
        slopes: Mapping[str, Tensor] | None = None,
        search: bool = False,
        dtype: torch.dtype = torch.float64,
        domains: Domains | None = None,
        which: Tensor | None = None,
        splits: Splits | None = None,
        pulls: Mapping[str, Pull] | None = None,
        keep: bool = False,
    ) -> None:
        """
        Args:
            context: what is known of the box.
            relax: False lets rows stop at the first non-linear node and use the interval of its output.
            thetas: for non-linear nodes by name, free parameters of their relaxation, [R, *P] of each row's own.
            slopes: the same for nodes whose rule is `slope_free`, of the elements where it matters only, [R, m]; of
                nodes that parts have lines of their own for, of all elements, [R, n], in [0, 1].
            search: see the class.
            dtype: of the coefficients, float32 or float64; constants and what is subtracted are float64.
            domains: parts of the box, of which row r is bounded over number which[r], [R] int64.
            splits: of each row, which pieces of the `slope_free` nodes it is bounded on, with its free parameters.
            pulls: Lagrange terms of ranges that elements of tensors, by name, have on the rows' parts.
            keep: keep the coefficients that rows have at network inputs, at split nodes, at pulled tensors and the
                nodes that read them, for who chooses where to look or to split next.
        """
        self._context = context
        self._relax = relax
        self._thetas = thetas or {}
        self._slopes = slopes or {}
        self._rigorous = not search
        self.searches = search
        self._domains = domains
        self._which = which
        self._splits = splits
        self._pulls = pulls or {}
        self._quick = search and pulls is not None
        self._keep = keep
        self.at_inputs: dict[str, Tensor] = {}  # kept: coefficients [R, n] of the distance from the reference
        self.at_nodes: dict[str, Tensor] = {}  # kept: coefficients [R, m] above a node's free elements
        self.at_outputs: dict[str, Tensor] = {}  # kept of parts: coefficients [R, n] above a relaxed node
        self.at_pulled: dict[
            str, Tensor
        ] = {}  # kept: coefficients [R, k] of pulled elements, without the pull
        self.at_points: dict[
            str, Tensor
        ] = {}  # kept by a search, once differentiated: what they read where the bound is reached
        self._whole: set[str] = set()  # tensors whose pending rows are still functions of their values
        self._dtype = torch.float32 if search else dtype
        self._engine = ENGINE_FLOAT32 if self._dtype == torch.float32 else ENGINE
        self._kept: list[
            Tensor
        ] = []  # what autograd keeps of a search pass stays counted as long as the pass lives
        self.relaxed_nodes: list[Node] = []  # the non-linear nodes that rows went through, last first

    def lower(self, rows: Rows, count: int) -> Tensor:
        """Lower bound of Σ rows[t]·t for each row: [R].

        A tensor named in `rows` must have been reached by the context already. A bound that is zero without any
        rounding is zero.
        """
        self._whole = set(rows)
        pending = {name: Block(coefficients.to(self._dtype)) for name, coefficients in rows.items()}
        nonzero = torch.stack([(per_row(one.rows) != 0).any(1) for one in pending.values()]).any(0)
        for pull in self._pulls.values():
            nonzero = nonzero | (pull.multiplier != 0).any(1)
        return self._finish(pending, self._total(count, nonzero))

    def _total(self, count: int, nonzero: Tensor) -> Total:
        context = self._context
        return Total(count, context.device, self._rigorous, nonzero, context.zones.ranks)

    def _at(self, name: str, total: Total) -> Total:
        """Where what rows meet at a tensor is counted: by every rank alike, or by each for its part of the tensor."""
        return total.partial if name in self._context.zones.tensors else total

    def lower_elements(self, name: str, elements: Tensor, signs: Tensor) -> Tensor:
        """Lower bound of signs[r] · (element elements[r] of tensor `name`): [R] float64.

        Args:
            name: a tensor that a node computes.
            elements: flat indices, [R] int64.
            signs: +1, −1, or 0 for rows that only fill a chunk, [R] float64. Where ranks hold parts of the tensor, 0
                also for rows that begin on another rank.
        """
        context = self._context
        nonzero = signs != 0
        if name in context.zones.tensors:
            nonzero = summed(signs.abs(), context.zones.ranks) != 0
        root = self._total(len(elements), nonzero)
        total = self._at(name, root)
        total.add(context.references[name].flatten()[elements] * signs)
        signs = signs.to(self._dtype)
        node = context.producer(name)
        rule = context.rule(node)
        if not rule.relaxed and len(node.outputs) == 1:
            with context.view(node, self._dtype) as view:
                selected = rule.select(view, elements, signs, self._wanted(node))
            if selected is not None:
                if self._rigorous:
                    (charge,) = context.facts[node.name].charges(self._engine, self._dtype)
                    if charge is not None:
                        total.charge(charge.weights[elements] * signs.abs(), 1.0)
                        self._lose(node, charge.lost, total)
                pending: Blocks = {}
                self._join(pending, node.inputs, selected, root)
                return self._finish(pending, root)
        shape = context.network.tensors[name].shape
        rows = torch.zeros(len(elements), math.prod(shape), dtype=self._dtype, device=context.device)
        rows[torch.arange(len(elements), device=context.device), elements] = signs
        held = context.ledger.hold(rows, "rows").reshape(len(elements), *shape)
        return self._finish({name: Block(held)}, root)

    def _finish(self, pending: Blocks, total: Total) -> Tensor:
        context = self._context
        for node in reversed(context.network.nodes):
            outputs = tuple(pending.pop(name, None) if name else None for name in node.outputs)
            if all(block is None for block in outputs):
                continue
            self._through_node(node, outputs, pending, total)
            del outputs
        for name in list(pending):
            self._concretize(name, pending.pop(name), total)
        return total.lower()

    def _wanted(self, node: Node) -> tuple[Elements | None, ...]:
        return tuple(self._context.live(name) if name else None for name in node.inputs)

    def _through_node(
        self, node: Node, outputs: tuple[Block | None, ...], pending: Blocks, total: Total
    ) -> None:
        """Move coefficients of a node's outputs to its inputs, or to their bounds where rows stop here."""
        context = self._context
        facts = context.facts[node.name]
        rule = context.rule(node)
        if rule.relaxed and not self._relax:
            for name, block in zip(node.outputs, outputs, strict=True):
                if block is not None:
                    self._concretize(name, block, total)
            return
        for name, block in zip(node.outputs, outputs, strict=True):
            if block is not None:
                self._to_distance(name, block, total)
        if self._pulls:
            pairs = zip(node.outputs, outputs, strict=True)
            outputs = tuple(self._pulled(name, block, total) for name, block in pairs)
        part = self._part_of(node, facts)
        here = self._at(node.outputs[0], total)
        self._charge(node, outputs, facts, part, here)
        if facts.relaxation is not None:
            (block,) = outputs
            assert block is not None
            if part is not None:
                parts = self._relaxed_of_parts(node, part, block, here)
            else:
                parts = self._relaxed(node, facts, block, here)
        else:
            parts = self._linear(node, outputs)
        carried: Blocks = {}
        self._join(carried, node.inputs, parts, total)
        for name, block in carried.items():
            if name in pending:
                self._to_distance(name, pending[name], total)
            self._accumulate(pending, name, block, total)

    def _part_of(self, node: Node, facts: NodeFacts) -> PartFacts | None:
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

    def _pulled(self, name: str, block: Block | None, total: Total) -> Block | None:
        """Rows at a tensor's distance from its reference point with the Lagrange terms of their ranges."""
        pull = self._pulls.get(name)
        if pull is None or block is None:
            return block
        context, total = self._context, self._at(name, total)
        reference = context.references[name].flatten()
        whole = block.whole()
        flat = per_row(whole)
        if self._keep:
            self.at_pulled[name] = flat.index_select(1, pull.index)
        if not self._rigorous:
            note = partial(self.at_points.__setitem__, name) if self._keep else None
            rows, constant = pull.searched(flat, reference, note)
            total.add(constant)
            return Block(rows.reshape(whole.shape))
        rows, constant, error = pull.through(flat, reference)
        total.add(constant)
        total.subtract(error)
        charge = Charge.of(
            context.deviation(name).flatten()[pull.index] * (self._engine.unit * INFLATION),
            0.0,
            self._engine,
            self._dtype,
        )
        self._charge_sum(Block(rows.index_select(1, pull.index)), charge.weights, total)
        total.lose(charge.lost)
        return Block(rows.reshape(whole.shape))

    def _linear(self, node: Node, outputs: tuple[Block | None, ...]) -> tuple[Block | None, ...]:
        rule = self._context.rule(node)
        with self._context.view(node, self._dtype) as view:
            if len(outputs) == 1 and outputs[0] is not None:
                parts = rule.backward_on(view, outputs[0], self._wanted(node))
                if parts is not None:
                    return parts
            whole = tuple(None if block is None else block.whole() for block in outputs)
            return _blocks(rule.backward(view, whole))

    def _relaxed(self, node: Node, facts: NodeFacts, block: Block, total: Total) -> tuple[Block | None, ...]:
        """Rows at the output's distance from its reference, as rows at the inputs' distances from theirs."""
        self.relaxed_nodes.append(node)
        if self._keep and not self._pulls.keys().isdisjoint(node.inputs):
            self.at_outputs[node.name] = per_row(block.whole())
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
                quick = self._quick and context.rule(node).by_element
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
            return _blocks(whole)
        references = self._context.references
        whole, constant = relaxation.to(self._dtype).through(rows)
        total.add(constant)
        total.add(-dot(rows, references[node.outputs[0]].to(rows.dtype)))
        for name, part in zip(node.inputs, whole, strict=False):
            if part is not None and name in references:
                total.add(dot(part, references[name].to(part.dtype)))
        return _blocks(whole)

    def _relaxed_of_parts(
        self, node: Node, facts: PartFacts, block: Block, total: Total
    ) -> tuple[Block | None, ...]:
        """Rows through the relaxations of their own parts."""
        self.relaxed_nodes.append(node)
        assert self._which is not None
        if self._keep:
            self.at_outputs[node.name] = per_row(block.whole())
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

        step: SplitStep = self._kept_of(facts, "splits", support, made)
        flat = per_row(whole.rows)
        if self._keep:
            self.at_nodes[node.name] = flat[:, step.free]
        state, values = splits.states[node.name], splits.values[node.name].to(self._dtype)
        scale = splits.scales[node.name].to(self._dtype)
        if self._rigorous:
            carried, constant, error = step.through(flat, state, values, scale)
            total.subtract(error)
        else:
            note = partial(self.at_points.__setitem__, node.name) if self._keep else None
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

        step: SlopeStep = self._kept_of(facts, "slopes", support, made)
        flat, theta = per_row(whole.rows), slopes.to(self._dtype)
        carried, constant = step.through(flat, theta) if self._rigorous else step.searched(flat, theta)
        total.add(constant)
        return Block(carried.reshape(whole.rows.shape), support)

    def _line_step(self, facts: NodeFacts, block: Block) -> LineStep:
        """The lines of a node as this block meets them, kept where many blocks do."""
        local = facts.local
        assert isinstance(local, Lines)
        whole: LineStep = self._kept_of(facts, "lines", None, lambda: LineStep.of(local, self._dtype))
        support = block.support
        if support is None:
            return whole
        taken: LineStep = self._kept_of(facts, "lines", support, lambda: whole.on(support))
        return taken

    def _count(self, relaxation: Relaxation) -> None:
        """Planes of each row's own are as large as rows; autograd keeps those of a search pass as long as it lives."""
        for tensor in relaxation.tensors():
            self._context.ledger.hold(tensor, "slopes")
            if not self._rigorous:
                self._kept.append(tensor)

    def _to_distance(self, name: str, block: Block, total: Total) -> None:
        """Make rows that are functions of a tensor's values functions of its distance from the reference point."""
        if name not in self._whole:
            return
        self._whole.discard(name)
        total = self._at(name, total)
        rows, reference = block.whole(), self._context.references[name]
        total.add(dot(rows, reference))
        if self._rigorous:
            error = per_row(rows.abs()) @ reference.abs().flatten().to(rows.dtype)
            total.subtract(error.double() * (gamma(reference.numel() + 4, ENGINE.unit) * INFLATION))

    def _charge(
        self,
        node: Node,
        outputs: tuple[Block | None, ...],
        facts: NodeFacts,
        part: PartFacts | None,
        total: Total,
    ) -> None:
        """Subtract what the node adds and what carrying rows through it rounds."""
        if not self._rigorous:
            return
        if part is not None:
            assert self._domains is not None
            assert self._which is not None
            own = self._domains.charge(part, facts, self._dtype)
            if own is not None:
                (block,) = outputs
                assert block is not None
                whole = Block(block.whole())
                self._charge_sum(whole, own.weights.index_select(0, self._which), total)
                total.lose(own.lost)
                return
        for block, charge in zip(outputs, facts.charges(self._engine, self._dtype), strict=True):
            if block is None or charge is None:
                continue
            weights, support = charge.weights, block.support
            if support is not None:
                weights = self._kept_of(facts, "charge", support, partial(support.take, weights))
            self._charge_sum(block, weights, total)
            self._lose(node, charge.lost, total)

    def _lose(self, node: Node, lost: float, total: Total) -> None:
        """What underflow may cost at a node; at the end of a zone, each rank tells that of its own inputs."""
        (total.partial if self._context.rule(node).collective else total).lose(lost)

    def _charge_sum(self, block: Block, weights: Tensor, total: Total) -> None:
        """Subtract Σ |coefficients|·weights."""
        absolute = per_row(self._context.ledger.hold(block.rows.abs(), "workspace"))
        if weights.dim() > 1:
            weighed = (absolute * per_row(weights)).sum(1)
        else:
            weighed = absolute @ weights
        # The sum's own rounding, of any order, is less than the inflation, and its underflow than a charge's `lost`.
        inflation = 1.0 + 2.0 * gamma(absolute.shape[1] + 2, self._engine.unit)
        total.charge(weighed, inflation)

    def _join(
        self, blocks: Blocks, names: tuple[str, ...], parts: tuple[Block | None, ...], total: Total
    ) -> None:
        """One entry a tensor, where a node reads the same tensor twice."""
        for name, part in zip(names, parts, strict=False):
            if part is not None:
                self._accumulate(blocks, name, part, total)

    def _accumulate(self, pending: Blocks, name: str, block: Block, total: Total) -> None:
        self._context.ledger.hold(block.rows, "rows")
        if not self._rigorous:
            self._kept.append(block.rows)
        before = pending.get(name)
        if before is None:
            pending[name] = block
            return
        joined = added(before, block)
        self._context.ledger.hold(joined.rows, "rows")
        pending[name] = joined
        if self._rigorous:
            slack = self._context.deviation(name) * (self._engine.unit * INFLATION)
            charge = Charge.of(slack, 0.0, self._engine, self._dtype)
            total = self._at(name, total)
            self._charge_sum(joined, _met(joined, charge.weights), total)
            total.lose(charge.lost)

    def _concretize(self, name: str, block: Block, total: Total) -> None:
        context, total = self._context, self._at(name, total)
        if self._keep:
            self.at_inputs[name] = per_row(block.whole())
        if self._domains is not None and name in self._domains.intervals:
            self._concretize_parts(name, block, self._domains.intervals[name], total)
            return
        interval, ball = context.intervals[name], context.balls.get(name)
        if name in self._whole:  # no node was met: a bound that is zero without any rounding stays zero
            flat = per_row(block.whole()).to(torch.float64 if self._rigorous else block.rows.dtype)
            value, error = _least_by_ends(flat, interval)
            reference = torch.zeros_like(flat[0])
        else:
            reference = context.references[name].flatten()
            value, error = self._least_by_distance(name, block)
        if ball is not None:
            flat = per_row(block.whole())
            flat = flat.double() if self._rigorous else flat
            reference = reference.to(flat.dtype)
            by_ball, its_error = _least_in_ball(flat, ball.to(flat.dtype), reference, self._rigorous)
            better = by_ball - its_error > value - error
            value, error = torch.where(better, by_ball, value), torch.where(better, its_error, error)
        total.add(value)
        if self._rigorous:
            total.subtract(error)

    def _least_by_distance(self, name: str, block: Block) -> tuple[Tensor, Tensor]:
        """Least Σ coefficients·(x − reference) over a tensor's interval, and the error of computing it: [R] both."""
        reach, flat = self._context.reach(name), per_row(block.rows)
        radius, shift, whole = (
            None if part is None else _met(block, part.flatten())
            for part in (reach.radius, reach.shift, reach.whole)
        )
        assert radius is not None
        if not self._rigorous:
            spread = Spread.apply(flat, radius.to(flat.dtype))  # type: ignore[no-untyped-call]
            found = -spread if shift is None else _sum(flat, shift.to(flat.dtype)) - spread
            return found, torch.zeros_like(found)
        # The sums' errors are relative to |coefficients|·(|shift| + radius); the shift itself is rounded once.
        values, magnitudes = [], []
        for rows in row_slices(flat):
            absolute = flat[rows].abs().double()
            spread = _sum(absolute, _of(radius, rows))
            moved = None if shift is None else _sum(flat[rows].double(), _of(shift, rows))
            values.append(-spread if moved is None else moved - spread)
            magnitudes.append(spread if whole is None else _sum(absolute, _of(whole, rows)))
        count = flat.shape[1] + 8
        error = _joined(magnitudes) * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(count)
        return _joined(values), error

    def _concretize_parts(self, name: str, block: Block, interval: Interval, total: Total) -> None:
        """Least value of each row over its own part: ends [D, *S] of the tensor."""
        self._to_distance(name, block, total)
        assert self._which is not None
        centre, radius = interval.ball
        shift = per_row(centre - self._context.references[name]).index_select(0, self._which)
        reach = per_row(radius).index_select(0, self._which)
        flat = per_row(block.whole())
        if not self._rigorous:
            total.add((flat * shift.to(flat.dtype)).sum(1) - (flat.abs() * reach.to(flat.dtype)).sum(1))
            return
        flat = flat.double()
        absolute = flat.abs()
        total.add((flat * shift).sum(1) - (absolute * reach).sum(1))
        count = flat.shape[1] + 8
        # The shift is the rounded difference of two numbers, each of which the error must cover.
        magnitude = (absolute * (shift.abs() + reach + HALVED)).sum(1)
        total.subtract(magnitude * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(count))

    def _kept_of(self, facts: NodeFacts, what: str, support: Support | None, make: Callable[[], Any]) -> Any:
        """What `make` gives, kept for the next chunks, unless it belongs to the windows of this one."""
        if isinstance(support, Windows):
            return make()
        kept = facts.kept.setdefault(self._dtype, {})
        if (what, support) not in kept:
            kept[what, support] = make()
        return kept[what, support]


def _blocks(parts: tuple[Tensor | None, ...]) -> tuple[Block | None, ...]:
    return tuple(None if part is None else Block(part) for part in parts)


def _met(block: Block, values: Tensor) -> Tensor:
    """Values [n] of the tensor as they meet the flattened coefficients: [k], or [R, k]."""
    if block.support is None:
        return values
    taken = block.support.take(values)
    return per_row(taken) if taken.dim() > 1 else taken


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _sum(flat: Tensor, values: Tensor) -> Tensor:
    return flat @ values if values.dim() == 1 else (flat * values).sum(1)


def _of(values: Tensor, rows: slice) -> Tensor:
    """The part of values [k], or of each row's own [R, k], that belongs to some rows."""
    return values if values.dim() == 1 else values[rows]


def _least_in_ball(flat: Tensor, ball: BallSet, reference: Tensor, rigorous: bool) -> tuple[Tensor, Tensor]:
    """The same over a ball; without proof, an estimate with no error."""
    if not rigorous:
        value = ball.estimate(flat, reference)
        return value, torch.zeros_like(value)
    return ball.lower(flat, reference)


def _least_by_ends(flat: Tensor, interval: Interval) -> tuple[Tensor, Tensor]:
    """Least Σ coefficients·x over an interval from the ends that are used, coefficients [R, n] float64, and the error
    of computing it: [R] both. There is none where each end, or its coefficient, is zero.
    """
    lower, upper = interval.lower.flatten().to(flat.dtype), interval.upper.flatten().to(flat.dtype)
    positive, negative = flat.clamp(min=0), flat.clamp(max=0)
    magnitude = positive @ lower.abs() - negative @ upper.abs()
    used = positive.sign() @ lower.abs().sign() - negative.sign() @ upper.abs().sign() > 0
    count = flat.shape[1] + 8
    error = magnitude * (gamma(count, ENGINE.unit) * INFLATION) + used.double() * ENGINE.absolute(count)
    return positive @ lower + negative @ upper, error
