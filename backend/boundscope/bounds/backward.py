"""Backward bound propagation (CROWN, Zhang et al. 2018, arXiv 1811.00866) of a block of rows over one box."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext, Charge, NodeFacts
from boundscope.bounds.interval import Interval
from boundscope.bounds.norms import BallSet
from boundscope.bounds.operators.relaxation import dot, per_row
from boundscope.bounds.rounding import ENGINE, ENGINE_FLOAT32, INFLATION, gamma
from boundscope.network.graph import Node

# Added to magnitudes, so that γ of them covers what halving an interval loses among subnormals.
HALVED = 2.0**-960
Rows = dict[str, Tensor]  # tensor name -> coefficients [R, *S]


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
        search: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        """
        Args:
            context: what is known of the box.
            relax: False lets rows stop at the first non-linear node and use the interval of its output.
            thetas: for non-linear nodes by name, free parameters of their relaxation, [R, *P] of each row's own.
            search: see the class.
            dtype: of the coefficients, float32 or float64; constants and what is subtracted are float64.
        """
        self._context = context
        self._relax = relax
        self._thetas = thetas or {}
        self._rigorous = not search
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
        pending = {name: coefficients.to(self._dtype) for name, coefficients in rows.items()}
        return self._finish(pending, _Total(count, self._context.device, self._rigorous))

    def lower_elements(self, name: str, elements: Tensor, signs: Tensor) -> Tensor:
        """Lower bound of signs[r] · (element elements[r] of tensor `name`): [R] float64.

        Args:
            name: a tensor that a node computes.
            elements: flat indices, [R] int64.
            signs: +1, −1, or 0 for rows that only fill a chunk, [R] float64.
        """
        context = self._context
        total = _Total(len(elements), context.device, self._rigorous)
        total.add(context.references[name].flatten()[elements] * signs)
        signs = signs.to(self._dtype)
        node = next(node for node in context.network.nodes if name in node.outputs)
        rule = context.rule(node)
        if not rule.relaxed and len(node.outputs) == 1:
            with context.view(node, self._dtype) as view:
                selected = rule.select(view, elements, signs)
            if selected is not None:
                if self._rigorous:
                    (charge,) = context.facts[node.name].charges(self._engine, self._dtype)
                    if charge is not None:
                        used = signs.abs().double()
                        total.error += charge.weights[elements].double() * used + used * charge.lost
                return self._finish(self._by_name(node.inputs, selected, total), total)
        shape = context.network.tensors[name].shape
        rows = torch.zeros(len(elements), math.prod(shape), dtype=self._dtype, device=context.device)
        rows[torch.arange(len(elements), device=context.device), elements] = signs
        return self._finish({name: context.ledger.hold(rows, "rows").reshape(len(elements), *shape)}, total)

    def _finish(self, pending: Rows, total: _Total) -> Tensor:
        context = self._context
        for node in reversed(context.network.nodes):
            outputs = tuple(pending.pop(name, None) if name else None for name in node.outputs)
            if all(coefficients is None for coefficients in outputs):
                continue
            self._through_node(node, outputs, pending, total)
            del outputs
        for name in list(pending):
            self._concretize(name, pending.pop(name), total)
        return total.lower()

    def _through_node(
        self, node: Node, outputs: tuple[Tensor | None, ...], pending: Rows, total: _Total
    ) -> None:
        """Move coefficients of a node's outputs to its inputs, or to their bounds where rows stop here."""
        context = self._context
        facts = context.facts[node.name]
        rule = context.rule(node)
        if rule.relaxed and not self._relax:
            for name, coefficients in zip(node.outputs, outputs, strict=True):
                if coefficients is not None:
                    self._concretize(name, coefficients, total)
            return
        for name, coefficients in zip(node.outputs, outputs, strict=True):
            if coefficients is not None:
                self._to_distance(name, coefficients, total)
        self._charge(outputs, facts, total)
        if facts.relaxation is not None:
            (coefficients,) = outputs
            assert coefficients is not None
            parts = self._relaxed(node, facts, coefficients, total)
        else:
            with context.view(node, self._dtype) as view:
                parts = rule.backward(view, outputs)
        carried = self._by_name(node.inputs, parts, total)
        for name, coefficients in carried.items():
            if name in pending:
                self._to_distance(name, pending[name], total)
            self._accumulate(pending, name, coefficients, total)

    def _relaxed(
        self, node: Node, facts: NodeFacts, rows: Tensor, total: _Total
    ) -> tuple[Tensor | None, ...]:
        """Rows at the output's distance from its reference, as rows at the inputs' distances from theirs."""
        self.relaxed_nodes.append(node)
        context = self._context
        (name,) = node.outputs
        references = tuple(context.references.get(one) for one in node.inputs)
        relaxation, local = facts.relaxation, facts.local
        theta = self._thetas.get(node.name)
        if theta is not None:
            with context.view(node) as view:
                relaxation = context.rule(node).relax(view, theta.to(torch.float64))
            local = relaxation.about(references, context.references[name])
        if local is not None:
            parts, constant = local.to(self._dtype).through(rows)
            total.add(constant)
            return parts
        assert relaxation is not None
        parts, constant = relaxation.to(self._dtype).through(rows)
        total.add(constant)
        total.add(-dot(rows, context.references[name].to(rows.dtype)))
        for part, reference in zip(parts, references, strict=False):
            if part is not None and reference is not None:
                total.add(dot(part, reference.to(part.dtype)))
        return parts

    def _to_distance(self, name: str, rows: Tensor, total: _Total) -> None:
        """Make rows that are functions of a tensor's values functions of its distance from the reference point."""
        if name not in self._whole:
            return
        self._whole.discard(name)
        reference = self._context.references[name]
        total.add(dot(rows, reference))
        if self._rigorous:
            error = per_row(rows.abs()) @ reference.abs().flatten()
            total.error += error * (gamma(reference.numel() + 4, ENGINE.unit) * INFLATION)

    def _charge(self, outputs: tuple[Tensor | None, ...], facts: NodeFacts, total: _Total) -> None:
        """Subtract what the node adds and what carrying rows through it rounds."""
        if not self._rigorous:
            return
        for coefficients, charge in zip(outputs, facts.charges(self._engine, self._dtype), strict=True):
            if coefficients is not None and charge is not None:
                self._charge_sum(coefficients, charge, total)

    def _charge_sum(self, coefficients: Tensor, charge: Charge, total: _Total) -> None:
        """Subtract Σ |coefficients|·slack, and `lost` for every row that is not zero."""
        absolute = per_row(self._context.ledger.hold(coefficients.abs(), "workspace"))
        weighed, mass = (absolute @ charge.weights).double(), absolute.sum(1)
        # The sum's own rounding, of any order, is less than the inflation, and its underflow than `lost`.
        inflation = 1.0 + 2.0 * gamma(absolute.shape[1] + 2, self._engine.unit)
        total.error += weighed * inflation + (mass > 0) * charge.lost

    def _by_name(
        self, names: tuple[str, ...], parts: tuple[Tensor | None, ...], total: _Total
    ) -> dict[str, Tensor]:
        """One entry a tensor, where a node reads the same tensor twice."""
        carried: dict[str, Tensor] = {}
        for name, part in zip(names, parts, strict=False):
            if part is not None:
                self._accumulate(carried, name, part, total)
        return carried

    def _accumulate(self, pending: dict[str, Tensor], name: str, coefficients: Tensor, total: _Total) -> None:
        self._context.ledger.hold(coefficients, "rows")
        if not self._rigorous:
            self._kept.append(coefficients)
        before = pending.get(name)
        if before is None:
            pending[name] = coefficients
            return
        joined = self._context.ledger.hold(before + coefficients, "rows")
        pending[name] = joined
        if self._rigorous:
            slack = self._context.deviation(name) * (self._engine.unit * INFLATION)
            self._charge_sum(joined, Charge.of(slack, 0.0, self._engine, self._dtype), total)

    def _concretize(self, name: str, coefficients: Tensor, total: _Total) -> None:
        context = self._context
        interval, ball = context.intervals[name], context.balls.get(name)
        flat = per_row(coefficients)
        if self._rigorous:
            flat = flat.double()
        if name in self._whole:  # no node was met: a bound that is zero without any rounding stays zero
            value, error = _least_by_ends(flat, interval)
            reference = torch.zeros_like(flat[0])
        else:
            reference = context.references[name].flatten().to(flat.dtype)
            value, error = _least_by_distance(flat, interval, reference)
        if ball is not None:
            by_ball, its_error = _least_in_ball(flat, ball.to(flat.dtype), reference, self._rigorous)
            better = by_ball - its_error > value - error
            value, error = torch.where(better, by_ball, value), torch.where(better, its_error, error)
        total.add(value)
        if self._rigorous:
            total.error += error


def _least_by_distance(flat: Tensor, interval: Interval, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Least Σ coefficients·(x − reference) over an interval, and the error of computing it: [R] both.

    Coefficients are [R, n], the reference is [n].
    """
    centre, radius = (part.flatten().to(flat.dtype) for part in interval.ball)
    shift = centre - reference
    # The sums' errors are relative to |coefficients|·(|shift| + radius); the shift itself is rounded once.
    reach = torch.stack([radius, shift.abs() + radius + HALVED], dim=1)
    spread, magnitude = (flat.abs() @ reach).unbind(1)
    count = flat.shape[1] + 8
    error = magnitude * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(count)
    return flat @ shift - spread, error


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


class _Total:
    """Running sum of constants [R] and of everything that must be subtracted for rounding [R]."""

    def __init__(self, count: int, device: torch.device, rigorous: bool) -> None:
        self._rigorous = rigorous
        self.value = torch.zeros(count, dtype=torch.float64, device=device)
        self.error = torch.zeros_like(self.value)

    def add(self, part: Tensor | None) -> None:
        if part is None:
            return
        self.value = self.value + part
        if self._rigorous:
            self.error += self.value.abs() * ENGINE.unit

    def lower(self) -> Tensor:
        """[R]; of a search pass, the plain sum."""
        if not self._rigorous:
            return self.value
        error = self.error * INFLATION
        bound = self.value - error
        infinity = torch.full((), float("inf"), dtype=bound.dtype, device=bound.device)
        return torch.where(error > 0, torch.nextafter(bound, -infinity), bound)
