"""The rules of the operators, one family a module. See table.py."""

from boundscope_prism.instrument.operators import (
    accumulations,
    activations,
    arithmetic,
    attention,
    conversions,
    convolutions,
    distances,
    functions,
    grids,
    losses,
    normalizations,
    pooling,
    products,
    reductions,
    resampling,
    scans,
)
from boundscope_prism.instrument.operators.exact import exact, is_drawn
from boundscope_prism.instrument.operators.table import RULES, Family, Rule

__all__ = [
    "RULES",
    "Family",
    "Rule",
    "accumulations",
    "activations",
    "arithmetic",
    "attention",
    "conversions",
    "convolutions",
    "distances",
    "exact",
    "functions",
    "grids",
    "is_drawn",
    "losses",
    "normalizations",
    "pooling",
    "products",
    "reductions",
    "resampling",
    "scans",
]
