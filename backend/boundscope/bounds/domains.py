"""Parts of a context's box, many at a time: the domains of branch and bound by splitting inputs.

What is proven of the whole box holds on every part of it, so a part only brings what is tighter: its own ends of
the inputs, and intervals of the tensors that non-linear nodes read. A backward pass carries rows of many parts
together; each row goes through the relaxations of its own part.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.facts import Charge, NodeFacts
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.operators.relaxation import (
    BroadcastLines,
    Constants,
    Lines,
    Relaxation,
    per_row,
)
from boundscope.bounds.rounding import ENGINE, ENGINE_FLOAT32, INFLATION, RoundingModel, gamma
from boundscope.errors import BoundError
from boundscope.network.graph import Node


@dataclass(frozen=True)
class PartFacts:
    """The relaxation of one node on each of D parts: tensors [D, …]; `local` is the same about the root's reference
    point, where that has a short form. `magnitude` [D, n] is what one unit of coefficient meets on its way."""

    relaxation: Relaxation
    local: Relaxation | None
    magnitude: Tensor | None  # None: what the root charges covers it
    terms: int
    kept: dict[Any, Any] = field(default_factory=dict)


class Domains:
    """D parts of the box of a context, and what is known of each.

    `intervals` holds, by tensor name, ends [D, *S]: of network inputs the part itself, of tensors that non-linear
    nodes read what is proven there. Tensors that are not named have the root's intervals.
    """

    def __init__(
        self, context: BoxContext, intervals: dict[str, Interval], *, narrowed: bool = False
    ) -> None:
        """`narrowed`: parts differ from the root at a few elements only; what other elements have is taken over, and
        nodes whose rule is not `tall` keep the root's relaxation."""
        self.context, self._narrowed = context, narrowed
        self.count = len(next(iter(intervals.values())).lower)
        self.intervals = dict(intervals)
        self._facts: dict[str, PartFacts | None] = {}
        self._nodes = {node.name: node for node in context.network.nodes}
        self._ranked: dict[tuple[str, int], Interval] = {}

    def interval(self, name: str) -> Interval:
        """Ends of a tensor on each part, [D, *S] (of a tensor that no part knows better: the root's, expanded)."""
        own = self.intervals.get(name)
        if own is not None:
            return own
        root = self.context.intervals[name]
        shape = (self.count, *root.lower.shape)
        return Interval(root.lower.expand(shape), root.upper.expand(shape))

    def of_parts(self, index: Tensor) -> Domains:
        """Some of the parts, [D'] int64, with what is known of them."""
        return Domains(
            self.context,
            {
                name: Interval(one.lower.index_select(0, index), one.upper.index_select(0, index))
                for name, one in self.intervals.items()
            },
        )

    def tighten(self, name: str, part: Tensor, element: Tensor, lower: Tensor, upper: Tensor) -> None:
        """Intersect elements (flat indices [N]) of a tensor on some parts [N] with other sound ends, [N] float64.

        Raises:
            BoundError: an end is not finite, or ends cross; names the tensor.
        """
        own = self.intervals.get(name) or self.interval(name)
        shape = own.lower.shape
        low, high = own.lower.reshape(self.count, -1).clone(), own.upper.reshape(self.count, -1).clone()
        Interval(lower, upper).require_finite(name)
        before = Interval(low[part, element], high[part, element])
        both = before.intersected(Interval(lower, upper), name)
        low[part, element], high[part, element] = both.lower, both.upper
        self.intervals[name] = Interval(low.reshape(shape), high.reshape(shape))
        self._ranked.clear()
        for node in self.context.network.nodes:
            if name in node.inputs:
                self._facts.pop(node.name, None)

    def facts(self, node: Node) -> PartFacts | None:
        """The node's relaxation on each part; None where the root's serves all of them."""
        if node.name not in self._facts:
            self._facts[node.name] = self._relaxed(node) if self._knows(node) else None
        return self._facts[node.name]

    def facts_with(self, node: Node, theta: Tensor, *, proven: bool) -> PartFacts | None:
        """The same with free parameters of each part's own, [D, *P], of a `tall` rule; without what a pass that
        is not to prove anything needs."""
        if not self._knows(node):
            return None
        relaxation, magnitude, terms = self._together(node, self.context.rule(node), theta, proven=proven)
        if not proven and isinstance(relaxation, Lines):  # which such a pass takes as they are
            return PartFacts(relaxation, None, None, terms)
        return self._about(node, relaxation, magnitude, terms)

    def theta(self, node: Node) -> Tensor | None:
        """The rule's own choice of free parameters on each part, [D, *P], of a `tall` rule; None where the
        root's serves."""
        if not self._knows(node):
            return None
        with self.context.view(node) as view:
            tall = self._view(view, self._ends(node), stacked=True)
            theta = self.context.rule(node).theta(tall)
        assert theta is not None
        return theta.movedim(1, 0) if theta.dim() > len(tall.output_shapes[0]) else theta

    def _knows(self, node: Node) -> bool:
        if self._narrowed and not self.context.rule(node).tall:
            return False
        return any(name in self.intervals for name in node.inputs)

    def charge(self, facts: PartFacts, root: NodeFacts, dtype: torch.dtype) -> Charge | None:
        """What rows pay at the node's output, weights [D, n]; None: what the root charges."""
        if facts.magnitude is None:
            return None
        key = ("charge", dtype)
        if key not in facts.kept:
            engine = ENGINE_FLOAT32 if dtype == torch.float32 else ENGINE
            (rooted,) = root.charges(engine, dtype)
            assert rooted is not None
            facts.kept[key] = _charge_of(facts, root, engine, dtype, rooted.lost)
        charge: Charge = facts.kept[key]
        return charge

    # ------------------------------------------------------------ relaxations

    def _relaxed(self, node: Node) -> PartFacts | None:
        rule = self.context.rule(node)
        relaxation, magnitude, terms = (
            self._together(node, rule) if rule.tall else self._one_by_one(node, rule)
        )
        return None if relaxation is None else self._about(node, relaxation, magnitude, terms)

    def _about(self, node: Node, relaxation: Relaxation, magnitude: Tensor | None, terms: int) -> PartFacts:
        context = self.context
        references = tuple(context.references.get(name) for name in node.inputs)
        local = relaxation.about(references, context.references[node.outputs[0]])
        if magnitude is not None:
            magnitude = magnitude.reshape(self.count, -1)
            if local is None:  # rows leave the output's reference point, too
                magnitude = magnitude + context.references[node.outputs[0]].abs().flatten()
            lines = local.lines if isinstance(local, BroadcastLines) else local
            if isinstance(lines, Lines):  # maybe steeper than any on the hull of the part and the reference
                magnitude = magnitude + per_row(self._local_magnitude(lines, node.inputs[lines.position]))
        return PartFacts(relaxation, local, magnitude, terms)

    def _view(self, view: NodeView[Any], ends: dict[str, Interval], *, stacked: bool) -> NodeView[Any]:
        inputs = tuple(
            None if interval is None else ends[name]
            for name, interval in zip(view.node.inputs, view.inputs, strict=True)
        )
        shapes = view.output_shapes
        root, boxes = None, None
        if stacked:
            boxes = self.count
            shapes = tuple((self.count, *shape) for shape in shapes)
            root = dataclasses.replace(view, kept=None) if self._narrowed else None
        return dataclasses.replace(
            view, inputs=inputs, output_shapes=shapes, kept=None, root=root, boxes=boxes
        )

    def _local_magnitude(self, local: Lines, name: str) -> Tensor:
        """Σ|terms| of lines about the reference point, and of their derivation, per unit of coefficient, [D, *S]."""
        slope = torch.maximum(local.lower_slope.abs(), local.upper_slope.abs())
        low = local.upper_intercept if local.lower_intercept is None else local.lower_intercept
        reach = slope * (self.context.deviation(name) + 4.0 * self.context.references[name].abs())
        return reach + torch.maximum(low.abs(), local.upper_intercept.abs())

    def _hull(self, name: str, ends: Interval) -> Interval:
        """The ends with the root's reference point among them: rows are functions of the distance from it."""
        reference = self.context.references.get(name)
        if reference is None:
            return ends
        return Interval(torch.minimum(ends.lower, reference), torch.maximum(ends.upper, reference))

    def _ends(self, node: Node) -> dict[str, Interval]:
        """Of what a node reads, with as many axes after the first as its output has; the same objects each time."""
        rank = len(self.context.network.tensors[node.outputs[0]].shape)
        found = {}
        for name in node.inputs:
            if name in self.context.intervals:
                if (name, rank) not in self._ranked:
                    self._ranked[name, rank] = _ranked(self.interval(name), rank)
                found[name] = self._ranked[name, rank]
        return found

    def _together(
        self, node: Node, rule: Rule[Any], theta: Tensor | None = None, *, proven: bool = True
    ) -> tuple[Relaxation, Tensor | None, int]:
        """All parts as one tall node, for rules that take many boxes at once."""
        context = self.context
        rank = len(context.network.tensors[node.outputs[0]].shape)
        ends = self._ends(node)
        with context.view(node) as view:
            tall = self._view(view, ends, stacked=True)
            if theta is not None:
                theta = theta.to(torch.float64) if proven else theta
                theta = theta.movedim(0, 1) if theta.dim() > rank + 1 else theta
            relaxation = rule.relax(tall, theta)
            magnitude = None
            if proven and not rule.covers_parts:
                hulls = {name: self._hull_ranked(name, interval, rank) for name, interval in ends.items()}
                magnitude = rule.relax_magnitude(self._view(view, hulls, stacked=True), relaxation)
            terms = rule.backward_terms(view) + 16
            shapes = tuple(
                () if interval is None else tuple(interval.lower.shape) for interval in view.inputs
            )
        return relaxation.with_shapes(shapes), magnitude, terms

    def _hull_ranked(self, name: str, ends: Interval, rank: int) -> Interval:
        reference = self.context.references.get(name)
        if reference is None:
            return ends
        reference = reference.reshape(*(1,) * (rank - reference.dim()), *reference.shape)
        return Interval(torch.minimum(ends.lower, reference), torch.maximum(ends.upper, reference))

    def _one_by_one(self, node: Node, rule: Rule[Any]) -> tuple[Relaxation | None, Tensor | None, int]:
        context = self.context
        names = [name for name in node.inputs if name in context.intervals]
        wholes = {name: self.interval(name) for name in names}
        found: list[Relaxation] = []
        magnitudes: list[Tensor] = []
        with context.view(node) as view:
            for part in range(self.count):
                ends = {n: Interval(i.lower[part], i.upper[part]) for n, i in wholes.items()}
                one = self._view(view, ends, stacked=False)
                relaxation = rule.relax(one)
                hulls = {name: self._hull(name, interval) for name, interval in ends.items()}
                magnitudes.append(rule.relax_magnitude(self._view(view, hulls, stacked=False), relaxation))
                found.append(relaxation)
            terms = rule.backward_terms(view) + 16
        together = stacked(found)
        return together, None if together is None else torch.stack(magnitudes), terms


def _ranked(interval: Interval, rank: int) -> Interval:
    """Ends [D, *S] with as many axes after the first as the output has."""
    shape = interval.lower.shape
    missing = rank + 1 - len(shape)
    if missing <= 0:
        return interval
    tall = (shape[0], *(1,) * missing, *shape[1:])
    return Interval(interval.lower.reshape(tall), interval.upper.reshape(tall))


def _charge_of(
    facts: PartFacts, root: NodeFacts, engine: RoundingModel, dtype: torch.dtype, lost: float
) -> Charge:
    """As NodeFacts.charges, with each part's own relaxation."""
    assert facts.magnitude is not None
    own = facts.magnitude * (gamma(16, ENGINE.unit) * INFLATION) + ENGINE.absolute(16)
    (effort,) = root.efforts
    assert effort is not None
    count = max(facts.terms, effort.elements) + 8
    slack = facts.magnitude * (gamma(count, engine.unit) * INFLATION) + engine.absolute(count) + own
    (deployed,) = root.deployed
    if deployed is not None:
        slack = slack + deployed.flatten()
    made = Charge.of(slack, lost, engine, dtype)
    return Charge(made.weights.reshape(slack.shape), made.lost)


# ------------------------------------------------------------ one relaxation out of many


def stacked(found: list[Relaxation]) -> Relaxation | None:
    """Relaxations of one node on several parts as one whose tensors have a first axis of parts; None where their kind
    has no such form (the root's then serves)."""
    first = found[0]
    if isinstance(first, Lines):
        each = [one for one in found if isinstance(one, Lines)]
        low = None
        if any(one.lower_intercept is not None for one in each):
            low = torch.stack([_or_zeros(one.lower_intercept, one.upper_intercept) for one in each])
        return Lines(
            torch.stack([one.lower_slope for one in each]),
            low,
            torch.stack([one.upper_slope for one in each]),
            torch.stack([one.upper_intercept for one in each]),
            first.position,
            first.arity,
        )
    if isinstance(first, Constants):
        constants = [one for one in found if isinstance(one, Constants)]
        return Constants(
            torch.stack([one.lower for one in constants]),
            torch.stack([one.upper for one in constants]),
            first.arity,
        )
    stack: Relaxation | None = _stacked_fields(found) if type(first).__name__ in STACKABLE else None
    return stack


# Relaxations whose floating tensors may all be of each row's own, and whose other fields do not depend on the part.
STACKABLE = frozenset({"Planes", "CandidatePlanes", "GroupPlanes", "BroadcastLines"})


def _or_zeros(value: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if value is None else value


def _stacked_fields(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        return torch.stack(values) if first.is_floating_point() else first
    if isinstance(first, tuple) and any(isinstance(one, Tensor) for one in first):
        return tuple(_stacked_fields(list(column)) for column in zip(*values, strict=True))
    if isinstance(first, (Relaxation, Interval)):
        names = [one.name for one in dataclasses.fields(first)]  # type: ignore[arg-type]
        return type(first)(**{n: _stacked_fields([getattr(one, n) for one in values]) for n in names})
    if any((one is None) != (first is None) for one in values):
        raise BoundError("parts of one box have relaxations of different forms")
    return first


def taken(value: Any, which: Tensor) -> Any:
    """A relaxation of parts [D, …] as that of rows: its floating tensors [R, …] by each row's part, `which` [R]."""
    if isinstance(value, Tensor):
        return value.index_select(0, which) if value.is_floating_point() else value
    if isinstance(value, tuple) and any(isinstance(one, Tensor) for one in value):
        return tuple(taken(one, which) for one in value)
    if isinstance(value, (Relaxation, Interval)):
        names = [one.name for one in dataclasses.fields(value)]  # type: ignore[arg-type]
        return type(value)(**{name: taken(getattr(value, name), which) for name in names})
    return value
