"""Functions that no single operation gives: evaluated in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from boundscope_prism._arrays import FLOAT32, Array, as_array, as_kind_of
from boundscope_prism._rounding import Rounding
from boundscope_prism.elementwise import NUMBERS, cast, divide, round_
from boundscope_prism.errors import PrismArgumentError

if TYPE_CHECKING:
    from torch import Tensor

A = TypeVar("A", bound=Array)


def apply(
    name: str,
    x: A,
    rounding: Rounding,
    y: Array | float | None = None,
    *,
    operation: int = 0,
    first: int = 0,
    out: A | None = None,
) -> A:
    """A function of each element of `x`, rounded once by `rounding`.

    `name` is one of FUNCTIONS: exp, log, sin, tanh, erf, gelu and so on, as torch names them; "gelu_tanh" is gelu by
    tanh. "pow" is x to the power `y`, a number or an array that broadcasts with `x`; no other function has a `y`.

    For float32 arrays the function is evaluated in float64, to a few units of its last bit, and that is rounded once,
    as cast() does. For float64 arrays it is evaluated in float64 too, which rounds to nearest, and then perturbed once,
    as round_() does: with the full precision only "ud" changes anything. "reciprocal" is divide(1, x), exactly.

    torch evaluates, with its own number of threads. The last bit of a float64 may differ between machines, which
    changes a float32 result about once in 2**28; all else is as in add(), and so are the arguments.
    """
    function = FUNCTIONS.get(name) if isinstance(name, str) else None
    if function is None:
        raise PrismArgumentError(f"name: expected one of {', '.join(map(repr, FUNCTIONS))}, got {name!r}.")
    if (y is None) == (name == "pow"):
        wanted = "a number or an array, the exponent of pow" if y is None else f"nothing for {name!r}"
        raise PrismArgumentError(f"y: expected {wanted}, got {type(y).__name__}.")
    if name == "reciprocal":
        return divide(1.0, x, rounding, operation=operation, first=first, out=out)
    array = as_array("x", x)
    value = _evaluated(name, function, array, y)
    rounded: Callable[..., Any] = cast if array.dtype == FLOAT32 else round_
    result = rounded(value, rounding, operation=operation, first=first, out=out)
    fresh: A = result if out is not None else as_kind_of(x, result)
    return fresh


def _evaluated(name: str, function: Callable[..., Tensor], x: Any, y: Array | float | None) -> Any:
    import torch

    # numpy may hand out memory that cannot be written, which torch warns of; nothing here writes to it.
    wide = torch.from_numpy(x if x.flags.writeable else x.copy()).double()
    if y is None:
        return function(wide).numpy()
    exponent: Tensor | float
    if isinstance(y, NUMBERS):
        exponent = float(y)
    else:
        other = as_array("y", y, x.dtype)
        exponent = torch.from_numpy(other if other.flags.writeable else other.copy()).double()
    try:
        return function(wide, exponent).numpy()
    except RuntimeError as error:
        raise PrismArgumentError(f"{name}: {error}.") from None


def _torch(name: str) -> Callable[..., Tensor]:
    """torch's function of that name, looked up when first needed: importing this package does not import torch."""

    def function(*operands: Any) -> Tensor:
        import torch

        result: Tensor = getattr(torch, name)(*operands)
        return result

    return function


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (-x / math.sqrt(2)).erfc()


def _gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())


def _softplus(x: Tensor) -> Tensor:
    return x.clamp(min=0) + (-x.abs()).exp().log1p()


def _log_sigmoid(x: Tensor) -> Tensor:
    return -_softplus(-x)


def _silu(x: Tensor) -> Tensor:
    return x / (1 + (-x).exp())


def _mish(x: Tensor) -> Tensor:
    return x * _softplus(x).tanh()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: _torch(name)
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
            *("sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
            *("sigmoid", "erf", "erfc", "rsqrt", "reciprocal", "pow"),
        )
    },
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "log_sigmoid": _log_sigmoid,
    "mish": _mish,
    "silu": _silu,
    "softplus": _softplus,
}
