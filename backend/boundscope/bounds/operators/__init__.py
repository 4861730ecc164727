"""Bound rules, one operator family a module; importing this package registers them all."""

from boundscope.bounds.operators import arithmetic, conv, linear, moves, relu
from boundscope.bounds.operators.base import NodeView, Relaxation, Rule, bounds, operators_with_rules, rule_of

__all__ = [
    "NodeView",
    "Relaxation",
    "Rule",
    "arithmetic",
    "bounds",
    "conv",
    "linear",
    "moves",
    "operators_with_rules",
    "relu",
    "rule_of",
]
