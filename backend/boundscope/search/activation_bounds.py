"""Bounds of the domains of one case on one rank: the unsplit box, children of domains, where they are split next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.aims import Aims
from boundscope.bounds.beta import BetaSearch, RowBlock
from boundscope.bounds.context import BoxContext
from boundscope.bounds.neurons import Neurons
from boundscope.bounds.spans import Spans
from boundscope.properties.types import Clause
from boundscope.search.activation_settings import IDLE, SplitSettings
from boundscope.search.branching import Candidates, all_candidates, children, filtered
from boundscope.search.rounds import Crew


@dataclass
class Part:
    """Children of a chunk, and what is known of them. Tensors have one row a child."""

    block: RowBlock
    lower: Tensor
    found: Candidates
    points: Tensor  # minimisers of the worst, [k, n]

    @classmethod
    def joined(cls, parts: Sequence[Part]) -> Part:
        """The rows of several parts, in order."""
        if len(parts) == 1:
            return parts[0]
        found = [part.found for part in parts]
        return cls(
            RowBlock.joined([part.block for part in parts]),
            torch.cat([part.lower for part in parts]),
            Candidates(torch.cat([one.column for one in found]), torch.cat([one.above for one in found])),
            torch.cat([part.points for part in parts]),
        )


class CaseBounds:
    """Bounds domains of one case, as β-CROWN over its context: columns are its neurons, then elements of spans."""

    def __init__(
        self,
        context: BoxContext,
        clauses: Sequence[Clause],
        settings: SplitSettings,
        crew: Crew,
        check: Callable[[], None],
    ) -> None:
        """`check` is called between steps; what it raises ends the work."""
        self.context, self._settings, self._crew, self._check = context, settings, crew, check
        self.aims = Aims(context, clauses)
        self.neurons, self.spans = Neurons.of(context), Spans.of(context)
        self._clauses = len(clauses)
        self.search = self._begun()

    def _begun(self) -> BetaSearch:
        spans = self.spans if len(self.spans) else None
        return BetaSearch(self.context, self.neurons, self.aims, self._check, spans)

    @property
    def device(self) -> torch.device:
        return self.context.device

    @property
    def columns(self) -> int:
        """What a domain may be split at."""
        return len(self.neurons) + len(self.spans)

    @property
    def many(self) -> int:
        """Candidates of a domain."""
        return min(self._settings.candidates, max(self.columns, 1))

    def names(self) -> NDArray[np.int64]:
        """Which neurons and elements of spans the columns are: the place of the node, or of the tensor below zero, and
        the flat index, [M + G, 2]."""
        found = [np.zeros((0, 2), np.int64)]
        for place, node in enumerate(self.neurons.nodes):
            index = self.context.free_slopes(node).cpu().numpy()
            found.append(np.stack([np.full(len(index), place), index], 1))
        for place, elements in enumerate(self.spans.index):
            index = elements.cpu().numpy()
            found.append(np.stack([np.full(len(index), -1 - place), index], 1))
        return np.concatenate(found)

    # ------------------------------------------------------------ scales of multipliers

    def scales(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of neurons [M], and of elements of spans [G]."""
        return self.neurons.scales.cpu().numpy(), self.spans.scales.cpu().numpy()

    def scale(self, neurons: NDArray[np.float64], spans: NDArray[np.float64]) -> None:
        """Multipliers are in these units from now on."""
        self.neurons = replace(self.neurons, scales=torch.from_numpy(neurons).to(self.device))
        self.spans = replace(self.spans, scales=torch.from_numpy(spans).to(self.device))
        self.search = self._begun()

    # ------------------------------------------------------------ the unsplit box

    def root(self) -> Part:
        """Every clause by the best mixture of its constraints. Sets the scales of multipliers."""
        which, weights = self.aims.alone()
        block = self.unsplit(which, weights)
        first = self.search.prove(block)
        self.neurons = self.neurons.scaled(first.coefficients)
        if first.at_spans is not None:
            self.spans = self.spans.scaled(first.at_spans)
        self.search = self._begun()
        best = [
            int(torch.where(which == clause, first.lower, -torch.inf).argmax())
            for clause in range(self._clauses)
        ]
        index = torch.tensor(best, device=self.device)
        if not self.columns:
            return self._known(block.of_rows(index), first.lower[index])
        found = self.search.search(block.of_rows(index), self._settings.root)
        return self._known(found, first.lower[index])

    def unsplit(self, which: Tensor, weights: Tensor) -> RowBlock:
        """Rows of clauses `which` [R] over the whole box, with the slopes to start from."""
        count, many = len(which), len(self.neurons)
        return RowBlock(
            which,
            torch.zeros(count, many, dtype=torch.int8, device=self.device),
            self.neurons.starts.expand(count, -1).clone(),
            weights,
            self.spans.whole(count) if len(self.spans) else None,
        )

    # ------------------------------------------------------------ parts of it

    def levels(self, count: int, column: Tensor) -> int:
        """How many neurons `count` domains are split at at once, so that a first round fills a chunk; `column` is of
        those that this rank bounds."""
        wanted = int(math.log2(max(2, self._settings.chunk_rows // 2 / max(1, count))))
        if wanted == 1:
            return 1
        full = self._crew.ranks.least(int((column >= 0).all(0).sum()))
        return max(1, min(wanted, full))

    def split(self, block: RowBlock, found: Candidates, lower: Tensor, levels: int) -> Part:
        """The children of a chunk of domains with bounds `lower`, 2**levels of each in turn."""
        self._check()
        order = filtered(self.search, block, found, lower)
        for level in range(levels):
            column, above = (one[:, level].repeat_interleave(2**level) for one in (order.column, order.above))
            block = children(self.neurons, block, column, above, self.spans)
        one = block.of_rows(torch.zeros(1, dtype=torch.int64, device=self.device))
        with self._crew.passes(lambda: self.search.search(one, IDLE)):
            better = self.search.search(block, self._settings.domain)
        return self._known(better, lower.repeat_interleave(2**levels))

    def split_for_others(self, levels: int) -> None:
        """Take part in the passes of other ranks' chunks, with the whole box, whose bounds nobody asked for."""
        which, weights = self.aims.alone()
        column = torch.arange(min(self.many, self.columns), device=self.device)[None]
        of_span = (column - len(self.neurons)).clamp(min=0)
        middle = (self.spans.lower + self.spans.upper).float() / 2
        above = middle[of_span] if len(self.spans) else torch.zeros(column.shape, device=self.device)
        found = Candidates(column, torch.where(column >= len(self.neurons), above, 0.0))
        lower = torch.full((1,), -torch.inf, dtype=torch.float64, device=self.device)
        self.split(self.unsplit(which[:1], weights[:1]), found, lower, levels)

    def nothing(self, found: Candidates) -> Part:
        """Of a rank that no chunk was dealt to; `found` is what it has of candidates, none."""
        none = torch.zeros(0, dtype=torch.int64, device=self.device)
        width = sum(info.size for info in self.context.network.inputs)
        return Part(
            self.unsplit(none, torch.zeros(0, self.aims.width, device=self.device)),
            torch.zeros(0, dtype=torch.float64, device=self.device),
            found.of_rows(none),
            torch.zeros(0, width, dtype=torch.float64, device=self.device),
        )

    def _known(self, block: RowBlock, parent: Tensor) -> Part:
        """Prove a block, and choose where to split its rows next."""
        proven = self.search.prove(block)
        lower = torch.fmax(proven.lower, parent)
        points = self.search.points(block)
        found = all_candidates(self.search, block, proven, points, self.many)
        worst = lower.argmin()
        return Part(block, lower, found, self._minimiser(proven.at_inputs, worst)[None])

    def _minimiser(self, at_inputs: dict[str, Tensor], row: Tensor) -> Tensor:
        """Where the function that bounds a row is least in the box, [n] float64."""
        parts = []
        for info in self.context.network.inputs:
            interval = self.context.intervals[info.name]
            lower, upper = interval.lower.flatten(), interval.upper.flatten()
            if info.name in at_inputs:
                coefficients = at_inputs[info.name][row]
                parts.append(torch.where(coefficients >= 0, lower, upper))
            else:
                parts.append((lower + upper) / 2)
        return torch.cat(parts)
