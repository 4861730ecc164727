"""The operations on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import numpy as np

from boundscope_prism._arrays import (
    Float32Array,
    as_array,
    check_shape,
    check_word,
    check_writable,
    is_tensor,
)
from boundscope_prism._native import native
from boundscope_prism.errors import PrismArgumentError, PrismUnavailableError

if TYPE_CHECKING:
    import torch

Mode: TypeAlias = Literal["rn", "sr", "ud"]

_MODES: dict[str, int] = {"rn": 0, "sr": 1, "ud": 2}


@overload
def add(
    a: Float32Array,
    b: Float32Array,
    *,
    mode: Mode = "sr",
    seed: int = 0,
    sample: int = 0,
    operation: int = 0,
    first: int = 0,
    out: Float32Array | None = None,
) -> Float32Array: ...


@overload
def add(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    mode: Mode = "sr",
    seed: int = 0,
    sample: int = 0,
    operation: int = 0,
    first: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor: ...


def add(
    a: Float32Array | torch.Tensor,
    b: Float32Array | torch.Tensor,
    *,
    mode: Mode = "sr",
    seed: int = 0,
    sample: int = 0,
    operation: int = 0,
    first: int = 0,
    out: Float32Array | torch.Tensor | None = None,
) -> Float32Array | torch.Tensor:
    """a + b, each element rounded by `mode`.

    `a`, `b` and `out` have one shape and are C-contiguous float32 numpy arrays or torch tensors on the CPU;
    nothing is copied or broadcast. With x the exact sum of two elements:

    - "sr", stochastic rounding: x where it is a float32, else one of its two float32 neighbours, the upper
      one with probability (x - lower) / (upper - lower), to within 2**-29.
    - "ud", up-down: x rounded to nearest, then the next float32 above or below, each with probability 1/2,
      also where x was exact. Zero, infinities and NaN stay.
    - "rn": x rounded to nearest, ties to even.

    In every mode a sum beyond the largest float32 overflows as in "rn", signed zeros are as IEEE 754 has
    them, and a NaN is the quiet NaN 0x7FC00000.

    The random word of element i is a function of (seed, sample, operation, first + i) alone, four integers
    of 64 bits. So add(a[k:], b[k:], first=k) gives the bits of add(a, b)[k:], on every target and thread.
    `i` counts in C order. The GIL is released meanwhile.

    `out` receives the result and is returned; it may be `a` or `b`. Without it the result is a new tensor
    where `a` is one, else a new array.

    Raises PrismArgumentError where an argument is not as described, and PrismUnavailableError where
    BOUNDSCOPE_PRISM_TARGET names no target of this CPU.

    Definitions: Gonzalez-Pepe et al., "Fuzzy PyTorch" (2026), PRISM's SR and UD.
    """
    a_array = as_array("a", a)
    shape = a_array.shape
    b_array = as_array("b", b)
    if b_array.shape != shape:
        check_shape("b", b_array, shape)
    number = _MODES.get(mode)
    if number is None:
        raise PrismArgumentError(f"mode: expected one of {', '.join(map(repr, _MODES))}, got {mode!r}.")
    if out is None:
        out_array = np.empty(shape, np.float32)
    else:
        out_array = as_array("out", out)
        check_shape("out", out_array, shape)
        check_writable("out", out_array)
    draw = (
        check_word("seed", seed),
        check_word("sample", sample),
        check_word("operation", operation),
        check_word("first", first, 2**64 - a_array.size),
    )
    try:
        done = native.add(a_array, b_array, out_array, number, *draw)
    except ValueError as error:
        raise PrismUnavailableError(str(error)) from None
    if not done:
        raise PrismArgumentError(
            "out: expected a or b itself or memory apart from both, got an overlap in part."
        )
    if out is not None:
        return out
    if is_tensor(a):
        import torch

        return torch.from_numpy(out_array)
    return out_array


def targets() -> tuple[str, ...]:
    """The instruction sets that are compiled in and that this CPU has, best first, in Highway's names."""
    return tuple(native.targets())


def target() -> str:
    """The one in use: the best, or the one that the environment variable BOUNDSCOPE_PRISM_TARGET names.

    The variable is read when a target is first needed. Raises PrismUnavailableError where it names none
    of targets().
    """
    try:
        return native.target()
    except ValueError as error:
        raise PrismUnavailableError(str(error)) from None
