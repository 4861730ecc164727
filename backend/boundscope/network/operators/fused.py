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
