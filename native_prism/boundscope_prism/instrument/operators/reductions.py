"""Sums, means, variances, norms and products over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import Kernels
from boundscope_prism.instrument.operators.arithmetic import evaluated
from boundscope_prism.instrument.operators.table import rule


class Rows:
    """A tensor as a matrix, what is reduced along its rows."""

    def __init__(self, tensor: Tensor, dim: int | Sequence[int] | None, keepdim: bool) -> None:
        axes = range(tensor.dim())
        if dim is None or (not isinstance(dim, int) and len(dim) == 0):
            reduced = set(axes)
        else:
            chosen = [dim] if isinstance(dim, int) else dim
            reduced = {axis % tensor.dim() if tensor.dim() else 0 for axis in chosen}
        kept = [axis for axis in axes if axis not in reduced]
        order = [*kept, *(axis for axis in axes if axis in reduced)]
        self.columns = math.prod(tensor.shape[axis] for axis in axes if axis in reduced)
        rows = math.prod(tensor.shape[axis] for axis in kept)
        self.matrix = tensor.permute(order).reshape(rows, self.columns)
        if keepdim:
            self.shape = [1 if axis in reduced else tensor.shape[axis] for axis in axes]
        else:
            self.shape = [tensor.shape[axis] for axis in kept]

    def result(self, values: Tensor) -> Tensor:
        return values.view(self.shape)


@rule("sum")
def total(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    rows = Rows(self, dim, keepdim)
    if rows.columns == 0:
        return torch.zeros(rows.shape, dtype=self.dtype)
    return rows.result(k.sum_rows(rows.matrix))


@rule("nansum")
def total_without_nan(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    return total(k, self.masked_fill(self.isnan(), 0.0), dim, keepdim)


@rule("mean")
def mean(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    rows = Rows(self, dim, keepdim)
    if rows.columns == 0:
        return torch.full(rows.shape, math.nan, dtype=self.dtype)
    return rows.result(k.mean_rows(rows.matrix))


def _variance(
    k: Kernels, x: Tensor, dim: int | Sequence[int] | None, correction: float | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    rows = Rows(x, dim, keepdim)
    if rows.columns == 0:
        nothing = torch.full(rows.shape, math.nan, dtype=x.dtype)
        return nothing, nothing.clone()
    variance, center = k.variance_rows(rows.matrix, 1.0 if correction is None else correction)
    return rows.result(variance), rows.result(center)


@rule("var.correction")
def variance(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    return _variance(k, self, dim, correction, keepdim)[0]


@rule("var_mean.correction")
def variance_and_mean(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    return _variance(k, self, dim, correction, keepdim)


@rule("std.correction")
def deviation(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    return k.sqrt(_variance(k, self, dim, correction, keepdim)[0])


@rule("std_mean.correction")
def deviation_and_mean(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    spread, center = _variance(k, self, dim, correction, keepdim)
    return k.sqrt(spread), center


@rule("linalg_vector_norm")
def vector_norm(
    k: Kernels,
    self: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """(sum |x|^p)^(1/p); p = 2 is a dot product's root, p = inf, -inf and 0 do not round."""
    rows = Rows(self, dim, keepdim)
    if math.isinf(ord) or ord == 0 or rows.columns == 0:
        chosen: Tensor = torch.linalg.vector_norm(self, ord, dim, keepdim)
        return chosen
    if ord == 2:
        return rows.result(k.sqrt(k.dot_rows(rows.matrix, rows.matrix)))
    sizes = rows.matrix.abs()
    if ord == 1:
        return rows.result(k.sum_rows(sizes))
    powers = k.sum_rows(evaluated(k, torch.pow, sizes, ord))
    return rows.result(evaluated(k, torch.pow, powers, 1.0 / ord))


@rule("norm")
def norm(
    k: Kernels,
    self: Tensor,
    p: float | None = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    return vector_norm(k, self, 2 if p is None else p, dim, keepdim)


@rule("prod")
def product(
    k: Kernels,
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """By halves: the first half of a row times the second, until one factor is left."""
    rows = Rows(self, dim, keepdim)
    if rows.columns == 0:
        return torch.ones(rows.shape, dtype=self.dtype)
    factors = rows.matrix
    while factors.shape[1] > 1:
        half = factors.shape[1] // 2
        products = k.multiply(factors[:, :half], factors[:, half : 2 * half])
        factors = torch.cat((products, factors[:, 2 * half :]), 1)
    return rows.result(factors[:, 0].contiguous())


@rule("index_reduce")
def index_reduce(
    k: Kernels,
    self: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Maxima and minima are exact; products and means are torch's, perturbed once."""
    result = self.index_reduce(dim, index, source, reduce, include_self=include_self)
    return result if reduce in ("amax", "amin") else k.at_output(result)


@rule("segment_reduce")
def segment_reduce(k: Kernels, data: Tensor, reduce: str, **settings: Any) -> Tensor:
    """As index_reduce: the gradient of a maximum looks for the element that it is."""
    result: Tensor = torch.ops.aten.segment_reduce(data, reduce, **settings)
    return result if reduce in ("max", "min") else k.at_output(result)
