import numpy as np
from numpy.typing import NDArray

def add(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    sum: NDArray[np.float32],
    mode: int,
    seed: int,
    sample: int,
    operation: int,
    first: int,
) -> bool: ...
def targets() -> list[str]: ...
def target() -> str: ...
