"""Operators whose output sums products of two inputs: Gemm, MatMul, Conv, ConvTranspose. Weights stay inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.network.graph import Shape
from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require
from boundscope.network.operators.window import Window, split_pads, torch_pads

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED_CONVOLUTIONS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _absolute(inputs: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if x is None else x.abs() for x in inputs]


@operator("MatMul")
@dataclass(frozen=True)
class MatMul(OnnxOperator):
    """As numpy.matmul."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.matmul(require(inputs[0]), require(inputs[1])),)

    def without_terms(self, shapes: Sequence[Shape | None]) -> tuple[Shape, Shape] | None:
        """Shapes of operands whose sums have no terms, and whose product has the shape that theirs has; None where the
        operands do not go together, or are vectors."""
        left, right = shapes[0], shapes[1]
        if not left or not right or min(len(left), len(right)) < 2 or left[-1] != right[-2]:
            return None
        return (*left[:-1], 0), (*right[:-2], 0, right[-1])

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return require(inputs[0]).shape[-1]

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return self.evaluate(_absolute(inputs))[0]


@operator("Gemm")
@dataclass(frozen=True)
class Gemm(OnnxOperator):
    """alpha·A'B' + beta·C for inputs A [M, K], B [K, N] (each transposed first where asked) and optional C."""

    alpha: float = 1.0
    beta: float = 1.0
    transpose_a: bool = False
    transpose_b: bool = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(
            node.number("alpha", 1.0),
            node.number("beta", 1.0),
            bool(node.integer("transA", 0)),
            bool(node.integer("transB", 0)),
        )

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        a, b = require(inputs[0]), require(inputs[1])
        product = torch.matmul(a.mT if self.transpose_a else a, b.mT if self.transpose_b else b)
        if self.alpha != 1.0:
            product = product * self.alpha
        c = inputs[2] if len(inputs) > 2 else None
        if c is None:
            return (product,)
        return (product + (c if self.beta == 1.0 else c * self.beta),)

    def without_terms(self, shapes: Sequence[Shape | None]) -> tuple[Shape, Shape] | None:
        """As of MatMul, but of the operands as they are stored."""

        def turned(shape: Shape | None, turn: bool) -> Shape | None:
            return (*shape[:-2], shape[-1], shape[-2]) if shape and len(shape) > 1 and turn else shape

        found = MatMul().without_terms(
            [turned(shapes[0], self.transpose_a), turned(shapes[1], self.transpose_b)]
        )
        if found is None:
            return None
        left, right = turned(found[0], self.transpose_a), turned(found[1], self.transpose_b)
        return (left, right) if left is not None and right is not None else None

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return require(inputs[0]).shape[0 if self.transpose_a else 1] + 1

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        positive = Gemm(abs(self.alpha), abs(self.beta), self.transpose_a, self.transpose_b)
        return positive.evaluate(_absolute(inputs))[0]


@operator("Conv")
@dataclass(frozen=True)
class Conv(OnnxOperator):
    """Convolution of x [N, C, *S] with W [M, C/group, *kernel_shape] and optional bias [M], one to three axes S.

    `pads` are all begins, then all ends, as in ONNX; auto_pad is already resolved into them.
    """

    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        window = Window.from_onnx(
            node, kernel_shape=node.integers("kernel_shape") or node.tensor(1).shape[2:]
        )
        if window.kernel_shape != node.tensor(1).shape[2:]:
            node.fail(f"kernel_shape {window.kernel_shape} does not match weights of {node.tensor(1).shape}")
        return cls(
            window.kernel_shape, window.strides, window.pads, window.dilations, node.integer("group", 1)
        )

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, weight = require(inputs[0]), require(inputs[1])
        bias = inputs[2] if len(inputs) > 2 else None
        begins, ends = split_pads(self.pads)
        if begins != ends:
            x = F.pad(x, torch_pads(begins, ends))
            begins = (0,) * len(begins)
        convolve = CONVOLUTIONS[len(self.kernel_shape)]
        return (convolve(x, weight, bias, self.strides, begins, self.dilations, self.group),)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return math.prod(require(inputs[1]).shape[1:]) + 1

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return self.evaluate(_absolute(inputs))[0]


@operator("ConvTranspose")
@dataclass(frozen=True)
class ConvTranspose(OnnxOperator):
    """Transposed convolution of x [N, C, *S] with W [C, M/group, *kernel_shape] and optional bias [M].

    `pads` (begins, then ends) are cut off the full result; `output_padding` is added at its end, by the bias only.
    """

    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    group: int = 1

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        kernel = node.integers("kernel_shape") or node.tensor(1).shape[2:]
        axes = len(kernel)
        strides = node.integers("strides") or (1,) * axes
        dilations = node.integers("dilations") or (1,) * axes
        extra = node.integers("output_padding") or (0,) * axes
        spatial = node.shape[2:]
        full = [
            s * (size - 1) + o + (k - 1) * d + 1
            for s, size, o, k, d in zip(strides, spatial, extra, kernel, dilations, strict=True)
        ]
        auto, wanted = node.text("auto_pad", "NOTSET"), node.integers("output_shape")
        if wanted is None and auto.startswith("SAME"):
            wanted = tuple(size * s for size, s in zip(spatial, strides, strict=True))
        if wanted is None:
            pads = (0,) * (2 * axes) if auto == "VALID" else node.integers("pads") or (0,) * (2 * axes)
        else:
            total = [max(0, f - w) for f, w in zip(full, wanted[-axes:], strict=True)]
            small = [t // 2 for t in total]
            large = [t - t // 2 for t in total]
            pads = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
        return cls(kernel, strides, pads, dilations, extra, node.integer("group", 1))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, weight = require(inputs[0]), require(inputs[1])
        bias = inputs[2] if len(inputs) > 2 else None
        convolve = TRANSPOSED_CONVOLUTIONS[len(self.kernel_shape)]
        y = convolve(x, weight, None, self.strides, 0, 0, self.group, self.dilations)
        begins, ends = split_pads(self.pads)
        y = F.pad(
            y,
            torch_pads(
                tuple(-b for b in begins),
                tuple(o - e for o, e in zip(self.output_padding, ends, strict=True)),
            ),
        )
        return (y if bias is None else y + bias.reshape(-1, *(1,) * len(begins)),)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        weight = require(inputs[1])
        return math.prod((weight.shape[0] // self.group, *weight.shape[2:])) + 1

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return self.evaluate(_absolute(inputs))[0]
