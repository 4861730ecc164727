"""Significant bits of a layer's elements as pictures, one a channel, small enough to be sent and looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boundscope.variability.digits import Digits, Kind

TILE_CELLS = 64 * 64  # of one channel; larger ones are told in blocks
# What a cell is called that holds elements of several kinds: the last of these that is among them.
PRECEDENCE = (Kind.EXACT, Kind.ZERO_MEAN, Kind.RELATIVE, Kind.INFINITE, Kind.NAN)


@dataclass(frozen=True)
class BitsMap:
    """`bits` and `kinds` are [C, H, W]: of the channels `channels` out of `of_channels`, each cell a block of `block` ×
    `block` elements at all points. `bits` (float32) are means over a cell's inexact elements, NaN where it has none."""

    channels: tuple[int, ...]
    of_channels: int
    block: int
    bits: NDArray[np.float32]
    kinds: NDArray[np.int8]


def bits_map(found: Digits, most_cells: int) -> BitsMap | None:
    """The map of a tensor [points, *S], at most about `most_cells` cells; None where S has no axes or no elements.

    The last two axes of S are height and width, those before are channels; a vector is one channel of height 1. Of too
    many channels those stay that have NaN or infinities, then those with the fewest bits.
    """
    if found.kind.ndim < 2 or not found.kind.size:
        return None
    points, *own = found.kind.shape
    height, width = ((1, *own) if len(own) == 1 else own)[-2:]
    planes = (points, math.prod(own[:-2]), height, width)
    block = _block(height, width, max(1, min(TILE_CELLS, most_cells)))
    bits, kinds = _pooled(found.deviation_bits.reshape(planes), found.kind.reshape(planes), block)
    kept = _kept(bits, kinds, max(1, most_cells // (bits.shape[1] * bits.shape[2])))
    return BitsMap(
        tuple(int(one) for one in kept),
        planes[1],
        block,
        np.ascontiguousarray(bits[kept]),
        np.ascontiguousarray(kinds[kept]),
    )


def _block(height: int, width: int, most: int) -> int:
    block = 1
    while -(-height // block) * -(-width // block) > most:
        block += 1
    return block


def _pooled(
    bits: NDArray[np.float64], kinds: NDArray[np.int8], block: int
) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """[P, C, H, W] to [C, H / block, W / block]: means over the inexact elements, and each cell's kind."""
    rows, columns = (np.arange(0, side, block) for side in kinds.shape[2:])

    def gathered(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(np.add.reduceat(values, rows, axis=1), columns, axis=2)

    counts = {kind: gathered((kinds == kind).sum(axis=0).astype(np.float64)) for kind in PRECEDENCE}
    inexact = kinds == Kind.RELATIVE
    total = gathered(np.where(inexact, bits, 0.0).sum(axis=0))
    cell_kinds = np.zeros(total.shape, np.int8)
    for kind in PRECEDENCE:
        cell_kinds[counts[kind] > 0] = kind
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(counts[Kind.RELATIVE] > 0, total / counts[Kind.RELATIVE], np.nan)
    return means.astype(np.float32), cell_kinds


def _kept(bits: NDArray[np.float32], kinds: NDArray[np.int8], most: int) -> NDArray[np.int64]:
    """Numbers of the channels to show, ascending."""
    if len(bits) <= most:
        return np.arange(len(bits))
    wrong = ((kinds == Kind.NAN) | (kinds == Kind.INFINITE)).any(axis=(1, 2))
    inexact = np.isfinite(bits)
    held = inexact.sum(axis=(1, 2))
    sums = np.where(inexact, bits, 0.0).sum(axis=(1, 2))
    means = np.where(held > 0, sums / np.maximum(held, 1), np.inf)
    order = np.lexsort((means, ~wrong))
    return np.sort(order[:most])
