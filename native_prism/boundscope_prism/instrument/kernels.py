"""The kernels on tensors: every call draws random words of its own, and its operations are counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope_prism._native import native
from boundscope_prism._rounding import Rounding
from boundscope_prism.elementwise import _layout
from boundscope_prism.errors import PrismArgumentError
from boundscope_prism.instrument.coverage import Cell

Operand: TypeAlias = "Tensor | float"
Numbers: TypeAlias = tuple[int, int, int, int, int, int]

NUMPY: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
BITS = {
    torch.float32: 24,
    torch.float64: 53,
    torch.float16: 11,
    torch.bfloat16: 8,
    torch.float8_e4m3fn: 4,
    torch.float8_e5m2: 3,
}
# Numbers of native.elementwise.
ADD, SUBTRACT, MULTIPLY, DIVIDE, SQRT, FMA, ROUND = range(7)


class Kernels:
    """One run's kernels on dense CPU tensors of float32 or float64, all operands of a call of one type.

    Results are new contiguous tensors. Operations are numbered in the order of the calls, whatever rounding they have,
    so that a layer that is not perturbed leaves the random words of the others as they are.
    """

    def __init__(self, rounding: Rounding) -> None:
        self._perturbed = rounding
        self._nearest = replace(rounding, mode="rn")
        self._bases: dict[tuple[bool, int], Numbers] = {}
        self.operation = 0
        self.perturbs = True
        # Where operations are counted; the dispatcher sets it for each operator.
        self.cell = Cell()

    @property
    def rounding(self) -> Rounding:
        return self._perturbed if self.perturbs else self._nearest

    def numbers(self, dtype: torch.dtype) -> Numbers:
        """As the native module takes them, for the next operation. Raises PrismArgumentError."""
        operation = self.operation
        self.operation = operation + 1
        key = (self.perturbs, BITS[dtype])
        base = self._bases.get(key)
        if base is None:
            base = self._bases[key] = self.rounding.numbers(0, key[1])
        return (*base[:4], operation, base[5])

    # Element-wise.

    def add(self, a: Operand, b: Operand) -> Tensor:
        return self._elementwise(ADD, (a, b))

    def subtract(self, a: Operand, b: Operand) -> Tensor:
        return self._elementwise(SUBTRACT, (a, b))

    def multiply(self, a: Operand, b: Operand) -> Tensor:
        return self._elementwise(MULTIPLY, (a, b))

    def divide(self, a: Operand, b: Operand) -> Tensor:
        return self._elementwise(DIVIDE, (a, b))

    def sqrt(self, a: Tensor) -> Tensor:
        return self._elementwise(SQRT, (a,))

    def fma(self, a: Operand, b: Operand, c: Operand) -> Tensor:
        """a b + c, rounded once."""
        return self._elementwise(FMA, (a, b, c), 2)

    def _elementwise(self, number: int, operands: tuple[Operand, ...], operations: int = 1) -> Tensor:
        kind = next(operand for operand in operands if isinstance(operand, Tensor))
        dtype = kind.dtype
        arrays = [
            _contiguous(operand) if isinstance(operand, Tensor) else _number(operand, dtype)
            for operand in operands
        ]
        shape = arrays[0].shape
        if any(array.shape != shape for array in arrays):
            shape = np.broadcast_shapes(*(array.shape for array in arrays))
        out = torch.empty(shape, dtype=dtype)
        to = out.numpy()
        count = to.size
        if count:
            layouts = [_layout(array, shape) for array in arrays]
            native.elementwise(number, layouts, to, self.numbers(dtype), 0)
        self.cell.inside += operations * count
        return out

    def at(self, number: int, operands: tuple[Tensor, ...], first: int, numbers: Numbers) -> Tensor:
        """Part of a longer element-wise operation whose `numbers` were drawn before, from element `first` on."""
        arrays = [_contiguous(operand) for operand in operands]
        out = torch.empty(arrays[0].shape, dtype=operands[0].dtype)
        to = out.numpy()
        if to.size:
            native.elementwise(number, [(array.reshape(-1), 1) for array in arrays], to, numbers, first)
        self.cell.inside += to.size
        return out

    def evaluated(self, exact: Tensor) -> Tensor:
        """A function's values, evaluated in float64, rounded once to float32."""
        out = self._cast(exact)
        self.cell.inside += out.numel()
        return out

    def narrow(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """A conversion to a narrower type, rounded once by the mode; any other conversion is torch's own."""
        if x.dtype not in BITS or dtype not in BITS or BITS[dtype] >= BITS[x.dtype]:
            return x.to(dtype)
        self.cell.inside += x.numel()
        if x.dtype == torch.float64 and dtype == torch.float32:
            return self._cast(x)
        wide = x if x.dtype in NUMPY else x.float()
        return self._round(wide, self.rounding, BITS[dtype]).to(dtype)

    def perturb(self, x: Tensor) -> Tensor:
        """The result of an operator that torch computed, perturbed once.

        What it rounded away is not there any more, so "sr" and "rr", which keep what is a float, move it as "ud" does,
        unless the precision is less than the type's.
        """
        wide = x if x.dtype in NUMPY else x.float()
        bits = BITS[x.dtype]
        rounding = self.rounding
        if rounding.mode in ("sr", "rr") and (rounding.precision is None or rounding.precision >= bits):
            rounding = replace(rounding, mode="ud")
        return self._round(wide, rounding, bits).to(x.dtype)

    def at_output(self, x: Tensor) -> Tensor:
        """`perturb`, counted as such."""
        self.cell.at_output += x.numel()
        return self.perturb(x)

    def _cast(self, x: Tensor) -> Tensor:
        array = _contiguous(x)
        out = torch.empty(array.shape, dtype=torch.float32)
        if array.size:
            native.cast(array, out.numpy(), self.numbers(torch.float32), 0)
        return out

    def _round(self, x: Tensor, rounding: Rounding, bits: int) -> Tensor:
        precision = bits if rounding.precision is None else min(bits, rounding.precision)
        array = _contiguous(x)
        out = torch.empty(array.shape, dtype=x.dtype)
        operation = self.operation
        self.operation = operation + 1
        if array.size:
            numbers = replace(rounding, precision=precision).numbers(operation, BITS[x.dtype])
            native.elementwise(ROUND, [(array.reshape(-1), 1)], out.numpy(), numbers, 0)
        return out

    # Products.

    def matmul(
        self,
        a: Tensor,
        b: Tensor,
        *,
        bias: Tensor | None = None,
        c: Tensor | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> Tensor:
        """alpha a @ b + bias, or + beta c, for stacks of as many matrices (three axes). See product.py."""
        left, right = memory(a), memory(b)
        shape = (left.shape[0], left.shape[1], right.shape[2])
        out = torch.empty(shape, dtype=a.dtype)
        if 0 in shape:
            return out
        added = None if bias is None else _contiguous(bias)
        start = None if c is None else np.broadcast_to(memory(c), shape)
        native.gemm(
            left, right, added, start, out.numpy(), float(alpha), float(beta), 0, self.numbers(a.dtype)
        )
        size = math.prod(shape)
        self.cell.inside += size * (2 * left.shape[2] + (alpha != 1) + (start is not None and beta != 1))
        return out

    def convolution(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        stride: Sequence[int],
        padding: Sequence[tuple[int, int]],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
    ) -> Tensor:
        """See convolution.py: (images, channels, *spatial) with one to three spatial axes; the output is not empty."""
        image, kernel = _contiguous(x), _contiguous(weight)
        sizes = []
        for axis, size in enumerate(image.shape[2:]):
            reach = dilation[axis] * (kernel.shape[2 + axis] - 1) + 1
            pads = sum(padding[axis])
            if transposed:
                sizes.append((size - 1) * stride[axis] - pads + reach + output_padding[axis])
            else:
                sizes.append((size + pads - reach) // stride[axis] + 1)
        channels = kernel.shape[1] * groups if transposed else kernel.shape[0]
        out = torch.empty((image.shape[0], channels, *sizes), dtype=x.dtype)
        axes = [
            _three(image.shape[2:], 1),
            _three(kernel.shape[2:], 1),
            _three(stride, 1),
            _three(dilation, 1),
            _three([pair[0] for pair in padding], 0),
            _three([pair[1] for pair in padding], 0),
            _three(output_padding, 0),
        ]
        start = None if bias is None else _contiguous(bias)
        native.convolution(
            image, kernel, start, out.numpy(), axes, groups, transposed, 0, self.numbers(x.dtype)
        )
        terms = 2 * math.prod(kernel.shape[1:])
        self.cell.inside += (image.size if transposed else out.numel()) * terms
        return out

    # Rows of matrices (rows, columns), with at least one column.

    def sum_rows(self, x: Tensor) -> Tensor:
        rows, columns = x.shape
        self.cell.inside += rows * (columns - 1)
        return self._reduce("sum", x)

    def dot_rows(self, a: Tensor, b: Tensor) -> Tensor:
        self.cell.inside += 2 * a.numel()
        return self._reduce("dot", a, b)

    def mean_rows(self, x: Tensor) -> Tensor:
        self.cell.inside += x.numel()
        return self._reduce("mean", x)

    def variance_rows(self, x: Tensor, correction: float) -> tuple[Tensor, Tensor]:
        """Variance and mean of each row."""
        mean = torch.empty(x.shape[0], dtype=x.dtype)
        self.cell.inside += 4 * x.numel() + x.shape[0]
        return self._reduce("variance", x, correction=correction, mean=mean), mean

    def _reduce(
        self,
        name: str,
        a: Tensor,
        b: Tensor | None = None,
        *,
        correction: float = 0.0,
        mean: Tensor | None = None,
    ) -> Tensor:
        out = torch.empty(a.shape[0], dtype=a.dtype)
        if out.numel():
            other = None if b is None else _contiguous(b)
            means = None if mean is None else mean.numpy()
            native.reduce(
                name,
                _contiguous(a),
                other,
                float(correction),
                False,
                out.numpy(),
                means,
                0,
                self.numbers(a.dtype),
            )
        return out

    def softmax_rows(self, x: Tensor, *, logarithm: bool) -> Tensor:
        out = torch.empty(x.shape, dtype=x.dtype)
        if out.numel():
            native.softmax(_contiguous(x), logarithm, out.numpy(), 0, self.numbers(x.dtype))
        self.cell.inside += 4 * x.numel()
        return out

    def normalize_rows(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each row to mean 0 and variance 1, times weight, plus bias; then the means and 1/std.

        `weight` and `bias` are (columns,), or (lines, columns), of which row r takes line r % lines.
        """
        rows = x.shape[0]
        out = torch.empty(x.shape, dtype=x.dtype)
        mean, inverse = torch.empty(2, rows, dtype=x.dtype).unbind(0)
        if out.numel():
            native.normalize_rows(
                _contiguous(x), _optional(weight), _optional(bias), float(epsilon), out.numpy(), mean.numpy(),
                inverse.numpy(), 0, self.numbers(x.dtype),
            )  # fmt: skip
        affine = (weight is not None) + (bias is not None)
        self.cell.inside += (5 + affine) * x.numel() + 3 * rows
        return out, mean, inverse

    def normalize_channels(
        self,
        x: Tensor,
        mean: Tensor,
        variance: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        epsilon: float,
    ) -> Tensor:
        """x (batch, channels, length) by each channel's mean and variance, times weight, plus bias."""
        out = torch.empty(x.shape, dtype=x.dtype)
        if out.numel():
            native.normalize_channels(
                _contiguous(x), _contiguous(mean), _contiguous(variance), _optional(weight), _optional(bias),
                float(epsilon), out.numpy(), 0, self.numbers(x.dtype),
            )  # fmt: skip
        affine = (weight is not None) + (bias is not None)
        self.cell.inside += (2 + affine) * x.numel() + 3 * x.shape[1]
        return out

    def average_planes(
        self,
        x: Tensor,
        down: tuple[list[int], list[int]],
        across: tuple[list[int], list[int]],
        divisors: list[int],
    ) -> Tensor:
        """(planes, height, width): the windows (begin, extent) down and across averaged; see include/prism/pool.h."""
        out = torch.empty((x.shape[0], len(down[0]), len(across[0])), dtype=x.dtype)
        if out.numel():
            native.average_pool(
                _contiguous(x),
                down[0],
                down[1],
                across[0],
                across[1],
                divisors,
                out.numpy(),
                0,
                self.numbers(x.dtype),
            )
        self.cell.inside += x.shape[0] * sum(down[1]) * sum(across[1])
        return out


def memory(tensor: Tensor) -> NDArray[Any]:
    """The tensor's memory with its strides. Raises PrismArgumentError for what is not a dense tensor on the CPU."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise PrismArgumentError(
            f"instrument() computes on the CPU with dense tensors, and met one of layout {tensor.layout} on "
            f"{tensor.device}; move the module and its inputs with .cpu() and .to_dense()."
        )
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    array: NDArray[Any] = tensor.numpy()
    return array


def _contiguous(tensor: Tensor) -> NDArray[Any]:
    array = memory(tensor)
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, requirements=("C", "ALIGNED"))


def _optional(tensor: Tensor | None) -> NDArray[Any] | None:
    return None if tensor is None else _contiguous(tensor)


def _number(value: float, dtype: torch.dtype) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return np.asarray(float(value), NUMPY[dtype])


def _three(values: Sequence[int], filler: int) -> tuple[int, ...]:
    return (filler,) * (3 - len(values)) + tuple(values)
