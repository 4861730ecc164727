"""Matrix products with a constant: Gemm, and MatMul with the constant on either side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import Enclosure, NodeView, Rule, bounds
from boundscope.bounds.operators.bilinear import MatMulProductRule
from boundscope.bounds.operators.relaxation import Parts, sum_to
from boundscope.bounds.support import Block, Elements, Support
from boundscope.network.operators.linear import Gemm, MatMul


def affine_interval(centre: Tensor, radius: Tensor) -> Interval:
    return Interval(centre - radius, centre + radius)


def midpoint(interval: Interval) -> tuple[Tensor, Tensor]:
    """Centre and radius of an interval; their own rounding is part of the engine's slack."""
    return (interval.lower + interval.upper) / 2, (interval.upper - interval.lower) / 2


INNER_BLOCK = 512
LONGEST_SUM = 768  # taken in one piece


def blocked_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix, long sums in blocks of INNER_BLOCK products: of float32, they may then be off by less."""
    inner = matrix.shape[0]
    if inner <= LONGEST_SUM:
        return rows @ matrix
    total = rows[:, :INNER_BLOCK] @ matrix[:INNER_BLOCK]
    for first in range(INNER_BLOCK, inner, INNER_BLOCK):
        part = rows[:, first : first + INNER_BLOCK] @ matrix[first : first + INNER_BLOCK]
        total = part.add_(total) if not part.requires_grad else part + total
    return total


def blocked_terms(inner: int) -> int:
    """How many roundings meet one product of such a sum."""
    return inner if inner <= LONGEST_SUM else INNER_BLOCK + -(-inner // INNER_BLOCK)


ABSOLUTE_BLOCK = 256  # output elements whose weights are made absolute at a time


def absolute_product(rows: Tensor, weight: Tensor) -> Tensor:
    """rows @ |weight|ᵀ without a second copy of a large weight [out, in]."""
    if len(weight) <= 2 * ABSOLUTE_BLOCK:
        return rows @ weight.abs().T
    return torch.cat([rows @ part.abs().T for part in torch.split(weight, ABSOLUTE_BLOCK)], dim=-1)


@bounds(Gemm)
class GemmRule(Rule[Gemm]):
    """y = α·x·W + β·b, with W transposed as the node says. Only the first operand is perturbed."""

    mixing = True

    def supports(self, view_perturbed: Sequence[bool], op: Gemm) -> str | None:
        if any(view_perturbed[1:]):
            return "only the first operand may depend on the network's input"
        return "a transposed first operand" if op.transpose_a else None

    def _weight(self, view: NodeView[Gemm]) -> Tensor:
        weight = view.constant(1)
        assert weight is not None
        return weight if view.op.transpose_b else weight.T  # [out, in]

    def _bias(self, view: NodeView[Gemm]) -> Tensor | None:
        bias = view.constant(2)
        return None if bias is None else bias * view.op.beta

    def interval(self, view: NodeView[Gemm]) -> tuple[Interval, ...]:
        return self.enclose(view).intervals

    def enclose(self, view: NodeView[Gemm]) -> Enclosure:
        weight, bias = self._weight(view), self._bias(view)
        x = view.interval(0)
        centre, radius = midpoint(x)
        moved = (centre @ weight.T) * view.op.alpha
        deviation = view.deviations[0] if view.deviations else radius
        assert deviation is not None
        three = absolute_product(torch.cat([radius, x.magnitude, deviation]), weight) * abs(view.op.alpha)
        spread, magnitude, far = three.tensor_split(3)
        if bias is not None:
            moved, magnitude = moved + bias, magnitude + bias.abs()
        return Enclosure((affine_interval(moved, spread),), (magnitude,), (far,))

    def terms(self, view: NodeView[Gemm]) -> int:
        return self._weight(view).shape[1] + 3

    def backward_terms(self, view: NodeView[Gemm]) -> int:
        return blocked_terms(self._weight(view).shape[0]) + 3

    def magnitude(self, view: NodeView[Gemm]) -> tuple[Tensor, ...]:
        weight, bias = self._weight(view), self._bias(view)
        total = absolute_product(view.interval(0).magnitude, weight) * abs(view.op.alpha)
        return (total if bias is None else total + bias.abs(),)

    def constant_error(self, view: NodeView[Gemm]) -> Tensor | None:
        return self.magnitude(view)[0]

    def backward(self, view: NodeView[Gemm], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        weight = self._weight(view)
        # One plain two-dimensional product: the kernel then depends on the chunk's size only.
        flat = coefficients.reshape(-1, coefficients.shape[-1])
        carried = blocked_product(flat, weight).reshape(*coefficients.shape[:-1], weight.shape[1])
        if view.op.alpha != 1.0:
            carried = carried * view.op.alpha
        return (carried, None, None)

    def _between(self, view: NodeView[Gemm], rows: Support | None, wanted: Elements | None) -> Tensor:
        """The weight from the output elements that rows live on to the input elements that are of use."""

        def cut() -> Tensor:
            weight = self._weight(view)
            weight = weight[rows.index] if isinstance(rows, Elements) else weight
            return weight if wanted is None else weight.index_select(1, wanted.index)

        return cut() if rows is None and wanted is None else kept(view, ("between", rows, wanted), cut)

    def backward_on(
        self, view: NodeView[Gemm], block: Block, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        shape = view.interval(0).lower.shape
        if shape[0] != 1:
            return None
        flat = block.rows.reshape(len(block.rows), -1)
        carried = blocked_product(flat, self._between(view, block.support, wanted[0]))
        if view.op.alpha != 1.0:
            carried = carried * view.op.alpha
        return (_block(carried, wanted[0], shape), None, None)

    def select(
        self, view: NodeView[Gemm], elements: Tensor, signs: Tensor, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        shape = view.interval(0).lower.shape
        if shape[0] != 1:
            return None
        carried = self._weight(view)[elements]
        if wanted[0] is not None:
            carried = carried.index_select(1, wanted[0].index)
        carried = carried * (signs * view.op.alpha)[:, None]
        return (_block(carried, wanted[0], shape), None, None)


def _block(rows: Tensor, wanted: Elements | None, shape: torch.Size) -> Block:
    return Block(rows, wanted) if wanted is not None else Block(rows.reshape(-1, *shape))


def kept(view: NodeView[Any], key: tuple[Any, ...], make: Callable[[], Tensor]) -> Tensor:
    """What `make` gives, made once a box where the node may keep it."""
    if view.kept is None:
        return make()
    if key not in view.kept:
        view.kept[key] = make()
    value: Tensor = view.kept[key]
    return value


_PRODUCT = MatMulProductRule()


@bounds(MatMul)
class MatMulRule(Rule[MatMul]):
    """x·W or W·x with W constant, batched as numpy's matmul."""

    mixing = True

    def use(self, perturbed: Sequence[bool]) -> Rule[Any]:
        return _PRODUCT if all(perturbed) else self

    def _product(self, view: NodeView[MatMul], x: Tensor, *, absolute: bool = False) -> Tensor:
        left, right = view.constant(0), view.constant(1)
        constant = left if left is not None else right
        assert constant is not None
        constant = constant.abs() if absolute else constant
        return torch.matmul(x, constant) if left is None else torch.matmul(constant, x)

    def interval(self, view: NodeView[MatMul]) -> tuple[Interval, ...]:
        centre, radius = midpoint(view.interval(view.perturbed[0]))
        return (affine_interval(self._product(view, centre), self._product(view, radius, absolute=True)),)

    def terms(self, view: NodeView[MatMul]) -> int:
        index = view.perturbed[0]
        shape = view.interval(index).lower.shape
        return shape[-1] if index == 0 else shape[-2] if len(shape) > 1 else shape[0]

    def backward_terms(self, view: NodeView[MatMul]) -> int:
        constant = view.constant(1 - view.perturbed[0])
        assert constant is not None
        return constant.numel()

    def magnitude(self, view: NodeView[MatMul]) -> tuple[Tensor, ...]:
        return (self._product(view, view.interval(view.perturbed[0]).magnitude, absolute=True),)

    def constant_error(self, view: NodeView[MatMul]) -> Tensor | None:
        return self.magnitude(view)[0]

    def backward(self, view: NodeView[MatMul], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        index = view.perturbed[0]
        shape = view.interval(index).lower.shape
        constant = view.constant(1 - index)
        assert constant is not None
        count = coefficients.shape[0]
        # Vectors become matrices of one row or column, so that one formula serves all ranks of operands.
        x_is_vector, constant_is_vector = len(shape) == 1, constant.dim() == 1
        if index == 0:
            matrix = constant.unsqueeze(1) if constant_is_vector else constant
            out = coefficients.unsqueeze(-1) if constant_is_vector else coefficients
            out = out.unsqueeze(-2) if x_is_vector else out
            if matrix.dim() == 2:
                flat = out.reshape(-1, out.shape[-1])
                carried = (flat @ matrix.T).reshape(*out.shape[:-1], matrix.shape[0])
            else:
                carried = out @ matrix.transpose(-1, -2)
        else:
            matrix = constant.unsqueeze(0) if constant_is_vector else constant
            out = coefficients.unsqueeze(-2) if constant_is_vector else coefficients
            out = out.unsqueeze(-1) if x_is_vector else out
            carried = matrix.transpose(-1, -2) @ out
        matrix_shape = (
            (1, shape[0]) if x_is_vector and index == 0 else (shape[0], 1) if x_is_vector else shape
        )
        carried = sum_to(carried, (count, *matrix_shape)).reshape(count, *shape)
        return (carried, None) if index == 0 else (None, carried)
