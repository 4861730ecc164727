"""Normalisation with constant or computed statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


@operator("BatchNormalization")
@dataclass(frozen=True)
class BatchNormalization(OnnxOperator):
    """(x − mean) / √(var + epsilon) · scale + bias per channel (axis 1), in inference.

    Inputs: x [N, C, *S], scale, bias, mean, var, each [C].
    """

    epsilon: float = 1e-5

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        if node.integer("training_mode", 0):
            node.unsupported("training mode (export the network in evaluation mode)")
        if not node.integer("spatial", 1):
            node.unsupported("spatial=0")
        if node.used_output_count > 1:
            node.unsupported("an output of running statistics (export the network in evaluation mode)")
        return cls(node.number("epsilon", 1e-5))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, scale, bias, mean, var = (require(value) for value in inputs)
        shape = (-1, *(1,) * (x.ndim - 2))
        factor = scale / torch.sqrt(var + self.epsilon)
        return ((x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape),)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return 8

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        x, scale, bias, mean, var = (require(value) for value in inputs)
        return self.evaluate([x.abs(), scale.abs(), bias.abs(), -mean.abs(), var])[0]


@operator("LayerNormalization")
@dataclass(frozen=True)
class LayerNormalization(OnnxOperator):
    """(x − mean) / √(variance + epsilon) · scale + bias over the axes from `axis` on (opset 17)."""

    axis: int
    epsilon: float = 1e-5

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        if node.used_output_count > 1:
            node.unsupported("an output of mean or deviation")
        return cls(node.axis(node.integer("axis", -1)), node.number("epsilon", 1e-5))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, scale = require(inputs[0]), require(inputs[1])
        bias = inputs[2] if len(inputs) > 2 else None
        axes = tuple(range(self.axis, x.ndim))
        centered = x - x.mean(dim=axes, keepdim=True)
        variance = (centered * centered).mean(dim=axes, keepdim=True)
        y = centered / torch.sqrt(variance + self.epsilon) * scale
        return (y if bias is None else y + bias,)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return 8 + math.prod(require(inputs[0]).shape[self.axis :])

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        x, scale = require(inputs[0]), require(inputs[1])
        axes = tuple(range(self.axis, x.ndim))
        deviation = torch.sqrt(x.var(dim=axes, keepdim=True, correction=0) + self.epsilon)
        largest = x.abs().amax(dim=axes, keepdim=True)
        # The mean is rounded by ulps of the largest element, and the variance once more through its square.
        return output.abs() + (largest / deviation * (1 + largest / deviation)) * scale.abs()
