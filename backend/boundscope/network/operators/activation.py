"""Element-wise functions of one tensor, and Softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


class Exact(OnnxOperator):
    """Functions that floating-point arithmetic computes without rounding."""

    rounds: ClassVar[bool] = False


class OfUnitScale(OnnxOperator):
    """Functions that runtimes compute by rational approximations whose error is absolute, near one ulp of 1."""

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return 8

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return torch.maximum(output.abs(), torch.ones((), dtype=output.dtype, device=output.device))


class OfLibrary(OnnxOperator):
    """Functions of the mathematical library, with a few ulp of relative error."""

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return 8


@operator("Relu")
@dataclass(frozen=True)
class Relu(Exact):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (require(inputs[0]).clamp(min=0),)


@operator("LeakyRelu")
@dataclass(frozen=True)
class LeakyRelu(OnnxOperator):
    """x where x ≥ 0, alpha·x elsewhere."""

    alpha: float = 0.01

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(node.number("alpha", 0.01))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (torch.where(x >= 0, x, x * self.alpha),)


@operator("PRelu")
@dataclass(frozen=True)
class PRelu(OnnxOperator):
    """x where x ≥ 0, slope·x elsewhere; the slope is the second input."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, slope = require(inputs[0]), require(inputs[1])
        return (torch.where(x >= 0, x, x * slope),)


@operator("Elu")
@dataclass(frozen=True)
class Elu(OfUnitScale):
    """x where x ≥ 0, alpha·(eˣ − 1) elsewhere."""

    alpha: float = 1.0

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(node.number("alpha", 1.0))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (F.elu(require(inputs[0]), alpha=self.alpha),)


@operator("Clip")
@dataclass(frozen=True)
class Clip(Exact):
    """Values kept within [lower, upper]; None is no limit. Limits are attributes before opset 11, inputs since."""

    lower: float | None = None
    upper: float | None = None
    parameters: ClassVar[tuple[int, ...]] = (1, 2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        limits: list[float | None] = []
        for index, name in ((1, "min"), (2, "max")):
            value = node.constant(index)
            given = node.attributes.get(name) if node.opset < 11 else value
            limit = None if given is None else float(given if value is None else value.reshape(-1)[0])
            if limit is not None and math.isnan(limit):
                node.fail(f"its {name} is not a number (NaN)")
            limits.append(None if limit is None or math.isinf(limit) else limit)
        return cls(*limits)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        if self.lower is not None:
            x = torch.maximum(x, torch.tensor(self.lower, dtype=x.dtype, device=x.device))
        if self.upper is not None:
            x = torch.minimum(x, torch.tensor(self.upper, dtype=x.dtype, device=x.device))
        return (x,)


@operator("Neg")
@dataclass(frozen=True)
class Neg(Exact):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (-require(inputs[0]),)


@operator("Abs")
@dataclass(frozen=True)
class Abs(Exact):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (require(inputs[0]).abs(),)


@operator("Sign")
@dataclass(frozen=True)
class Sign(Exact):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.sign(require(inputs[0])),)


@operator("Floor")
@dataclass(frozen=True)
class Floor(Exact):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.floor(require(inputs[0])),)


@operator("Ceil")
@dataclass(frozen=True)
class Ceil(Exact):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.ceil(require(inputs[0])),)


@operator("Sigmoid")
@dataclass(frozen=True)
class Sigmoid(OfUnitScale):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.sigmoid(require(inputs[0])),)


@operator("Tanh")
@dataclass(frozen=True)
class Tanh(OfUnitScale):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.tanh(require(inputs[0])),)


@operator("Erf")
@dataclass(frozen=True)
class Erf(OfUnitScale):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.erf(require(inputs[0])),)


@operator("Gelu")
@dataclass(frozen=True)
class Gelu(OfUnitScale):
    """Opset 20: x·Φ(x), or its tanh form."""

    approximate: str = "none"

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(node.text("approximate", "none"))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (F.gelu(require(inputs[0]), approximate=self.approximate),)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return require(inputs[0]).abs() + 1


@operator("Softplus")
@dataclass(frozen=True)
class Softplus(OfUnitScale):
    """ln(1 + eˣ), without a threshold above which it would be taken as x."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),)


@operator("HardSigmoid")
@dataclass(frozen=True)
class HardSigmoid(OfUnitScale):
    """alpha·x + beta kept within [0, 1]."""

    alpha: float = 0.2
    beta: float = 0.5

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(node.number("alpha", 0.2), node.number("beta", 0.5))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return ((require(inputs[0]) * self.alpha + self.beta).clamp(0, 1),)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return require(inputs[0]).abs() * abs(self.alpha) + abs(self.beta)


@operator("HardSwish")
@dataclass(frozen=True)
class HardSwish(OfUnitScale):
    """Opset 14: x·max(0, min(1, x/6 + 1/2))."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x * (x / 6.0 + 0.5).clamp(0, 1),)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return require(inputs[0]).abs()


@operator("Mish")
@dataclass(frozen=True)
class Mish(OfUnitScale):
    """Opset 18: x·tanh(ln(1 + eˣ))."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x * torch.tanh(x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))),)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return require(inputs[0]).abs()


@operator("Exp")
@dataclass(frozen=True)
class Exp(OfLibrary):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.exp(require(inputs[0])),)


@operator("Log")
@dataclass(frozen=True)
class Log(OfLibrary):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.log(require(inputs[0])),)


@operator("Sqrt")
@dataclass(frozen=True)
class Sqrt(OnnxOperator):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.sqrt(require(inputs[0])),)


@operator("Reciprocal")
@dataclass(frozen=True)
class Reciprocal(OnnxOperator):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.reciprocal(require(inputs[0])),)


@operator("Sin")
@dataclass(frozen=True)
class Sin(OfUnitScale):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.sin(require(inputs[0])),)


@operator("Cos")
@dataclass(frozen=True)
class Cos(OfUnitScale):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.cos(require(inputs[0])),)


def _softmax_axes(node: OnnxNode) -> tuple[int, ...]:
    """One axis since opset 13; before, all axes from `axis` (default 1) on, taken together."""
    if node.opset >= 13:
        return (node.axis(node.integer("axis", -1)),)
    first = node.integer("axis", 1)
    return tuple(range(node.rank))[node.axis(first) if node.rank else 0 :]


@operator("Softmax")
@dataclass(frozen=True)
class Softmax(OfUnitScale):
    """eˣ divided by its sum over `axes` together (consecutive axes)."""

    axes: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(_softmax_axes(node))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        if len(self.axes) == 1:
            return (torch.softmax(x, dim=self.axes[0]),)
        return (torch.softmax(x.flatten(self.axes[0]), dim=-1).reshape(x.shape),)


@operator("LogSoftmax")
@dataclass(frozen=True)
class LogSoftmax(OfUnitScale):
    """Logarithm of Softmax over `axes` together."""

    axes: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(_softmax_axes(node))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (torch.log_softmax(x.flatten(self.axes[0], self.axes[-1]), dim=self.axes[0]).reshape(x.shape),)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return output.abs() + require(inputs[0]).abs().amax() + 1
