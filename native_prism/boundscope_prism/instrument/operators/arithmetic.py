"""Sums, products and quotients, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import Kernels, Operand
from boundscope_prism.instrument.operators.table import Family, rule

ELEMENTWISE, FLOATING = Family.ELEMENTWISE, Family.FLOATING


@rule("add", family=ELEMENTWISE)
def add(k: Kernels, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    """One fma where other has a factor, as torch's kernel."""
    if alpha == 1:
        return k.add(self, other)
    return k.fma(other, alpha, self)


@rule("sub", "subtract", family=ELEMENTWISE)
def subtract(k: Kernels, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    if alpha == 1:
        return k.subtract(self, other)
    return k.fma(other, -alpha, self)


@rule("rsub", family=ELEMENTWISE)
def reverse_subtract(k: Kernels, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    return subtract(k, other, self, alpha)


@rule("mul", family=ELEMENTWISE)
def multiply(k: Kernels, self: Operand, other: Operand) -> Tensor:
    return k.multiply(self, other)


@rule("div", "true_divide", family=FLOATING)
def divide(k: Kernels, self: Operand, other: Operand) -> Tensor:
    return k.divide(self, other)


@rule("reciprocal", family=FLOATING)
def reciprocal(k: Kernels, self: Tensor) -> Tensor:
    return k.divide(1.0, self)


@rule("sqrt", family=FLOATING)
def square_root(k: Kernels, self: Tensor) -> Tensor:
    return k.sqrt(self)


@rule("rsqrt", family=FLOATING)
def reciprocal_square_root(k: Kernels, self: Tensor) -> Tensor:
    return k.divide(1.0, k.sqrt(self))


@rule("square", family=ELEMENTWISE)
def square(k: Kernels, self: Tensor) -> Tensor:
    return k.multiply(self, self)


@rule("addcmul", family=ELEMENTWISE)
def add_product(k: Kernels, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    first = tensor1 if value == 1 else k.multiply(tensor1, value)
    return k.fma(first, tensor2, self)


@rule("addcdiv", family=FLOATING)
def add_quotient(k: Kernels, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    quotient = k.divide(tensor1, tensor2)
    return k.add(self, quotient) if value == 1 else k.fma(quotient, value, self)


@rule("lerp", family=ELEMENTWISE)
def interpolate(k: Kernels, self: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """From the nearer end, as torch does."""
    difference = k.subtract(end, self)
    if not isinstance(weight, Tensor):
        if abs(weight) < 0.5:
            return k.fma(difference, weight, self)
        return k.fma(difference, weight - 1, end)
    near = k.fma(difference, weight, self)
    far = k.fma(difference, k.subtract(weight, 1.0), end)
    return torch.where(weight.abs() < 0.5, near, far)


@rule("div.Tensor_mode", "div.Scalar_mode", family=ELEMENTWISE)
def divide_and_round(k: Kernels, self: Operand, other: Operand, rounding_mode: str | None = None) -> Tensor:
    """A whole number, for which torch takes care itself; only the plain quotient is rounded by the mode."""
    if rounding_mode is None:
        return k.divide(self, other)
    return torch.div(self, other, rounding_mode=rounding_mode)


@rule("remainder", family=ELEMENTWISE)
def remainder(k: Kernels, self: Operand, other: Operand) -> Tensor:
    """fmod, which is exact, and one addition where the signs differ."""
    if not isinstance(self, Tensor):
        self = torch.full_like(other, self)  # type: ignore[arg-type]
    rest = torch.fmod(self, other)
    negative = other < 0
    return torch.where((rest != 0) & ((rest < 0) != negative), k.add(rest, other), rest)


@rule("floor_divide", family=ELEMENTWISE)
def floor_divide(k: Kernels, self: Operand, other: Operand) -> Tensor:
    return torch.floor_divide(self, other)


@rule("hypot", family=ELEMENTWISE)
def hypotenuse(k: Kernels, self: Tensor, other: Tensor) -> Tensor:
    return evaluated(k, torch.hypot, self, other)


_POWERS: dict[float, Callable[[Kernels, Tensor], Tensor]] = {
    0.5: lambda k, x: k.sqrt(x),
    2.0: lambda k, x: k.multiply(x, x),
    3.0: lambda k, x: k.multiply(k.multiply(x, x), x),
    -0.5: lambda k, x: k.divide(1.0, k.sqrt(x)),
    -1.0: lambda k, x: k.divide(1.0, x),
    -2.0: lambda k, x: k.divide(1.0, k.multiply(x, x)),
}


@rule("pow", family=ELEMENTWISE)
def power(k: Kernels, self: Operand, exponent: Operand) -> Tensor:
    """Products, roots and reciprocals for the exponents that torch treats so, else one evaluation."""
    if isinstance(self, Tensor) and not isinstance(exponent, Tensor):
        if exponent == 0:
            return torch.ones_like(self)
        if exponent == 1:
            return self.clone()
        simple = _POWERS.get(float(exponent))
        if simple is not None:
            return simple(k, self)
    return evaluated(k, torch.pow, self, exponent)


def evaluated(k: Kernels, function: Callable[..., Tensor], *operands: Operand) -> Tensor:
    """A function that is no single operation: evaluated in float64 and rounded once; in float64 as at an output."""
    kind = next(operand for operand in operands if isinstance(operand, Tensor))
    if kind.dtype == torch.float64:
        result = function(*operands)
        return k.at_output(result)
    # A Python number is one of the tensor's type.
    wide = [
        operand.double() if isinstance(operand, Tensor) else _single(operand, kind.dtype)
        for operand in operands
    ]
    return k.evaluated(function(*wide))


def _single(value: float, dtype: torch.dtype) -> float:
    rounded = torch.tensor(value, dtype=torch.float64).to(dtype).item()
    return float(rounded) if not math.isnan(rounded) else math.nan
