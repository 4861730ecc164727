"""Backward bound propagation (CROWN, Zhang et al. 2018, arXiv 1811.00866) of a block of rows over one box."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from boundscope.bounds.concrete import least_by_distance, least_by_ends, least_in_ball, least_over_parts, met
from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains, PartFacts
from boundscope.bounds.facts import Charge, NodeFacts
from boundscope.bounds.operators.relaxation import dot, per_row
from boundscope.bounds.pulls import Pull
from boundscope.bounds.relaxing import Choices, Relaxing, blocks_of
from boundscope.bounds.rounding import ENGINE, ENGINE_FLOAT32, INFLATION, gamma
from boundscope.bounds.splits import Splits
from boundscope.bounds.support import Block, Elements, added
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
        self._rigorous = not search
        self.searches = search
        self._domains = domains
        self._which = which
        self._pulls = pulls or {}
        self._keep = keep
        self._whole: set[str] = set()  # tensors whose pending rows are still functions of their values
        self._dtype = torch.float32 if search else dtype
        self._engine = ENGINE_FLOAT32 if self._dtype == torch.float32 else ENGINE
        self._kept: list[Tensor] = []  # as Relaxing.kept, of rows
        self._relaxing = Relaxing(
            context,
            Choices(thetas or {}, slopes or {}, splits, domains, which),
            self._dtype,
            rigorous=self._rigorous,
            quick=search and pulls is not None,
            keep=keep,
            pulled=self._pulls.keys(),
        )
        seen = self._relaxing.seen
        self.relaxed_nodes = seen.nodes  # the non-linear nodes that rows went through, last first
        self.at_inputs: dict[str, Tensor] = {}  # kept: coefficients [R, n] of the distance from the reference
        self.at_nodes = seen.at_nodes  # kept: coefficients [R, m] above a node's free elements
        self.at_outputs = seen.at_outputs  # kept of parts: coefficients [R, n] above a relaxed node
        # Kept: coefficients [R, k] of pulled elements, without the pull; and, by a search, once differentiated, what
        # nodes read where the bound is reached.
        self.at_pulled: dict[str, Tensor] = {}
        self.at_points = seen.at_points

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
        part = self._relaxing.part_of(node, facts)
        here = self._at(node.outputs[0], total)
        self._charge(node, outputs, facts, part, here)
        if facts.relaxation is not None:
            (block,) = outputs
            assert block is not None
            if part is not None:
                parts = self._relaxing.through_parts(node, part, block, here)
            else:
                parts = self._relaxing.through(node, facts, block, here)
        else:
            parts = self._linear(node, outputs)
        carried: Blocks = {}
        self._join(carried, node.inputs, parts, total)
        for name, block in carried.items():
            if name in pending:
                self._to_distance(name, pending[name], total)
            self._accumulate(pending, name, block, total)

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
            return blocks_of(rule.backward(view, whole))

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
                weights = facts.derived(self._dtype, "charge", support, partial(support.take, weights))
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
            self._charge_sum(joined, met(joined, charge.weights), total)
            total.lose(charge.lost)

    def _concretize(self, name: str, block: Block, total: Total) -> None:
        context, total = self._context, self._at(name, total)
        if self._keep:
            self.at_inputs[name] = per_row(block.whole())
        if self._domains is not None and name in self._domains.intervals:
            self._to_distance(name, block, total)
            assert self._which is not None
            centre, radius = self._domains.intervals[name].ball
            shift, reach = (
                per_row(one).index_select(0, self._which)
                for one in (centre - context.references[name], radius)
            )
            value, error = least_over_parts(per_row(block.whole()), shift, reach, self._rigorous)
            total.add(value)
            if self._rigorous:
                total.subtract(error)
            return
        interval, ball = context.intervals[name], context.balls.get(name)
        if name in self._whole:  # no node was met: a bound that is zero without any rounding stays zero
            flat = per_row(block.whole()).to(torch.float64 if self._rigorous else block.rows.dtype)
            value, error = least_by_ends(flat, interval)
            reference = torch.zeros_like(flat[0])
        else:
            reference = context.references[name].flatten()
            value, error = least_by_distance(block, context.reach(name), self._rigorous)
        if ball is not None:
            flat = per_row(block.whole())
            flat = flat.double() if self._rigorous else flat
            reference = reference.to(flat.dtype)
            by_ball, its_error = least_in_ball(flat, ball.to(flat.dtype), reference, self._rigorous)
            better = by_ball - its_error > value - error
            value, error = torch.where(better, by_ball, value), torch.where(better, its_error, error)
        total.add(value)
        if self._rigorous:
            total.subtract(error)
