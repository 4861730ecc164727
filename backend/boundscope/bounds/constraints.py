"""Linear constraints of a property: as rows at the network's outputs and inputs, and as exact numbers, of which a
margin loses nothing that float64 can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.outward import round_down, round_up
from boundscope.network.graph import Network
from boundscope.properties.types import LinearConstraint

EXACT_TERMS = 100


def coefficient_rows(
    network: Network, constraints: Sequence[LinearConstraint], count: int, device: torch.device
) -> dict[str, Tensor]:
    """Coefficients by tensor, [count, *S] float64; rows beyond the constraints are zero. Inputs are there where some
    constraint has terms of inputs."""
    outputs = [(one.output_indices, one.output_coeffs) for one in constraints]
    inputs = [(one.input_indices, one.input_coeffs) for one in constraints]
    sides = [(network.outputs, _matrix(outputs, count, network.output_count))]
    if any(len(indices) for indices, _ in inputs):
        sides.append((network.inputs, _matrix(inputs, count, network.input_count)))
    rows: dict[str, Tensor] = {}
    for tensors, matrix in sides:
        position = 0
        for info in tensors:
            part = torch.from_numpy(matrix[:, position : position + info.size].copy()).to(device)
            part = part.reshape(count, *info.shape)
            rows[info.name] = rows[info.name] + part if info.name in rows else part
            position += info.size
    return rows


def _matrix(
    terms: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]], count: int, width: int
) -> NDArray[np.float64]:
    """Indices and coefficients of each row, as rows [count, width]."""
    matrix = np.zeros((count, width))
    for row, (indices, coefficients) in zip(matrix, terms, strict=False):
        np.add.at(row, indices, coefficients)
    return matrix


@dataclass(frozen=True)
class Constraints:
    """C constraints as rows at the network's outputs and inputs: [C, *S] float64 by tensor, and the bounds that their
    left sides must pass, [C] float64, rounded up."""

    rows: dict[str, Tensor]
    goals: Tensor

    @classmethod
    def of(cls, context: BoxContext, constraints: Sequence[LinearConstraint]) -> Constraints:
        network = context.network
        outputs = {info.name for info in network.outputs}
        rows = coefficient_rows(network, constraints, len(constraints), context.device)
        met = {name: part for name, part in rows.items() if name in outputs or bool((part != 0).any())}
        reach = _reach(context, constraints)
        goals = [round_up(one.bound + _missed(one, reach)) for one in constraints]
        return cls(met, torch.tensor(goals, dtype=torch.float64, device=context.device))

    def of_rows(self, index: Tensor) -> dict[str, Tensor]:
        return {name: part.index_select(0, index) for name, part in self.rows.items()}


def exact_margins(
    context: BoxContext, constraints: Sequence[LinearConstraint], lower: Sequence[float]
) -> list[float]:
    """Lower bounds of margins (left side minus bound) from those of the left sides; no looser than what the intervals
    of outputs and inputs say. What is no number stays none, for it is never proof."""
    reach = _reach(context, constraints)
    return [
        _larger(_margin(constraint, bound, reach), _margin_of_ends(context, constraint))
        for constraint, bound in zip(constraints, lower, strict=True)
    ]


def _margin(constraint: LinearConstraint, lower: float, reach: float) -> float:
    """Lower bound of left side − bound, subtracted exactly."""
    if not math.isfinite(lower):
        return lower
    return round_down(Fraction(lower) - constraint.bound - _missed(constraint, reach))


def _missed(constraint: LinearConstraint, reach: float) -> Fraction:
    """What float64 coefficients miss: at most their error times the largest value that they multiply."""
    terms = len(constraint.output_indices) + len(constraint.input_indices)
    return Fraction(constraint.coeff_error) * Fraction(reach) * terms


def _reach(context: BoxContext, constraints: Sequence[LinearConstraint]) -> float:
    """The largest absolute value of any input or output; zero where all coefficients are exact."""
    if not any(one.coeff_error for one in constraints):
        return 0.0
    names = [info.name for info in (*context.network.inputs, *context.network.outputs)]
    return max(float(context.intervals[name].magnitude.max()) for name in names)


def _margin_of_ends(context: BoxContext, constraint: LinearConstraint) -> float:
    """Exactly what the intervals of inputs and outputs say of a margin, rounded down once: where that is zero, no
    rounding hides it. −∞ for constraints of many terms, for which it would take long."""
    count = len(constraint.output_indices)
    if count + len(constraint.input_indices) > EXACT_TERMS:
        return -math.inf
    floats = (*constraint.output_coeffs.tolist(), *constraint.input_coeffs.tolist())
    exact = constraint.exact_coeffs or tuple(Fraction(c) for c in floats)
    groups = (
        (context.network.outputs, constraint.output_indices, exact[:count]),
        (context.network.inputs, constraint.input_indices, exact[count:]),
    )
    total = -constraint.bound
    for tensors, indices, coefficients in groups:
        for index, coefficient in zip(indices.tolist(), coefficients, strict=True):
            position = index
            for info in tensors:
                if position < info.size:
                    break
                position -= info.size
            interval = context.intervals[info.name]
            end = (interval.lower if coefficient > 0 else interval.upper).flatten()[position].item()
            total += coefficient * Fraction(end)
    return round_down(total)


def _larger(margin: float, other: float) -> float:
    """The larger of two proven margins; a NaN stays one, for it is never proof."""
    return margin if math.isnan(margin) else max(margin, other)
