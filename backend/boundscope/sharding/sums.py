"""Sums of tensors over ranks that hold a layer in parts, with what a derivative makes of them.

All ranks hold the same bits, for each adds the parts in the order of ranks itself. A sum's derivative lets gradients
through, and that of what all ranks have and each goes on with by its own part sums them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundscope.sharding.ranks import TILE_BYTES, RankGroup

IN_FLIGHT = 2  # pieces of a sum that travel at once


def summed(part: Tensor, ranks: RankGroup) -> Tensor:
    """Σ over ranks of tensors of one shape, in the order of ranks: the same bits on all, of P terms. All call together.

    Raises:
        PeerStoppedError: another rank has failed.
    """
    return add_up(part.clone(memory_format=torch.contiguous_format), ranks)


def add_up(own: Tensor, ranks: RankGroup) -> Tensor:
    """`summed`, in place of this rank's part, which is contiguous: pieces travel while others are added."""
    frames, flat = ranks.frames, own.view(-1)
    if frames is None:
        return own
    step = max(1, TILE_BYTES // ranks.size // flat.element_size())
    starts = range(0, len(flat), step)
    travelling = [frames.post(flat[start : start + step]) for start in starts[:IN_FLIGHT]]
    for number, start in enumerate(starts):
        piece = flat[start : start + step]
        first, *others = frames.take(travelling.pop(0), len(piece), flat.dtype)
        piece.copy_(first)
        for other in others:
            piece += other.to(piece.device)
        if number + IN_FLIGHT < len(starts):
            following = starts[number + IN_FLIGHT]
            travelling.append(frames.post(flat[following : following + step]))
    return own


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: RankGroup, _: Tensor) -> Tensor:
        return summed(part, ranks)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient, None, None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, ranks: RankGroup) -> Tensor:
        ctx.ranks = ranks
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return summed(gradient, ctx.ranks), None


def summed_parts(part: Tensor, ranks: RankGroup, *, in_place: bool = False) -> Tensor:
    """`summed`, whose gradient is each part's own; `in_place`: without one, the sum may take the place of the part.

    Where a search differentiates, the result asks for a gradient even where this rank's part has no free parameter:
    what comes before it may meet the ranks again, and all of them must come there.
    """
    if not torch.is_grad_enabled():
        return add_up(part.contiguous(), ranks) if in_place else summed(part, ranks)
    asks = torch.zeros((), requires_grad=True)
    total: Tensor = _Sum.apply(part, ranks, asks)  # type: ignore[no-untyped-call]
    return total


def spread_over(whole: Tensor, ranks: RankGroup) -> Tensor:
    """What every rank has and each goes on with by its own part: gradients are summed over the ranks."""
    if not whole.requires_grad:
        return whole
    out: Tensor = _Spread.apply(whole, ranks)  # type: ignore[no-untyped-call]
    return out
