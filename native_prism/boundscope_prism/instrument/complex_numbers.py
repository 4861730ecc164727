"""Complex operators whose real and imaginary parts are computed one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def in_parts(operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The operator's arguments with a last axis (real, imaginary); None where it mixes the two.

    Sums and differences of complex tensors, and products and quotients with a real factor.
    """
    if len(args) != 2 or isinstance(kwargs.get("alpha"), complex):
        return None
    left, right = args
    if operator in ("add", "sub") and _complex(left) and _complex(right):
        return _parts(left), _parts(right)
    if operator in ("mul", "div") and _complex(left) and _real(right):
        return _parts(left), right.unsqueeze(-1) if isinstance(right, Tensor) else right
    if operator == "mul" and _real(left) and _complex(right):
        return left.unsqueeze(-1) if isinstance(left, Tensor) else left, _parts(right)
    return None


def _complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def _real(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.is_floating_point() and value.dim() > 0
    return isinstance(value, int | float)


def _parts(value: Tensor) -> Tensor:
    return torch.view_as_real(value.detach().resolve_conj())
