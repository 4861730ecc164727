"""Activations, in the operations that they consist of; each elementary function is one of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import NUMPY, Kernels
from boundscope_prism.instrument.operators.arithmetic import evaluated
from boundscope_prism.instrument.operators.table import Family, rule

ELEMENTWISE, FLOATING = Family.ELEMENTWISE, Family.FLOATING


@rule("silu", family=FLOATING)
def silu(k: Kernels, self: Tensor) -> Tensor:
    return k.multiply(self, evaluated(k, torch.sigmoid, self))


@rule("gelu", family=FLOATING)
def gelu(k: Kernels, self: Tensor, approximate: str = "none") -> Tensor:
    half = k.multiply(self, 0.5)
    if approximate == "tanh":
        cube = k.multiply(k.multiply(self, self), self)
        inner = k.multiply(k.fma(cube, 0.044715, self), math.sqrt(2 / math.pi))
        return k.multiply(half, k.add(evaluated(k, torch.tanh, inner), 1.0))
    scaled = k.multiply(self, math.sqrt(0.5))
    return k.multiply(half, k.add(evaluated(k, torch.erf, scaled), 1.0))


@rule("softplus", family=FLOATING)
def softplus(k: Kernels, self: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = self if beta == 1 else k.multiply(self, beta)
    curve = _log1p_exp(k, scaled)
    if beta != 1:
        curve = k.divide(curve, beta)
    return torch.where(scaled > threshold, self, curve)


@rule("mish", family=FLOATING)
def mish(k: Kernels, self: Tensor) -> Tensor:
    return k.multiply(self, evaluated(k, torch.tanh, _log1p_exp(k, self)))


def _log1p_exp(k: Kernels, x: Tensor) -> Tensor:
    return evaluated(k, torch.log1p, evaluated(k, torch.exp, x))


@rule("elu", family=FLOATING)
def elu(k: Kernels, self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """scale max(x, 0) + scale alpha (exp(input_scale min(x, 0)) - 1); factors of 1 are no operations."""
    scaled = self if input_scale == 1 else k.multiply(self, input_scale)
    below = evaluated(k, torch.expm1, scaled)
    if alpha * scale != 1:
        below = k.multiply(below, alpha * scale)
    above = self if scale == 1 else k.multiply(self, scale)
    return torch.where(self > 0, above, below)


@rule("leaky_relu", family=ELEMENTWISE)
def leaky_relu(k: Kernels, self: Tensor, negative_slope: float = 0.01) -> Tensor:
    return torch.where(self > 0, self, k.multiply(self, negative_slope))


@rule("_prelu_kernel", family=ELEMENTWISE)
def prelu(k: Kernels, self: Tensor, weight: Tensor) -> Tensor:
    return torch.where(self > 0, self, k.multiply(self, weight))


@rule("hardsigmoid", family=FLOATING)
def hardsigmoid(k: Kernels, self: Tensor) -> Tensor:
    """The sum, clamped, over 6. A bound that the clamp gave is no result of an operation, and stays."""
    total = k.add(self, 3.0)
    within = (total > 0) & (total < 6)
    return torch.where(
        within, k.divide(total, 6.0), (total >= 6).to(self.dtype).masked_fill(total.isnan(), math.nan)
    )


@rule("hardswish", family=FLOATING)
def hardswish(k: Kernels, self: Tensor) -> Tensor:
    product = k.divide(k.multiply(self, k.add(self, 3.0).clamp(0, 6)), 6.0)
    return torch.where(self >= 3, self, torch.where(self <= -3, torch.zeros_like(self), product))


@rule("softshrink", family=ELEMENTWISE)
def softshrink(k: Kernels, self: Tensor, lambd: float = 0.5) -> Tensor:
    inside = self.abs() <= lambd
    return torch.where(inside, torch.zeros_like(self), k.subtract(self, lambd * torch.sign(self)))


@rule("log_sigmoid_forward", family=FLOATING)
def log_sigmoid(k: Kernels, self: Tensor) -> tuple[Tensor, Tensor]:
    """min(x, 0) - log1p(exp(-|x|)), and the buffer that torch's backward asks for."""
    small = evaluated(k, torch.exp, -self.abs())
    return k.subtract(self.clamp(max=0), evaluated(k, torch.log1p, small)), small


@rule("glu", family=Family.OTHER)
def glu(k: Kernels, self: Tensor, dim: int = -1) -> Tensor:
    value, gate = self.chunk(2, dim)
    return k.multiply(value, evaluated(k, torch.sigmoid, gate))


@rule("rrelu_with_noise", family=Family.RAW, mutates=True)
def randomized_relu(
    k: Kernels,
    self: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Torch draws the slopes into `noise`, 1 where self is above zero; one product where it is not."""
    plain = torch.ops.aten.rrelu_with_noise(self, noise, lower, upper, training, generator)
    x = self.detach() if self.dtype in NUMPY else self.detach().float()
    slope = noise.to(x.dtype) if training else (lower + upper) / 2
    return k.narrow(torch.where(x > 0, x, k.multiply(x, slope)), plain.dtype)
