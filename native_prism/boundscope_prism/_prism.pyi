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

# reduce: `name` is "sum", "dot", "mean" or "variance"; a and b are (rows, columns), out and mean have one a row.
def reduce(
    name: str,
    a: NDArray[Any],
    b: NDArray[Any] | None,
    correction: float,
    sequential: bool,
    out: NDArray[Any],
    mean: NDArray[Any] | None,
    first_row: int,
    rounding: Numbers,
) -> None: ...

# normalize: x is (rows, columns), weight and bias (lines, columns), mean and inverse have one element a row.
def normalize_rows(
    x: NDArray[Any],
    weight: NDArray[Any] | None,
    bias: NDArray[Any] | None,
    epsilon: float,
    out: NDArray[Any],
    mean: NDArray[Any] | None,
    inverse: NDArray[Any] | None,
    first_row: int,
    rounding: Numbers,
) -> None: ...

# x is (batch, channels, length), the others have one element a channel.
def normalize_channels(
    x: NDArray[Any],
    mean: NDArray[Any],
    variance: NDArray[Any],
    weight: NDArray[Any] | None,
    bias: NDArray[Any] | None,
    epsilon: float,
    out: NDArray[Any],
    first_batch: int,
    rounding: Numbers,
) -> None: ...
def softmax(
    x: NDArray[Any], logarithm: bool, out: NDArray[Any], first_row: int, rounding: Numbers
) -> None: ...

# pool: x is (planes, height, width); windows by axis, one divisor an output.
def average_pool(
    x: NDArray[Any],
    down_begin: list[int],
    down_extent: list[int],
    across_begin: list[int],
    across_extent: list[int],
    divisors: list[int],
    out: NDArray[Any],
    first_plane: int,
    rounding: Numbers,
) -> None: ...
