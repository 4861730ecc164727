"""Losses whose decompositions in torch are less accurate than its kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from boundscope_prism.instrument.operators.table import Family, rule

MEAN = 1


@rule("soft_margin_loss_backward", family=Family.LOWERED)
def soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """-y z / (1 + z) with z = exp(-y x); sigmoid(y x) - 1, as the decomposition has it, cancels."""
    z = torch.exp(-target * self)
    gradient = -target * z / (1 + z) * grad_output
    return gradient / self.numel() if reduction == MEAN else gradient
