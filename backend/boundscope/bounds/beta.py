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

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.constraints import Constraints
from boundscope.bounds.context import BoxContext
from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.bounds.spans import RangedRows, Ranges, Spans
from boundscope.bounds.splits import Splits
from boundscope.errors import BoundError
from boundscope.network.graph import Node
from boundscope.properties.types import Clause

BETAS = (0.7, 0.999)
EPSILON = 1e-8
# What float32 may claim beyond what float64 proves, relative to a row's goal and bound: a row leaves the search when
# it has passed its goal by more.
SAFE_PART = 1e-4
OVERSHOOT = 1.2  # of a step beyond a row's goal
LEAST_STEP = 1e-3
FALLEN = 0.1  # of what a row misses


@dataclass(frozen=True)
class BetaSettings:
    """Adam, with rates of slopes (0 … 1) and of multipliers (in units of their scales) and of weights of constraints.
    A row leaves once it has passed its goal, or once what it gained in the last `window` steps, after the first
    `least_steps`, would not take it there in `patience` times as many and is less than `least_gain` of what it misses.
    A row that fell below what it had gains while it rises again. A block is packed anew once `leave` of its rows have
    left."""

    steps: int = 20
    least_steps: int = 10
    window: int = 5
    least_gain: float = 0.02
    patience: float = 6.0
    alpha_rate: float = 0.1
    beta_rate: float = 2.0
    weight_rate: float = 0.1
    decay: float = 0.98
    leave: float = 0.25


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
        return Neurons(
            self.nodes,
            self.counts,
            self.lower,
            self.upper,
            self.reference,
            size.clamp(min=floor),
            self.starts,
        )

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


class Aims:
    """The clauses of one case as rows: of a conjunction, any mixture of its constraints with weights ≥ 0 must pass the
    mixture of their goals for the conjunction to be excluded, and where all neurons are held the best mixture does."""

    def __init__(self, context: BoxContext, clauses: Sequence[Clause]) -> None:
        self._constraints = Constraints.of(context, [one for clause in clauses for one in clause.constraints])
        self.width = max((len(clause.constraints) for clause in clauses), default=1)
        index = torch.zeros(len(clauses), self.width, dtype=torch.int64)
        self.filled = torch.zeros(len(clauses), self.width, dtype=torch.bool)
        first = 0
        for number, clause in enumerate(clauses):
            size = len(clause.constraints)
            index[number, :size] = torch.arange(first, first + size)
            self.filled[number, :size] = True
            first += size
        self._index = index.to(context.device)
        self.filled = self.filled.to(context.device)
        self._magnitudes = {
            name: context.intervals[name].magnitude.flatten() for name in self._constraints.rows
        }

    def margin(self, one: BackwardPass, which: Tensor, weights: Tensor) -> Tensor:
        """Lower bounds [R] of the mixtures of clauses `which` [R] with `weights` [R, width], less their goals: float64,
        rounded down unless the pass is a search."""
        if self.width == 1:
            index = self._index[which, 0]
            lower = one.lower(self._constraints.of_rows(index), len(which))
            return _less(lower, self._constraints.goals[index], one)
        chosen = self._index[which]
        weights = (weights * self.filled[which]).double()
        goals = (weights * self._constraints.goals[chosen]).sum(1)
        rows: dict[str, Tensor] = {}
        error = torch.zeros_like(goals)
        count = self.width + 8
        for name, all_rows in self._constraints.rows.items():
            each = all_rows.reshape(len(all_rows), -1)[chosen]
            rows[name] = (weights[:, :, None] * each).sum(1).reshape(len(which), *all_rows.shape[1:])
            if not one.searches:
                size = (weights[:, :, None] * each.abs()).sum(1) @ self._magnitudes[name]
                error = error + size
        lower = one.lower(rows, len(which))
        if one.searches:
            return lower - goals
        size = error + (weights * self._constraints.goals[chosen].abs()).sum(1)
        several = (weights > 0).sum(1) > 1  # a single weight of 1 rounds nothing
        rounded = size * (gamma(count, ENGINE.unit) * INFLATION) + ENGINE.absolute(count)
        exact = ~several & (weights.max(1).values == 1.0)
        return _less(lower - torch.where(exact, 0.0, rounded), goals, one)

    def alone(self) -> tuple[Tensor, Tensor]:
        """Every constraint of every clause for itself: clauses [C] and weights [C, width]."""
        which, place = self.filled.nonzero(as_tuple=True)
        return which, torch.nn.functional.one_hot(place, self.width).float()

    def project(self, weights: Tensor, which: Tensor) -> Tensor:
        """Weights of sum 1, at least 0."""
        kept = weights.clamp(min=0) * self.filled[which]
        total = kept.sum(1, keepdim=True)
        even = self.filled[which] / self.filled[which].sum(1, keepdim=True)
        return torch.where(total > 0, kept / total.clamp(min=1e-30), even)


def _less(lower: Tensor, goals: Tensor, one: BackwardPass) -> Tensor:
    moved = lower - goals
    if one.searches:
        return moved
    exact = goals == 0
    down = torch.nextafter(moved, torch.full_like(moved, -torch.inf))
    return torch.where(exact, moved, down)


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
            self._latest = block.ranges, RangedRows(self.context, self.spans, block.ranges)
        return self._latest[1]

    def begin(self, block: RowBlock, *, keep: bool = False) -> BackwardPass:
        """A pass that proves what it is asked of the rows' domains."""
        neurons = self.neurons
        splits = self._splits(neurons.apart(block.states), neurons.apart(block.values.double()))
        ranged, more = self.ranged(block), {}
        if ranged is not None and block.ranges is not None:
            more = ranged.passed(block.ranges.multipliers.double(), ranged.thetas, all_tensors=keep)
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
        ranged, more = self.ranged(block), {}
        if ranged is not None and block.ranges is not None:
            more = ranged.passed(block.ranges.multipliers, ranged.thetas)
        with torch.no_grad():
            one = BackwardPass(self.context, splits=splits, search=True, **more)
            return self.aims.margin(one, block.which, block.weights)

    def search(self, block: RowBlock, settings: BetaSettings) -> RowBlock:
        """The block with better slopes, multipliers and weights for each row."""
        best_values, best_weights = block.values.clone(), block.weights.clone()
        best = torch.full((len(block),), -torch.inf, dtype=torch.float64, device=block.which.device)
        earlier, at_earlier = best.clone(), best.clone()
        stays = torch.ones_like(best, dtype=torch.bool)
        active = torch.arange(len(block), device=block.which.device)
        ascent = _Ascent.of(self, block, settings)
        best_ranges = ascent.ranges()
        for step in range(1, settings.steps + 1):
            self._check()
            with torch.enable_grad():
                one = BackwardPass(
                    self.context,
                    splits=self._splits(ascent.states, ascent.values),
                    search=True,
                    **ascent.passed(),
                )
                lower = self.aims.margin(one, ascent.which, ascent.weights)
                if not lower.requires_grad:  # nothing to search for
                    return block
                torch.autograd.backward(lower, torch.ones_like(lower))
                del one
            seen = lower.detach()
            better = seen > best[active]
            best[active] = torch.where(better, seen, best[active])
            where = better.nonzero().flatten()
            rows = active[where]
            best_values[rows] = ascent.matrix(self.neurons)[where]
            best_weights[rows] = ascent.weights.detach()[where]
            for best_of, now_of in zip(best_ranges, ascent.ranges(), strict=True):
                best_of[rows] = now_of[where]
            now = best[active]
            left = now <= SAFE_PART * (1.0 + seen.abs())
            if step % settings.window == 0:
                if step >= settings.least_steps:
                    gained = now - earlier[active]
                    fallen = now - seen > FALLEN * now.abs()
                    rising = torch.where(fallen, seen - at_earlier[active], gained)
                    soon = now + settings.patience * gained > 0
                    stays[active] &= soon | (rising > settings.least_gain * now.abs())
                earlier[active], at_earlier[active] = now, seen
            left &= stays[active]
            count = int(left.sum())
            if not count:
                break
            ascent.ascend(step, seen)
            if self.aims.width > 1:
                ascent.weights.data.copy_(self.aims.project(ascent.weights.data, ascent.which))
            if count <= (1.0 - settings.leave) * len(active):
                kept = left.nonzero().flatten()
                active = active[kept]
                ascent = ascent.of_rows(kept)
        ranges = block.ranges
        if ranges is not None:
            ranges = dataclasses.replace(ranges, multipliers=best_ranges[0], thetas=best_ranges[1])
        return RowBlock(block.which, block.states, best_values, best_weights, ranges)

    def points(self, block: RowBlock) -> Points:
        """What is read where the bound of a row is reached, in the relaxed network."""
        states, values = self.neurons.apart(block.states), self.neurons.apart(block.values)
        for part in values.values():
            part.requires_grad_()
        ranged, more = self.ranged(block), {}
        if ranged is not None and block.ranges is not None:
            multipliers = block.ranges.multipliers.clone().requires_grad_()
            more = ranged.passed(multipliers, ranged.thetas, all_tensors=True)
        with torch.enable_grad():
            one = BackwardPass(
                self.context, splits=self._splits(states, values), search=True, keep=True, **more
            )
            lower = self.aims.margin(one, block.which, block.weights)
            if lower.requires_grad:
                torch.autograd.backward(lower, torch.ones_like(lower))
        neurons = self.neurons.together(one.at_points, len(block))
        if self.spans is None or ranged is None:
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


MULTIPLIERS, THETAS = "multipliers of ranges", "free parameters"


class _Ascent:
    """Adam (Kingma and Ba 2015, arXiv 1412.6980) on the parameters of a block, by node."""

    def __init__(
        self, search: BetaSearch, which: Tensor, states: dict[str, Tensor], settings: BetaSettings
    ) -> None:
        self._search = search
        self.which, self.states, self._settings = which, states, settings
        self.values: dict[str, Tensor] = {}
        self.weights = torch.empty(0)
        self._mixed = False
        self._block: Ranges | None = None  # what the rows narrow
        self._ranged: RangedRows | None = None
        self._of_ranges: dict[str, Tensor] = {}  # multipliers [R, G] and parameters [R, P]
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}
        self._rates: dict[str, tuple[Tensor, Tensor]] = {}  # of each element, and the largest value of it

    @classmethod
    def of(cls, search: BetaSearch, block: RowBlock, settings: BetaSettings) -> _Ascent:
        neurons, mixed = search.neurons, search.aims.width > 1
        one = cls(search, block.which, neurons.apart(block.states), settings)
        one.values = {
            name: part.clone().requires_grad_() for name, part in neurons.apart(block.values).items()
        }
        one._mixed = mixed
        one.weights = block.weights.clone().requires_grad_(mixed)
        one._block, one._ranged = block.ranges, search.ranged(block)
        if block.ranges is not None and one._ranged is not None:
            one._of_ranges = {
                MULTIPLIERS: block.ranges.multipliers.clone().requires_grad_(),
                THETAS: one._ranged.thetas.clone().requires_grad_(),
            }
        for name, part in (*one.values.items(), *one._of_ranges.items(), ("", one.weights)):
            one._moments[name] = (torch.zeros_like(part), torch.zeros_like(part))
        one._set_rates()
        return one

    def passed(self) -> dict[str, Any]:
        """What a pass takes of the rows' ranges."""
        if self._ranged is None:
            return {}
        return self._ranged.passed(self._of_ranges[MULTIPLIERS], self._of_ranges[THETAS])

    def ranges(self) -> tuple[Tensor, ...]:
        """Copies of multipliers and parameters; nothing where rows have no ranges."""
        return tuple(part.detach().clone() for part in self._of_ranges.values())

    def _set_rates(self) -> None:
        for name, state in self.states.items():
            held = state != 0
            rate = torch.where(held, self._settings.beta_rate, self._settings.alpha_rate)
            self._rates[name] = (rate, torch.where(held, torch.inf, 1.0))

    def of_rows(self, index: Tensor) -> _Ascent:
        one = _Ascent(
            self._search,
            self.which[index],
            {name: part[index] for name, part in self.states.items()},
            self._settings,
        )
        one.values = {name: part.detach()[index].requires_grad_() for name, part in self.values.items()}
        one._mixed = self._mixed
        one.weights = self.weights.detach()[index].requires_grad_(self._mixed)
        one._moments = {name: (m[index], s[index]) for name, (m, s) in self._moments.items()}
        if self._block is not None and self._search.spans is not None:
            one._of_ranges = {
                name: part.detach()[index].requires_grad_() for name, part in self._of_ranges.items()
            }
            one._block = dataclasses.replace(
                self._block.of_rows(index), thetas=one._of_ranges[THETAS].detach()
            )
            one._ranged = RangedRows(self._search.context, self._search.spans, one._block)
        one._set_rates()
        return one

    def matrix(self, neurons: Neurons) -> Tensor:
        if not neurons.nodes:
            return self.weights.new_zeros(len(self.which), 0)
        return torch.cat([self.values[node.name].detach() for node in neurons.nodes], 1)

    def ascend(self, step: int, lower: Tensor) -> None:
        """One step up the gradient from bounds [R]; no longer than what, were the bound linear, would take a row to its
        goal: parameters that come from a parent are near their best already."""
        shrink = self._settings.decay ** (step - 1)
        moves: dict[str, Tensor] = {}
        promised = torch.zeros_like(lower, dtype=torch.float32)
        for name, values in self.values.items():
            gradient = values.grad
            if gradient is None:
                continue
            values.grad = None
            rate, most = self._rates[name]
            data = values.detach()
            moved = torch.addcmul(data, self._direction(name, gradient, step), rate, value=shrink).clamp_(
                min=0.0
            )
            moves[name] = torch.minimum(moved, most, out=moved).sub_(data)
            promised += torch.linalg.vecdot(moves[name].abs(), gradient.abs())
        for name, values in self._of_ranges.items():
            gradient = values.grad
            if gradient is None:
                continue
            values.grad = None
            moves[name] = self._move_of_ranges(name, values.detach(), gradient, step, shrink)
            promised += torch.linalg.vecdot(moves[name].abs(), gradient.abs())
        wanted = (-OVERSHOOT * lower).clamp(min=LEAST_STEP).float()
        share = (wanted / promised.clamp(min=1e-30)).clamp(max=1.0)[:, None]
        for name, move in moves.items():
            parameter = self._of_ranges[name] if name in self._of_ranges else self.values[name]
            parameter.detach().addcmul_(move, share)
        if self._mixed and self.weights.grad is not None:
            gradient, self.weights.grad = self.weights.grad, None
            direction = self._direction("", gradient, step)
            self.weights.data.add_(direction, alpha=shrink * self._settings.weight_rate)

    def _move_of_ranges(self, name: str, data: Tensor, gradient: Tensor, step: int, shrink: float) -> Tensor:
        """Multipliers of narrowed elements, which stop at zero before they change their sign; parameters in 0 … 1."""
        direction = self._direction(name, gradient, step) * shrink
        if name == THETAS:
            return (data + direction * self._settings.alpha_rate).clamp_(0.0, 1.0).sub_(data)
        assert self._block is not None
        narrowed = torch.isfinite(self._block.low) | torch.isfinite(self._block.high)
        moved = data + direction * self._settings.beta_rate
        moved = torch.where(moved * data < 0, 0.0, moved)
        return torch.where(narrowed, moved, data).sub_(data)

    def _direction(self, name: str, gradient: Tensor, step: int) -> Tensor:
        first, second = BETAS
        mean, square = self._moments[name]
        mean.lerp_(gradient, 1.0 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        size = (square / (1.0 - second**step)).sqrt_().add_(EPSILON)
        return (mean / (1.0 - first**step)).div_(size)
