"""β-CROWN with α (Wang et al. 2021, arXiv 2103.06624): rows that are bounded on chosen sides of neurons, a block at a
time, each looking for its own slopes and multipliers.

The search runs in float32; what it finds is proven by one float64 pass, which is sound whatever it found. A row whose
domain is empty has multipliers that lift its bound without limit: it passes its goal, proven by the same pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.aims import Aims
from boundscope.bounds.ascent import Ascent, BetaSettings
from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.context import BoxContext
from boundscope.bounds.neurons import Neurons
from boundscope.bounds.spans import RangedRows, Ranges, Spans
from boundscope.bounds.splits import Splits
from boundscope.errors import BoundError

# What float32 may claim beyond what float64 proves, relative to a row's goal and bound: a row leaves the search when
# it has passed its goal by more.
SAFE_PART = 1e-4
FALLEN = 0.1  # of what a row misses


@dataclass(frozen=True)
class RowBlock:
    """R rows: the clause of each [R], the sides that neurons are held to, int8 [R, M], slopes and multipliers, float32
    [R, M], weights of the clause's constraints, float32 [R, width], and ranges of what other operators read, where a
    context has any that can be narrowed."""

    which: Tensor
    states: Tensor
    values: Tensor
    weights: Tensor
    ranges: Ranges | None = None

    def __len__(self) -> int:
        return len(self.which)

    def of_rows(self, index: Tensor) -> RowBlock:
        ranges = None if self.ranges is None else self.ranges.of_rows(index)
        return RowBlock(
            self.which[index], self.states[index], self.values[index], self.weights[index], ranges
        )

    @classmethod
    def joined(cls, parts: Sequence[RowBlock]) -> RowBlock:
        """The rows of several blocks, in order."""
        which, states, values, weights = (
            torch.cat([getattr(part, name) for part in parts])
            for name in ("which", "states", "values", "weights")
        )
        ranges = [part.ranges for part in parts if part.ranges is not None]
        return cls(which, states, values, weights, Ranges.joined(ranges) if ranges else None)


@dataclass(frozen=True)
class Proven:
    """Margins [R] float64, proven; coefficients above the neurons, float32 [R, M]; and at network inputs, [R, n].

    Of a context with spans also those at their elements, float32 [R, G], without the multipliers; and above the nodes
    that read them, by name, [R, n]."""

    lower: Tensor
    coefficients: Tensor
    at_inputs: dict[str, Tensor]
    at_spans: Tensor | None = None
    at_outputs: dict[str, Tensor] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Points:
    """What neurons [R, M], and elements of spans [R, G], read where the bound of a row is reached; float32."""

    neurons: Tensor
    spans: Tensor | None = None


class BetaSearch:
    """Bounds blocks of rows over one context."""

    def __init__(
        self,
        context: BoxContext,
        neurons: Neurons,
        aims: Aims,
        check: Callable[[], None],
        spans: Spans | None = None,
    ) -> None:
        """`check` is called between steps; what it raises ends the work. `spans` where blocks have ranges."""
        self.context, self.neurons, self.aims, self._check = context, neurons, aims, check
        self.spans = spans
        self._latest: tuple[Ranges, RangedRows] | None = None
        self._scales = neurons.apart(neurons.scales)

    def _splits(self, states: dict[str, Tensor], values: dict[str, Tensor]) -> Splits:
        return Splits(states, values, self._scales)

    def ranged(self, block: RowBlock) -> RangedRows | None:
        """What passes of a block take of its ranges."""
        if self.spans is None or block.ranges is None:
            return None
        if self._latest is None or self._latest[0] is not block.ranges:
            self._latest = block.ranges, self._narrowed(block.ranges)
        return self._latest[1]

    def _narrowed(self, ranges: Ranges) -> RangedRows:
        assert self.spans is not None
        return RangedRows(self.context, self.spans, ranges)

    def _passed(
        self, block: RowBlock, multipliers: Callable[[Tensor], Tensor], *, all_tensors: bool = False
    ) -> dict[str, Any]:
        """What one pass takes of a block's ranges: its multipliers as given; see RangedRows.passed."""
        ranged = self.ranged(block)
        if ranged is None or block.ranges is None:
            return {}
        return ranged.passed(multipliers(block.ranges.multipliers), ranged.thetas, all_tensors=all_tensors)

    def begin(self, block: RowBlock, *, keep: bool = False) -> BackwardPass:
        """A pass that proves what it is asked of the rows' domains."""
        neurons = self.neurons
        splits = self._splits(neurons.apart(block.states), neurons.apart(block.values.double()))
        more = self._passed(block, Tensor.double, all_tensors=keep)
        return BackwardPass(self.context, splits=splits, keep=keep, **more)

    def prove(self, block: RowBlock) -> Proven:
        """
        Raises:
            BoundError: a margin is NaN.
        """
        one = self.begin(block, keep=True)
        lower = self.aims.margin(one, block.which, block.weights)
        if bool(torch.isnan(lower).any()):
            raise BoundError("the margin of a part of the box is NaN")
        coefficients = self.neurons.together(one.at_nodes, len(block))
        if self.spans is None or block.ranges is None:
            return Proven(lower, coefficients, one.at_inputs)
        at_spans = self.spans.together(one.at_pulled, len(block))
        return Proven(lower, coefficients, one.at_inputs, at_spans, one.at_outputs)

    def estimate(self, block: RowBlock) -> Tensor:
        """Margins [R] as float32 computes them, which prove nothing."""
        splits = self._splits(self.neurons.apart(block.states), self.neurons.apart(block.values))
        more = self._passed(block, Tensor.float)
        with torch.no_grad():
            one = BackwardPass(self.context, splits=splits, search=True, **more)
            return self.aims.margin(one, block.which, block.weights)

    def search(self, block: RowBlock, settings: BetaSettings) -> RowBlock:
        """The block with better slopes, multipliers and weights for each row."""
        ascent = self._ascent(block, settings)
        best = _Best(block, ascent.ranges)
        patience = _Patience(best.lower, settings)
        active = torch.arange(len(block), device=block.which.device)
        for step in range(1, settings.steps + 1):
            self._check()
            lower = self._differentiated(ascent)
            if lower is None:  # nothing to search for
                return block
            best.note(active, lower, ascent, self.neurons)
            left = patience.lasts(step, active, lower, best.lower[active])
            count = int(left.sum())
            if not count:
                break
            ascent.ascend(step, lower)
            if self.aims.width > 1:
                ascent.weights.detach().copy_(self.aims.project(ascent.weights.detach(), ascent.which))
            if count <= (1.0 - settings.leave) * len(active):
                kept = left.nonzero().flatten()
                active = active[kept]
                ascent = ascent.of_rows(kept, self._narrowed)
        return best.block()

    def _ascent(self, block: RowBlock, settings: BetaSettings) -> Ascent:
        neurons, ranged = self.neurons, self.ranged(block)
        return Ascent.of(
            block.which,
            neurons.apart(block.states),
            neurons.apart(block.values),
            block.weights,
            None if ranged is None or block.ranges is None else (block.ranges, ranged),
            settings,
            mixed=self.aims.width > 1,
        )

    def _differentiated(self, ascent: Ascent) -> Tensor | None:
        """Margins [R] as float32 computes them, whose gradients the parameters have then; None where there are none."""
        with torch.enable_grad():
            splits = self._splits(ascent.states, ascent.values)
            one = BackwardPass(self.context, splits=splits, search=True, **ascent.passed())
            lower = self.aims.margin(one, ascent.which, ascent.weights)
            if not lower.requires_grad:
                return None
            torch.autograd.backward(lower, torch.ones_like(lower))
        return lower.detach()

    def points(self, block: RowBlock) -> Points:
        """What is read where the bound of a row is reached, in the relaxed network."""
        states, values = self.neurons.apart(block.states), self.neurons.apart(block.values)
        for part in values.values():
            part.requires_grad_()
        more = self._passed(block, lambda one: one.clone().requires_grad_(), all_tensors=True)
        with torch.enable_grad():
            splits = self._splits(states, values)
            one = BackwardPass(self.context, splits=splits, search=True, keep=True, **more)
            lower = self.aims.margin(one, block.which, block.weights)
            if lower.requires_grad:
                torch.autograd.backward(lower, torch.ones_like(lower))
        neurons = self.neurons.together(one.at_points, len(block))
        if self.spans is None or block.ranges is None:
            return Points(neurons)
        return Points(neurons, self._read(one.at_points, len(block)))

    def _read(self, distances: dict[str, Tensor], count: int) -> Tensor:
        """Values of the elements of spans at distances from their reference points."""
        assert self.spans is not None
        found = [torch.zeros(count, 0, device=self.context.device)]
        for name, index in zip(self.spans.tensors, self.spans.index, strict=True):
            at = self.context.references[name].flatten()[index].float().expand(count, -1)
            found.append(at + distances[name] if name in distances else at)
        return torch.cat(found, 1)


class _Best:
    """The greatest margin [R] float64 of each row on its way, as float32 computes it, and what the row chose then."""

    def __init__(self, block: RowBlock, ranges: Sequence[Tensor]) -> None:
        """`ranges` as an Ascent has them."""
        self._block = block
        self._values, self._weights = block.values.clone(), block.weights.clone()
        self._ranges = [part.clone() for part in ranges]
        self.lower = torch.full((len(block),), -torch.inf, dtype=torch.float64, device=block.which.device)

    def note(self, active: Tensor, lower: Tensor, ascent: Ascent, neurons: Neurons) -> None:
        """Take in the margins of the rows `active` [A], which an ascent carries."""
        better = lower > self.lower[active]
        self.lower[active] = torch.where(better, lower, self.lower[active])
        where = better.nonzero().flatten()
        rows = active[where]
        if neurons.nodes:
            values = ascent.values
            own = torch.cat([values[node.name].detach() for node in neurons.nodes], 1)
            self._values[rows] = own[where]
        self._weights[rows] = ascent.weights.detach()[where]
        for best, now in zip(self._ranges, ascent.ranges, strict=True):
            best[rows] = now[where]

    def block(self) -> RowBlock:
        ranges = self._block.ranges
        if ranges is not None:
            multipliers, thetas = self._ranges
            ranges = dataclasses.replace(ranges, multipliers=multipliers, thetas=thetas)
        return dataclasses.replace(self._block, values=self._values, weights=self._weights, ranges=ranges)


class _Patience:
    """Which rows of a block are worth more steps of a search; see BetaSettings."""

    def __init__(self, lower: Tensor, settings: BetaSettings) -> None:
        """`lower` of the rows before the first step, [R]."""
        self._settings = settings
        self._best_before, self._seen_before = lower.clone(), lower.clone()
        self._stays = torch.ones_like(lower, dtype=torch.bool)

    def lasts(self, step: int, active: Tensor, seen: Tensor, best: Tensor) -> Tensor:
        """Boolean [A] of the rows `active`, whose margins now and best margins are given, [A]."""
        settings = self._settings
        if step % settings.window == 0:
            if step >= settings.least_steps:
                gained = best - self._best_before[active]
                fallen = best - seen > FALLEN * best.abs()
                rising = torch.where(fallen, seen - self._seen_before[active], gained)
                soon = best + settings.patience * gained > 0
                self._stays[active] &= soon | (rising > settings.least_gain * best.abs())
            self._best_before[active], self._seen_before[active] = best, seen
        return (best <= SAFE_PART * (1.0 + seen.abs())) & self._stays[active]
