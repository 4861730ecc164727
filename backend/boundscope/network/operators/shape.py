"""Operators that change a tensor's shape or dtype and keep its elements."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import onnx
import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


class Reshaping(OnnxOperator):
    """Every output element is an input element."""

    rounds: ClassVar[bool] = False


@operator("Identity")
@dataclass(frozen=True)
class Identity(Reshaping):
    """Kept in a graph only where an input or a constant is itself an output."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (require(inputs[0]),)


@operator("Dropout")
@dataclass(frozen=True)
class Dropout(Identity):
    """In inference: nothing. Ratio and training mode are inputs since opset 12."""

    parameters: ClassVar[tuple[int, ...]] = (1, 2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        training = node.constant(2)
        if training is not None and bool(training.reshape(-1)[0]):
            node.unsupported("training mode (export the network in evaluation mode)")
        if node.used_output_count > 1:
            node.unsupported("the second output (mask)")
        return cls()


@operator("Flatten")
@dataclass(frozen=True)
class Flatten(Reshaping):
    """To two axes: those before `axis` together, and the rest."""

    axis: int = 1

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        axis = node.integer("axis", 1)
        return cls(axis if axis == node.rank else node.axis(axis))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.reshape(math.prod(x.shape[: self.axis]), math.prod(x.shape[self.axis :])),)


@operator("Reshape")
@dataclass(frozen=True)
class Reshape(Reshaping):
    """To `shape`, where 0 and −1 are already resolved."""

    shape: tuple[int, ...]
    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        wanted = node.constant_integers(1)
        if wanted is None:
            node.fail("its shape is missing")
        if not node.integer("allowzero", 0):
            if any(size == 0 and i >= node.rank for i, size in enumerate(wanted)):
                node.fail(
                    f"shape {list(wanted)} copies an axis that an input of {list(node.shape)} does not have"
                )
            wanted = tuple(node.shape[i] if size == 0 else size for i, size in enumerate(wanted))
        total, known = math.prod(node.shape), math.prod(size for size in wanted if size != -1)
        if -1 in wanted and known and total % known == 0:
            wanted = tuple(total // known if size == -1 else size for size in wanted)
        if any(size < 0 for size in wanted) or math.prod(wanted) != total:
            node.fail(
                f"cannot make shape {list(wanted)} of an input of shape {list(node.shape)} (symbolic axes are 1)"
            )
        return cls(wanted)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (require(inputs[0]).reshape(self.shape),)


@operator("Squeeze")
@dataclass(frozen=True)
class Squeeze(Reshaping):
    """Remove `axes` of one element. Axes are an attribute before opset 13, an input since."""

    axes: tuple[int, ...]
    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        axes = node.integers("axes") if node.opset < 13 else node.constant_integers(1)
        if axes is None:
            return cls(tuple(i for i, size in enumerate(node.shape) if size == 1))
        axes = node.axes(axes)
        if any(node.shape[axis] != 1 for axis in axes):
            node.fail(f"axes {list(axes)} of an input of shape {list(node.shape)} are not all of size 1")
        return cls(axes)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x.reshape([size for i, size in enumerate(x.shape) if i not in self.axes]),)


@operator("Unsqueeze")
@dataclass(frozen=True)
class Unsqueeze(Reshaping):
    """Insert `axes` of one element, counted in the output. An attribute before opset 13, an input since."""

    axes: tuple[int, ...]
    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        axes = node.integers("axes") if node.opset < 13 else node.constant_integers(1)
        if axes is None:
            node.fail("its axes are missing")
        return cls(tuple(sorted(node.axes(axes, node.rank + len(axes)))))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        for axis in self.axes:
            x = x.unsqueeze(axis)
        return (x,)


@operator("Transpose")
@dataclass(frozen=True)
class Transpose(Reshaping):
    """Output axis i is input axis permutation[i]."""

    permutation: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        given = node.integers("perm")
        permutation = tuple(reversed(range(node.rank))) if given is None else node.axes(given)
        if len(permutation) != node.rank:
            node.fail(f"perm {list(permutation)} does not have {node.rank} axes")
        return cls(permutation)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (require(inputs[0]).permute(self.permutation),)


@operator("Expand")
@dataclass(frozen=True)
class Expand(Reshaping):
    """Broadcast to `shape`, which is the shape of the result."""

    shape: tuple[int, ...]
    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        wanted = node.constant_integers(1)
        if wanted is None:
            node.fail("its shape is missing")
        try:
            return cls(np.broadcast_shapes(node.shape, wanted))
        except ValueError:
            node.fail(f"an input of shape {list(node.shape)} cannot be broadcast to {list(wanted)}")

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (require(inputs[0]).expand(self.shape),)


@operator("Cast")
@dataclass(frozen=True)
class Cast(OnnxOperator):
    """To another dtype. Numbers in place of integers or truth values, such as bounds of them, stay as they are."""

    source: torch.dtype
    to: torch.dtype

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        target = node.integer("to")
        to = TORCH_DTYPES.get(target)
        source = TORCH_DTYPES.get(onnx.helper.np_dtype_to_tensor_dtype(node.tensor(0).dtype))
        if to is None or source is None:
            node.unsupported(f"a cast from {node.tensor(0).dtype} to ONNX element type {target}")
        if to.is_floating_point or torch.promote_types(source, to) == to:
            return cls(source, to)
        return typing.cast(Self, CastToInteger(source, to))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (x if x.is_floating_point() and not self.source.is_floating_point else x.to(self.to),)

    @property
    def only_rounds(self) -> bool:
        return self.source.is_floating_point and self.to.is_floating_point


class CastToInteger(Cast):
    """To an integer or truth type that does not hold all values of the source's: towards zero; true if not zero."""


TORCH_DTYPES: dict[int, torch.dtype] = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.INT16: torch.int16,
    onnx.TensorProto.INT8: torch.int8,
    onnx.TensorProto.UINT8: torch.uint8,
    onnx.TensorProto.BOOL: torch.bool,
}
