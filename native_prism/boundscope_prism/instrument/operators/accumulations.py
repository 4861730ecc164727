"""Additions into chosen places: gradients of indexing, scattered sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import ADD, Kernels
from boundscope_prism.instrument.operators.table import rule


def accumulated(k: Kernels, base: Tensor | None, index: Tensor, values: Tensor, size: int) -> Tensor:
    """base (size, ...) with values[i] added at index[i], in ascending order of i; without a base from nothing.

    All first additions of every place are done together, then all second ones, and so on. A place's first value
    without a base is no addition.
    """
    shape = (size, *values.shape[1:])
    out = torch.zeros(shape, dtype=values.dtype) if base is None else base.clone()
    if index.numel() == 0 or out.numel() == 0:
        return out
    ordered, order = torch.sort(index, stable=True)
    _, counts = torch.unique_consecutive(ordered, return_counts=True)
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.arange(index.numel()) - torch.repeat_interleave(starts, counts)
    by_rank = torch.argsort(rank, stable=True)
    sizes = torch.bincount(rank).tolist()
    numbers = None
    begin = done = 0
    for number, count in enumerate(sizes):
        chosen = order[by_rank[begin : begin + count]]
        begin += count
        places = index[chosen]
        if base is None and number == 0:
            out[places] = values[chosen]
            continue
        if numbers is None:
            numbers = k.numbers(values.dtype)
        added = k.at(ADD, (out[places], values[chosen]), done, numbers)
        done += added.numel()
        out[places] = added
    return out


@rule("index_add")
def index_add(k: Kernels, self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    if self.dim() == 0:
        return index_add(k, self.view(1), 0, index, source.view(1), alpha).view(())
    moved = self.movedim(dim, 0)
    values = source.movedim(dim, 0).reshape(index.numel(), *moved.shape[1:])
    if alpha != 1:
        values = k.multiply(values, alpha)
    sums = accumulated(k, moved.contiguous(), index.reshape(-1), values.contiguous(), moved.shape[0])
    return sums.movedim(0, dim).contiguous()


@rule("scatter_add")
def scatter_add(k: Kernels, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    if index.numel() == 0:
        return self.clone()
    places = _scattered(self, dim, index)
    values = src[tuple(slice(0, size) for size in index.shape)] if index.dim() else src
    flat = self.contiguous().view(-1)
    return accumulated(k, flat, places.reshape(-1), values.reshape(-1), flat.numel()).view(self.shape)


@rule("scatter_reduce", "scatter.reduce")
def scatter_reduce(
    k: Kernels,
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Sums by the kernels; maxima and minima are exact; products and means are torch's, perturbed once."""
    if reduce in ("sum", "add"):
        base = self
        if not include_self:
            base = self.scatter(dim, index, 0.0)
        return scatter_add(k, base, dim, index, src)
    spelled = {"multiply": "prod"}.get(reduce, reduce)
    result = torch.scatter_reduce(self, dim, index, src, spelled, include_self=include_self)
    if spelled in ("amax", "amin"):
        return result
    return k.at_output(result)


def _scattered(target: Tensor, dim: int, index: Tensor) -> Tensor:
    """The numbers of the elements of `target` that `index` names along `dim`."""
    if target.dim() == 0:
        return index.reshape(-1)
    dim %= target.dim()
    numbering = torch.arange(target.numel()).view(target.shape)
    grid = torch.meshgrid(*(torch.arange(size) for size in index.shape), indexing="ij")
    return numbering[tuple(index if axis == dim else places for axis, places in enumerate(grid))]


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    k: Kernels,
    self: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    if not accumulate:
        return torch.index_put(self, indices, values)  # type: ignore[arg-type]
    numbering = torch.arange(self.numel()).view(self.shape)
    places = torch.ops.aten.index(numbering, indices)
    flat = self.contiguous().view(-1)
    spread = values.to(self.dtype).expand(places.shape)
    return accumulated(k, flat, places.reshape(-1), spread.reshape(-1), flat.numel()).view(self.shape)


@rule("put")
def put(k: Kernels, self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    if not accumulate:
        return torch.put(self, index, source)
    flat = self.contiguous().view(-1)
    places = index.reshape(-1) % max(flat.numel(), 1)
    return accumulated(k, flat, places, source.reshape(-1), flat.numel()).view(self.shape)


def _by_numbering(k: Kernels, targets: Tensor, grad: Tensor, shape: Sequence[int], axes: int) -> Tensor:
    count = math.prod(shape[-axes:])
    values = grad.reshape(-1, targets.numel()).t()
    return accumulated(k, None, targets, values, count).t().reshape(tuple(shape)).contiguous()


def _enter_nearest(name: str, axes: int) -> None:
    forward = getattr(torch.ops.aten, name)

    @rule(f"{name}_backward.default")
    def backward(
        k: Kernels,
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        *scales: float | None,
    ) -> Tensor:
        """Each output's gradient added to the input that it copies."""
        if grad_output.numel() == 0:
            return grad_output.new_zeros(tuple(input_size))
        spatial = list(input_size[-axes:])
        numbering = torch.arange(math.prod(spatial), dtype=torch.float64).view(1, 1, *spatial)
        targets = forward(numbering, list(output_size), *scales).reshape(-1).long()
        return _by_numbering(k, targets, grad_output, input_size, axes)

    backward.__name__ = name


for _count in (1, 2, 3):
    _enter_nearest(f"upsample_nearest{_count}d", _count)
    _enter_nearest(f"_upsample_nearest_exact{_count}d", _count)


@rule("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    k: Kernels,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, ...]:
    """Sums (mode 0) and means (1) of rows; maxima (2) are exact. The other results are torch's."""
    plain, *others = torch.ops.aten._embedding_bag(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    if mode == 2 or plain.numel() == 0:
        return plain, *others
    starts = offsets[:-1] if include_last_offset else offsets
    bags = torch.searchsorted(starts, torch.arange(indices.numel(), dtype=starts.dtype), right=True) - 1
    kept = indices != padding_idx
    rows = weight[indices[kept]]
    if per_sample_weights is not None:
        rows = k.multiply(rows, per_sample_weights[kept][:, None].to(rows.dtype))
    sums = accumulated(k, None, bags[kept], rows, plain.shape[0])
    if mode == 1:
        counts = torch.bincount(bags[kept], minlength=plain.shape[0]).clamp(min=1)
        sums = k.divide(sums, counts[:, None].to(sums.dtype))
    return sums, *others
