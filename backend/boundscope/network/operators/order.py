"""Operators that no file has: which element is the largest, told from the differences of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxOperator, require


@dataclass(frozen=True)
class Differences(OnnxOperator):
    """x_i − x_j for every pair i < j of the `count` elements along `axis`, in the order of `pairs`."""

    axis: int
    count: int
    onnx_type = "Sub"

    @cached_property
    def pairs(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """All i, and all j."""
        found = [(i, j) for i in range(self.count) for j in range(i + 1, self.count)]
        return tuple(i for i, _ in found), tuple(j for _, j in found)

    def picked(self, x: Tensor, which: int) -> Tensor:
        """The first (0) or the second (1) element of every pair, of a tensor with the elements at `axis`."""
        return x.index_select(self.axis, torch.tensor(self.pairs[which], device=x.device))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        return (self.picked(x, 0) - self.picked(x, 1),)


@dataclass(frozen=True)
class ArgMaxOfDifferences(OnnxOperator):
    """The first index that no other beats. A difference decides where it is further than `gap` from zero.

    With a gap above zero it stands for the ArgMax of a function that is increasing over the reals, but whose rounded
    values may order what is nearer than that otherwise.
    """

    differences: Differences
    keepdims: bool
    gap: float = 0.0
    rounds: ClassVar[bool] = False
    onnx_type = "ArgMax"

    def beaten(self, first_is_less: Tensor, second_is_no_more: Tensor) -> Tensor:
        """Which of the elements are beaten by another, given of each pair whether its first element is surely less than
        its second, and whether its second is surely no more than its first: booleans with pairs, then elements, at the
        axis."""
        axis = self.differences.axis
        shape = list(first_is_less.shape)
        shape[axis] = self.differences.count
        lost = torch.zeros(shape, dtype=torch.int64, device=first_is_less.device)
        for which, loses in ((0, first_is_less), (1, second_is_no_more)):
            index = torch.tensor(self.differences.pairs[which], device=lost.device)
            lost.index_add_(axis, index, loses.to(torch.int64))
        return lost > 0

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        difference = require(inputs[0])
        stands = ~self.beaten(difference < 0, difference >= 0)
        return (stands.to(torch.int64).argmax(self.differences.axis, keepdim=self.keepdims),)
