"""What an attack holds of a network and a property in one dtype, and which dtypes it takes for what."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from boundscope.network.graph import Network
from boundscope.properties.types import Property
from boundscope.search.evaluation import BatchedNetwork, operations
from boundscope.search.objectives import Objectives
from boundscope.search.regions import Regions
from boundscope.search.surrogates import jumps

TABLE_ELEMENTS = 1 << 24


class Side:
    """What an attack holds in one dtype."""

    def __init__(self, network: Network, prop: Property, dtype: torch.dtype) -> None:
        self._source = network
        self._property = prop
        self.dtype = dtype

    @cached_property
    def network(self) -> BatchedNetwork:
        return BatchedNetwork(self._source, self.dtype, surrogate=True)

    @cached_property
    def objectives(self) -> Objectives:
        return Objectives(
            self._property.cases, self._source.input_count, self._source.output_count, self.dtype
        )

    @cached_property
    def regions(self) -> Regions:
        return Regions([case.box for case in self._property.cases], self.dtype)

    @cached_property
    def most_points(self) -> int:
        """Evaluated together."""
        return max(1, min(self.network.most_points, TABLE_ELEMENTS // self.objectives.elements))

    def table(self, points: Tensor, cases: Tensor) -> Tensor:
        """Margins [B, clauses] without gradients."""
        parts = []
        with torch.no_grad():
            most = self.most_points
            for part, own in zip(torch.split(points, most), torch.split(cases, most), strict=True):
                parts.append(self.objectives.margins(part, self.network.outputs(part), own))
        return torch.cat(parts)

    def groups(self, cases: Tensor, *, limited: bool = True) -> Iterator[Tensor]:
        """Rows that may walk together: not too many, and those in a ball apart from other cases."""
        most = self.most_points if limited else max(1, len(cases))
        own = sorted(set(cases.tolist()))
        if not any(self.regions.is_ball(case) for case in own):
            yield from torch.split(torch.arange(len(cases)), most)
            return
        for case in own:
            yield from torch.split((cases == case).nonzero()[:, 0], most)

    def holds(self, margins: Tensor) -> Tensor:
        return margins < 0 if self.objectives.strict else margins <= 0


class Sides:
    """`own` has the network's dtype, in which most walks are done; `judging` that in which violations count first."""

    def __init__(self, network: Network, prop: Property, own: torch.dtype, judging: torch.dtype) -> None:
        of = {dtype: Side(network, prop, dtype) for dtype in dict.fromkeys((own, torch.float64, judging))}
        self._network = network
        self.own, self.judging, self._wide = of[own], of[judging], of[torch.float64]

    @cached_property
    def main(self) -> Side:
        """In which an attack begins: the network's dtype where that tells points of the boxes apart."""
        return self._wide if self.own.regions.coarse else self.own

    @cached_property
    def operations(self) -> int:
        """That evaluating a point takes."""
        return operations(self._network)

    @cached_property
    def jumps(self) -> bool:
        """Whether gradients may lead nowhere."""
        return jumps(self._network)
