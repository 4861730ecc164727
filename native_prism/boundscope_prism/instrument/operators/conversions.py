"""Conversions to a narrower type; all others are exact, or round whole numbers as torch does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import BITS, Kernels
from boundscope_prism.instrument.operators.table import Family, rule


@rule("_to_copy", family=Family.RAW)
def to_copy(k: Kernels, self: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Tensor:
    if dtype is None or not _narrows(self.dtype, dtype):
        return torch.ops.aten._to_copy(self, dtype=dtype, **settings)  # type: ignore[no-any-return]
    return _laid_out(k.narrow(self.detach(), dtype), self, settings)


@rule("copy_", family=Family.RAW, mutates=True)
def copy_into(k: Kernels, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if _narrows(src.dtype, self.dtype):
        src = k.narrow(src.detach(), self.dtype)
    return self.copy_(src, non_blocking)


def _laid_out(narrow: Tensor, like: Tensor, settings: dict[str, Any]) -> Tensor:
    """In the memory format that was asked for, else in that of what was converted."""
    wanted = settings.get("memory_format")
    if wanted not in (None, torch.preserve_format):
        return narrow.contiguous(memory_format=wanted)
    if like.is_contiguous():
        return narrow
    return torch.empty_like(like, dtype=narrow.dtype).copy_(narrow)


def _narrows(source: torch.dtype, target: torch.dtype) -> bool:
    return source in BITS and target in BITS and BITS[target] < BITS[source]
