"""What an attack makes small: how far points are from satisfying the clauses of their case."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from boundscope.properties.types import Case, LinearConstraint

# Columns after the constraints' own: of no constraint, of a clause that holds everywhere, of no clause.
_NOTHING, _ALWAYS, _NEVER = 0, 1, 2


class Objectives:
    """The clauses of all cases over points and outputs of one dtype.

    A clause is counted within its case: clause k of case c is in column k of the tables at points of c; columns that
    a case does not have are ∞.
    """

    def __init__(self, cases: Sequence[Case], inputs: int, outputs: int, dtype: torch.dtype) -> None:
        constraints = [one for case in cases for clause in case.clauses for one in clause.constraints]
        self.columns = max((len(case.clauses) for case in cases), default=0)
        self._index = _layout(cases, self.columns, len(constraints))
        self._bounds = torch.tensor([float(one.bound) for one in constraints], dtype=dtype)
        self._outputs = _matrix(
            [(one.output_indices, one.output_coeffs) for one in constraints], outputs, dtype
        )
        self._inputs: Tensor | None = None
        if any(len(one.input_indices) for one in constraints):
            self._inputs = _matrix(
                [(one.input_indices, one.input_coeffs) for one in constraints], inputs, dtype
            )
        self._one_case = len(cases) == 1
        self._constants = torch.tensor([-torch.inf, -1.0, torch.inf], dtype=dtype)
        self.strict = _strict(constraints)
        entries = self._index[0].numel() * (1 if self._one_case else max(1, outputs))
        self.elements = max(1, entries + (len(constraints) if self._one_case else 0))  # for every point

    def constraints(self, points: Tensor, outputs: Tensor, cases: Tensor) -> Tensor:
        """Left side minus bound of every constraint: [B, clauses, constraints], −∞ where a clause has fewer.

        Args:
            points: [B, inputs].
            outputs: [B, outputs] at these points.
            cases: [B], which case each point is in.
        """
        constants = self._constants.expand(len(points), -1)
        if self._one_case:
            values = outputs @ self._outputs.T - self._bounds
            if self._inputs is not None:
                values = values + points @ self._inputs.T
            return torch.cat([values, constants], dim=1)[:, self._index[0]]
        index = self._index[cases]  # [B, clauses, constraints]
        own = index.clamp(max=len(self._bounds) - 1) if len(self._bounds) else None
        if own is None:
            return constants.gather(1, index.flatten(1)).reshape(index.shape)
        values = torch.einsum("bkco,bo->bkc", self._outputs[own], outputs) - self._bounds[own]
        if self._inputs is not None:
            values = values + torch.einsum("bkci,bi->bkc", self._inputs[own], points)
        place = (index - len(self._bounds)).clamp(min=0)
        fixed = constants.gather(1, place.flatten(1)).reshape(index.shape)
        return torch.where(index < len(self._bounds), values, fixed)

    def margins(self, points: Tensor, outputs: Tensor, cases: Tensor) -> Tensor:
        """The largest constraint of every clause, [B, clauses]: ≤ 0 where it holds; ∞ where an output is not finite."""
        return finite(self.constraints(points, outputs, cases).amax(2), outputs)


def finite(table: Tensor, outputs: Tensor) -> Tensor:
    """The table [B, …] with ∞ in rows whose outputs are not all finite: a comparison with them is never a violation."""
    good = torch.isfinite(outputs).all(1)
    if bool(good.all()):
        return table
    return torch.where(good.reshape(-1, *(1,) * (table.ndim - 1)), table, torch.inf)


def _layout(cases: Sequence[Case], columns: int, count: int) -> Tensor:
    """[cases, clauses, constraints]: where each constraint of each clause is among all of them."""
    longest = max((len(clause.constraints) for case in cases for clause in case.clauses), default=0)
    index = torch.full((len(cases), columns, max(1, longest)), count + _NOTHING)
    position = 0
    for number, case in enumerate(cases):
        for slot, clause in enumerate(case.clauses):
            length = len(clause.constraints)
            index[number, slot, :length] = torch.arange(position, position + length)
            if not length:
                index[number, slot, 0] = count + _ALWAYS
            position += length
        index[number, len(case.clauses) :, 0] = count + _NEVER
    return index


def _matrix(entries: Sequence[tuple[object, object]], width: int, dtype: torch.dtype) -> Tensor:
    matrix = torch.zeros((len(entries), width), dtype=dtype)
    for row, (indices, coefficients) in enumerate(entries):
        matrix[row].index_add_(0, torch.as_tensor(indices), torch.as_tensor(coefficients).to(dtype))
    return matrix


def _strict(constraints: Sequence[LinearConstraint]) -> bool:
    return any(one.strict for one in constraints)
