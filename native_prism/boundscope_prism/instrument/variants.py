"""In-place and out= variants of operators, by their functional ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from boundscope_prism.instrument.kernels import Kernels


def functional_of(func: OpOverload) -> OpOverload | None:
    """The operator that returns what `func` writes into its arguments, if there is one."""
    namespace, _, name = func._schema.name.partition("::")
    kept = [argument for argument in func._schema.arguments if not argument.is_out]
    if any(argument.is_out for argument in func._schema.arguments):
        base = name
    elif name.endswith("_") and not name.endswith("__"):
        base = name[:-1]
    else:
        return None
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None:
        return None
    wanted = [(argument.name, str(argument.type)) for argument in kept]
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        if candidate._schema.is_mutable:
            continue
        if [(argument.name, str(argument.type)) for argument in candidate._schema.arguments] == wanted:
            return candidate  # type: ignore[no-any-return]
    return None


def write(
    kernels: Kernels,
    func: OpOverload,
    functional: OpOverload,
    handler: Callable[..., Any],
    mode: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`functional` by its handler, its results copied into `func`'s written arguments, which are returned."""
    outs = [argument.name for argument in func._schema.arguments if argument.is_out]
    if not outs:
        result = handler(mode, functional, args, kwargs)
        return _store(kernels, args[0], result, resize=False)
    rest = {name: value for name, value in kwargs.items() if name not in outs}
    result = handler(mode, functional, args, rest)
    results = result if isinstance(result, tuple | list) else (result,)
    stored = [
        _store(kernels, kwargs[name], value, resize=True) for name, value in zip(outs, results, strict=True)
    ]
    return stored[0] if len(stored) == 1 else tuple(stored)


def _store(kernels: Kernels, target: Tensor, value: Tensor, *, resize: bool) -> Tensor:
    if not torch.can_cast(value.dtype, target.dtype):
        raise RuntimeError(
            f"result type {value.dtype} can't be cast to the desired output type {target.dtype}"
        )
    if resize and target.shape != value.shape:
        target.resize_(value.shape)
    if value.dtype != target.dtype:
        value = kernels.narrow(value, target.dtype)
    return target.copy_(value)
