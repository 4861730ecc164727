"""The neurons that rows of branch and bound can be held to one side of, as columns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.network.graph import Node


@dataclass(frozen=True)
class Neurons:
    """The neurons of a context that rows can be held to one side of, in the network's order, as M columns.

    Tensors are [M]: `lower` and `upper` of what the neuron reads, `reference` the value of that at the reference
    point; `scales` of multipliers, in the network's own units of coefficients.
    """

    nodes: tuple[Node, ...]
    counts: tuple[int, ...]
    lower: Tensor
    upper: Tensor
    reference: Tensor
    scales: Tensor
    starts: Tensor  # slopes to start from

    @classmethod
    def of(cls, context: BoxContext) -> Neurons:
        """Those of all nodes whose relaxation has a free slope; scales are 1 until `scaled`."""
        nodes, counts = [], []
        parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for node in context.network.nodes:
            rule = context.rule(node)
            if not rule.slope_free:
                continue
            free = context.free_slopes(node)
            if not len(free):
                continue
            name = node.inputs[0]
            interval = context.intervals[name]
            with context.view(node) as view:
                start = rule.theta(view)
            assert start is not None
            nodes.append(node)
            counts.append(len(free))
            values = (interval.lower, interval.upper, context.references[name], start)
            lower, upper, reference, slope = (one.flatten()[free] for one in values)
            parts.append((lower, upper, reference, slope))
        empty = torch.zeros(0, dtype=torch.float64, device=context.device)
        lower, upper, reference, starts = (
            torch.cat([part[i] for part in parts]) if parts else empty for i in range(4)
        )
        return cls(
            tuple(nodes), tuple(counts), lower, upper, reference, torch.ones_like(lower), starts.float()
        )

    def __len__(self) -> int:
        return sum(self.counts)

    def scaled(self, coefficients: Tensor) -> Neurons:
        """The same with scales from coefficients [R, M] above the neurons."""
        size = coefficients.double().abs().mean(0)
        typical = float(size.mean()) if size.numel() else 1.0
        floor = 1e-3 * typical if typical > 0 else 1.0
        return dataclasses.replace(self, scales=size.clamp(min=floor))

    def apart(self, matrix: Tensor) -> dict[str, Tensor]:
        """Columns [R, M] or [M] by node."""
        if not self.nodes:
            return {}
        parts = torch.split(matrix, list(self.counts), dim=-1)
        return {node.name: part.contiguous() for node, part in zip(self.nodes, parts, strict=True)}

    def together(self, parts: dict[str, Tensor], count: int) -> Tensor:
        """[R, M] of parts by node; zero for nodes that are not named."""
        found = [
            parts[node.name] if node.name in parts else self.lower.new_zeros(count, size)
            for node, size in zip(self.nodes, self.counts, strict=True)
        ]
        return (
            torch.cat([one.to(torch.float32) for one in found], 1)
            if found
            else self.lower.new_zeros(count, 0)
        )
