"""Forward mode: every tensor as an affine function of the free inputs plus a remainder, one pass for all neurons.

With few free inputs this costs as much as that many evaluations of the network, where backward rows cost one pass a
neuron. It is looser than CROWN, so its bounds only spare those rows that they already decide. (Affine arithmetic;
Singh et al. 2018, "Fast and Effective Robustness Certification", for the parallel relaxations.)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.operators.relaxation import Lines
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.network.graph import Node

FREE_INPUTS_LIMIT = 64
WIDER_THAN_INPUTS = 4  # the widest tensor over the free inputs, for forward mode to pay


@dataclass(frozen=True)
class AffineForm:
    """centre + Σ_k slopes[k]·z_k ± remainder, for z in [−1, 1]^K: centre and remainder [*S], slopes [K, *S]."""

    centre: Tensor
    slopes: Tensor
    remainder: Tensor

    @property
    def reach(self) -> Tensor:
        """Sum of the absolute values of all terms, [*S]."""
        return self.centre.abs() + self.slopes.abs().sum(0) + self.remainder

    def interval(self) -> Interval:
        """The values it takes, rounding of these sums included."""
        radius = self.slopes.abs().sum(0) + self.remainder
        error = self.reach * (gamma(len(self.slopes) + 4, ENGINE.unit) * INFLATION)
        return Interval(self.centre - radius, self.centre + radius).widened(error)


class ForwardPass:
    """Affine forms of the tensors of a context, kept while nodes still need them."""

    def __init__(self, context: BoxContext, forms: dict[str, AffineForm], count: int) -> None:
        self._context = context
        self._forms = forms
        self._count = count  # free inputs
        nodes = context.network.nodes
        self._last_use = {name: node.name for node in nodes for name in node.inputs}

    @classmethod
    def where_it_pays(cls, context: BoxContext) -> ForwardPass | None:
        """The pass over a context that knows only its inputs, or None where there are too many free inputs."""
        inputs = [context.intervals[info.name] for info in context.network.inputs]
        free = [(interval.lower < interval.upper).flatten() for interval in inputs]
        count = int(sum(int(mask.sum()) for mask in free))
        widest = max(info.size for info in context.network.tensors.values())
        if not 0 < count <= FREE_INPUTS_LIMIT or widest < WIDER_THAN_INPUTS * count:
            return None
        forms: dict[str, AffineForm] = {}
        position = 0
        for info, interval, mask in zip(context.network.inputs, inputs, free, strict=True):
            centre, radius = interval.ball
            slopes = radius.new_zeros(count, radius.numel())
            index = mask.nonzero().flatten()
            slopes[position + torch.arange(len(index), device=index.device), index] = radius.flatten()[index]
            position += len(index)
            forms[info.name] = AffineForm(
                centre, slopes.reshape(count, *radius.shape), torch.zeros_like(radius)
            )
        return cls(context, forms, count)

    def advance(self, node: Node) -> None:
        """Derive the forms of a node's outputs, which the context has reached, and tighten their intervals by them."""
        context = self._context
        rule = context.rule(node)
        with context.view(node) as view:
            if rule.relaxed:
                outputs = self._relaxed(node)
            else:
                outputs = self._linear(rule, view)
        for name, form in zip(node.outputs, outputs, strict=False):
            if not name or form is None:
                continue
            self._forms[name] = form
            interval = form.interval()
            if bool(torch.isfinite(interval.lower).all() & torch.isfinite(interval.upper).all()):
                context.tighten(name, interval)
        for name in node.inputs:
            if self._last_use.get(name) == node.name:
                self._forms.pop(name, None)

    def _relaxed(self, node: Node) -> list[AffineForm | None]:
        """Through two lines of one slope; what is not made of lines becomes its interval."""
        facts = self._context.facts[node.name]
        lines = facts.relaxation
        form = self._forms.get(node.inputs[0])
        if not isinstance(lines, Lines) or form is None or len(node.outputs) > 1:
            return [self._interval_form(name) for name in node.outputs]
        x = self._context.intervals[node.inputs[0]]
        slope = lines.upper_slope
        tilt = lines.lower_slope - slope
        lowest = torch.minimum(tilt * x.lower, tilt * x.upper)
        if lines.lower_intercept is not None:
            lowest = lowest + lines.lower_intercept
        highest = lines.upper_intercept
        remainder = slope.abs() * form.remainder + (highest - lowest).clamp(min=0) / 2
        error = (slope.abs() * form.reach + tilt.abs() * x.magnitude + lowest.abs() + highest.abs()) * (
            gamma(16, ENGINE.unit) * INFLATION
        )
        # The lines themselves are rounded too: what `own` covers.
        for part in (*facts.deployed, *facts.own):
            error = error if part is None else error + part
        remainder = remainder + error
        return [AffineForm(slope * form.centre + (highest + lowest) / 2, slope * form.slopes, remainder)]

    def _linear(self, rule: Rule[Any], view: NodeView[Any]) -> list[AffineForm | None]:
        forms = {index: self._forms.get(view.node.inputs[index]) for index in view.perturbed}
        known = {index: form for index, form in forms.items() if form is not None}
        if len(known) < len(forms):
            return [self._interval_form(name) for name in view.node.outputs]
        centres = self._evaluate(rule, view, {index: form.centre for index, form in known.items()})
        zeros = self._evaluate(
            rule, view, {index: torch.zeros_like(form.centre) for index, form in known.items()}
        )
        moved = self._evaluate_all(rule, view, {index: form.slopes for index, form in known.items()})
        slopes = [one - zero for one, zero in zip(moved, zeros, strict=True)]
        remainders = self._remainders(rule, view, known)
        return [AffineForm(*parts) for parts in zip(centres, slopes, remainders, strict=True)]

    def _remainders(self, rule: Rule[Any], view: NodeView[Any], forms: dict[int, AffineForm]) -> list[Tensor]:
        """|W|·remainder, rounding of everything that the node sums, and what the deployed arithmetic may add.

        Each of the K slopes is a sum with the node's constants less one of them alone: those are rounded K times.
        """
        through = rule.spread(_at(view, {index: form.remainder for index, form in forms.items()}))
        nothing = rule.spread(
            _at(view, {index: torch.zeros_like(form.centre) for index, form in forms.items()})
        )
        whole = rule.spread(_at(view, {index: form.reach for index, form in forms.items()}))
        factor = gamma(2 * rule.terms(view) + 16, ENGINE.unit) * INFLATION
        facts = self._context.facts[view.node.name]
        parts = []
        for far, fixed, sums, added in zip(through, nothing, whole, facts.deployed, strict=True):
            remainder = (far - fixed).clamp(min=0) + 2 * (sums + self._count * fixed) * factor
            parts.append(remainder if added is None else remainder + added)
        return parts

    def _evaluate(
        self, rule: Rule[Any], view: NodeView[Any], values: dict[int, Tensor]
    ) -> tuple[Tensor, ...]:
        arguments = [values.get(index, constant) for index, constant in enumerate(view.constants)]
        if view.op.only_rounds:  # as float64 numbers stand for real ones here
            return tuple(value for value in arguments[:1] if value is not None)
        return rule.image(view, arguments)

    def _evaluate_all(
        self, rule: Rule[Any], view: NodeView[Any], values: dict[int, Tensor]
    ) -> tuple[Tensor, ...]:
        """`_evaluate` for each first index of the values: all at once where torch.vmap can, else one by one."""
        positions = tuple(values)

        def one(*parts: Tensor) -> tuple[Tensor, ...]:
            return self._evaluate(rule, view, dict(zip(positions, parts, strict=True)))

        try:
            outputs: tuple[Tensor, ...] = torch.vmap(one)(*values.values())
        except RuntimeError:
            each = [one(*parts) for parts in zip(*values.values(), strict=True)]
            outputs = tuple(torch.stack(parts) for parts in zip(*each, strict=True))
        return outputs

    def _interval_form(self, name: str) -> AffineForm | None:
        if not name:
            return None
        centre, radius = self._context.intervals[name].ball
        return AffineForm(centre, centre.new_zeros(self._count, *centre.shape), radius)


def _at(view: NodeView[Any], values: dict[int, Tensor]) -> NodeView[Any]:
    """The node with points in place of its intervals."""
    inputs = tuple(
        Interval.point(values[index]) if index in values else None for index in range(len(view.inputs))
    )
    return dataclasses.replace(view, inputs=inputs)
