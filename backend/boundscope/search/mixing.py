"""Which mixture of a clause's constraints leaves the least room for it, by their linear bounds on a box."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.search.clipping import Boxes, LinearRows

ROUNDS = 24
RATE = 2.0


@dataclass(frozen=True)
class Mixed:
    """Of each clause [D, K] (−∞ where it has no rows): weights [D, K, R] of its rows, the least value of the weighed
    rows on the box, and how much they vary on it."""

    weight: Tensor
    least: Tensor
    spread: Tensor


def best_mixtures(boxes: Boxes, rows: LinearRows, clauses: int) -> Mixed:
    """Weights whose sum is one over each clause's rows (zero where it has none), nearly maximising the least
    value of the weighed rows on each box: the dual of whether the clause's rows can all be ≤ 0 at one point.

    Any weights give sound bounds, so that nothing here is rounded with care.
    """
    number = torch.arange(clauses, device=rows.clause.device)
    mine = rows.clause[:, None, :] == number[None, :, None]
    slope = torch.nan_to_num(rows.slope)
    half = (boxes.upper - boxes.lower) / 2
    middle = torch.nan_to_num(rows.least) + (slope.abs() * half[:, None]).sum(2)
    count = mine.sum(2, keepdim=True).clamp(min=1)
    weight = mine.to(middle.dtype) / count
    best = torch.full(weight.shape[:2], -torch.inf, dtype=middle.dtype, device=middle.device)
    kept = weight
    for turn in range(ROUNDS):
        mixed = weight @ slope  # [D, K, F]
        least = (weight * middle[:, None]).sum(2) - (mixed.abs() * half[:, None]).sum(2)
        better = least > best
        best = torch.where(better, least, best)
        kept = torch.where(better[:, :, None], weight, kept)
        # The rows' values where the mixture is least say which of them hold there.
        at = middle[:, None] - (mixed.sign() * half[:, None]) @ slope.transpose(1, 2)
        off = torch.where(mine, at - least[:, :, None], 0.0)
        scale = off.abs().amax(2, keepdim=True).clamp(min=1e-300)
        moved = weight * torch.exp(RATE / (turn + 1) ** 0.5 * off / scale)
        weight = moved / moved.sum(2, keepdim=True).clamp(min=1e-300)
    # A clause may be refuted by one of its constraints alone.
    alone = torch.where(mine, rows.least[:, None], -torch.inf)
    value, row = alone.max(2)
    single = torch.zeros_like(kept).scatter(2, row[:, :, None], 1.0)
    single = torch.where(mine, single, 0.0)
    kept = torch.where((value >= best)[:, :, None], single, kept)
    spread = 2.0 * ((kept @ slope).abs() * half[:, None]).sum(2)
    least = torch.where(mine.any(2), torch.maximum(value, best), -torch.inf)
    return Mixed(kept, least, spread)
