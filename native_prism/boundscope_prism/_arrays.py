"""Arrays as the kernels need them, or a sentence that says what came instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from boundscope_prism.errors import PrismArgumentError

if TYPE_CHECKING:
    import torch

# What every operation takes and gives: a numpy array or a torch tensor on the CPU, of float32 or float64.
Array: TypeAlias = "NDArray[Any] | torch.Tensor"

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
SIGNIFICAND_BITS = {FLOAT32: 24, FLOAT64: 53}


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether `value` is a torch tensor; where torch is not imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(name: str, value: object, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """`value` as a C-contiguous array: the same memory where it is one already, else one copy.

    `dtype` is the type that it must have, None for float32 or float64. Raises PrismArgumentError for anything that
    is not a dense array on the CPU of that type.
    """
    array = _memory(name, value)
    _check_dtype(name, array, dtype)
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, requirements=("C", "ALIGNED"))


def as_strided(name: str, value: object, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """`value` as an array whose strides are whole elements: the same memory where they are, else one copy.

    Otherwise as `as_array`.
    """
    array = _memory(name, value)
    _check_dtype(name, array, dtype)
    if array.flags.aligned and all(stride % array.itemsize == 0 for stride in array.strides):
        return array
    return np.require(array, requirements=("C", "ALIGNED"))


def significand_bits(array: NDArray[Any]) -> int:
    """24 for float32, 53 for float64: what Rounding.numbers() asks for."""
    return SIGNIFICAND_BITS[array.dtype]


def plain_array(name: str, value: object) -> object:
    """A tensor's memory as an array; anything else as it is."""
    return _tensor_memory(name, value) if is_tensor(value) else value


def result_array(
    out: object,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    inputs: Mapping[str, NDArray[Any]],
    may_replace: tuple[str, ...] = (),
) -> NDArray[Any]:
    """The memory that the result goes to: `out`'s own, or a new array where `out` is None.

    `inputs` are what the kernel reads. `out` must have the shape and the type, be C-contiguous and writable, and lie
    apart from every input; only the inputs named in `may_replace` may be the very same memory.
    Raises PrismArgumentError.
    """
    if out is None:
        return np.empty(shape, dtype)
    array = _memory("out", out)
    _check_dtype("out", array, dtype)
    if array.shape != shape:
        raise PrismArgumentError(f"out: expected the shape {shape}, got {array.shape}.")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise PrismArgumentError(
            f"out: expected C-contiguous memory, got strides {array.strides} bytes; pass an array of its own."
        )
    if not array.flags.writeable:
        raise PrismArgumentError("out: expected an array that can be written, got a read-only one.")
    for name, read in inputs.items():
        if not np.may_share_memory(array, read):
            continue
        same = read.ctypes.data == array.ctypes.data and read.nbytes == array.nbytes
        if not (same and name in may_replace):
            allowed = f"{' or '.join(may_replace)} itself or " if may_replace else ""
            raise PrismArgumentError(
                f"out: expected {allowed}memory apart from the operands, got an overlap with {name}."
            )
    return array


def as_kind_of(first: object, result: NDArray[Any]) -> Any:
    """`result` as a tensor where `first` is one, else as it is; the memory is the same."""
    if is_tensor(first):
        import torch  # already imported: there is a tensor

        return torch.from_numpy(result)
    return result


def _memory(name: str, value: object) -> NDArray[Any]:
    if type(value) is np.ndarray:
        return value
    if is_tensor(value):
        return _tensor_memory(name, value)
    if isinstance(value, np.ma.MaskedArray) or not isinstance(value, np.ndarray):
        raise PrismArgumentError(
            f"{name}: expected a numpy array or a torch tensor of float32 or float64, got {type(value).__name__}."
        )
    return value.view(np.ndarray)


def _tensor_memory(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError) as error:
        return _unusual_tensor_memory(name, tensor, str(error))


def _unusual_tensor_memory(name: str, tensor: torch.Tensor, why: str) -> NDArray[Any]:
    """The memory of a tensor that numpy refuses for the reason `why`, or an error in our words."""
    import torch  # already imported: there is a tensor

    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise PrismArgumentError(
            f"{name}: expected a dense tensor on the CPU, got {tensor.layout} on {tensor.device}."
        )
    if tensor.dtype not in (torch.float32, torch.float64):
        raise PrismArgumentError(
            f"{name}: expected float32 or float64, got {str(tensor.dtype).removeprefix('torch.')}."
        )
    if tensor.requires_grad:
        raise PrismArgumentError(
            f"{name}: expected a tensor without gradient, got one that requires it; pass {name}.detach()."
        )
    if tensor.is_neg():
        return tensor.resolve_neg().numpy()
    raise PrismArgumentError(f"{name}: expected a tensor that numpy can read: {why}.")


def _check_dtype(name: str, array: NDArray[Any], dtype: np.dtype[Any] | None) -> None:
    got = array.dtype
    if got.isnative and (got == dtype if dtype is not None else got in SIGNIFICAND_BITS):
        return
    said = got.name if got.isnative else f"{got.name} in the other byte order"
    expected = "float32 or float64" if dtype is None else dtype.name
    raise PrismArgumentError(f"{name}: expected {expected}, got {said}.")
