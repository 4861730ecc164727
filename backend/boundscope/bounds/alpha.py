"""α-CROWN (Xu et al. 2021, arXiv 2011.13824), layer by layer: each chunk of rows looks for its own relaxations.

Free parameters belong to the rows that are being bounded and are dropped with them: only bounds survive a layer,
and no gradient crosses layers. The search runs in float32; what it finds is proven by one float64 pass, which is
sound whatever the parameters are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.chain import Chain, ChainSearch
from boundscope.bounds.context import BoxContext
from boundscope.monitor import Monitor
from boundscope.network.graph import Node
from boundscope.protocol import Progress
from boundscope.sharding.ranks import RankGroup

BoundOf = Callable[[BackwardPass], Tensor]


@dataclass(frozen=True)
class AlphaSettings:
    """Adam on θ in 0 … 1. The search of a chunk ends early once two steps in a row gain less than
    `least_gain` of what was gained so far."""

    steps: int = 20
    learning_rate: float = 0.5
    decay: float = 0.98
    least_gain: float = 0.0001


@dataclass(frozen=True)
class _Chunk:
    """The rows of a chunk on all ranks, for which one search is over or goes on: as if one rank had them all."""

    ranks: RankGroup
    enough: Callable[[Tensor], bool] | None
    late: Callable[[], bool]

    def done(self, bounds: Tensor) -> bool:
        return self.stands(bounds, bounds.new_zeros(len(bounds)))[0]

    def any(self, mine: bool) -> bool:
        return any(bool(one) for one in self.ranks.share(torch.tensor([mine])))

    def stands(self, bounds: Tensor, gains: Tensor) -> tuple[bool, float]:
        """Whether bounds [R] need not get better, or there is no time, and the sum of the gains [R] of all rows."""
        enough = self.enough is not None and self.enough(bounds)
        own = torch.cat([gains.new_tensor([not enough, self.late()], dtype=torch.float64), gains.double()])
        every = self.ranks.share(own)
        done = not any(bool(one[0]) for one in every) or any(bool(one[1]) for one in every)
        # Exact, so that it is the same however the rows are dealt to ranks.
        parts = every if self.ranks.splits_rows else every[:1]
        return done, math.fsum(itertools.chain.from_iterable(one[2:].tolist() for one in parts))


TELL_S = 0.5  # between two words on how far a search is
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class _Parameters:
    """θ of one node, for the elements where it matters only, [R, k]; and Adam's moments of it."""

    def __init__(self, context: BoxContext, node: Node, count: int) -> None:
        rule = context.rule(node)
        with context.view(node) as view:
            default = rule.theta(view)
            assert default is not None
            self.matters = rule.theta_matters(view).flatten().nonzero().flatten()
        self.slope_free = rule.slope_free
        self._default = default.to(torch.float32)
        start = self._default.flatten()[self.matters].expand(count, -1).clone()
        self.values = context.ledger.hold(start, "slopes")
        self.best = context.ledger.hold(start.clone(), "slopes")
        self._mean = context.ledger.hold(torch.zeros_like(self.best), "slopes")
        self._square = context.ledger.hold(torch.zeros_like(self.best), "slopes")

    def full(self, values: Tensor) -> Tensor:
        """[R, *P] with the default where θ does not matter."""
        flat = self._default.flatten().expand(len(values), -1)
        index = self.matters.expand(len(values), -1)
        return flat.scatter(1, index, values).reshape(len(values), *self._default.shape)

    def keep(self, improved: Tensor) -> None:
        torch.where(improved[:, None], self.values, self.best, out=self.best)

    def ascend(self, gradient: Tensor, step: int, rate: float) -> None:
        """One step of Adam (Kingma and Ba 2015, arXiv 1412.6980) up the gradient, which it overwrites, kept within
        0 … 1."""
        first, second = BETAS
        self._mean.lerp_(gradient, 1.0 - first)
        self._square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        size = torch.mul(self._square, 1.0 / (1.0 - second**step), out=gradient).sqrt_().add_(EPSILON)
        self.values.addcdiv_(self._mean, size, value=rate / (1.0 - first**step)).clamp_(0.0, 1.0)

    def settle(self) -> None:
        """Let go of all but the best."""
        self.values = self._mean = self._square = self.best


class _GraphSearch:
    """Steps of a search for the parameters of one chunk of rows of any network, by PyTorch's gradients."""

    def __init__(self, context: BoxContext, bound: BoundOf, parameters: dict[str, _Parameters]) -> None:
        self._context, self._bound, self._parameters = context, bound, parameters
        self._leaves: dict[str, Tensor] = {}
        self._lower: Tensor | None = None

    def forward(self) -> Tensor:
        """Lower bounds [R] float64 with the parameters as they are; no proof."""
        self._leaves = {name: one.values.detach() for name, one in self._parameters.items()}
        with torch.enable_grad():
            for leaf in self._leaves.values():
                leaf.requires_grad_()
            attempt = _pass_with(self._context, self._parameters, self._leaves, search=True)
            self._lower = self._bound(attempt)
        return self._lower.detach()

    def ascend(self, number: int, rate: float) -> None:
        """Step `number` of the parameters up the gradient of the bounds that `forward` has just given."""
        lower, self._lower = self._lower, None
        assert lower is not None
        if lower.requires_grad:
            torch.autograd.backward(lower, torch.ones_like(lower))
        for name, one in self._parameters.items():
            gradient, self._leaves[name].grad = self._leaves[name].grad, None
            if gradient is not None:
                one.ascend(gradient, number, rate)


def optimised(
    context: BoxContext,
    bound: BoundOf,
    settings: AlphaSettings,
    monitor: Monitor,
    *,
    enough: Callable[[Tensor], bool] | None = None,
    until_s: float = math.inf,
    ranks: RankGroup | None = None,
) -> Tensor:
    """Lower bounds of one chunk of rows, with the best parameters found: [R] float64, sound, never below CROWN's.

    Args:
        context: what is known of the box.
        bound: runs a given pass on the chunk's rows.
        settings: of the search.
        monitor: asked between steps whether to go on.
        enough: given bounds [R], whether they need not get better.
        until_s: when, on the monitor's clock, the search ends, with what it has found.
        ranks: which carry other rows of the same chunk, or the same ones; all decide together, and so take the same
            steps.
    """
    chunk = _Chunk(ranks or RankGroup(), enough, lambda: monitor.now_s >= until_s)
    chain = Chain.of(context, bound)
    proven: Tensor | None = None
    if chain is None or enough is not None:
        first = BackwardPass(context)
        proven = bound(first)
        if chunk.done(proven):
            return proven
        count, nodes = len(proven), first.relaxed_nodes
    else:
        # CROWN's bounds are known, and those of the search start from its slopes.
        count, nodes = len(chain.rows), chain.relaxed_nodes
    parameters = _parameters_of(context, nodes, count)
    if chunk.any(bool(parameters)):
        search = _GraphSearch(context, bound, parameters) if chain is None else chain.search(parameters)
        del chain
        _search(search, settings, monitor, parameters, chunk)
        del search
        for one in parameters.values():
            one.settle()
        best = {name: one.best for name, one in parameters.items()}
        found = bound(_pass_with(context, parameters, best, search=False))
        if proven is not None:
            # A bound that overflowed to NaN in the second pass takes nothing from the first.
            return torch.fmax(proven, found)
        if not chunk.any(bool(found.isnan().any())):
            return found
    return bound(BackwardPass(context)) if proven is None else proven


def _pass_with(
    context: BoxContext, parameters: dict[str, _Parameters], values: dict[str, Tensor], *, search: bool
) -> BackwardPass:
    thetas = {name: one.full(values[name]) for name, one in parameters.items() if not one.slope_free}
    slopes = {name: values[name] for name, one in parameters.items() if one.slope_free}
    return BackwardPass(context, thetas=thetas, slopes=slopes, search=search)


def _parameters_of(context: BoxContext, nodes: list[Node], count: int) -> dict[str, _Parameters]:
    found = {}
    for node in nodes:
        with context.view(node) as view:
            free = context.rule(node).theta(view) is not None
        if free:
            parameters = _Parameters(context, node, count)
            if len(parameters.matters):
                found[node.name] = parameters
    return found


def _search(
    search: ChainSearch | _GraphSearch,
    settings: AlphaSettings,
    monitor: Monitor,
    parameters: dict[str, _Parameters],
    chunk: _Chunk,
) -> None:
    """Ascend on the sum of the rows' bounds; leaves each row's best θ in `parameters`."""
    best: Tensor | None = None
    total_gain, idle, rate, told_s = 0.0, 0, settings.learning_rate, monitor.now_s
    for step in range(1, settings.steps + 1):
        monitor.check()
        if monitor.now_s - told_s >= TELL_S:
            told_s = monitor.now_s
            monitor.emit(Progress(stage="optimising slopes", done=step - 1, total=settings.steps))
        seen = search.forward()
        with torch.no_grad():
            gains = torch.zeros_like(seen)
            if best is None:
                best = seen.clone()
            else:
                improved = seen > best
                gains = (seen - best).clamp(min=0)
                best = torch.maximum(best, seen)
                for one in parameters.values():
                    one.keep(improved)
            done, gain = chunk.stands(best, gains)
            if done:
                return
            total_gain += gain
            idle = idle + 1 if total_gain and gain < settings.least_gain * total_gain else 0
            if idle >= 2 or step == settings.steps:
                return
            search.ascend(step, rate)
            rate *= settings.decay
