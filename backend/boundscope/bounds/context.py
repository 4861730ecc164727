"""Everything proven so far about one network over one input box: intervals, relaxations, rounding slack."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.ledger import MemoryLedger
from boundscope.bounds.operators.base import NodeView, Rule, rule_of
from boundscope.bounds.operators.relaxation import Relaxation
from boundscope.bounds.rounding import ENGINE, INFLATION, RoundingModel, gamma
from boundscope.errors import UnsupportedOperatorError
from boundscope.network.graph import Network, Node
from boundscope.properties.types import Box
from boundscope.sharding.weights import WeightStore


@dataclass
class NodeFacts:
    """What a backward pass needs to know of a node: slack per output [*S_out], and its relaxation if it has one."""

    slack: tuple[Tensor | None, ...]
    relaxation: Relaxation | None = None


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
    facts: dict[str, NodeFacts] = field(default_factory=dict)
    # How an interval relates to the true range: "independent" elements with exact ranges, exact ranges whose
    # elements depend on each other ("exact"), or neither ("loose").
    quality: dict[str, str] = field(default_factory=dict)

    @classmethod
    def over(
        cls,
        box: Box,
        network: Network,
        weights: WeightStore,
        ledger: MemoryLedger,
        model: RoundingModel,
        device: torch.device,
    ) -> BoxContext:
        """The start: intervals of the network's inputs only. `box` counts its elements over all inputs in order."""
        context = cls(network, weights, ledger, model, device)
        lower, upper = torch.from_numpy(box.lower.copy()), torch.from_numpy(box.upper.copy())
        position = 0
        for info in network.inputs:
            part = slice(position, position + info.size)
            context.intervals[info.name] = Interval(
                lower[part].reshape(info.shape).to(device), upper[part].reshape(info.shape).to(device)
            )
            context.quality[info.name] = "independent"
            position += info.size
        return context

    def rule(self, node: Node) -> Rule[Any]:
        rule = rule_of(node.op)
        if rule is None:
            raise UnsupportedOperatorError(
                f"operator {node.op.onnx_type} of node '{node.name}' has no bound rule"
            )
        return rule

    @contextmanager
    def view(self, node: Node, dtype: torch.dtype | None = None) -> Iterator[NodeView[Any]]:
        """The node with its constants (in `dtype`, by default float64) lent for the time of the `with`."""
        names = tuple(name for name in node.inputs if name in self.network.constants)
        with self.weights.use(names, dtype) as lent:
            yield NodeView(
                node=node,
                op=node.op,
                constants=tuple(lent.get(name) for name in node.inputs),
                inputs=tuple(self.intervals.get(name) for name in node.inputs),
                output_shapes=tuple(
                    self.network.tensors[name].shape if name else () for name in node.outputs
                ),
            )

    def advance(self, node: Node) -> None:
        """Derive intervals, slack and relaxation of a node from its inputs' intervals.

        Raises:
            BoundError: an interval is not finite; names the tensor.
        """
        rule = self.rule(node)
        with self.view(node) as view:
            intervals = rule.interval(view)
            slack, engine = self._forward_slack(rule, view)
            relaxation = rule.relax(view) if rule.relaxed else None
            backward = self._backward_slack(rule, view, relaxation)
            folded = self._folded_error(rule, view)
        if slack is not None and folded is not None:
            slack = (slack[0] + folded, *slack[1:])
        qualities = [self.quality[name] for name in node.inputs if name in self.quality]
        for index, (name, interval) in enumerate(zip(node.outputs, intervals, strict=False)):
            if not name:
                continue
            total = None if slack is None or engine is None else slack[index] + engine[index]
            if total is not None:
                interval = interval.widened(total)
            self.intervals[name] = interval.require_finite(name)
            self._hold(interval)
            self.quality[name] = _quality(rule, qualities)
        combined = tuple(_sum(a, b) for a, b in zip(slack or (None,) * len(backward), backward, strict=True))
        self.facts[node.name] = NodeFacts(combined, relaxation)

    def tighten(self, name: str, interval: Interval) -> None:
        """Intersect a tensor's interval with another sound one."""
        self.intervals[name] = self.intervals[name].intersected(interval.require_finite(name), name)
        self._hold(self.intervals[name])

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
            None if value is None else torch.full_like(value, errors.get(name, 0.0) * INFLATION)
            for name, value in zip(view.node.inputs, view.constants, strict=True)
        )
        error = rule.constant_error(dataclasses.replace(view, constants=constants))
        if error is None:
            raise UnsupportedOperatorError(
                f"node '{view.node.name}' ({view.node.op.onnx_type}) uses a constant that was computed in floating "
                "point at load, and its rule cannot bound the rounding; export the network with constants folded"
            )
        return error * INFLATION

    def _forward_slack(
        self, rule: Rule[Any], view: NodeView[Any]
    ) -> tuple[tuple[Tensor, ...] | None, tuple[Tensor, ...] | None]:
        """Rounding of the deployed network, and of the engine's own interval arithmetic, for each output."""
        if rule.exact:
            return None, None
        terms = rule.terms(view)
        magnitudes = rule.magnitude(view)
        deployed = tuple(
            m * (self.model.relative(terms) * INFLATION) + self.model.absolute(terms) for m in magnitudes
        )
        engine = tuple(
            m * (gamma(terms + 8, ENGINE.unit) * INFLATION) + ENGINE.absolute(terms) for m in magnitudes
        )
        return deployed, engine

    def _backward_slack(
        self, rule: Rule[Any], view: NodeView[Any], relaxation: Relaxation | None
    ) -> tuple[Tensor | None, ...]:
        """Engine error of carrying one row through the node, per unit of coefficient, for each output."""
        if relaxation is not None:
            magnitude = rule.relax_magnitude(view, relaxation)
            terms = magnitude.numel() + 16
            return (magnitude * (gamma(terms, ENGINE.unit) * INFLATION) + ENGINE.absolute(terms),)
        if rule.silent:
            return (None,) * len(view.output_shapes)
        magnitudes = rule.magnitude(view)
        return tuple(
            m * (gamma(max(rule.backward_terms(view), m.numel()) + 8, ENGINE.unit) * INFLATION)
            + ENGINE.absolute(m.numel())
            for m in magnitudes
        )


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
