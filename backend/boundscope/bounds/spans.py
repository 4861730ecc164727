"""Rows that are bounded where elements of tensors lie in ranges of their own: branch and bound at general split points
(GenBaB, Shi et al. 2024, arXiv 2405.21063).

An element that non-linear nodes read may be split at any point s of its interval: z ≤ s in one part, z ≥ s in the
other. In each, the nodes that read it are relaxed over the narrower range, and the range itself is one more constraint
of the Lagrangian (`pulls`). Rectifiers, whose pieces are linear, have their own form of it (`splits`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import Rule, rule_of
from boundscope.bounds.pulls import Pull
from boundscope.network.graph import Network, Node

LEAST_WIDTH = 2.0**-16  # of a range that can be split, relative to the values in it


@dataclass(frozen=True)
class Spans:
    """The elements of a context whose ranges rows can narrow, tensor after tensor, as G columns; and the nodes that
    read them, whose free parameters rows choose, as P more.

    `index` are flat indices by tensor, `lower`, `upper` [G] float64 the intervals that the context knows, `scales` [G]
    of multipliers. `starts` [P] are the rules' own parameters; those of the nodes that read element g are `readers`
    from `offsets[g]` to `offsets[g + 1]`.
    """

    tensors: tuple[str, ...]
    index: tuple[Tensor, ...]
    lower: Tensor
    upper: Tensor
    scales: Tensor
    nodes: tuple[Node, ...]
    shapes: tuple[tuple[int, ...], ...]  # of each node's parameters
    starts: Tensor
    readers: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, context: BoxContext) -> Spans:
        """Those that nodes read whose rule takes many boxes at once, but for rectifiers; none where layers are
        split over ranks, or where such a node's constants come from all ranks together."""
        network = context.network
        computed = {name for node in network.nodes for name in node.outputs}
        wanted: dict[str, Tensor] = {}
        nodes, shapes, starts = [], [], []
        for node in network.nodes if not context.zones.tensors else ():
            rule = context.rule(node)
            if not splittable(rule):
                continue
            if context.weights.collective and any(name in network.constants for name in node.inputs):
                return cls._none(context)
            for position, name in enumerate(node.inputs):
                if name in context.intervals and name in computed:
                    found = rule.wanted(node.op, position, context.intervals[name])
                    wanted[name] = found | wanted[name] if name in wanted else found
            with context.view(node) as view:
                theta = rule.theta(view)
                free = theta is not None and bool(rule.theta_matters(view).any())
            if theta is not None and free:
                nodes.append(node)
                shapes.append(tuple(theta.shape))
                starts.append(theta.flatten())
        tensors, index, lower, upper = [], [], [], []
        for name, mask in wanted.items():
            ends = context.intervals[name]
            low, high = ends.lower.flatten(), ends.upper.flatten()
            some = (mask.flatten() & wide(low, high)).nonzero().flatten()
            if len(some):
                tensors.append(name)
                index.append(some)
                lower.append(low[some])
                upper.append(high[some])
        empty = torch.zeros(0, dtype=torch.float64, device=context.device)
        if not tensors:
            return cls._none(context)
        readers, offsets = _readers(context, nodes, shapes, dict(zip(tensors, index, strict=True)))
        return cls(
            tuple(tensors),
            tuple(index),
            torch.cat(lower),
            torch.cat(upper),
            torch.ones(sum(map(len, index)), dtype=torch.float64, device=context.device),
            tuple(nodes),
            tuple(shapes),
            torch.cat([empty, *starts]).float(),
            readers,
            offsets,
        )

    @classmethod
    def _none(cls, context: BoxContext) -> Spans:
        empty = torch.zeros(0, dtype=torch.float64, device=context.device)
        none = torch.zeros(1, dtype=torch.int64, device=context.device)
        return cls((), (), empty, empty, empty, (), (), empty.float(), none[:0], none)

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def counts(self) -> list[int]:
        """Columns of each tensor."""
        return [len(one) for one in self.index]

    def scaled(self, coefficients: Tensor) -> Spans:
        """The same with scales from coefficients [R, G] at the elements."""
        size = coefficients.double().abs().mean(0)
        typical = float(size.mean()) if size.numel() else 1.0
        floor = 1e-3 * typical if typical > 0 else 1.0
        return dataclasses.replace(self, scales=size.clamp(min=floor))

    def apart(self, columns: Tensor) -> dict[str, Tensor]:
        """Columns [R, G] by tensor."""
        if not self.tensors:
            return {}
        return dict(zip(self.tensors, torch.split(columns, self.counts, dim=-1), strict=True))

    def together(self, parts: dict[str, Tensor], count: int) -> Tensor:
        """[R, G] of parts by tensor, zero for those that are not named; float32."""
        found = [
            parts[name].float() if name in parts else self.lower.new_zeros(count, size, dtype=torch.float32)
            for name, size in zip(self.tensors, self.counts, strict=True)
        ]
        return torch.cat([self.lower.new_zeros(count, 0, dtype=torch.float32), *found], 1)

    def parameters(self, thetas: Tensor) -> dict[str, Tensor]:
        """Parameters [R, P] by node, [R, *shape]."""
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = torch.split(thetas, sizes, dim=1) if sizes else ()
        return {
            node.name: part.reshape(len(thetas), *shape)
            for node, part, shape in zip(self.nodes, parts, self.shapes, strict=True)
        }

    def forget(self, thetas: Tensor, rows: Tensor, columns: Tensor) -> None:
        """Leave to the rules, from now on, what rows [N] of parameters [R, P] chose for the nodes that read elements
        (columns [N])."""
        first, last = self.offsets[columns], self.offsets[columns + 1]
        many = last - first
        within = torch.arange(int(many.sum()), device=columns.device)
        within -= (many.cumsum(0) - many).repeat_interleave(many)
        thetas[rows.repeat_interleave(many), self.readers[first.repeat_interleave(many) + within]] = torch.nan

    def whole(self, count: int) -> Ranges:
        """Ranges of so many rows that narrow nothing yet."""
        zero = torch.zeros(count, len(self), device=self.lower.device)
        return Ranges(
            torch.full_like(zero, -math.inf),
            torch.full_like(zero, math.inf),
            zero,
            self.starts.expand(count, -1).clone(),
        )


@dataclass(frozen=True)
class Ranges:
    """Of R rows: what they narrow of G elements' intervals, `low`, `high` [R, G] (infinite where nothing); multipliers
    [R, G] in units of the spans' scales; free parameters [R, P], NaN for the rules' own choice. All float32."""

    low: Tensor
    high: Tensor
    multipliers: Tensor
    thetas: Tensor

    def __len__(self) -> int:
        return len(self.low)

    def of_rows(self, index: Tensor) -> Ranges:
        return Ranges(self.low[index], self.high[index], self.multipliers[index], self.thetas[index])

    @classmethod
    def joined(cls, parts: Sequence[Ranges]) -> Ranges:
        return cls(
            *(torch.cat([getattr(part, one.name) for part in parts]) for one in dataclasses.fields(cls))
        )

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Ranges:
        """The same with each of the tensors changed."""
        return Ranges(change(self.low), change(self.high), change(self.multipliers), change(self.thetas))

    def ends(self, spans: Spans) -> tuple[Tensor, Tensor]:
        """Of every element, [R, G] float64. A range that is empty, since the context knows better, is a point."""
        lower = torch.maximum(self.low.double(), spans.lower)
        return lower, torch.maximum(torch.minimum(self.high.double(), spans.upper), lower)


class RangedRows:
    """Ranges of rows as backward passes take them: made once for all passes of the same rows."""

    def __init__(self, context: BoxContext, spans: Spans, ranges: Ranges) -> None:
        self._context, self._spans = context, spans
        self._lower, self._upper = ranges.ends(spans)
        moved = (torch.isfinite(ranges.low) | torch.isfinite(ranges.high)).any(0)
        self._moved = {name: bool(part.any()) for name, part in spans.apart(moved).items()}
        self.domains = self._domains(len(ranges))
        self.which = torch.arange(len(ranges), device=ranges.low.device)
        self.scales = spans.scales.float()
        self.thetas = self._filled(ranges.thetas)

    def _domains(self, count: int) -> Domains | None:
        found: dict[str, Interval] = {}
        lower, upper = self._spans.apart(self._lower), self._spans.apart(self._upper)
        for name, index in zip(self._spans.tensors, self._spans.index, strict=True):
            if self._moved[name]:
                root = self._context.intervals[name]
                ends = [
                    end.flatten().expand(count, -1).index_copy(1, index, own[name]).reshape(count, *end.shape)
                    for end, own in ((root.lower, lower), (root.upper, upper))
                ]
                found[name] = Interval(ends[0], ends[1])
        return Domains(self._context, found, narrowed=True) if found else None

    def _filled(self, thetas: Tensor) -> Tensor:
        """The rules' own parameters where none are chosen."""
        if self.domains is None or not bool(torch.isnan(thetas).any()):
            return thetas
        filled, place = thetas.clone(), 0
        for node, shape in zip(self._spans.nodes, self._spans.shapes, strict=True):
            part = slice(place, place + math.prod(shape))
            place = part.stop
            if not bool(torch.isnan(filled[:, part]).any()):
                continue
            own = self.domains.theta(node)
            if own is not None:
                chosen = filled[:, part]
                filled[:, part] = torch.where(
                    torch.isnan(chosen), own.reshape(len(chosen), -1).float(), chosen
                )
        return filled

    def passed(self, multipliers: Tensor, thetas: Tensor, *, all_tensors: bool = False) -> dict[str, Any]:
        """Arguments of a BackwardPass with multipliers [R, G] in units of scales, and parameters [R, P]; with
        `all_tensors` for those too that no row narrows."""
        pulls = {}
        forces = self._spans.apart(multipliers * self.scales.to(multipliers.dtype))
        lower, upper = self._spans.apart(self._lower), self._spans.apart(self._upper)
        for name, index in zip(self._spans.tensors, self._spans.index, strict=True):
            if all_tensors or self._moved[name]:
                pulls[name] = Pull(index, forces[name], lower[name], upper[name])
        found: dict[str, Any] = {"pulls": pulls, "thetas": self._spans.parameters(thetas)}
        if self.domains is not None:
            found |= {"domains": self.domains, "which": self.which}
        return found


def _readers(
    context: BoxContext, nodes: list[Node], shapes: list[tuple[int, ...]], index: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Which parameters belong to nodes that read each column: `readers` and `offsets` of Spans."""
    columns, parameters = [], []
    place = 0
    for node, shape in zip(nodes, shapes, strict=True):
        if not context.rule(node).by_element:  # parameters that many elements share stay as they were chosen
            place += math.prod(shape)
            continue
        output = context.network.tensors[node.outputs[0]].shape
        own = torch.arange(place, place + math.prod(shape), device=context.device)
        place += math.prod(shape)
        for name in dict.fromkeys(node.inputs):
            if name not in index:
                continue
            first = sum(len(one) for before, one in index.items() if _earlier(index, before, name))
            ends = context.intervals[name].lower
            column = torch.full((ends.numel(),), -1, dtype=torch.int64, device=context.device)
            column[index[name]] = torch.arange(first, first + len(index[name]), device=context.device)
            read = column.reshape(ends.shape).expand(output).expand(shape).flatten()
            columns.append(read[read >= 0])
            parameters.append(own[read >= 0])
    total = sum(len(one) for one in index.values())
    none = torch.zeros(0, dtype=torch.int64, device=context.device)
    column, parameter = torch.cat([none, *columns]), torch.cat([none, *parameters])
    order = column.argsort(stable=True)
    offsets = torch.zeros(total + 1, dtype=torch.int64, device=context.device)
    offsets[1:] = torch.bincount(column, minlength=total).cumsum(0)
    return parameter[order], offsets


def _earlier(index: dict[str, Tensor], one: str, other: str) -> bool:
    names = list(index)
    return names.index(one) < names.index(other)


def splittable(rule: Rule[Any]) -> bool:
    """Whether the ranges of what a node with this rule reads can be narrowed."""
    return rule.relaxed and rule.tall and not rule.slope_free


def parameters_of(node: Node, network: Network) -> int:
    """How many numbers each kind of free parameter of a node has for a row, whatever the box; 0 where what it reads
    cannot be narrowed."""
    rule = rule_of(node.op)
    if rule is None:
        return 0
    rule = rule.use([bool(name) and name not in network.constants for name in node.inputs])
    shapes = [network.tensors[name].shape for name in node.inputs if name]
    return rule.parameter_count(shapes, network.tensors[node.outputs[0]].shape) if splittable(rule) else 0


def wide(lower: Tensor, upper: Tensor) -> Tensor:
    """Ranges that have room for a split point."""
    size = torch.maximum(lower.abs(), upper.abs())
    return upper - lower > LEAST_WIDTH * size.clamp(min=1e-30)
