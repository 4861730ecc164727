"""Fused attention that somebody calls by its own name: in products and a softmax, as the unfused one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundscope_prism.instrument.operators.table import Family, rule


def _scores(query: Tensor, key: Tensor, is_causal: bool, mask: Tensor | None, factor: float) -> Tensor:
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool)
        scores = scores.masked_fill(ones.triu(1), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores


def _factor(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale


@rule("_scaled_dot_product_flash_attention_for_cpu", family=Family.LOWERED)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The attention and the logarithm of the sums of its exponentials, which the backward pass gets."""
    scores = _scores(query, key, is_causal, attn_mask, _factor(query, scale))
    logarithms = torch.logsumexp(scores, -1)
    return torch.matmul(torch.softmax(scores, -1), value), logarithms


@rule("_scaled_dot_product_flash_attention_for_cpu_backward", family=Family.LOWERED)
def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    factor = _factor(query, scale)
    weights = torch.exp(_scores(query, key, is_causal, attn_mask, factor) - logsumexp.unsqueeze(-1))
    grad_weights = torch.matmul(grad_out, value.transpose(-2, -1))
    center = (grad_out * out).sum(-1, keepdim=True)
    grad_scores = weights * (grad_weights - center) * factor
    return (
        torch.matmul(grad_scores, key),
        torch.matmul(grad_scores.transpose(-2, -1), query),
        torch.matmul(weights.transpose(-2, -1), grad_out),
    )
