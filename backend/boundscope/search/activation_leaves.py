"""Domains in which nothing is left to split. Where all neurons are held the network is linear, and a linear program
decides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.ascent import BetaSettings
from boundscope.bounds.beta import RowBlock
from boundscope.search.activation_bounds import CaseBounds
from boundscope.search.activation_rounds import Children
from boundscope.search.leaf import solve_leaf
from boundscope.search.rounds import Crew, agreed


class Leaves:
    """Those of one case. All ranks call together."""

    def __init__(
        self, bounds: CaseBounds, crew: Crew, settings: BetaSettings, check: Callable[[], None]
    ) -> None:
        self._bounds, self._crew, self._settings, self._check = bounds, crew, settings, check

    def decide(self, new: Children, at: Tensor) -> tuple[list[tuple[int, float]], Tensor]:
        """Of the leaves `at` [L] among children: the clause and the bound of those that cannot be excluded, and points
        where such a bound is reached, [k, n] float64."""
        ranks, crew, device = self._crew.ranks, self._crew, self._bounds.device
        leaves = torch.zeros(len(new.lower), dtype=torch.bool, device=device)
        leaves[at] = True
        has = new.has(ranks.rank)
        mine = torch.from_numpy(np.flatnonzero(has[at.cpu().numpy()])).to(device)
        here = torch.from_numpy(np.flatnonzero(leaves.cpu().numpy()[has])).to(device)
        block = new.block.of_rows(here)
        if crew.in_step:  # the passes of a leaf are made by all ranks together
            block = self._on_all_ranks(block, mine, new.which[at])
            mine = torch.arange(len(at), device=device)
        width = sum(info.size for info in self._bounds.context.network.inputs)
        told = torch.zeros(len(at), 2 + width, dtype=torch.float64).to(device)

        def work() -> None:
            lower, points = self._bounded(block, new.lower[at[mine]])
            for row, bound, point in zip(mine.tolist(), lower, points, strict=True):
                told[row, 0] = bound
                if point is not None:
                    told[row, 1] = 1.0
                    told[row, 2:] = torch.from_numpy(point)

        agreed(ranks, work)
        if ranks.rank and (crew.in_step or not crew.apart):
            told.zero_()  # rank 0 tells what all have
        ranks.sum_all(told)
        stuck = (~(told[:, 0] > 0)).nonzero().flatten().tolist()
        return [(int(new.which[at[row]]), float(told[row, 0])) for row in stuck], told[told[:, 1] > 0, 2:]

    def _on_all_ranks(self, block: RowBlock, at: Tensor, which: Tensor) -> RowBlock:
        """Rows of clauses `which` on every rank, of which each brings some, `at` their places."""

        def all_of(part: Tensor) -> Tensor:
            whole = part.new_zeros(len(which), part.shape[1])
            whole[at] = part
            return self._crew.ranks.sum_all(whole)

        ranges = None if block.ranges is None else block.ranges.mapped(all_of)
        return RowBlock(which, all_of(block.states), all_of(block.values), all_of(block.weights), ranges)

    def _bounded(self, block: RowBlock, lower: Tensor) -> tuple[Tensor, list[NDArray[np.float64] | None]]:
        """Bounds of leaves, and for each the point where its bound is reached, unless it is proven."""
        search = self._bounds.search
        found = lower.clone()
        points: list[NDArray[np.float64] | None] = [None] * len(block)
        for row in range(len(block)):
            self._check()
            one = block.of_rows(torch.tensor([row], device=self._bounds.device))
            answer = None if len(self._bounds.spans) else solve_leaf(search, one)
            if answer is not None:
                found[row] = torch.fmax(found[row], search.prove(answer.block).lower[0])
                if not float(found[row]) > 0:
                    points[row] = answer.point
            else:
                better = search.search(one, self._settings)
                found[row] = torch.fmax(found[row], search.prove(better).lower[0])
        return found, points
