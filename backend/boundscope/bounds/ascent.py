"""Ascent of the rows of branch and bound on what they choose for themselves: slopes and multipliers of neurons,
multipliers and free parameters of ranges, and weights of constraints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.spans import RangedRows, Ranges

BETAS = (0.7, 0.999)
EPSILON = 1e-8
OVERSHOOT = 1.2  # of a step beyond a row's goal
LEAST_STEP = 1e-3


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
class _Parameter:
    """Values [R, k] of rows' own and Adam's moments of them (Kingma and Ba 2015, arXiv 1412.6980)."""

    values: Tensor
    mean: Tensor
    square: Tensor

    @classmethod
    def of(cls, start: Tensor, *, free: bool = True) -> _Parameter:
        """`free`: whether the values move."""
        return cls(start.clone().requires_grad_(free), torch.zeros_like(start), torch.zeros_like(start))

    def of_rows(self, index: Tensor) -> _Parameter:
        values = self.values.detach()[index].requires_grad_(self.values.requires_grad)
        return _Parameter(values, self.mean[index], self.square[index])

    def taken_gradient(self) -> Tensor | None:
        """The gradient at the values, which is let go of; None where no bound depends on them."""
        gradient, self.values.grad = self.values.grad, None
        return gradient

    def direction(self, gradient: Tensor, step: int) -> Tensor:
        first, second = BETAS
        self.mean.lerp_(gradient, 1.0 - first)
        self.square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        size = (self.square / (1.0 - second**step)).sqrt_().add_(EPSILON)
        return (self.mean / (1.0 - first**step)).div_(size)


@dataclass(frozen=True)
class _Narrowing:
    """Ranges of rows: multipliers [R, G] and free parameters [R, P]."""

    ranges: Ranges
    rows: RangedRows
    multipliers: _Parameter
    thetas: _Parameter

    @classmethod
    def of(cls, ranges: Ranges, rows: RangedRows) -> _Narrowing:
        return cls(ranges, rows, _Parameter.of(ranges.multipliers), _Parameter.of(rows.thetas))

    def of_rows(self, index: Tensor, narrowed: Callable[[Ranges], RangedRows]) -> _Narrowing:
        multipliers, thetas = self.multipliers.of_rows(index), self.thetas.of_rows(index)
        ranges = dataclasses.replace(self.ranges.of_rows(index), thetas=thetas.values.detach())
        return _Narrowing(ranges, narrowed(ranges), multipliers, thetas)

    def moves(
        self, settings: BetaSettings, step: int, shrink: float
    ) -> Iterator[tuple[_Parameter, Tensor, Tensor]]:
        """Of multipliers of narrowed elements, which stop at zero before they change their sign; and of parameters in
        0 … 1: what moves, its move, and its gradient."""
        gradient = self.multipliers.taken_gradient()
        if gradient is not None:
            data = self.multipliers.values.detach()
            direction = self.multipliers.direction(gradient, step) * shrink
            moved = data + direction * settings.beta_rate
            moved = torch.where(moved * data < 0, 0.0, moved)
            narrowed = torch.isfinite(self.ranges.low) | torch.isfinite(self.ranges.high)
            yield self.multipliers, torch.where(narrowed, moved, data).sub_(data), gradient
        gradient = self.thetas.taken_gradient()
        if gradient is not None:
            data = self.thetas.values.detach()
            direction = self.thetas.direction(gradient, step) * shrink
            yield self.thetas, (data + direction * settings.alpha_rate).clamp_(0.0, 1.0).sub_(data), gradient


class Ascent:
    """The parameters of R rows on their way up, slopes and multipliers by node."""

    def __init__(
        self,
        which: Tensor,
        states: dict[str, Tensor],
        values: dict[str, _Parameter],
        weights: _Parameter,
        narrowing: _Narrowing | None,
        settings: BetaSettings,
    ) -> None:
        self.which, self.states, self._settings = which, states, settings
        self._values, self._weights, self._narrowing = values, weights, narrowing
        self._rates: dict[str, tuple[Tensor, Tensor]] = {}  # of each element, and the largest value of it
        for name, state in states.items():
            held = state != 0
            rate = torch.where(held, settings.beta_rate, settings.alpha_rate)
            self._rates[name] = (rate, torch.where(held, torch.inf, 1.0))

    @classmethod
    def of(
        cls,
        which: Tensor,
        states: dict[str, Tensor],
        values: dict[str, Tensor],
        weights: Tensor,
        narrowed: tuple[Ranges, RangedRows] | None,
        settings: BetaSettings,
        *,
        mixed: bool,
    ) -> Ascent:
        """
        Args:
            which, states, values, weights: of R rows, as in a RowBlock, by node.
            narrowed: their ranges, and these as passes take them; None where they have none.
            mixed: whether weights move, too.
        """
        return cls(
            which,
            states,
            {name: _Parameter.of(part) for name, part in values.items()},
            _Parameter.of(weights, free=mixed),
            None if narrowed is None else _Narrowing.of(*narrowed),
            settings,
        )

    def of_rows(self, index: Tensor, narrowed: Callable[[Ranges], RangedRows]) -> Ascent:
        """The same of some rows; `narrowed` gives ranges as passes take them."""
        return Ascent(
            self.which[index],
            {name: part[index] for name, part in self.states.items()},
            {name: one.of_rows(index) for name, one in self._values.items()},
            self._weights.of_rows(index),
            None if self._narrowing is None else self._narrowing.of_rows(index, narrowed),
            self._settings,
        )

    @property
    def values(self) -> dict[str, Tensor]:
        return {name: one.values for name, one in self._values.items()}

    @property
    def weights(self) -> Tensor:
        return self._weights.values

    @property
    def ranges(self) -> tuple[Tensor, ...]:
        """Multipliers and free parameters; nothing where rows have no ranges."""
        one = self._narrowing
        return () if one is None else (one.multipliers.values.detach(), one.thetas.values.detach())

    def passed(self) -> dict[str, Any]:
        """What a pass takes of the rows' ranges."""
        one = self._narrowing
        return {} if one is None else one.rows.passed(one.multipliers.values, one.thetas.values)

    def ascend(self, step: int, lower: Tensor) -> None:
        """One step up the gradient from bounds [R]; no longer than what, were the bound linear, would take a row to its
        goal: parameters that come from a parent are near their best already."""
        shrink = self._settings.decay ** (step - 1)
        moves: list[tuple[_Parameter, Tensor]] = []
        promised = torch.zeros_like(lower, dtype=torch.float32)
        for parameter, move, gradient in self._moves(step, shrink):
            moves.append((parameter, move))
            promised += torch.linalg.vecdot(move.abs(), gradient.abs())
        wanted = (-OVERSHOOT * lower).clamp(min=LEAST_STEP).float()
        share = (wanted / promised.clamp(min=1e-30)).clamp(max=1.0)[:, None]
        for parameter, move in moves:
            parameter.values.detach().addcmul_(move, share)
        gradient_of_weights = self._weights.taken_gradient()
        if gradient_of_weights is not None:
            direction = self._weights.direction(gradient_of_weights, step)
            self._weights.values.detach().add_(direction, alpha=shrink * self._settings.weight_rate)

    def _moves(self, step: int, shrink: float) -> Iterator[tuple[_Parameter, Tensor, Tensor]]:
        """Each parameter that moves but weights, its whole move, and its gradient."""
        for name, one in self._values.items():
            gradient = one.taken_gradient()
            if gradient is None:
                continue
            rate, most = self._rates[name]
            data = one.values.detach()
            direction = one.direction(gradient, step)
            moved = torch.addcmul(data, direction, rate, value=shrink).clamp_(min=0.0)
            yield one, torch.minimum(moved, most, out=moved).sub_(data), gradient
        if self._narrowing is not None:
            yield from self._narrowing.moves(self._settings, step, shrink)
