"""Stochastic arithmetic on arrays: the Python face of native_prism."""

from boundscope_prism._native import target, targets
from boundscope_prism._rounding import Mode, Rounding, rounding
from boundscope_prism.convolution import convolution
from boundscope_prism.elementwise import (
    add,
    cast,
    divide,
    fma,
    multiply,
    round_,
    sqrt,
    subtract,
)
from boundscope_prism.errors import PrismArgumentError, PrismUnavailableError
from boundscope_prism.functions import apply
from boundscope_prism.product import gemm, matmul

__all__ = [
    "Mode",
    "PrismArgumentError",
    "PrismUnavailableError",
    "Rounding",
    "add",
    "apply",
    "cast",
    "convolution",
    "divide",
    "fma",
    "gemm",
    "matmul",
    "multiply",
    "round_",
    "rounding",
    "sqrt",
    "subtract",
    "target",
    "targets",
]
