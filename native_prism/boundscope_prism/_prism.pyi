from typing import Any

import numpy as np
from numpy.typing import NDArray

# mode, precision (0: all), seed, sample, operation, threads
Numbers = tuple[int, int, int, int, int, int]

def targets() -> list[str]: ...
def target() -> str: ...

# elementwise: `operands` are (values, inner), element i reads values[(i // inner) % values.size].
def elementwise(
    operation: int,
    operands: list[tuple[NDArray[Any], int]],
    out: NDArray[Any],
    rounding: Numbers,
    first: int,
) -> None: ...
def elementwise_plain(
    operation: int, operands: tuple[Any, ...], out: Any, rounding: Numbers, first: int
) -> Any: ...
def cast(x: NDArray[np.float64], out: NDArray[np.float32], rounding: Numbers, first: int) -> None: ...

# product: stacks of matrices with any strides; out is C-contiguous.
def gemm(
    a: NDArray[Any],
    b: NDArray[Any],
    bias: NDArray[Any] | None,
    c: NDArray[Any] | None,
    out: NDArray[Any],
    alpha: float,
    beta: float,
    first_row: int,
    rounding: Numbers,
) -> None: ...

# convolution: `axes` are input, kernel, stride, dilation, padding before and after, output padding, each of depth,
# height and width.
def convolution(
    x: NDArray[Any],
    weight: NDArray[Any],
    bias: NDArray[Any] | None,
    out: NDArray[Any],
    axes: list[tuple[int, ...]],
    groups: int,
    transposed: bool,
    first_image: int,
    rounding: Numbers,
) -> None: ...
