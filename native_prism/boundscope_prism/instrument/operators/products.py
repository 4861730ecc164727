"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import Kernels
from boundscope_prism.instrument.operators.table import Family, rule


@rule("mm")
def multiply_matrices(k: Kernels, self: Tensor, mat2: Tensor) -> Tensor:
    return k.matmul(self.unsqueeze(0), mat2.unsqueeze(0))[0]


@rule("addmm")
def add_product(
    k: Kernels, self: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor:
    """The sum starts from self, or beta self; where beta is 0, self does not count at all."""
    a, b = mat1.unsqueeze(0), mat2.unsqueeze(0)
    if beta == 1 and alpha == 1 and self.shape == (mat2.shape[1],):
        return k.matmul(a, b, bias=self)[0]
    return _combined(k, self, a, b, beta, alpha)[0]


def _combined(k: Kernels, start: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    """alpha a @ b + beta start for stacks: one chain of additions, or an fma at its end where the product is scaled."""
    if beta == 0:
        return k.matmul(a, b, alpha=alpha)
    if alpha == 1:
        return k.matmul(a, b, c=start, beta=beta)
    product = k.matmul(a, b)
    scaled = start if beta == 1 else k.multiply(start, beta)
    return k.fma(product, alpha, scaled.expand(product.shape))


@rule("bmm")
def multiply_stacks(k: Kernels, self: Tensor, mat2: Tensor) -> Tensor:
    return k.matmul(self, mat2)


@rule("baddbmm")
def add_stack_product(
    k: Kernels, self: Tensor, batch1: Tensor, batch2: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor:
    return _combined(k, self, batch1, batch2, beta, alpha)


@rule("addbmm")
def add_summed_product(
    k: Kernels, self: Tensor, batch1: Tensor, batch2: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor:
    """One chain of additions over the stack and the depth."""
    stack, rows, depth = batch1.shape
    a = batch1.transpose(0, 1).reshape(1, rows, stack * depth)
    b = batch2.reshape(1, stack * depth, batch2.shape[2])
    return _combined(k, self.expand(rows, b.shape[2]).unsqueeze(0), a, b, beta, alpha)[0]


@rule("mv")
def multiply_vector(k: Kernels, self: Tensor, vec: Tensor) -> Tensor:
    return k.matmul(self.unsqueeze(0), vec[None, :, None])[0, :, 0]


@rule("addmv")
def add_vector_product(
    k: Kernels, self: Tensor, mat: Tensor, vec: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor:
    start = self.expand(mat.shape[0])[None, :, None]
    return _combined(k, start, mat.unsqueeze(0), vec[None, :, None], beta, alpha)[0, :, 0]


@rule("dot", "vdot")
def dot(k: Kernels, self: Tensor, tensor: Tensor) -> Tensor:
    if self.numel() == 0:
        return torch.zeros((), dtype=self.dtype)
    return k.dot_rows(self.unsqueeze(0), tensor.unsqueeze(0))[0]


@rule("_trilinear", family=Family.LOWERED)
def trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """nn.Bilinear's product of three tensors, with axes put in where each has none, summed over some of them."""
    first, second, third = (
        _expanded(tensor, axes) for tensor, axes in ((i1, expand1), (i2, expand2), (i3, expand3))
    )
    product = torch.mul(torch.mul(first, second), third)
    return product.sum(list(sumdim)) if sumdim else product


def _expanded(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in axes:
        tensor = tensor.unsqueeze(axis)
    return tensor
