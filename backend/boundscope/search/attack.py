"""Looking for a violation before proving that there is none: projected gradient descent on the clauses' margins.

Madry et al. 2018 (arXiv 1706.06083), with steps whose length shrinks, from the centre and random points of the set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Case, Clause
from boundscope.search.regions import region_of

STEPS = 40
STARTS = 16
FIRST_STEP = 0.25  # of the set's width
STEP_DECAY = 0.93
BATCH_ELEMENTS = 1 << 24  # elements of all tensors of all points of one batch


@dataclass(frozen=True)
class Candidate:
    """A point at which the attack saw a clause hold: input [inputs] float64, inside the box (and its ball)."""

    clause: int
    point: NDArray[np.float64]
    margin: float


@dataclass(frozen=True)
class AttackOutcome:
    """Least margin seen for each clause (∞ where none was tried), and the points that violate, best first."""

    margins: tuple[float, ...]
    candidates: tuple[Candidate, ...]


class Attack:
    """Attacks the cases of a property on one network, in a chosen floating dtype."""

    def __init__(self, network: Network, dtype: torch.dtype, seed: int) -> None:
        self._network = network
        self._dtype = dtype
        self._seed = seed
        self._generator = torch.Generator()
        self._batched = True
        self._constants = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in ((name, _shared(array)) for name, array in network.constants.items())
        }

    def run(self, case: Case, monitor: Monitor, seconds: float) -> AttackOutcome:
        """Attack every clause of a case for at most `seconds`; stops early once something violates.

        The same case is attacked in the same way whatever was attacked before.
        """
        self._generator.manual_seed(self._seed)
        margins = [math.inf] * len(case.clauses)
        candidates: list[Candidate] = []
        end = monitor.elapsed_s + seconds
        elements = sum(info.size for info in self._network.tensors.values())
        group = max(1, BATCH_ELEMENTS // (STARTS * elements))
        for first in range(0, len(case.clauses), group):
            if monitor.elapsed_s > end:
                break
            chosen = list(range(first, min(first + group, len(case.clauses))))
            self._attack_clauses(case, chosen, margins, candidates, monitor, end)
            if candidates:
                break
        return AttackOutcome(tuple(margins), tuple(sorted(candidates, key=lambda c: c.margin)))

    def outputs(self, points: Tensor) -> Tensor:
        """Outputs [B, outputs] of the network at points [B, inputs], differentiable.

        All points at once where every operator has a batched form in torch.vmap, else one by one.
        """
        if self._batched:
            try:
                return torch.vmap(self._one)(points)
            except RuntimeError:
                self._batched = False
        return torch.stack([self._one(point) for point in points])

    def _one(self, point: Tensor) -> Tensor:
        inputs: dict[str, Tensor] = {}
        position = 0
        for info in self._network.inputs:
            inputs[info.name] = point[position : position + info.size].reshape(info.shape)
            position += info.size
        values = self._network.evaluate(inputs, constants=self._constants)
        return torch.cat([values[info.name].reshape(-1).to(self._dtype) for info in self._network.outputs])

    def _attack_clauses(
        self,
        case: Case,
        chosen: list[int],
        margins: list[float],
        candidates: list[Candidate],
        monitor: Monitor,
        end: float,
    ) -> None:
        region = region_of(case.box, self._dtype)
        objective = _Objective([case.clauses[index] for index in chosen], self._network, self._dtype)
        points = region.starts(len(chosen), STARTS, self._generator)
        step = FIRST_STEP
        for _ in range(STEPS):
            monitor.check()
            points.requires_grad_()
            values = objective.margins(points, self.outputs(points))  # [clauses, starts]
            self._note(chosen, points, values, margins, candidates)
            if candidates or monitor.elapsed_s > end or not bool(torch.isfinite(values).all()):
                return
            if not values.requires_grad:
                return  # outputs that jump, such as integers, lead nowhere
            (gradient,) = torch.autograd.grad(values.sum(), points, allow_unused=True)
            if gradient is None:
                return
            with torch.no_grad():
                points = region.step(points, gradient, step).detach()
            step *= STEP_DECAY

    def _note(
        self,
        chosen: list[int],
        points: Tensor,
        values: Tensor,
        margins: list[float],
        candidates: list[Candidate],
    ) -> None:
        table = values.detach().to(torch.float64)
        grid = points.detach().reshape(len(chosen), STARTS, -1)
        for row, clause in enumerate(chosen):
            best = int(table[row].argmin())
            value = float(table[row, best])
            if value < margins[clause]:
                margins[clause] = value
            if value <= 0:
                candidates.append(Candidate(clause, grid[row, best].to(torch.float64).numpy().copy(), value))


def _shared(array: NDArray[Any]) -> Tensor:
    """An array as a tensor on the same memory, which nobody writes to."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    return torch.from_numpy(np.array(array))


class _Objective:
    """The margin of each clause at points: the largest among its constraints', ≤ 0 exactly where it holds."""

    def __init__(self, clauses: list[Clause], network: Network, dtype: torch.dtype) -> None:
        count = sum(len(clause.constraints) for clause in clauses)
        self._outputs = torch.zeros((count, network.output_count), dtype=dtype)
        self._inputs: Tensor | None = None
        self._bounds = torch.zeros(count, dtype=dtype)
        self._spans: list[tuple[int, int]] = []
        row = 0
        for clause in clauses:
            self._spans.append((row, row + len(clause.constraints)))
            for constraint in clause.constraints:
                outputs = torch.from_numpy(constraint.output_coeffs).to(dtype)
                self._outputs[row].index_add_(0, torch.from_numpy(constraint.output_indices), outputs)
                self._bounds[row] = float(constraint.bound)
                if len(constraint.input_indices):
                    if self._inputs is None:
                        self._inputs = torch.zeros((count, network.input_count), dtype=dtype)
                    inputs = torch.from_numpy(constraint.input_coeffs).to(dtype)
                    self._inputs[row].index_add_(0, torch.from_numpy(constraint.input_indices), inputs)
                row += 1

    def margins(self, points: Tensor, outputs: Tensor) -> Tensor:
        """[clauses, starts] from points [clauses·starts, inputs] and outputs [clauses·starts, outputs]."""
        starts = len(points) // len(self._spans)
        table = []
        for number, (first, last) in enumerate(self._spans):
            part = slice(number * starts, (number + 1) * starts)
            if first == last:  # a clause without constraints holds everywhere
                table.append(outputs[part].sum(1) * 0.0 - 1.0)
                continue
            values = outputs[part] @ self._outputs[first:last].T - self._bounds[first:last]
            if self._inputs is not None:
                values = values + points[part] @ self._inputs[first:last].T
            table.append(values.max(1).values)
        return torch.stack(table)
