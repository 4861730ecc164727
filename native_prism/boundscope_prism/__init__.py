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
from boundscope_prism.instrument import Coverage, instrument
from boundscope_prism.normalize import (
    batch_norm,
    batch_norm_training,
    group_norm,
    layer_norm,
    log_softmax,
    softmax,
)
from boundscope_prism.pool import adaptive_avg_pool1d, adaptive_avg_pool2d, avg_pool1d, avg_pool2d
from boundscope_prism.product import gemm, matmul
from boundscope_prism.reduce import dot, mean, sum, sum_of_squares, variance

__all__ = [
    "Coverage",
    "Mode",
    "PrismArgumentError",
    "PrismUnavailableError",
    "Rounding",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "add",
    "apply",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "batch_norm_training",
    "cast",
    "convolution",
    "divide",
    "dot",
    "fma",
    "gemm",
    "group_norm",
    "instrument",
    "layer_norm",
    "log_softmax",
    "matmul",
    "mean",
    "multiply",
    "round_",
    "rounding",
    "softmax",
    "sqrt",
    "subtract",
    "sum",
    "sum_of_squares",
    "target",
    "targets",
    "variance",
]
