"""Comparisons, boolean operators and Where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


class Logic(OnnxOperator):
    rounds: ClassVar[bool] = False


@operator("Equal")
@dataclass(frozen=True)
class Equal(Logic):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.eq(require(inputs[0]), require(inputs[1])),)


@operator("Less")
@dataclass(frozen=True)
class Less(Logic):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.lt(require(inputs[0]), require(inputs[1])),)


@operator("LessOrEqual")
@dataclass(frozen=True)
class LessOrEqual(Logic):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.le(require(inputs[0]), require(inputs[1])),)


@operator("Greater")
@dataclass(frozen=True)
class Greater(Logic):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.gt(require(inputs[0]), require(inputs[1])),)


@operator("GreaterOrEqual")
@dataclass(frozen=True)
class GreaterOrEqual(Logic):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.ge(require(inputs[0]), require(inputs[1])),)


@operator("And")
@dataclass(frozen=True)
class And(Logic):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.logical_and(require(inputs[0]), require(inputs[1])),)


@operator("Or")
@dataclass(frozen=True)
class Or(Logic):
    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.logical_or(require(inputs[0]), require(inputs[1])),)


@operator("Not")
@dataclass(frozen=True)
class Not(Logic):
    """Numbers in place of truth values, such as bounds of them, are taken from one."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (1 - x if x.is_floating_point() else torch.logical_not(x),)


@operator("Where")
@dataclass(frozen=True)
class Where(Logic):
    """The second input where the first is true, else the third; all three broadcast."""

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.where(require(inputs[0]), require(inputs[1]), require(inputs[2])),)


@operator("OneHot")
@dataclass(frozen=True)
class OneHot(Logic):
    """Indices (first input) as vectors of `depth` along a new `axis`: `on` at the index, `off` elsewhere.

    Indices outside [−depth, depth) give no `on` at all. The depth and both values are folded inputs.
    """

    depth: int
    axis: int
    off: float
    on: float
    dtype: torch.dtype
    parameters: ClassVar[tuple[int, ...]] = (1, 2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        depth, values = node.constant_integers(1), node.constant(2)
        if not depth or values is None or values.size != 2:
            node.fail("its depth or its two values are missing")
        axis = node.axis(node.integer("axis", -1), node.rank + 1)
        dtype = torch.from_numpy(values.copy()).dtype
        return cls(depth[0], axis, float(values.reshape(-1)[0]), float(values.reshape(-1)[1]), dtype)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        index = require(inputs[0]).to(torch.int64)
        index = torch.where(index < 0, index + self.depth, index).unsqueeze(self.axis)
        shape = [1] * index.ndim
        shape[self.axis] = self.depth
        hot = index == torch.arange(self.depth, device=index.device).reshape(shape)
        on = torch.tensor(self.on, dtype=self.dtype, device=index.device)
        off = torch.tensor(self.off, dtype=self.dtype, device=index.device)
        return (torch.where(hot, on, off),)
