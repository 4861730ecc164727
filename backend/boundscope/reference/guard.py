"""Whether auto_LiRPA's optimiser of slopes works with the torch that is here.

With some versions of torch it silently returns its start values. This is seen on max(x, 0) over −1 ≤ x ≤ 1.1, whose
lower bound is −1 with CROWN's slope 1 and 0 with the best slope, 0.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import nn

from boundscope.protocol import Method
from boundscope.reference import compat
from boundscope.reference.engine import METHODS, STEPS

ENOUGH = -0.5


@functools.cache
def alpha_helps() -> bool:
    """Whether α-CROWN improves on CROWN where it is known to; tried once in a process."""
    lirpa = compat.import_auto_lirpa()
    first, last = nn.Linear(1, 1), nn.Linear(1, 1)
    network = nn.Sequential(first, nn.ReLU(), last).to(torch.float32)
    with torch.no_grad():
        for layer in (first, last):
            layer.weight.fill_(1.0)
            layer.bias.fill_(0.0)
    network.requires_grad_(False)
    centre = torch.full((1, 1), 0.05)
    box = lirpa.PerturbationLpNorm(norm=np.inf, x_L=torch.full((1, 1), -1.0), x_U=torch.full((1, 1), 1.1))
    options = compat.bound_options(patches=False, steps=STEPS, between_steps=lambda: None)
    with compat.quiet():
        bounded = lirpa.BoundedModule(network, centre, bound_opts=options, device="cpu")
        lower, _ = bounded.compute_bounds(
            x=(lirpa.BoundedTensor(centre, box),),
            C=torch.ones(1, 1, 1),
            method=METHODS[Method.ALPHA_CROWN],
            bound_upper=False,
        )
    return float(lower) > ENOUGH


def start_values_note() -> str:
    """A sentence for people where alpha-crown is only CROWN; "" where it works."""
    if alpha_helps():
        return ""
    return (
        f"auto_LiRPA {compat.version()} does not optimise slopes with torch {torch.__version__}: it returned its start "
        "values on a network where better ones are known, so that its alpha-crown is no more than crown"
    )
