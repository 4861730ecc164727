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
def cast(
    x: NDArray[np.float64], out: NDArray[np.float32], rounding: Numbers, first: int
) -> None: ...
