"""Pooling over windows and over all spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require
from boundscope.network.operators.linear import CONVOLUTIONS
from boundscope.network.operators.window import Window, split_pads, torch_pads

MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


@operator("MaxPool")
@dataclass(frozen=True)
class MaxPool(OnnxOperator):
    """Largest element of each window of x [N, C, *S]. Padding is −∞; auto_pad and ceil_mode are part of `pads`."""

    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    rounds: ClassVar[bool] = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        if node.used_output_count > 1:
            node.unsupported("the second output (indices)")
        window = Window.from_onnx(node, node.integers("kernel_shape") or ())
        begins, ends = split_pads(window.pads)
        if node.integer("ceil_mode", 0):
            extra = window.ceil_pads(node.shape[2:])
            ends = tuple(e + x for e, x in zip(ends, extra, strict=True))
        return cls(window.kernel_shape, window.strides, (*begins, *ends), window.dilations)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        if any(self.pads):
            x = F.pad(x, torch_pads(*split_pads(self.pads)), value=-math.inf)
        pool = MAX_POOLS[len(self.kernel_shape)]
        return (pool(x, self.kernel_shape, self.strides, 0, self.dilations),)


@operator("AveragePool")
@dataclass(frozen=True)
class AveragePool(OnnxOperator):
    """Mean of each window of x [N, C, *S].

    Padding (`pads`: begins, then ends) counts as elements of value zero where `count_include_pad`, else not at
    all; `ceil_pads`, what ceil_mode adds at the ends, never counts.
    """

    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_pads: tuple[int, ...]
    count_include_pad: bool = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        window = Window.from_onnx(node, node.integers("kernel_shape") or ())
        extra = (0,) * len(window.kernel_shape)
        if node.integer("ceil_mode", 0):
            extra = window.ceil_pads(node.shape[2:])
        return cls(
            window.kernel_shape,
            window.strides,
            window.pads,
            window.dilations,
            extra,
            bool(node.integer("count_include_pad", 0)),
        )

    def divisors(self, like: Tensor) -> Tensor:
        """How many elements each window counts, [1, 1, *S_out], for an input of this spatial shape and dtype."""
        ones = torch.ones((1, 1, *like.shape[2:]), dtype=like.dtype, device=like.device)
        ones = F.pad(ones, torch_pads(*split_pads(self.pads)), value=1.0 if self.count_include_pad else 0.0)
        return self._sums(F.pad(ones, self._ceil()))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        padded = F.pad(F.pad(x, torch_pads(*split_pads(self.pads))), self._ceil())
        return (self._sums(padded) / self.divisors(x),)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return math.prod(self.kernel_shape)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return self.evaluate([require(inputs[0]).abs()])[0]

    def _ceil(self) -> list[int]:
        return torch_pads((0,) * len(self.ceil_pads), self.ceil_pads)

    def _sums(self, x: Tensor) -> Tensor:
        channels = x.shape[1]
        ones = torch.ones((channels, 1, *self.kernel_shape), dtype=x.dtype, device=x.device)
        convolve = CONVOLUTIONS[len(self.kernel_shape)]
        return convolve(x, ones, None, self.strides, 0, self.dilations, channels)


@operator("GlobalAveragePool")
@dataclass(frozen=True)
class GlobalAveragePool(OnnxOperator):
    """Mean over all axes after batch and channel, kept as axes of one element."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.mean(dim=tuple(range(2, x.ndim)), keepdim=True),)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return math.prod(require(inputs[0]).shape[2:])

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return self.evaluate([require(inputs[0]).abs()])[0]


@operator("GlobalMaxPool")
@dataclass(frozen=True)
class GlobalMaxPool(OnnxOperator):
    """Largest element over all axes after batch and channel, kept as axes of one element."""

    rounds: ClassVar[bool] = False

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.amax(dim=tuple(range(2, x.ndim)), keepdim=True),)
