"""Backward bound propagation (CROWN, Zhang et al. 2018, arXiv 1811.00866) of a block of rows over one box."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext, NodeFacts
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.relaxation import Relaxation
from boundscope.bounds.rounding import ENGINE, ENGINE_FLOAT32, INFLATION, gamma
from boundscope.network.graph import Node

# Added to magnitudes, so that γ of them covers what halving an interval loses among subnormals.
HALVED = 2.0**-960
Rows = dict[str, Tensor]  # tensor name -> coefficients [R, *S]


class BackwardPass:
    """Lower bounds of R linear functions of tensors, over the context's box.

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
        self._sharp = False
        self._dtype = torch.float32 if search else dtype
        self._engine = ENGINE_FLOAT32 if self._dtype == torch.float32 else ENGINE
        self.relaxed_nodes: list[Node] = []  # the non-linear nodes that rows went through, last first

    def lower(self, rows: Rows, count: int) -> Tensor:
        """Lower bound of Σ rows[t]·t for each row: [R].

        A tensor named in `rows` must have been reached by the context already. A bound that is zero without any
        rounding is zero.
        """
        self._sharp = True
        rows = {name: coefficients.to(self._dtype) for name, coefficients in rows.items()}
        return self._finish(rows, _Total(count, self._context.device, self._rigorous))

    def lower_elements(self, name: str, elements: Tensor, signs: Tensor) -> Tensor:
        """Lower bound of signs[r] · (element elements[r] of tensor `name`): [R] float64.

        Args:
            name: a tensor that a node computes.
            elements: flat indices, [R] int64.
            signs: +1, −1, or 0 for rows that only fill a chunk, [R] float64.
        """
        context = self._context
        total = _Total(len(elements), context.device, self._rigorous)
        signs = signs.to(self._dtype)
        node = next(node for node in context.network.nodes if name in node.outputs)
        rule = context.rule(node)
        if not rule.relaxed and len(node.outputs) == 1:
            with context.view(node, self._dtype) as view:
                selected = rule.select(view, elements, signs)
            if selected is not None:
                parts, constant = selected
                facts = context.facts[node.name]
                (slack,) = facts.slack(self._engine)
                if slack is not None and self._rigorous:
                    total.error += slack.flatten()[elements] * signs.abs().double()
                    self._charge_underflow((signs,), facts, total)
                total.add(constant)
                return self._finish(self._by_name(node.inputs, parts, total), total)
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
        self._charge(outputs, facts, total)
        self._charge_underflow(outputs, facts, total)
        if facts.relaxation is not None:
            (coefficients,) = outputs
            assert coefficients is not None
            parts, constant = self._relaxation(node, facts.relaxation).through(coefficients)
        else:
            with context.view(node, self._dtype) as view:
                parts, constant = rule.backward(view, outputs)
        carried = self._by_name(node.inputs, parts, total)
        total.add(constant)
        for name, coefficients in carried.items():
            self._accumulate(pending, name, coefficients, total)

    def _relaxation(self, node: Node, default: Relaxation) -> Relaxation:
        self.relaxed_nodes.append(node)
        theta = self._thetas.get(node.name)
        if theta is None:
            return default.to(self._dtype)
        with self._context.view(node) as view:
            relaxation = self._context.rule(node).relax(view, theta.to(torch.float64))
        return relaxation.to(self._dtype)

    def _charge(self, outputs: tuple[Tensor | None, ...], facts: NodeFacts, total: _Total) -> None:
        if not self._rigorous:
            return
        for coefficients, slack in zip(outputs, facts.slack(self._engine), strict=True):
            if coefficients is not None and slack is not None:
                self._charge_sum(coefficients, slack, total)

    def _charge_sum(self, coefficients: Tensor, slack: Tensor, total: _Total) -> None:
        """Subtract Σ |coefficients|·slack; its own rounding, of any order, is less than the inflation."""
        absolute = self._context.ledger.hold(coefficients.abs(), "workspace").flatten(1)
        inflation = 1.0 + 2.0 * gamma(absolute.shape[1] + 2, self._engine.unit)
        # A slack, or its product with a coefficient, may vanish in the rows' dtype.
        weights = torch.where(slack > 0, slack.clamp(min=self._engine.underflow), slack)
        charge = (absolute @ weights.flatten().to(self._dtype)).double() * inflation
        total.error += charge + absolute.any(1).double() * self._engine.absolute(absolute.shape[1])

    def _charge_underflow(self, outputs: tuple[Tensor | None, ...], facts: NodeFacts, total: _Total) -> None:
        """Subtract what new coefficients lose to underflow: an absolute error each, whatever the row's own size."""
        lost = facts.underflow(self._engine) if self._rigorous else None
        if lost is None:
            return
        for coefficients in outputs:
            if coefficients is not None:
                total.error += coefficients.reshape(len(coefficients), -1).any(1).double() * lost

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
        before = pending.get(name)
        if before is None:
            pending[name] = coefficients
            return
        joined = self._context.ledger.hold(before + coefficients, "rows")
        pending[name] = joined
        if self._rigorous:
            unit = self._engine.unit * INFLATION
            self._charge_sum(joined, self._context.intervals[name].magnitude * unit, total)

    def _concretize(self, name: str, coefficients: Tensor, total: _Total) -> None:
        interval = self._context.intervals[name]
        ball = self._context.balls.get(name)
        flat = coefficients.flatten(1)
        if self._rigorous:
            flat = flat.double()
        if not self._rigorous:
            centre, radius = (part.flatten().to(flat.dtype) for part in interval.ball)
            value = flat @ centre - flat.abs() @ radius
            total.add(value if ball is None else torch.maximum(value, ball.to(flat.dtype).estimate(flat)))
            return
        value, error = _least_by_ends(flat, interval) if self._sharp else _least_by_centre(flat, interval)
        if ball is not None:
            by_ball, its_error = ball.lower(flat)
            better = by_ball - its_error > value - error
            value, error = torch.where(better, by_ball, value), torch.where(better, its_error, error)
        total.add(value)
        total.error += error


def _least_by_centre(flat: Tensor, interval: Interval) -> tuple[Tensor, Tensor]:
    """Least Σ coefficients·x over an interval, coefficients [R, n] float64, and the error of computing it: [R] both."""
    centre, radius = (part.flatten() for part in interval.ball)
    # The error of both sums is relative to |coefficients|·(|centre| + radius).
    reach = torch.stack([radius, centre.abs() + radius + HALVED], dim=1)
    spread, magnitude = (flat.abs() @ reach).unbind(1)
    count = flat.shape[1] + 8
    return flat @ centre - spread, magnitude * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(
        count
    )


def _least_by_ends(flat: Tensor, interval: Interval) -> tuple[Tensor, Tensor]:
    """The same from the ends that are used, with no error where each of these, or its coefficient, is zero."""
    lower, upper = interval.lower.flatten(), interval.upper.flatten()
    positive, negative = flat.clamp(min=0), flat.clamp(max=0)
    magnitude = positive @ lower.abs() - negative @ upper.abs()
    used = positive.sign() @ lower.abs().sign() - negative.sign() @ upper.abs().sign() > 0
    count = flat.shape[1] + 8
    error = magnitude * (gamma(count, ENGINE.unit) * INFLATION) + used * ENGINE.absolute(count)
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
