"""Arrays and numbers as the kernels need them, or a sentence that says what came instead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from boundscope_prism.errors import PrismArgumentError

if TYPE_CHECKING:
    import torch

Float32Array: TypeAlias = NDArray[np.float32]

FLOAT32 = np.dtype(np.float32)
WORD_LIMIT = 2**64


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether `value` is a torch tensor; where torch is not imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(name: str, value: Float32Array | torch.Tensor) -> Float32Array:
    """The same memory as a C-contiguous float32 array.

    Raises PrismArgumentError for anything else: a copy would be silent, and `out` would miss its result.
    """
    if type(value) is not np.ndarray:
        value = _tensor_memory(name, value) if is_tensor(value) else _subclass_memory(name, value)
    if value.dtype != FLOAT32:
        raise PrismArgumentError(f"{name}: expected float32, got {_dtype_name(value.dtype)}.")
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned):
        how = "strides " + str(value.strides) if flags.aligned else "memory that is not aligned to 4 bytes"
        raise PrismArgumentError(
            f"{name}: expected a C-contiguous array, got shape {value.shape} with {how}; "
            f"pass numpy.ascontiguousarray({name})."
        )
    return value


def check_shape(name: str, array: Float32Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise PrismArgumentError(f"{name}: expected the shape of a, {shape}, got {array.shape}.")


def check_word(name: str, value: int, limit: int = WORD_LIMIT) -> int:
    """`value` as an int of 0 to limit - 1."""
    if type(value) is int and 0 <= value < limit:
        return value
    try:
        number = value.__index__()
    except AttributeError:
        raise PrismArgumentError(f"{name}: expected an integer, got {type(value).__name__}.") from None
    if not 0 <= number < limit:
        raise PrismArgumentError(f"{name}: expected an integer from 0 to {limit - 1}, got {number}.")
    return number


def check_writable(name: str, array: Float32Array) -> None:
    if not array.flags.writeable:
        raise PrismArgumentError(f"{name}: expected an array that can be written, got a read-only one.")


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype) if dtype.isnative else f"{dtype.name} in the other byte order"


def _subclass_memory(name: str, value: object) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray) or not isinstance(value, np.ndarray):
        raise PrismArgumentError(
            f"{name}: expected a numpy array or a torch tensor of float32, got {type(value).__name__}."
        )
    return value.view(np.ndarray)


def _tensor_memory(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    import torch  # already imported: there is a tensor

    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise PrismArgumentError(
            f"{name}: expected a dense tensor on the CPU, got {tensor.layout} on {tensor.device}."
        )
    if tensor.requires_grad:
        raise PrismArgumentError(
            f"{name}: expected a tensor without gradient, got one that requires it; pass {name}.detach()."
        )
    if tensor.dtype != torch.float32:
        raise PrismArgumentError(f"{name}: expected float32, got {str(tensor.dtype).removeprefix('torch.')}.")
    return tensor.numpy()
