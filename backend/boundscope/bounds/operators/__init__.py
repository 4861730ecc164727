"""Bound rules, one operator family a module; importing this package registers them all."""

from boundscope.bounds.operators import (
    arithmetic,
    bilinear,
    conv,
    linear,
    maximum,
    moves,
    piecewise,
    power,
    relu,
    smooth,
    softmax,
    step,
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
    "conv",
    "linear",
    "maximum",
    "moves",
    "operators_with_rules",
    "piecewise",
    "power",
    "relu",
    "rule_of",
    "smooth",
    "softmax",
    "step",
    "wave",
]
