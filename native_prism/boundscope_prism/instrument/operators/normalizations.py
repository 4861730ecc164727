"""Normalizations and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import NUMPY, Kernels
from boundscope_prism.instrument.operators.table import Family, rule

Triple = tuple[Tensor, Tensor, Tensor]


@rule("_softmax")
def softmax(k: Kernels, self: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return _softmax(k, self, dim, logarithm=False)


@rule("_safe_softmax")
def safe_softmax(k: Kernels, self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Zero where a row is all -inf."""
    masked = (self == -math.inf).all(dim, keepdim=True)
    return _softmax(k, self, dim, logarithm=False).masked_fill(masked, 0.0)


@rule("_log_softmax")
def log_softmax(k: Kernels, self: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return _softmax(k, self, dim, logarithm=True)


def _softmax(k: Kernels, x: Tensor, dim: int, *, logarithm: bool) -> Tensor:
    if x.dim() == 0:
        return _softmax(k, x.unsqueeze(0), 0, logarithm=logarithm)[0]
    if x.numel() == 0:
        return x.clone()
    last = x.movedim(dim, -1)
    rows = k.softmax_rows(last.reshape(-1, last.shape[-1]), logarithm=logarithm)
    return rows.view(last.shape).movedim(-1, dim).contiguous()


@rule("native_layer_norm")
def layer_norm(
    k: Kernels,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Triple:
    columns = math.prod(normalized_shape)
    leading = input.shape[: input.dim() - len(normalized_shape)]
    statistics = (*leading, *(1 for _ in normalized_shape))
    if input.numel() == 0:
        return torch.empty_like(input), input.new_zeros(statistics), input.new_zeros(statistics)
    out, mean, inverse = k.normalize_rows(input.reshape(-1, columns), weight, bias, eps)
    return out.view(input.shape), mean.view(statistics), inverse.view(statistics)


@rule("native_group_norm")
def group_norm(
    k: Kernels,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    length: int,
    group: int,
    eps: float,
) -> Triple:
    if input.numel() == 0:
        return torch.empty_like(input), input.new_zeros(batch, group), input.new_zeros(batch, group)

    def lines(factors: Tensor | None) -> Tensor | None:
        return None if factors is None else factors.repeat_interleave(length).view(group, -1)

    rows = input.reshape(batch * group, (channels // group) * length)
    out, mean, inverse = k.normalize_rows(rows, lines(weight), lines(bias), eps)
    return out.view(input.shape), mean.view(batch, group), inverse.view(batch, group)


@rule("native_batch_norm", "_native_batch_norm_legit.default", family=Family.RAW, mutates=True)
def batch_norm(
    k: Kernels,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Triple:
    """In training by the batch's own statistics, of which the running ones take `momentum`."""
    if input.numel() == 0:
        empty: Triple = torch.ops.aten.native_batch_norm(
            input, weight, bias, running_mean, running_var, training, momentum, eps
        )
        return empty
    x = _wide(input)
    scale, shift = _wide_or_none(weight, x), _wide_or_none(bias, x)
    channels = x.reshape(x.shape[0], x.shape[1], -1)
    if not training:
        assert running_mean is not None
        assert running_var is not None
        mean, variance = _wide(running_mean).to(x.dtype), _wide(running_var).to(x.dtype)
        out = k.normalize_channels(channels, mean, variance, scale, shift, eps)
        nothing = input.new_empty(0)
        return k.narrow(out.view(x.shape), input.dtype), nothing, nothing.clone()
    rows = channels.transpose(0, 1).reshape(x.shape[1], -1)
    variance, mean = k.variance_rows(rows, 0.0)
    inverse = k.divide(1.0, k.sqrt(k.add(variance, eps)))
    out = k.multiply(k.subtract(channels, mean[:, None]), inverse[:, None])
    if scale is not None and shift is not None:
        out = k.fma(out, scale[:, None], shift[:, None])
    elif scale is not None:
        out = k.multiply(out, scale[:, None])
    elif shift is not None:
        out = k.add(out, shift[:, None])
    if running_mean is not None:
        _follow(k, running_mean, mean, momentum)
    if running_var is not None:
        count = rows.shape[1]
        unbiased = k.multiply(variance, count / (count - 1) if count > 1 else math.nan)
        _follow(k, running_var, unbiased, momentum)
    return (
        k.narrow(out.view(x.shape), input.dtype),
        k.narrow(mean, input.dtype),
        k.narrow(inverse, input.dtype),
    )


@rule("_native_batch_norm_legit.no_stats", family=Family.RAW)
def batch_norm_without_statistics(
    k: Kernels,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Triple:
    return batch_norm(k, input, weight, bias, None, None, True, momentum, eps)


@rule("_native_batch_norm_legit_no_training", family=Family.RAW)
def batch_norm_by_statistics(
    k: Kernels,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Triple:
    return batch_norm(k, input, weight, bias, running_mean, running_var, False, momentum, eps)


@rule("_batch_norm_with_update", family=Family.RAW, mutates=True)
def batch_norm_with_update(
    k: Kernels,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    results = batch_norm(k, input, weight, bias, running_mean, running_var, True, momentum, eps)
    return *results, input.new_empty(0, dtype=torch.uint8)


@rule("_batch_norm_no_update", family=Family.RAW)
def batch_norm_without_update(
    k: Kernels,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    results = batch_norm(k, input, weight, bias, running_mean, running_var, False, momentum, eps)
    return *results, input.new_empty(0, dtype=torch.uint8)


def _follow(k: Kernels, running: Tensor, now: Tensor, momentum: float) -> None:
    old = _wide(running).to(now.dtype)
    new = k.fma(now, momentum, k.multiply(old, 1.0 - momentum))
    running.copy_(k.narrow(new, running.dtype))


def _wide(x: Tensor) -> Tensor:
    x = x.detach()
    return x if x.dtype in NUMPY else x.float()


def _wide_or_none(x: Tensor | None, like: Tensor) -> Tensor | None:
    return None if x is None else _wide(x).to(like.dtype)


@rule("_weight_norm_interface_backward", family=Family.LOWERED)
def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """The gradients of v and g in w = g v / |v|, the norm over all axes but `dim`."""
    axes = [axis for axis in range(saved_v.dim()) if axis != dim % saved_v.dim()]
    along = (grad_w * saved_v).sum(axes, keepdim=True) / saved_norms
    grad_v = (saved_g / saved_norms) * (grad_w - saved_v * (along / saved_norms))
    return grad_v, along
