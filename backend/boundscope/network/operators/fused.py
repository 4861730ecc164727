"""Operators that no file has: what several nodes compute together, as one function that can be bounded as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxOperator, require


@dataclass(frozen=True)
class Silu(OnnxOperator):
    """x·sigmoid(x), which exporters write as a Sigmoid and a Mul."""

    onnx_type = "Mul"

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x * torch.sigmoid(x),)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return require(inputs[0]).abs()


@dataclass(frozen=True)
class LeakySum(OnnxOperator):
    """slope·x + (1 − slope)·r of x and r = max(x, 0): a rectifier with a left slope, as a sum of its input and a Relu.

    `slope`, in 0 … 1, is the third input where it is None.
    """

    onnx_type = "LeakyRelu"
    slope: float | None = None

    def left_slope(self, inputs: Sequence[Tensor | None]) -> Tensor:
        """The slope as a tensor that broadcasts to x."""
        if self.slope is None:
            return require(inputs[2])
        return torch.tensor(self.slope, dtype=torch.float64)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, rectified = require(inputs[0]), require(inputs[1])
        slope = self.left_slope(inputs).to(x.device, x.dtype)
        return (slope * x + (1.0 - slope) * rectified,)
