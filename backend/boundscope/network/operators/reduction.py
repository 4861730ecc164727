"""Reductions over axes. Axes are an attribute at first and an input since opset 13 (ReduceSum) or 18 (others)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


@dataclass(frozen=True)
class Reduction(OnnxOperator):
    """`axes` are resolved: non-negative, all of them where none were given, none where the operator is to do
    nothing."""

    axes: tuple[int, ...]
    keepdims: bool = True
    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        axes = node.integers("axes") if node.integers("axes") is not None else node.constant_integers(1)
        if not axes:
            axes = () if node.integer("noop_with_empty_axes", 0) else tuple(range(node.rank))
        return cls(node.axes(axes), bool(node.integer("keepdims", 1)))

    def reduced_size(self, x: Tensor) -> int:
        return math.prod(x.shape[axis] for axis in self.axes)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        return self.reduced_size(require(inputs[0]))

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return self.evaluate([require(inputs[0]).abs()])[0]


@operator("ReduceSum")
@dataclass(frozen=True)
class ReduceSum(Reduction):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.sum(dim=self.axes, keepdim=self.keepdims, dtype=x.dtype) if self.axes else x,)


@operator("ReduceMean")
@dataclass(frozen=True)
class ReduceMean(Reduction):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.mean(dim=self.axes, keepdim=self.keepdims) if self.axes else x,)


@operator("ReduceMax")
@dataclass(frozen=True)
class ReduceMax(Reduction):
    rounds: ClassVar[bool] = False

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.amax(dim=self.axes, keepdim=self.keepdims) if self.axes else x,)


@operator("ReduceMin")
@dataclass(frozen=True)
class ReduceMin(Reduction):
    rounds: ClassVar[bool] = False

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.amin(dim=self.axes, keepdim=self.keepdims) if self.axes else x,)


@operator("ReduceProd")
@dataclass(frozen=True)
class ReduceProd(Reduction):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        for axis in sorted(self.axes, reverse=True):
            x = x.prod(dim=axis, keepdim=self.keepdims, dtype=x.dtype)
        return (x,)


@operator("ArgMax")
@dataclass(frozen=True)
class ArgMax(OnnxOperator):
    """Index of the largest element along `axis`; the first of equal ones."""

    axis: int = 0
    keepdims: bool = True
    rounds: ClassVar[bool] = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        if node.integer("select_last_index", 0):
            node.unsupported("select_last_index")
        return cls(node.axis(node.integer("axis", 0)), bool(node.integer("keepdims", 1)))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.argmax(require(inputs[0]), dim=self.axis, keepdim=self.keepdims),)
