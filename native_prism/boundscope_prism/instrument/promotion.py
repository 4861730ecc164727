"""Types: what an operator's tensors are computed in, and what its result is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import (
    ELEMENTWISE_TYPE_PROMOTION_KIND,
    compute_elementwise_output_strides,
    elementwise_dtypes,
)
from torch.utils._pytree import tree_map_only

from boundscope_prism.instrument.kernels import NUMPY, Kernels
from boundscope_prism.instrument.operators import Family


@dataclass(frozen=True, slots=True)
class Call:
    """An operator's arguments as the kernels take them, and how its results become what torch's would be."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # None: the rule's own.
    dtype: torch.dtype | None
    # The layout of element-wise results, as torch keeps it where operands are not contiguous.
    strided: tuple[Tensor, ...] = ()
    # Floating-point types that may not go together.
    mixed: bool = False

    def finished(self, kernels: Kernels, result: Any) -> Any:
        return tree_map_only(Tensor, lambda tensor: self._finish(kernels, tensor), result)

    def _finish(self, kernels: Kernels, tensor: Tensor) -> Tensor:
        if self.dtype is not None and tensor.is_floating_point() and tensor.dtype != self.dtype:
            tensor = kernels.narrow(tensor, self.dtype)
        if self.strided and tensor.numel():
            strides = compute_elementwise_output_strides(*self.strided)
            if tuple(strides) != tensor.stride() and len(strides) == tensor.dim():
                tensor = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
        return tensor


def prepared(family: Family, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """The call in float32 or float64; None where there is nothing to round: whole numbers alone, or complex ones.

    float16 and bfloat16 are computed in float32, as torch's kernels do, and the result is rounded to their type.
    """
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    if any(tensor.is_complex() for tensor in tensors) or any(isinstance(value, complex) for value in args):
        return None
    if family is Family.RAW:
        return Call(args, kwargs, None)
    if family is Family.OTHER:
        return _prepared_other(tensors, args, kwargs)
    return _prepared_elementwise(family, tensors, args, kwargs)


def _prepared_elementwise(
    family: Family, tensors: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call | None:
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    if family is Family.FLOATING:
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT
    numbers = [value for value in args if isinstance(value, Tensor | int | float)]
    dtype = elementwise_dtypes(*numbers, type_promotion_kind=kind)[1]
    if not dtype.is_floating_point:
        return None
    compute = dtype if dtype in NUMPY else torch.float32
    strided: tuple[Tensor, ...] = ()
    if not all(tensor.is_contiguous() for tensor in tensors):
        strided = tuple(torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]

    def ready(tensor: Tensor) -> Tensor:
        return tensor.detach().to(compute).contiguous()

    return Call(
        tuple(ready(value) if isinstance(value, Tensor) else value for value in args),
        {name: ready(value) if isinstance(value, Tensor) else value for name, value in kwargs.items()},
        dtype,
        strided,
    )


def _prepared_other(tensors: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    floats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    wanted = kwargs.get("dtype")
    kwargs = {name: value for name, value in kwargs.items() if name != "dtype"}
    if wanted is not None and not wanted.is_floating_point:
        return None
    if not floats and wanted is None:
        return None
    dtype = wanted or floats[0]
    compute = torch.float64 if torch.float64 in (*floats, dtype) else torch.float32

    def ready(value: Any) -> Any:
        if isinstance(value, Tensor) and (value.is_floating_point() or not floats):
            return value.detach().to(compute)
        return value

    return Call(
        tuple(ready(value) for value in args),
        {name: ready(value) for name, value in kwargs.items()},
        dtype,
        mixed=len(set(floats)) > 1,
    )
