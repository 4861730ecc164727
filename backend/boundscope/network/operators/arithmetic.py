"""Element-wise arithmetic of several tensors, with NumPy broadcasting (opset 7 and later)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


def _pair(inputs: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    return require(inputs[0]), require(inputs[1])


@operator("Add")
@dataclass(frozen=True)
class Add(OnnxOperator):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        a, b = _pair(inputs)
        return (a + b,)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        a, b = _pair(inputs)
        return a.abs() + b.abs()


@operator("Sub")
@dataclass(frozen=True)
class Sub(OnnxOperator):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        a, b = _pair(inputs)
        return (a - b,)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        a, b = _pair(inputs)
        return a.abs() + b.abs()


@operator("Mul")
@dataclass(frozen=True)
class Mul(OnnxOperator):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        a, b = _pair(inputs)
        return (a * b,)


@operator("Div")
@dataclass(frozen=True)
class Div(OnnxOperator):
    """Integers are divided towards zero."""

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cast(Self, cls() if node.tensor(0).dtype.kind == "f" else IntegerDiv())

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        a, b = _pair(inputs)
        return (torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc"),)


class IntegerDiv(Div):
    rounds: ClassVar[bool] = False


@operator("Pow")
@dataclass(frozen=True)
class Pow(OnnxOperator):
    """The result has the base's dtype."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        a, b = _pair(inputs)
        return (torch.pow(a, b).to(a.dtype),)


@operator("Min")
@dataclass(frozen=True)
class Min(OnnxOperator):
    """Of any number of tensors."""

    rounds: ClassVar[bool] = False

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (functools.reduce(torch.minimum, [require(x) for x in inputs]),)


@operator("Max")
@dataclass(frozen=True)
class Max(OnnxOperator):
    """Of any number of tensors."""

    rounds: ClassVar[bool] = False

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (functools.reduce(torch.maximum, [require(x) for x in inputs]),)


@operator("Sum")
@dataclass(frozen=True)
class Sum(OnnxOperator):
    """Of any number of tensors."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (functools.reduce(torch.add, [require(x) for x in inputs]),)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return len(inputs)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return functools.reduce(torch.add, [require(x).abs() for x in inputs])
