"""Domains whose neurons are all held: the network is linear there, and one linear program says what a search by
gradients finds slowly: the multipliers that prove the domain, or the point that does not let it be proven.

Nothing here is trusted: multipliers are proven by a backward pass, and points are replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.beta import BetaSearch, RowBlock

Array = NDArray[np.float64]
LARGEST = 2000  # inputs and neurons together
STEPS = 80
NEAR = 1e-11
REGULAR = 1e-14
ENOUGH = 1e-7  # of a bound above 0
PENALTY = 1e4  # of a neuron on the wrong side, relative to the objective: where a domain is empty, what lifts its bound
BACK = 0.995  # share of the way to the boundary


@dataclass(frozen=True)
class LeafAnswer:
    """A row with the multipliers and weights of the program's solution, values float64; and its minimiser, [n]."""

    block: RowBlock
    point: Array


def solve_leaf(search: BetaSearch, block: RowBlock) -> LeafAnswer | None:
    """The linear program of one row whose neurons are all held; None where it is too large.

    Over inputs x: the least t with t ≥ each constraint's margin, and every neuron on its side.
    """
    context, neurons = search.context, search.neurons
    inputs = [info.name for info in context.network.inputs]
    radius = torch.cat([context.intervals[name].ball[1].flatten() for name in inputs]).cpu().numpy()
    if len(neurons) + len(radius) > LARGEST:
        return None
    plain = RowBlock(
        block.which, block.states, torch.zeros_like(block.values, dtype=torch.float64), block.weights
    )
    sides = block.states[0].double().cpu().numpy()
    held, held_at = _neurons(search, plain, inputs, radius)
    margins, margins_at, order = _margins(search, plain, inputs, radius)
    share, weights, multipliers = _least_maximum(
        margins * radius, margins_at, sides[:, None] * held * radius, sides * held_at
    )
    values = torch.from_numpy(multipliers).to(block.values.device) / neurons.scales
    mixture = torch.zeros_like(block.weights)
    mixture[0, order] = torch.from_numpy(weights).to(mixture)
    ends = [context.intervals[name] for name in inputs]
    centre, lower, upper = (
        torch.cat([part.flatten() for part in parts]).cpu().numpy()
        for parts in zip(*((one.ball[0], one.lower, one.upper) for one in ends), strict=True)
    )
    solved = RowBlock(block.which, block.states, values[None], search.aims.project(mixture, block.which))
    return LeafAnswer(solved, np.clip(centre + share * radius, lower, upper))


def _at_inputs(one: BackwardPass, inputs: list[str], count: int, sizes: list[int]) -> Array:
    parts = [
        one.at_inputs[name].double().cpu().numpy() if name in one.at_inputs else np.zeros((count, size))
        for name, size in zip(inputs, sizes, strict=True)
    ]
    return np.concatenate(parts, 1)


def _neurons(search: BetaSearch, block: RowBlock, inputs: list[str], radius: Array) -> tuple[Array, Array]:
    """What each neuron reads as a linear function of the distance from the centre: [M, n] and its value there [M]."""
    context, neurons = search.context, search.neurons
    sizes = [context.intervals[name].lower.numel() for name in inputs]
    slopes: list[Array] = [np.zeros((0, len(radius)))]
    values: list[Array] = [np.zeros(0)]
    for node, count in zip(neurons.nodes, neurons.counts, strict=True):
        index = torch.zeros(count, dtype=torch.int64, device=context.device)
        one = search.begin(block.of_rows(index), keep=True)
        ones = torch.ones(count, dtype=torch.float64, device=context.device)
        lower = one.lower_elements(node.inputs[0], context.free_slopes(node), ones).cpu().numpy()
        slope = _at_inputs(one, inputs, count, sizes)
        slopes.append(slope)
        values.append(lower + np.abs(slope) @ radius)
    return np.concatenate(slopes), np.concatenate(values)


def _margins(
    search: BetaSearch, block: RowBlock, inputs: list[str], radius: Array
) -> tuple[Array, Array, Tensor]:
    """The margins of the clause's constraints in the same form, and their places among its weights."""
    which, weights = search.aims.alone()
    mine = (which == block.which[0]).nonzero().flatten()
    rows = block.of_rows(torch.zeros(len(mine), dtype=torch.int64, device=which.device))
    rows = RowBlock(rows.which, rows.states, rows.values, weights[mine])
    proven = search.prove(rows)
    sizes = [search.context.intervals[name].lower.numel() for name in inputs]
    slope = np.concatenate(
        [
            proven.at_inputs[name].double().cpu().numpy()
            if name in proven.at_inputs
            else np.zeros((len(mine), size))
            for name, size in zip(inputs, sizes, strict=True)
        ],
        1,
    )
    value = proven.lower.cpu().numpy() + np.abs(slope) @ radius
    return slope, value, weights[mine].argmax(1)


def _least_maximum(
    objective: Array, constant: Array, held: Array, offset: Array
) -> tuple[Array, Array, Array]:
    """min over |x| ≤ 1 of max(objective·x + constant) where held·x + offset ≥ 0: x, and the multipliers of both.

    A primal-dual interior point method (Mehrotra 1992) on z = (x, t, e), where e ≥ 0 is what a neuron is on the wrong
    side, at a price: the program then always has a solution.
    """
    count, wide = objective.shape
    many = len(offset)
    size_of = np.abs(held).sum(1) + np.abs(offset)
    size_of[size_of == 0] = 1.0
    held, offset = held / size_of[:, None], offset / size_of
    size = wide + 1 + many
    price = PENALTY * max(1.0, float(np.abs(objective).sum(1).max()))
    rows = np.zeros((count + many + 2 * wide + many, size))
    right = np.zeros(len(rows))
    rows[:count, :wide], rows[:count, wide], right[:count] = -objective, 1.0, constant
    at = slice(count, count + many)
    rows[at, :wide], rows[at, wide + 1 :], right[at] = held, np.eye(many), -offset
    box = count + many
    rows[box : box + wide, :wide], rows[box + wide : box + 2 * wide, :wide] = np.eye(wide), -np.eye(wide)
    right[box : box + 2 * wide] = -1.0
    rows[box + 2 * wide :, wide + 1 :] = np.eye(many)
    cost = np.zeros(size)
    cost[wide], cost[wide + 1 :] = 1.0, price
    z = np.zeros(size)
    z[wide] = constant.max() + 1.0
    z[wide + 1 :] = np.maximum(-offset, 0.0) + 1.0

    def proven(y: Array) -> float:
        """The bound that multipliers give."""
        weights, sides = y[:count] / y[:count].sum(), y[at] / y[:count].sum()
        pull = np.abs(weights @ objective - sides @ held).sum()
        return float(weights @ constant - sides @ offset - pull)

    y = _interior_point(rows, right, cost, z, proven)
    total = y[:count].sum()
    return np.clip(z[:wide], -1.0, 1.0), y[:count] / total, y[at] / total / size_of


def _interior_point(
    rows: Array, right: Array, cost: Array, z: Array, worth: Callable[[Array], float]
) -> Array:
    """min cost·z where rows·z ≥ right, from an inner point z, which is moved; of the multipliers on the way those that
    are worth most, above 0 if any are."""
    slack = rows @ z - right
    y = np.full(len(rows), max(1.0, float(np.abs(cost).max())) / len(rows))
    best, most = y, worth(y)
    for _ in range(STEPS):
        dual, primal, gap = cost - rows.T @ y, rows @ z - right - slack, float(slack @ y)
        if gap < NEAR * (1.0 + abs(float(cost @ z))) and np.abs(dual).max() < NEAR * (
            1.0 + np.abs(cost).max()
        ):
            break
        try:
            step = _Newton(rows, slack, y, primal, dual)
        except np.linalg.LinAlgError:
            break
        _, ds, dy = step.towards(-slack * y)
        affine = float((slack + _share(slack, ds) * ds) @ (y + _share(y, dy) * dy))
        centre = (affine / gap) ** 3 * gap / len(y)
        dz, ds, dy = step.towards(centre - slack * y - ds * dy)
        far, long = BACK * _share(slack, ds), BACK * _share(y, dy)
        if not all(np.isfinite(one).all() for one in (dz, ds, dy)):
            break
        z += far * dz
        slack, y = slack + far * ds, y + long * dy
        if (value := worth(y)) > most:
            best, most = y, value
            if most > ENOUGH:
                break
    return best


class _Newton:
    """Steps for y·Δslack + slack·Δy = target, Δslack = rows·Δz + primal, rowsᵀ·Δy = dual."""

    def __init__(self, rows: Array, slack: Array, y: Array, primal: Array, dual: Array) -> None:
        self._rows, self._slack, self._y, self._primal, self._dual = rows, slack, y, primal, dual
        matrix = rows.T @ ((y / slack)[:, None] * rows)
        matrix[np.diag_indices_from(matrix)] *= 1.0 + REGULAR
        matrix[np.diag_indices_from(matrix)] += REGULAR
        self._inverse = np.linalg.inv(matrix)

    def towards(self, target: Array) -> tuple[Array, Array, Array]:
        reduced = (target - self._y * self._primal) / self._slack
        move = self._inverse @ (self._rows.T @ reduced - self._dual)
        move_slack = self._rows @ move + self._primal
        return move, move_slack, (target - self._y * move_slack) / self._slack


def _share(value: Array, move: Array) -> float:
    """How far a positive value can move, at most 1."""
    falling = move < 0
    return min(1.0, float((value[falling] / -move[falling]).min())) if falling.any() else 1.0
