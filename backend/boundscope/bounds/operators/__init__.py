"""Bound rules, one operator family a module; importing this package registers them all."""

from boundscope.bounds.operators import (
    arithmetic,
    bilinear,
    coarse,
    conv,
    indexing,
    linear,
    maximum,
    moves,
    piecewise,
    power,
    relu,
    selection,
    smooth,
    softmax,
    step,
    transposed,
    wave,
)
from boundscope.bounds.operators.base import NodeView, Rule, bounds, operators_with_rules, rule_of
from boundscope.bounds.operators.relaxation import Relaxation

__all__ = [
    "NodeView",
    "Relaxation",
    "Rule",
    "arithmetic",
    "bilinear",
    "bounds",
    "coarse",
    "conv",
    "indexing",
    "linear",
    "maximum",
    "moves",
    "operators_with_rules",
    "piecewise",
    "power",
    "relu",
    "rule_of",
    "selection",
    "smooth",
    "softmax",
    "step",
    "transposed",
    "wave",
]
