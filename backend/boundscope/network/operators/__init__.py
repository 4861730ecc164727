"""The ONNX operators, one family a module; importing this package registers them all."""

from __future__ import annotations

from boundscope.network.operators import (
    activation,
    arithmetic,
    constant,
    fused,
    linear,
    logic,
    movement,
    normalization,
    order,
    pooling,
    reduction,
    resize,
    shape,
)
from boundscope.network.operators.base import OnnxNode, OnnxOperator, class_of, known_operators, operator

__all__ = [
    "OnnxNode",
    "OnnxOperator",
    "activation",
    "arithmetic",
    "class_of",
    "constant",
    "fused",
    "known_operators",
    "linear",
    "logic",
    "movement",
    "normalization",
    "operator",
    "order",
    "pooling",
    "reduction",
    "resize",
    "shape",
]
