"""α-CROWN (Xu et al. 2021, arXiv 2011.13824), layer by layer: each chunk of rows looks for its own relaxations.

Free parameters belong to the rows that are being bounded and are dropped with them: only bounds survive a layer,
and no gradient crosses layers. The search runs in float32; what it finds is proven by one float64 pass, which is
sound whatever the parameters are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.context import BoxContext
from boundscope.monitor import Monitor
from boundscope.network.graph import Node

BoundOf = Callable[[BackwardPass], Tensor]


@dataclass(frozen=True)
class AlphaSettings:
    """Adam on θ in 0 … 1. The search of a chunk ends early once two steps in a row gain less than
    `least_gain` of what was gained so far."""

    steps: int = 20
    learning_rate: float = 0.5
    decay: float = 0.98
    least_gain: float = 0.0001


class _Parameters:
    """θ of one node, for the elements where it matters only: [R, k]."""

    def __init__(self, context: BoxContext, node: Node, count: int) -> None:
        rule = context.rule(node)
        with context.view(node) as view:
            default = rule.theta(view)
            assert default is not None
            self.matters = rule.theta_matters(view).flatten().nonzero().flatten()
        self._default = default.to(torch.float32)
        start = self._default.flatten()[self.matters].expand(count, -1).clone()
        self.values = context.ledger.hold(start, "slopes").requires_grad_()
        self.best = context.ledger.hold(start.detach().clone(), "slopes")

    def full(self, values: Tensor) -> Tensor:
        """[R, *P] with the default where θ does not matter."""
        flat = self._default.flatten().expand(len(values), -1)
        index = self.matters.expand(len(values), -1)
        return flat.scatter(1, index, values).reshape(len(values), *self._default.shape)

    def keep(self, improved: Tensor) -> None:
        self.best = torch.where(improved[:, None], self.values.detach(), self.best)


def optimised(
    context: BoxContext,
    bound: BoundOf,
    settings: AlphaSettings,
    monitor: Monitor,
    *,
    enough: Callable[[Tensor], bool] | None = None,
    until_s: float = math.inf,
) -> Tensor:
    """Lower bounds of one chunk of rows, with the best parameters found: [R] float64, sound, never below CROWN's.

    Args:
        context: what is known of the box.
        bound: runs a given pass on the chunk's rows.
        settings: of the search.
        monitor: asked between steps whether to go on.
        enough: given bounds [R], whether they need not get better.
        until_s: when (monotonic) the search ends, with what it has found.
    """
    first = BackwardPass(context)
    proven = bound(first)
    if (enough is not None and enough(proven)) or time.monotonic() >= until_s:
        return proven
    parameters = _parameters_of(context, first, len(proven))
    if not parameters:
        return proven
    _search(context, bound, settings, monitor, parameters, enough, until_s)
    thetas = {name: one.full(one.best) for name, one in parameters.items()}
    # A bound that overflowed to NaN in the second pass takes nothing from the first.
    return torch.fmax(proven, bound(BackwardPass(context, thetas=thetas)))


def _parameters_of(context: BoxContext, done: BackwardPass, count: int) -> dict[str, _Parameters]:
    found = {}
    for node in done.relaxed_nodes:
        with context.view(node) as view:
            free = context.rule(node).theta(view) is not None
        if free:
            parameters = _Parameters(context, node, count)
            if len(parameters.matters):
                found[node.name] = parameters
    return found


def _search(
    context: BoxContext,
    bound: BoundOf,
    settings: AlphaSettings,
    monitor: Monitor,
    parameters: dict[str, _Parameters],
    enough: Callable[[Tensor], bool] | None,
    until_s: float,
) -> None:
    """Ascend on the sum of the rows' bounds; leaves each row's best θ in `parameters`."""
    optimizer = torch.optim.Adam([one.values for one in parameters.values()], lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, settings.decay)
    best: Tensor | None = None
    total_gain, idle = 0.0, 0
    for _ in range(settings.steps):
        monitor.check()
        with torch.enable_grad():
            thetas = {name: one.full(one.values) for name, one in parameters.items()}
            attempt = BackwardPass(context, thetas=thetas, search=True)
            lower = bound(attempt)
            optimizer.zero_grad()
            torch.autograd.backward(-lower.sum())
            del attempt
        with torch.no_grad():
            seen = lower.detach()
            gain = 0.0
            if best is None:
                best = seen.clone()
            else:
                improved = seen > best
                gain = float((seen - best).clamp(min=0).sum())
                best = torch.maximum(best, seen)
                for one in parameters.values():
                    one.keep(improved)
                total_gain += gain
            if (enough is not None and enough(best)) or time.monotonic() >= until_s:
                return
            idle = idle + 1 if total_gain and gain < settings.least_gain * total_gain else 0
            if idle >= 2:
                return
            optimizer.step()
            for one in parameters.values():
                one.values.clamp_(0.0, 1.0)
        schedule.step()
