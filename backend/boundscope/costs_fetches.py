"""What a rank fetches of weights that other ranks hold, and has of them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping

from boundscope.costs_setup import (
    HEADER_BYTES,
    LARGE_ELEMENTS,
    LONGEST_SUM,
    TILE_BYTES,
    TILE_COLUMNS,
    TILE_ROWS,
    WHOLE_BELOW,
    Prediction,
    Setup,
    up,
)
from boundscope.protocol import ConstantCosts, NodeCosts


class Fetches:
    """Counts into a prediction what is copied from memory that ranks share, or else received in frames of one size.

    `elements` are those of a rank's part of each tensor.
    """

    def __init__(self, setup: Setup, elements: Mapping[str, int], found: Prediction) -> None:
        self._setup, self._elements, self._found = setup, elements, found
        self._room = up(-(-TILE_BYTES // setup.ranks), HEADER_BYTES)

    def held(self, node: NodeCosts, item_bytes: int, inner: float = math.inf) -> float:
        """Bytes of what is gathered for a node at the fullest moment: tiles, the one before, and frames on the way."""
        if not self._setup.gathers:
            return 0.0
        most = 0.0
        for one in node.constants:
            if one.tiled:
                longest = min(inner, node.inner) if node.inner else inner
                tile = _tile_bytes(one, longest)
                if self._setup.shares_memory:
                    most = max(most, 2.0 * tile)
                    continue
                frames = math.ceil(tile / self._setup.ranks / self._room)
                most = max(most, 3.0 * tile + frames * (2.0 * TILE_BYTES + self._room))
            elif one.floating and one.elements >= WHOLE_BELOW:
                kept = one.as_stored and one.elements >= LARGE_ELEMENTS
                most += one.elements * (one.item_bytes if kept else item_bytes)
        return most

    def matrices(self, node: NodeCosts, times: float, inner: float, width: float) -> None:
        """One use of a node's constants, of `inner` by `width` elements of its matrix, `times` over."""
        whole = max(1.0, inner * width)
        size = sum(
            one.item_bytes * (min(whole, one.elements) if one.tiled else one.elements)
            for one in node.constants
            if one.tiled or (one.floating and one.elements >= WHOLE_BELOW)
        )
        self._count(times * self._frames(node, inner, width), times * size)

    def single_rows(self, producer: NodeCosts, times: float, rows: int) -> None:
        """Single rows of a matrix, for pairs of `rows` that begin there; in frames, those of all ranks, where each has
        its own."""
        union = rows * (self._setup.ranks if self._setup.splits_rows else 1) / 2
        width = sum(self._elements[name] for name in producer.inputs)
        frames = size = 0.0
        for one in producer.constants:
            if one.tiled:
                step = max(1, TILE_ROWS * TILE_COLUMNS // max(1, width))
                tile = step * width * one.item_bytes
                frames += math.ceil(union / step) * math.ceil(tile / self._setup.ranks / self._room)
                size += rows / 2 * width * one.item_bytes
        self._count(times * frames, times * size)

    def part_of_passes(self, node: NodeCosts) -> tuple[float, float]:
        """The part of the passes of intervals through a matrix that the first rank takes, and what it copies for it:
        ranks that share memory share out the bands of a wide one, and read in place where these are their own rows."""
        setup = self._setup
        if not (setup.gathers and setup.shares_memory and any(one.tiled for one in node.constants)):
            return 1.0, 1.0
        rows = max(1, node.inner)
        bands = math.ceil(math.ceil(rows / TILE_ROWS) / setup.ranks)
        part = min(1.0, bands * TILE_ROWS / rows)
        return part, part if rows % (TILE_ROWS * setup.ranks) else 0.0

    def reduced(self, size_bytes: float) -> None:
        """An all-reduce over a ring: each rank receives nearly twice the size."""
        ranks = self._setup.ranks
        if ranks > 1:
            self._found.received_bytes += 2.0 * size_bytes * (ranks - 1) / ranks

    def _frames(self, node: NodeCosts, inner: float, width: float) -> float:
        count = 0.0
        for one in node.constants:
            if one.tiled:
                height = inner if inner <= LONGEST_SUM else TILE_ROWS
                frames = math.ceil(_tile_bytes(one, inner) / self._setup.ranks / self._room)
                count += math.ceil(inner / height) * math.ceil(width / TILE_COLUMNS) * frames
            elif one.floating and one.elements >= WHOLE_BELOW:
                count += math.ceil(one.elements * one.item_bytes / self._setup.ranks / self._room)
        return count

    def _count(self, frames: float, size_bytes: float) -> None:
        if self._setup.gathers and self._setup.shares_memory:
            self._found.read_bytes += size_bytes
        elif self._setup.gathers:
            self._found.received_bytes += frames * (self._setup.ranks - 1) * (self._room + HEADER_BYTES)


def _tile_bytes(one: ConstantCosts, inner: float) -> float:
    return TILE_COLUMNS * one.item_bytes * (inner if inner <= LONGEST_SUM else TILE_ROWS)
