"""Elementary and special functions: evaluated accurately and rounded once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import Kernels, Operand
from boundscope_prism.instrument.operators.arithmetic import evaluated
from boundscope_prism.instrument.operators.table import Family, rule

_NAMES = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "i0",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "rad2deg",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "special_airy_ai",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_bessel_y0",
    "special_bessel_y1",
    "special_entr",
    "special_erfcx",
    "special_i0e",
    "special_i1",
    "special_i1e",
    "special_log_ndtr",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_ndtri",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
    "special_spherical_bessel_j0",
    "tan",
    "tanh",
]
_PAIRS = [
    "arctan2",
    "atan2",
    "float_power",
    "igamma",
    "igammac",
    "logaddexp",
    "logaddexp2",
    "special_xlog1py",
    "special_zeta",
    "xlogy",
]


def _enter(name: str) -> None:
    function: Callable[..., Tensor] = getattr(torch.ops.aten, name)

    @rule(name, family=Family.FLOATING)
    def compute(k: Kernels, *operands: Operand) -> Tensor:
        return evaluated(k, function, *operands)

    compute.__name__ = name


for _name in (*_NAMES, *_PAIRS):
    _enter(_name)


@rule("special_ndtr", family=Family.FLOATING)
def normal_distribution(k: Kernels, self: Tensor) -> Tensor:
    return evaluated(k, torch.special.ndtr, self)


@rule("mvlgamma", family=Family.FLOATING)
def multivariate_log_gamma(k: Kernels, self: Tensor, p: int) -> Tensor:
    return evaluated(k, lambda x: torch.mvlgamma(x, p), self)


@rule("round.decimals", family=Family.ELEMENTWISE)
def round_to_decimals(k: Kernels, self: Tensor, decimals: int) -> Tensor:
    return evaluated(k, lambda x: torch.round(x, decimals=decimals), self)


@rule("polygamma", family=Family.FLOATING)
def polygamma(k: Kernels, n: int, self: Tensor) -> Tensor:
    return evaluated(k, lambda x: torch.polygamma(n, x), self)
