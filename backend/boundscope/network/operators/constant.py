"""Operators that give constants: always folded at load, never left in a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import onnx
import torch
from torch import Tensor

from boundscope.network.operators.base import Array, OnnxNode, OnnxOperator, operator, require

_VALUE_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@operator("Constant")
@dataclass(frozen=True)
class Constant(OnnxOperator):
    value: Array = field(compare=False)
    rounds: ClassVar[bool] = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        if isinstance(tensor := node.attributes.get("value"), onnx.TensorProto):
            return cls(np.array(onnx.numpy_helper.to_array(tensor)))
        name = next(iter(node.attributes), "nothing")
        if name not in _VALUE_DTYPES:
            node.unsupported(f"a constant given as {name}")
        return cls(np.array(node.attributes[name], dtype=_VALUE_DTYPES[name]))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.from_numpy(self.value),)


@operator("ConstantOfShape")
@dataclass(frozen=True)
class ConstantOfShape(OnnxOperator):
    value: Array = field(compare=False)
    rounds: ClassVar[bool] = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        tensor = node.attributes.get("value")
        if isinstance(tensor, onnx.TensorProto):
            return cls(np.array(onnx.numpy_helper.to_array(tensor)).reshape(-1)[:1])
        return cls(np.zeros(1, dtype=np.float32))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.from_numpy(self.value).expand(require(inputs[0]).tolist()).clone(),)


@operator("Shape")
@dataclass(frozen=True)
class Shape(OnnxOperator):
    """Axes [start, end) of the input's shape (opset 15; all axes before). Shapes are static, so it is constant."""

    start: int = 0
    end: int | None = None
    rounds: ClassVar[bool] = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        end = node.attributes.get("end")
        return cls(node.integer("start", 0), None if end is None else int(end))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.tensor(list(require(inputs[0]).shape)[self.start : self.end], dtype=torch.int64),)


@operator("Size")
@dataclass(frozen=True)
class Size(OnnxOperator):
    rounds: ClassVar[bool] = False

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.tensor(require(inputs[0]).numel(), dtype=torch.int64),)


@operator("Range")
@dataclass(frozen=True)
class Range(OnnxOperator):
    """start, start + delta, … before limit; all three must be constant."""

    start: float
    limit: float
    delta: float
    dtype: torch.dtype
    parameters: ClassVar[tuple[int, ...]] = (0, 1, 2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        values = [node.constant(i) for i in range(3)]
        numbers = [value.reshape(-1)[0].item() for value in values if value is not None]
        if len(numbers) != 3 or values[0] is None or numbers[2] == 0:
            node.fail("its start, limit or delta is missing or zero")
        return cls(numbers[0], numbers[1], numbers[2], torch.from_numpy(values[0].copy()).dtype)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        count = max(0, -int((self.start - self.limit) // self.delta))
        return (self.start + torch.arange(count, dtype=self.dtype) * self.delta,)
