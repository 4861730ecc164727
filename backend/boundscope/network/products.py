"""Products with matrices too large to be copied, converted or even resident: a band of their rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boundscope.network.arrays import Array, as_tensor, bands
from boundscope.network.graph import Network, Node
from boundscope.network.operators.linear import Gemm, MatMul

WIDE_BYTES = 8 << 20  # of a matrix, from which on it is wide
PRODUCT_BAND_BYTES = 4 << 20


@torch.no_grad()
def product(x: Tensor, matrix: Array, *, turned: bool, absolute: bool = False) -> Tensor:
    """x @ matrix, or where `turned` x @ matrixᵀ, for x [..., k] and a stored matrix [m, n], computed in x's dtype;
    `absolute` takes |matrix|."""
    found: Tensor | None = None
    buffer: Tensor | None = None  # one for all bands: freed one by one, malloc would keep most of them
    for rows, band in bands(matrix, PRODUCT_BAND_BYTES):
        if absolute or not band.flags.aligned or as_tensor(band[:0]).dtype != x.dtype:
            buffer = x.new_empty(band.shape) if buffer is None else buffer[: len(band)]
            np.copyto(buffer.detach().numpy(), band)
            part = buffer.abs_() if absolute else buffer
        else:
            part = as_tensor(band)
        if turned:
            found = x.new_empty(*x.shape[:-1], len(matrix)) if found is None else found
            found[..., rows] = x @ part.T
        else:
            term = x[..., rows] @ part
            found = term if found is None else found.add_(term)
    assert found is not None
    return found


class _Product(torch.autograd.Function):
    """Differentiable in x; keeps nothing of the matrix, but reads it again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Array, turned: bool) -> Tensor:
        ctx.matrix, ctx.turned = matrix, turned
        return product(x, matrix, turned=turned)

    @staticmethod
    def backward(ctx: Any, carried: Tensor) -> tuple[Tensor, None, None]:
        return product(carried, ctx.matrix, turned=not ctx.turned), None, None


@dataclass(frozen=True)
class WideProduct:
    """A Gemm or MatMul whose second operand is a wide constant: y = α·x·W + β·c."""

    matrix: Array
    turned: bool = False
    alpha: float = 1.0
    beta: float = 1.0

    @classmethod
    def of(cls, network: Network, node: Node) -> WideProduct | None:
        """The node as one; None where it is none, or where x is a vector or anything but x moves."""
        x, *constant = node.inputs
        if not isinstance(node.op, Gemm | MatMul) or x in network.constants:
            return None
        if any(name and name not in network.constants for name in constant):
            return None
        matrix = network.constants[constant[0]]
        if matrix.ndim != 2 or matrix.nbytes < WIDE_BYTES or matrix.dtype.kind != "f":
            return None
        if len(network.tensors[x].shape) < 2:
            return None
        if isinstance(node.op, MatMul):
            return cls(matrix)
        if node.op.transpose_a:
            return None
        return cls(matrix, node.op.transpose_b, node.op.alpha, node.op.beta)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> Tensor:
        """The operator's output, differentiable; of its inputs the matrix may be left out, and x may have more axes in
        front."""
        x, c = _operands(inputs)
        found: Tensor = _Product.apply(x, self.matrix, self.turned)  # type: ignore[no-untyped-call]
        return self._finished(found, c, self.alpha, self.beta)

    def term_magnitude(self, inputs: Sequence[Tensor | None]) -> Tensor:
        """As the operator's own."""
        x, c = _operands(inputs)
        total = product(x.abs(), self.matrix, turned=self.turned, absolute=True)
        return self._finished(total, None if c is None else c.abs(), abs(self.alpha), abs(self.beta))

    def _finished(self, found: Tensor, c: Tensor | None, alpha: float, beta: float) -> Tensor:
        found = found if alpha == 1.0 else found * alpha
        if c is None:
            return found
        return found + (c if beta == 1.0 else c * beta)


def _operands(inputs: Sequence[Tensor | None]) -> tuple[Tensor, Tensor | None]:
    x = inputs[0]
    assert x is not None
    return x, inputs[2] if len(inputs) > 2 else None


def read_whole(network: Network) -> set[str]:
    """Names of the tensors that some node reads other than as the matrix of a wide product."""
    return {
        name
        for node in network.nodes
        for index, name in enumerate(node.inputs)
        if index != 1 or WideProduct.of(network, node) is None
    }
