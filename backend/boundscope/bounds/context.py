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

from boundscope.bounds.interval import Interval
from boundscope.bounds.ledger import MemoryLedger
from boundscope.bounds.norms import BallSet
from boundscope.bounds.operators.base import NodeView, Rule, rule_of
from boundscope.bounds.operators.relaxation import SUM_BLOCK, BroadcastLines, Lines, Relaxation
from boundscope.bounds.rounding import (
    ENGINE,
    INFLATION,
    LARGEST_FLOAT32,
    LEAST_NORMAL_FLOAT32,
    UNIT_FLOAT32,
    RoundingModel,
    gamma,
)
from boundscope.bounds.support import Elements
from boundscope.errors import BoundError, UnsupportedOperatorError
from boundscope.network.graph import Network, Node
from boundscope.network.operators.arithmetic import Add, Sub
from boundscope.network.operators.linear import Conv, Gemm, MatMul
from boundscope.properties.types import Box
from boundscope.sharding.matrices import LentMatrix
from boundscope.sharding.weights import LARGE_ELEMENTS, WeightStore
from boundscope.sharding.zones import SUMMED, Zones

# Elements that cannot leave their reference are left out of rows where they are this part of a tensor of this size.
FIXED_PART = 0.1
LEAST_ELEMENTS = 32
# A budget below this many times the network's constants has no room for the parts of them that are in use.
ROOM_FOR_PARTS = 4
# Added to magnitudes, so that γ of them covers what halving an interval loses among subnormals.
HALVED = 2.0**-960
LEAST_SAFE = 2.0**-900  # a radius from here on is far from what halving loses
GRID = 2.0**-20  # ends of intervals that are multiples of it may be summed without rounding
_PLAIN_SUMS = (Add, Sub, Gemm, MatMul, Conv)


@dataclass(frozen=True)
class Effort:
    """What carrying rows through a node costs in rounding: `terms` products a coefficient, of total size `magnitude`
    [*S_out] per unit of coefficient, and `elements` products in a constant's sum.

    `whole` takes the place of `magnitude` in float64 passes: of a relaxation, it covers free parameters of any value.
    """

    magnitude: Tensor
    terms: int
    elements: int = 0
    whole: Tensor | None = None

    def slack(self, engine: RoundingModel) -> Tensor:
        """Largest error of one pass per unit of coefficient. Constants of float32 rows are summed in short blocks."""
        single = engine.unit > ENGINE.unit
        count = max(self.terms, SUM_BLOCK if single else self.elements)
        magnitude = self.magnitude if single or self.whole is None else self.whole
        return magnitude * (gamma(count + 8, engine.unit) * INFLATION) + engine.absolute(count)


@dataclass(frozen=True)
class Charge:
    """What rows pay at one tensor: `weights` [n], the slack per unit of coefficient of each element in the rows' dtype,
    and `lost`, what every row that is not zero pays besides."""

    weights: Tensor
    lost: float

    @classmethod
    def of(cls, slack: Tensor, lost: float, engine: RoundingModel, dtype: torch.dtype) -> Charge:
        # A slack, or its product with a coefficient, may vanish in the rows' dtype.
        slack = slack.flatten()
        kept = slack.to(dtype)
        if dtype != slack.dtype:
            kept = torch.nextafter(kept, kept.new_full((), math.inf))
        kept = torch.where(slack == 0, 0.0, kept.clamp(min=engine.underflow))  # a NaN stays one
        return cls(kept, lost + engine.absolute(kept.numel()))


@dataclass(frozen=True)
class Reach:
    """An interval as shift ± radius of the distance from a reference point, float64 [*S]; no shift: zero. `whole` is
    what errors of sums are relative to, |shift| + radius and what halving loses; none: the radius."""

    radius: Tensor
    shift: Tensor | None
    whole: Tensor | None


@dataclass(frozen=True)
class _Loan:
    """What a node borrows of the weights, and how; and its outputs' shapes."""

    names: tuple[str, ...]
    stored: list[str]
    sparse: list[str]
    more: dict[str, list[str]]
    output_shapes: tuple[tuple[int, ...], ...]


@dataclass
class NodeFacts:
    """What a backward pass needs to know of a node, for each of its outputs.

    `deployed` [*S_out] is what the deployed arithmetic may add to the output; `own` bounds the float64 errors of
    its reference point and intercepts; `efforts` tell the rounding of rows. Where the node is not linear,
    `relaxation` bounds it, and `local` is the same about the reference point, where that has a short form.
    """

    deployed: tuple[Tensor | None, ...]
    own: tuple[Tensor | None, ...]
    efforts: tuple[Effort | None, ...]
    relaxation: Relaxation | None = None
    local: Relaxation | None = None
    reach: Tensor | None = (
        None  # Σ|x| over the perturbed inputs, a scalar; None where no coefficient is rounded
    )
    _charges: dict[torch.dtype, tuple[Charge | None, ...]] = field(default_factory=dict)
    # What rules and passes derive from constants and from the relaxation once for all chunks, by dtype.
    kept: dict[torch.dtype, dict[Any, Any]] = field(default_factory=dict)

    def charges(self, engine: RoundingModel, dtype: torch.dtype) -> tuple[Charge | None, ...]:
        """What rows pay for each output on their way through the node, in passes of this arithmetic."""
        if dtype not in self._charges:
            lost = self._underflow(engine)
            rows = [None if effort is None else effort.slack(engine) for effort in self.efforts]
            slacks = [_sum(_sum(a, b), c) for a, b, c in zip(self.deployed, self.own, rows, strict=True)]
            self._charges[dtype] = tuple(
                None if slack is None else Charge.of(slack, lost, engine, dtype) for slack in slacks
            )
        return self._charges[dtype]

    def _underflow(self, engine: RoundingModel) -> float:
        """What the coefficients that a row gets at the inputs can lose to underflow, all together."""
        if self.reach is None:
            return 0.0
        terms = max((effort.terms for effort in self.efforts if effort is not None), default=1)
        return float(self.reach) * engine.absolute(terms + 8)


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
    _rules: dict[str, Rule[Any]] = field(default_factory=dict)  # by node
    _reach: dict[str, Reach] = field(default_factory=dict)
    _loans: dict[str, _Loan] = field(default_factory=dict)

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
        if found is None:
            rule = rule_of(node.op)
            if rule is None:
                raise UnsupportedOperatorError(
                    f"operator {node.op.onnx_type} of node '{node.name}' has no bound rule"
                )
            perturbed = [bool(name) and name not in self.network.constants for name in node.inputs]
            found = self._rules[node.name] = rule.use(perturbed)
        return found

    def producer(self, name: str) -> Node:
        """The node that computes a tensor."""
        return self._producers[name]

    @contextmanager
    def view(self, node: Node, dtype: torch.dtype | None = None) -> Iterator[NodeView[Any]]:
        """The node with its constants lent for the time of the `with`: in `dtype`, by default float64, or large ones
        as stored where its rule converts them itself."""
        loan = self._loans.get(node.name)
        if loan is None:
            loan = self._loans[node.name] = self._loan(node)
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
            deployed, own = self._forward_slack(rule, view, enclosure.magnitudes)
            exactly = self._sums_exactly(view, enclosure.magnitudes)
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
            effort = Effort(_local_magnitude(view, local), terms, elements, whole)
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

    def _folded_error(self, rule: Rule[Any], view: NodeView[Any]) -> Tensor | None:
        """What the first output can be off because a constant was folded, and rounded, at load.

        Raises:
            UnsupportedOperatorError: the operator's rule cannot tell.
        """
        errors = self.network.rounded_constants
        if not any(name in errors for name in view.node.inputs):
            return None
        constants = tuple(
            None if value is None else _filled(value, errors.get(name, 0.0) * INFLATION)
            for name, value in zip(view.node.inputs, view.constants, strict=True)
        )
        error = rule.constant_error(dataclasses.replace(view, constants=constants))
        if error is None:
            raise _no_rule_for_folded(view.node)
        return error * INFLATION

    def _moved_slack(
        self, view: NodeView[Any], whole: bool
    ) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
        """The same for a node that moves or chooses values: its outputs are off by no more than its constants are.

        Raises:
            UnsupportedOperatorError: it compares with a constant that was rounded at load.
        """
        nothing: tuple[Tensor | None, ...] = (None,) * len(view.output_shapes)
        errors = [error for name, error in self.network.rounded_constants.items() if name in view.node.inputs]
        if not errors:
            return nothing, nothing
        if whole:
            raise _no_rule_for_folded(view.node)
        shapes = view.output_shapes
        zeros = tuple(torch.zeros(shape, dtype=torch.float64, device=self.device) for shape in shapes)
        return tuple(zero + max(errors) * INFLATION for zero in zeros), zeros

    def _forward_slack(
        self, rule: Rule[Any], view: NodeView[Any], magnitudes: tuple[Tensor, ...] | None
    ) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
        """Rounding of the deployed network, and of the engine's own interval arithmetic, for each output."""
        # Integers and truth values are never rounded.
        whole = all(self.network.tensors[name].dtype.kind != "f" for name in view.node.outputs if name)
        if rule.exact or magnitudes is None:
            return self._moved_slack(view, whole)
        terms = rule.terms(view)
        model = RoundingModel(0.0, 0.0) if whole else self.model
        relative = model.relative(terms) * INFLATION
        flushed = not self.subnormal.isdisjoint(view.node.inputs)
        if flushed or (rule.collective and model.unit):
            reached = rule.magnitude(_without_subnormals(view) if flushed else view)
        else:
            reached = magnitudes
        deployed = [m * relative + model.absolute(terms) for m in reached]
        if self.model.unit and not whole:
            self._require_in_float32(view.node, reached)
        folded = self._folded_error(rule, view)
        if folded is not None:
            deployed[0] = deployed[0] + folded
        own = gamma(terms + 8, ENGINE.unit) * INFLATION
        hull = self._around_references(view)
        if (hull is not view or rule.collective) and not rule.relaxed:
            magnitudes = rule.magnitude(hull)
        return tuple(deployed), tuple(m * own + ENGINE.absolute(terms) for m in magnitudes)

    def _sums_exactly(self, view: NodeView[Any], magnitudes: tuple[Tensor, ...] | None) -> bool:
        """Whether float64 computes a sum of products without rounding: whole weights, intervals whose ends are
        multiples of GRID, and no sum beyond 2⁵⁰ of it on the way. Binarised networks are decided by such sums, which
        are often zero. Devices that may convolve by a transform, with rounding in between, are left out."""
        if self.device.type != "cpu" or not magnitudes or not isinstance(view.op, _PLAIN_SUMS):
            return False
        if isinstance(view.op, Gemm) and (view.op.alpha, view.op.beta) != (1.0, 1.0):
            return False
        if isinstance(view.op, MatMul) and len(view.perturbed) > 1:
            return False
        if isinstance(view.op, SUMMED):  # each rank sees a part of what decides
            return False
        ends = (end for x in view.inputs if x is not None for end in (x.lower, x.upper))
        return (
            all(_multiples(end, GRID) for end in ends)
            and all(_multiples(each, 1.0) for each in view.constants if each is not None)
            and all(float(each.max()) <= GRID * 2.0**50 for each in magnitudes if each.numel())
        )

    def _require_in_float32(self, node: Node, magnitudes: tuple[Tensor, ...]) -> None:
        """Sums that may pass the largest float32 on their way have no error bound: they may end as infinity or NaN."""
        for name, magnitude in zip(node.outputs, magnitudes, strict=False):
            beyond = (magnitude * (1.0 + 2.0**-10) > LARGEST_FLOAT32).flatten().nonzero()
            if len(beyond):
                raise BoundError(
                    f"tensor '{name}' may leave the range of float32 at element {int(beyond[0])}: terms of up to "
                    f"{float(magnitude.flatten()[beyond[0]]):.3g} are summed"
                )


def _multiples(values: Tensor | LentMatrix, unit: float) -> bool:
    """Whether all values are multiples of a power of two, not too large to tell."""
    if isinstance(values, LentMatrix):
        step = 1 + LARGE_ELEMENTS // values.shape[1]
        columns = slice(0, values.shape[1])
        bands = [(slice(first, first + step), columns) for first in range(0, len(values), step)]
        found = [_multiples(part, unit) for part in values.tiles(bands)]  # to the end: all ranks read alike
        return all(found)
    scaled = (values._values() if values.is_sparse else values) / unit
    return bool((scaled == scaled.round()).all()) and bool(torch.isfinite(scaled).all())


def _filled(constant: Tensor, error: float) -> Tensor:
    """An error of every element of a constant; of a floating one in float64, whatever the constant's own dtype."""
    if not constant.is_floating_point():
        return torch.full_like(constant, error)
    return torch.full((), error, dtype=torch.float64, device=constant.device).expand(constant.shape)


def _no_rule_for_folded(node: Node) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"node '{node.name}' ({node.op.onnx_type}) uses a constant that was computed in floating point at load, and "
        "its rule cannot bound the rounding; export the network with constants folded"
    )


def _without_subnormals(view: NodeView[Any]) -> NodeView[Any]:
    """The node with its subnormal constants so much larger that one rounding of them is all that a flush can lose."""
    floor = LEAST_NORMAL_FLOAT32 / UNIT_FLOAT32
    constants = tuple(
        torch.where(
            (c != 0) & (c.abs() < LEAST_NORMAL_FLOAT32), torch.copysign(torch.full_like(c, floor), c), c
        )
        if c is not None and c.is_floating_point()
        else c
        for c in view.constants
    )
    return dataclasses.replace(view, constants=constants)


def _local_magnitude(view: NodeView[Any], local: Relaxation) -> Tensor:
    """Σ|terms| of lines about the reference point, per unit of coefficient, [*S_out]."""
    lines = local.lines if isinstance(local, BroadcastLines) else local
    assert isinstance(lines, Lines)
    far = view.deviations[lines.position]
    assert far is not None
    slope = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs())
    low = lines.upper_intercept if lines.lower_intercept is None else lines.lower_intercept
    return slope * far + torch.maximum(low.abs(), lines.upper_intercept.abs())


def _quality(rule: Rule[Any], inputs: list[str]) -> str:
    if len(inputs) > 1 or "loose" in inputs:
        return "loose"
    if not rule.mixing:
        return inputs[0]
    return "exact" if inputs[0] == "independent" else "loose"


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b
