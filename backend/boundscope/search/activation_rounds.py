"""A round of a search by activations on its ranks: chunks of domains go to the ranks that bound them, and all ranks
learn the bounds of the children, whose rows stay where they were made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.beta import RowBlock
from boundscope.search.activation_bounds import CaseBounds, Part
from boundscope.search.activation_rows import as_rows
from boundscope.search.branching import Candidates
from boundscope.search.rounds import Crew, agreed
from boundscope.search.spread import Taken

JUDGED = 8  # minimisers a round


@dataclass
class Children:
    """Those of a round: what every rank knows of all D of them, and the rows of those that this rank has, in order.

    `made` is the rank [D] that has the rows of each child; None: every rank has all of them.
    """

    which: Tensor
    lower: Tensor
    leaf: Tensor  # nothing is left to split
    points: Tensor  # minimisers of the worst of chunks, [k, n]
    made: NDArray[np.int64] | None
    block: RowBlock
    found: Candidates

    def has(self, rank: int) -> NDArray[np.bool_]:
        """[D] whether the rank has the rows of a child."""
        if self.made is None:
            return np.ones(len(self.lower), np.bool_)
        mark: NDArray[np.bool_] = self.made == rank
        return mark


class Rounds:
    """Those of one case. All ranks call together."""

    def __init__(self, bounds: CaseBounds, crew: Crew, chunk_rows: int) -> None:
        self._bounds, self._crew, self._chunk_rows = bounds, crew, chunk_rows

    def root(self) -> Children:
        """The unsplit box, once for every clause."""
        result: list[Part] = []
        agreed(self._crew.ranks, lambda: result.append(self._bounds.root()))
        (part,) = result
        return self._told(part, part.block.which, np.zeros(1, np.int64), None)

    def split(self, parents: Taken) -> Children:
        """Split domains and bound their children, chunk by chunk, over the ranks."""
        bounds, crew, count = self._bounds, self._crew, len(parents)
        step = max(1, self._chunk_rows // 2)
        chunks = [np.arange(first, min(first + step, count)) for first in range(0, count, step)]
        dealt = crew.deal(len(chunks))
        block, found = self._brought(parents, chunks, dealt)
        lower = torch.from_numpy(parents.priority).to(bounds.device)
        levels = bounds.levels(count, found.column)
        parts: list[Part] = []

        def work() -> None:
            first = 0
            for number in crew.turns(dealt):
                if number is None:
                    bounds.split_for_others(levels)
                    continue
                rows = torch.arange(first, first + len(chunks[number]), device=bounds.device)
                first += len(rows)
                own = torch.from_numpy(chunks[number]).to(bounds.device)
                parts.append(bounds.split(block.of_rows(rows), found.of_rows(rows), lower[own], levels))

        agreed(crew.ranks, work)
        clause = torch.from_numpy(parents.small["clause"]).to(bounds.device).long()
        made = np.repeat(dealt, [len(chunk) * 2**levels for chunk in chunks]) if crew.apart else None
        part = Part.joined(parts) if parts else bounds.nothing(found)
        return self._told(part, clause.repeat_interleave(2**levels), dealt, made)

    def _brought(
        self, parents: Taken, chunks: list[NDArray[np.int64]], dealt: NDArray[np.int64]
    ) -> tuple[RowBlock, Candidates]:
        """The rows of the chunks that are dealt to this rank, one chunk after the other."""
        ranks = self._crew.ranks
        wanted = [np.arange(len(parents))] * ranks.size
        if self._crew.apart:
            wanted = [
                np.concatenate([np.zeros(0, np.int64), *(chunks[k] for k in np.flatnonzero(dealt == rank))])
                for rank in range(ranks.size)
            ]
        wide = parents.bring(wanted)
        return as_rows(parents.small["clause"][wanted[ranks.rank]], wide, self._bounds.device)

    def _told(
        self, part: Part, which: Tensor, dealt: NDArray[np.int64], made: NDArray[np.int64] | None
    ) -> Children:
        """What all ranks know of children of `which` clauses, from what each has: one sum of what each fills in.

        Where every rank has everything, rank 0 tells: processors may differ in a last bit, and must not in a decision.

        Args:
            dealt: the ranks of the chunks, of which `part` has one point each.
            made: the ranks of children; None: every rank has all of them.
        """
        rank, device, count = self._crew.ranks.rank, self._bounds.device, len(which)
        bounds = torch.zeros(2, count, dtype=torch.float64, device=device)
        points = torch.zeros(
            min(len(dealt), JUDGED), part.points.shape[1], dtype=torch.float64, device=device
        )
        if made is not None or rank == 0:
            mine = slice(None) if made is None else torch.from_numpy(np.flatnonzero(made == rank)).to(device)
            bounds[0, mine] = part.lower
            bounds[1, mine] = (part.found.column[:, 0] < 0).double()
            chunks = np.arange(len(dealt)) if made is None else np.flatnonzero(dealt == rank)
            for place, chunk in enumerate(chunks[chunks < len(points)].tolist()):
                points[chunk] = part.points[place]
        told = self._crew.ranks.sum_all(torch.cat([bounds.flatten(), points.flatten()]))
        lower, leaf = told[: 2 * count].reshape(2, count)
        seen = told[2 * count :].reshape(points.shape)
        return Children(which, lower, leaf > 0, seen, made, part.block, part.found)
