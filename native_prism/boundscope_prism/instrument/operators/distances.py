"""Distances of all pairs of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope_prism.instrument.operators.table import Family, rule


@rule("_cdist_forward", family=Family.LOWERED)
def distances(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    """The norms of all differences of rows."""
    norms: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
    return norms


@rule("_cdist_backward", family=Family.LOWERED)
def distances_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """For the Euclidean distance: the sum of grad (x1 - x2) / distance; for others torch's own."""
    if p != 2:
        return torch.ops.aten._cdist_backward(grad, x1, x2, p, cdist)  # type: ignore[no-any-return]
    factor = torch.where(cdist == 0, torch.zeros_like(cdist), grad / cdist)
    return (factor.unsqueeze(-1) * (x1.unsqueeze(-2) - x2.unsqueeze(-3))).sum(-2)
