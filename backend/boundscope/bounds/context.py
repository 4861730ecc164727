"""Everything proven so far about one network over one input box: intervals, relaxations, rounding slack."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boundscope.bounds.facts import HALVED, Effort, NodeFacts, Reach, local_magnitude
from boundscope.bounds.interval import Interval
from boundscope.bounds.ledger import MemoryLedger
from boundscope.bounds.norms import BallSet
from boundscope.bounds.operators.base import NodeView, Rule, rule_of
from boundscope.bounds.rounding import ENGINE, INFLATION, RoundingModel, gamma
from boundscope.bounds.slack import ForwardRounding
from boundscope.bounds.support import Elements
from boundscope.errors import UnsupportedOperatorError
from boundscope.network.graph import Network, Node
from boundscope.properties.types import Box
from boundscope.sharding.weights import WeightStore
from boundscope.sharding.zones import Zones

# Elements that cannot leave their reference are left out of rows where they are this part of a tensor of this size.
FIXED_PART = 0.1
LEAST_ELEMENTS = 32
# A budget below this many times the network's constants has no room for the parts of them that are in use.
ROOM_FOR_PARTS = 4
LEAST_SAFE = 2.0**-900  # a radius from here on is far from what halving loses


@dataclass(frozen=True)
class _Loan:
    """What a node borrows of the weights, and how; and its outputs' shapes."""

    names: tuple[str, ...]
    stored: list[str]
    sparse: list[str]
    more: dict[str, list[str]]
    output_shapes: tuple[tuple[int, ...], ...]


@dataclass
class BoxContext:
    """Sound intervals of every tensor over one box, filled node by node in topological order by `advance`.

    With `model` float32 the intervals enclose what any float32 runtime computes, in any order of summation.
    """

    network: Network
    weights: WeightStore
    ledger: MemoryLedger
    model: RoundingModel
    device: torch.device
    intervals: dict[str, Interval] = field(default_factory=dict)
    # A point near the middle of what each tensor can be, as the network's linear nodes compute it in float64. Rows
    # are carried as functions of the distance from it: rounding then scales with the box, not with the values.
    references: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, NodeFacts] = field(default_factory=dict)
    # How an interval relates to the true range: "independent" elements with exact ranges, exact ranges whose
    # elements depend on each other ("exact"), or neither ("loose").
    quality: dict[str, str] = field(default_factory=dict)
    # What is known of a tensor beside its interval: that it lies in a ball.
    balls: dict[str, BallSet] = field(default_factory=dict)
    # Intervals of the same box from before, which those of `advance` are cut to; `ahead` tells that a search has gone
    # beyond them.
    known: Mapping[str, Interval] = field(default_factory=dict)
    ahead: bool = False
    # Constants that hold subnormals, which a deployed runtime may read as zero; looked at with `model` float32.
    subnormal: frozenset[str] = frozenset()
    _deviations: dict[str, Tensor] = field(default_factory=dict)
    _live: dict[str, Elements | None] = field(default_factory=dict)
    _rules: dict[str, tuple[Node, Rule[Any]]] = field(default_factory=dict)  # by the node's name
    _reach: dict[str, Reach] = field(default_factory=dict)
    _loans: dict[str, tuple[Node, _Loan]] = field(default_factory=dict)

    @classmethod
    def over(
        cls,
        box: Box,
        network: Network,
        weights: WeightStore,
        ledger: MemoryLedger,
        model: RoundingModel,
        device: torch.device,
        subnormal: frozenset[str] = frozenset(),
    ) -> BoxContext:
        """The start: intervals of the network's inputs, and of outputs that are constant. `box` counts its elements
        over all inputs in order."""
        context = cls(network, weights, ledger, model, device, subnormal=subnormal)
        lower, upper = torch.from_numpy(box.lower.copy()), torch.from_numpy(box.upper.copy())
        if model.underflow:
            # A runtime that flushes reads a subnormal input as zero.
            lower = torch.where((lower > 0) & (lower < model.underflow), 0.0, lower)
            upper = torch.where((upper < 0) & (upper > -model.underflow), 0.0, upper)
        position = 0
        for info in network.inputs:
            part = slice(position, position + info.size)
            context.intervals[info.name] = Interval(
                lower[part].reshape(info.shape).to(device), upper[part].reshape(info.shape).to(device)
            )
            context.references[info.name] = context.intervals[info.name].ball[0]
            context.quality[info.name] = "independent" if box.ball is None else "exact"
            position += info.size
        for info in network.outputs:
            if info.name in network.constants:
                value = torch.from_numpy(np.array(network.constants[info.name], dtype=np.float64)).to(device)
                error = network.rounded_constants.get(info.name, 0.0) * INFLATION
                context.intervals[info.name] = Interval.point(value).widened(torch.full_like(value, error))
                context.quality[info.name] = "independent"
        if box.ball is not None:
            (info,) = network.inputs
            interval = context.intervals[info.name]
            context.balls[info.name] = BallSet.of(
                box.ball, interval.lower.flatten(), interval.upper.flatten()
            )
        return context

    def rule(self, node: Node) -> Rule[Any]:
        found = self._rules.get(node.name)
        if found is None or found[0] is not node:
            rule = rule_of(node.op)
            if rule is None:
                raise UnsupportedOperatorError(
                    f"operator {node.op.onnx_type} of node '{node.name}' has no bound rule"
                )
            perturbed = [bool(name) and name not in self.network.constants for name in node.inputs]
            found = self._rules[node.name] = node, rule.use(perturbed)
        return found[1]

    def producer(self, name: str) -> Node:
        """The node that computes a tensor."""
        return self._producers[name]

    @contextmanager
    def view(self, node: Node, dtype: torch.dtype | None = None) -> Iterator[NodeView[Any]]:
        """The node with its constants lent for the time of the `with`: in `dtype`, by default float64, or large ones
        as stored where its rule converts them itself."""
        known = self._loans.get(node.name)
        if known is None or known[0] is not node:
            known = self._loans[node.name] = node, self._loan(node)
        loan = known[1]
        facts = self.facts.get(node.name) if self._parts_fit else None
        with self.weights.use(loan.names, dtype, loan.stored, loan.sparse, **loan.more) as lent:
            kept = None
            if facts is not None:
                # Parts of a weight as stored serve passes of every dtype.
                own = next((lent[name].dtype for name in loan.stored if name in lent), dtype or torch.float64)
                kept = facts.kept.setdefault(own, {})
            before = 0 if kept is None else len(kept)
            yield NodeView(
                kept=kept,
                node=node,
                op=node.op,
                constants=tuple([lent.get(name) for name in node.inputs]),
                inputs=tuple([None if name in lent else self.intervals.get(name) for name in node.inputs]),
                output_shapes=loan.output_shapes,
                deviations=tuple(
                    [self.deviation(name) if name in self.intervals else None for name in node.inputs]
                ),
            )
        if kept is not None and len(kept) > before:
            for value in list(kept.values())[before:]:
                if isinstance(value, Tensor):
                    self.ledger.hold(value, "weights")

    def _loan(self, node: Node) -> _Loan:
        rule = self.rule(node)
        more = {}
        if self.weights.lends_tiles:
            more["tiled"] = [
                node.inputs[index]
                for index in rule.as_tiles
                if index < len(node.inputs) and node.inputs[index] not in self.subnormal
            ]
        return _Loan(
            names=tuple(name for name in node.inputs if name in self.network.constants),
            stored=[node.inputs[index] for index in rule.as_stored],
            sparse=[node.inputs[i] for i in rule.as_sparse if node.inputs[i] not in self.subnormal],
            more=more,
            output_shapes=tuple(self.network.tensors[name].shape if name else () for name in node.outputs),
        )

    def deviation(self, name: str) -> Tensor:
        """Largest distance of each element of a tensor from its reference, rounded up."""
        if name not in self._deviations:
            interval, reference = self.intervals[name], self.references[name]
            farthest = torch.maximum(interval.upper - reference, reference - interval.lower)
            self._deviations[name] = farthest * (1.0 + 4.0 * ENGINE.unit)
        return self._deviations[name]

    def reach(self, name: str) -> Reach:
        """Where a tensor's interval lies as rows at its distance from the reference meet it."""
        if name not in self._reach:
            centre, radius = self.intervals[name].ball
            shift = centre - self.references[name]
            shifted = bool((shift != 0).any())
            halved = not shifted and bool((radius < LEAST_SAFE).any())
            whole = shift.abs() + radius + HALVED if shifted or halved else None
            self._reach[name] = Reach(radius, shift if shifted else None, whole)
        return self._reach[name]

    def live(self, name: str) -> Elements | None:
        """The elements of a tensor that can leave its reference point, where that spares enough of those that cannot,
        and the nodes around it know how to carry a part; else None."""
        if name not in self._live:
            self._live[name] = self._live_elements(name)
        return self._live[name]

    def _live_elements(self, name: str) -> Elements | None:
        interval, reference = self.intervals.get(name), self.references.get(name)
        if interval is None or reference is None or name in self.balls:
            return None
        shape = tuple(interval.lower.shape)
        producer = self._producers.get(name)
        if len(shape) != 2 or shape[0] != 1 or shape[1] < LEAST_ELEMENTS:
            return None
        if producer is not None and not self.rule(producer).elementwise:
            return None
        moves = ((interval.lower != reference) | (interval.upper != reference)).flatten()
        index = moves.nonzero().flatten()
        if producer is not None and self.rule(producer).slope_free:
            # Those with a free slope come last, so that a search finds them in one piece.
            free = self.free_slopes(producer)
            moves[free] = False
            index = torch.cat([moves.nonzero().flatten(), free])
        return Elements(index, shape) if len(index) <= (1.0 - FIXED_PART) * shape[1] else None

    def free_slopes(self, node: Node) -> Tensor:
        """Flat indices of the elements of a node whose parameter matters, rising."""
        with self.view(node) as view:
            return self.rule(node).theta_matters(view).flatten().nonzero().flatten()

    @cached_property
    def _rounding(self) -> ForwardRounding:
        return ForwardRounding(self.network, self.model, self.device, self.subnormal)

    @cached_property
    def zones(self) -> Zones:
        """Which tensors are this rank's part of something, where layers are split over ranks."""
        return Zones.of(self.network)

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return {name: node for node in self.network.nodes for name in node.outputs}

    @cached_property
    def _parts_fit(self) -> bool:
        """Whether parts of the constants may be kept beside them; else they are cut out at each use, the same."""
        if self.weights.collective:
            return False
        limit = self.ledger.limit_bytes
        size = sum(array.nbytes for array in self.network.constants.values())
        return limit is None or ROOM_FOR_PARTS * size < limit

    def advance(self, node: Node) -> None:
        """Derive intervals, slack and relaxation of a node from its inputs' intervals.

        Raises:
            BoundError: an interval is not finite; names the tensor.
        """
        rule = self.rule(node)
        with self.view(node) as view:
            enclosure = rule.enclose(view)
            deployed, own = self._rounding.slack(rule, view, enclosure.magnitudes, self._around_references)
            exactly = self._rounding.sums_exactly(view, enclosure.magnitudes)
            kept_sign = rule.never_negative(view)
            if not rule.relaxed:
                references = self._linear_references(rule, view)
        qualities = [self.quality[name] for name in node.inputs if name in self.quality]
        for name, interval, added, rounded in zip(
            node.outputs, enclosure.intervals, deployed, own, strict=False
        ):
            if not name:
                continue
            if added is not None and rounded is not None:
                interval = interval.widened(added if exactly else added + rounded)
            if kept_sign is not None:
                interval = Interval(
                    torch.where(kept_sign, interval.lower.clamp(min=0), interval.lower), interval.upper
                )
            if rule.limits is not None:
                interval = self._limited(interval, rule.limits)
            if self.network.tensors[name].dtype.kind != "f":
                interval = Interval(interval.lower.ceil(), interval.upper.floor())
            interval = interval.require_finite(name)
            if name in self.known:
                interval = interval.intersected(self.known[name], name)
            self.intervals[name] = interval
            self._hold(interval)
            self.quality[name] = _quality(rule, qualities)
        if rule.relaxed:
            self.facts[node.name] = self._relaxed_facts(rule, node, deployed)
            return
        for name, reference in zip(node.outputs, references, strict=True):
            if name:
                self.references[name] = reference
        efforts: tuple[Effort | None, ...] = (None,) * len(node.outputs)
        if enclosure.deviations is not None:
            efforts = tuple(Effort(far, rule.backward_terms(view)) for far in enclosure.deviations)
        self.facts[node.name] = NodeFacts(deployed, own, efforts, reach=self._reach_of(node, efforts))

    def _around_references(self, view: NodeView[Any]) -> NodeView[Any]:
        """The node with inputs that hold their reference points too: after tightening these may lie outside, and
        what is computed from them rounds in proportion to them."""
        hulls, outside = list(view.inputs), False
        for index, (name, interval) in enumerate(zip(view.node.inputs, view.inputs, strict=True)):
            reference = self.references.get(name)
            if interval is None or reference is None:
                continue
            if bool(((reference < interval.lower) | (reference > interval.upper)).any()):
                outside = True
                hulls[index] = Interval(
                    torch.minimum(interval.lower, reference), torch.maximum(interval.upper, reference)
                )
        return dataclasses.replace(view, inputs=tuple(hulls)) if outside else view

    def _linear_references(self, rule: Rule[Any], view: NodeView[Any]) -> tuple[Tensor, ...]:
        """The outputs' reference point; what float64 rounds in it is part of the node's own slack."""
        inputs = [
            constant if interval is None else self.references[name]
            for name, constant, interval in zip(view.node.inputs, view.constants, view.inputs, strict=True)
        ]
        if view.op.only_rounds:
            return tuple(value for value in inputs[:1] if value is not None)
        return tuple(output.to(torch.float64) for output in rule.image(view, inputs))

    def _relaxed_facts(self, rule: Rule[Any], node: Node, deployed: tuple[Tensor | None, ...]) -> NodeFacts:
        """Relaxation of a node whose output's interval is known, about its reference point."""
        (name,) = node.outputs
        with self.view(node) as view:
            relaxation = rule.relax(view)
            magnitude = rule.relax_magnitude(self._around_references(view), relaxation)
            terms = rule.backward_terms(view) + 16
        inputs = tuple(self.references.get(one) for one in node.inputs)
        lowest = relaxation.lowest(inputs)
        local = None if lowest is None else relaxation.about(inputs, lowest)
        self.references[name] = self.intervals[name].ball[0] if lowest is None else lowest
        elements = max(magnitude.numel(), *(0 if value is None else value.numel() for value in inputs))
        whole = magnitude + self.references[name].abs()
        if local is None:
            effort = Effort(whole, terms, elements)
        else:
            effort = Effort(local_magnitude(view, local), terms, elements, whole)
        efforts = (effort,)
        own = whole * (gamma(16, ENGINE.unit) * INFLATION) + ENGINE.absolute(16)
        return NodeFacts(deployed, (own,), efforts, relaxation, local, self._reach_of(node, efforts))

    def _reach_of(self, node: Node, efforts: tuple[Effort | None, ...]) -> Tensor | None:
        if all(effort is None for effort in efforts):
            return None
        names = {name for name in node.inputs if name in self.intervals}
        return torch.stack([self.intervals[name].magnitude.sum() for name in names]).sum()

    @property
    def only_lines(self) -> bool:
        """Whether rows go through lines about a reference point alone, so that float32 loses next to nothing."""
        return all(facts.relaxation is None or facts.local is not None for facts in self.facts.values())

    def tighten(self, name: str, interval: Interval) -> None:
        """Intersect a tensor's interval with another sound one."""
        both = self.intervals[name].intersected(interval.require_finite(name), name)
        self.intervals[name] = both.require_finite(name)
        self._deviations.pop(name, None)
        self._reach.pop(name, None)
        self._hold(self.intervals[name])

    def _limited(self, interval: Interval, limits: tuple[float, float]) -> Interval:
        """Kept within a function's range, which a float32 runtime leaves by a few ulp of its ends at most."""
        ulps = 16 * self.model.unit
        low, high = (
            end + sign * abs(end) * ulps if math.isfinite(end) else end
            for sign, end in zip((-1, 1), limits, strict=True)
        )
        return Interval(interval.lower.clamp(low, high), interval.upper.clamp(low, high))

    def _hold(self, interval: Interval) -> None:
        self.ledger.hold(interval.lower, "workspace")
        self.ledger.hold(interval.upper, "workspace")


def _quality(rule: Rule[Any], inputs: list[str]) -> str:
    if len(inputs) > 1 or "loose" in inputs:
        return "loose"
    if not rule.mixing:
        return inputs[0]
    return "exact" if inputs[0] == "independent" else "loose"
