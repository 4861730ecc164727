"""Matrix products, every fused multiply-add of them rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope_prism._arrays import Array, as_array, as_kind_of, as_strided, result_array, significand_bits
from boundscope_prism._native import call, native
from boundscope_prism._rounding import WORD_LIMIT, Rounding, check_integer
from boundscope_prism.errors import PrismArgumentError


def matmul(
    a: Array,
    b: Array,
    rounding: Rounding,
    *,
    bias: Array | None = None,
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """a @ b + bias, with every fused multiply-add rounded.

    `a` is (..., rows, depth) and `b` (..., depth, columns); leading axes are broadcast as numpy does, and a
    one-dimensional operand is a row or a column as in numpy.matmul. `bias` is (columns,). Views with any strides are
    read where they are, so b may be weight.T. All are of one type, float32 or float64.

    Element (i, j) of batch n is, in this order: sum = bias[j] or 0, then for k = 0, 1, ... sum = fma(a[i, k],
    b[k, j], sum), each rounded. It draws as stream row (first_row + n rows + i) ceil(columns / 16) + j // 16, lane
    j % 16, step k: a part of the rows gives the bits of the whole with `first_row` where the part begins.

    `out`, C-contiguous and apart from the operands, receives the result and is returned; else the result is an array
    of the kind of `a`. Raises PrismArgumentError where an argument is not as described.
    """
    left = as_strided("a", a)
    right = as_strided("b", b, left.dtype)
    if left.ndim == 0 or right.ndim == 0:
        raise PrismArgumentError("matmul: expected at least one axis, got a number; use multiply.")
    lone_row, lone_column = left.ndim == 1, right.ndim == 1
    left = left[np.newaxis, :] if lone_row else left
    right = right[:, np.newaxis] if lone_column else right
    if left.shape[-1] != right.shape[-2]:
        raise PrismArgumentError(
            f"matmul: expected b to have {left.shape[-1]} rows, the depth of a {left.shape}, got {right.shape}."
        )
    batch = _batch_shape(left, right)
    shape = (*batch, left.shape[-2], right.shape[-1])
    shown = tuple(
        n for n, hide in zip(shape, (*(False for _ in batch), lone_row, lone_column), strict=True) if not hide
    )
    added = None
    if bias is not None:
        added = as_array("bias", bias, left.dtype)
        if added.shape != (shape[-1],):
            raise PrismArgumentError(f"bias: expected the shape {(shape[-1],)}, got {added.shape}.")
    inputs = {"a": left, "b": right} | ({} if added is None else {"bias": added})
    result = result_array(out, shown, left.dtype, inputs)
    first_row = check_integer("first_row", first_row, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(left))
    call(native.gemm, _batched(left, batch), _batched(right, batch), added, None, _three(result, shape), 1.0, 1.0,
         first_row, numbers)  # fmt: skip
    return out if out is not None else as_kind_of(a, result)


def gemm(
    a: Array,
    b: Array,
    rounding: Rounding,
    *,
    c: Array | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    operation: int = 0,
    first_row: int = 0,
    out: Array | None = None,
) -> Any:
    """alpha a @ b + beta c for matrices, or for stacks of as many matrices, as BLAS and ONNX's Gemm have it.

    Where alpha is 1, each sum starts from beta c[i, j] (rounded; c itself where beta is 1), or from 0, and goes on as
    in `matmul`. Else it starts from 0, and alpha sum + beta c[i, j] is one fused multiply-add, a product without `c`.
    `c` is broadcast to the result. `out` may be `c`.
    Raises PrismArgumentError where an argument is not as described.
    """
    left = as_strided("a", a)
    right = as_strided("b", b, left.dtype)
    left = np.swapaxes(left, -1, -2) if transpose_a and left.ndim >= 2 else left
    right = np.swapaxes(right, -1, -2) if transpose_b and right.ndim >= 2 else right
    if left.ndim not in (2, 3) or right.ndim != left.ndim:
        raise PrismArgumentError(
            f"gemm: expected two matrices or two stacks of them, got shapes {left.shape} and {right.shape}."
        )
    if left.shape[-1] != right.shape[-2] or left.shape[:-2] != right.shape[:-2]:
        raise PrismArgumentError(
            f"gemm: expected sizes that fit (after transposing), got {left.shape} and {right.shape}."
        )
    batch = left.shape[:-2]
    shape = (*batch, left.shape[-2], right.shape[-1])
    start = None
    if c is not None:
        start = as_strided("c", c, left.dtype)
        try:
            start = np.broadcast_to(start, shape)
        except ValueError:
            raise PrismArgumentError(
                f"c: expected a shape that broadcasts to {shape}, got {start.shape}."
            ) from None
    inputs = {"a": left, "b": right} | ({} if start is None else {"c": start})
    result = result_array(out, shape, left.dtype, inputs, may_replace=("c",))
    first_row = check_integer("first_row", first_row, 0, WORD_LIMIT - 1)
    numbers = rounding.numbers(operation, significand_bits(left))
    begun = None if start is None else _batched(start, batch)
    call(native.gemm, _batched(left, batch), _batched(right, batch), None, begun, _three(result, shape),
         float(alpha), float(beta), first_row, numbers)  # fmt: skip
    return out if out is not None else as_kind_of(a, result)


def _batch_shape(left: NDArray[Any], right: NDArray[Any]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise PrismArgumentError(
            f"matmul: expected leading axes that broadcast, got {left.shape} and {right.shape}."
        ) from None


def _batched(array: NDArray[Any], batch: tuple[int, ...]) -> NDArray[Any]:
    """`array` as one stack of matrices, a view where its strides allow."""
    whole = np.broadcast_to(array, (*batch, *array.shape[-2:]))
    return _three(whole, whole.shape)


def _three(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    count = int(np.prod(shape[:-2], dtype=np.int64))
    return array.reshape((count, *shape[-2:]))
