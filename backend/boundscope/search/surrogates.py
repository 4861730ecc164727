"""Gradients for operators that have none: the value stays, the gradient is that of a smooth neighbour.

The straight-through estimator of Bengio, Léonard and Courville 2013 (arXiv 1308.3432), with a derivative that falls off
with the distance from the jump.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boundscope.network.graph import Network, Operator
from boundscope.network.operators.activation import Ceil, Floor, Sign
from boundscope.network.operators.logic import Logic
from boundscope.network.operators.reduction import ArgMax
from boundscope.network.operators.shape import CastToInteger

WIDTH = 1.0  # of Sign's smooth neighbour, in typical distances of its inputs from zero


def jumps(network: Network) -> bool:
    """Whether some operator jumps, with a surrogate or without."""
    return any(
        isinstance(node.op, Sign | Floor | Ceil | CastToInteger | ArgMax | Logic) for node in network.nodes
    )


def surrogate_of(op: Operator) -> Callable[[Tensor], Tensor] | None:
    """The operator with a gradient added, for one tensor; None where it has a gradient of its own."""
    if isinstance(op, Sign):
        return _sign
    if isinstance(op, Floor):
        return lambda x: x + (torch.floor(x) - x).detach()
    if isinstance(op, Ceil):
        return lambda x: x + (torch.ceil(x) - x).detach()
    return None


def _sign(x: Tensor) -> Tensor:
    """Sign, with the derivative of tanh(x / typical)."""
    typical = WIDTH * x.detach().abs().mean().clamp(min=torch.finfo(x.dtype).tiny)
    smooth = torch.tanh(x / typical)
    return smooth + (torch.sign(x) - smooth).detach()
