"""Blocks of rows that are zero on most of a tensor, carried on the rest alone.

Rows are functions of the distance from a reference point. An element that cannot leave it (a dead neuron, a fixed
input) needs no coefficient, and a neuron of a convolution reaches a window of the image only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor


class Support:
    """Where in a tensor of shape [*S] the coefficients of a block of rows may differ from zero."""

    def take(self, values: Tensor) -> Tensor:
        """The values [*S] there; they broadcast to the block's coefficients."""
        raise NotImplementedError

    def whole(self, rows: Tensor) -> Tensor:
        """The block's coefficients with the zeros around them, [R, *S]."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Elements(Support):
    """The same elements for every row, by flat index [k]; coefficients are [R, k]."""

    index: Tensor
    shape: tuple[int, ...]

    def take(self, values: Tensor) -> Tensor:
        return values.reshape(-1)[self.index]

    def whole(self, rows: Tensor) -> Tensor:
        full = rows.new_zeros(len(rows), math.prod(self.shape))
        return full.index_copy(1, self.index, rows).reshape(-1, *self.shape)


@dataclass(frozen=True, eq=False)
class Windows(Support):
    """A window for each row in a tensor of shape (1, C, *spatial); coefficients are [R, C, *size].

    `corners` [P, axes] int64 of the P different windows may lie outside: what a window shows beyond the tensor is
    zero. Row r has window `which[r]`; None: each row has its own, in order.
    """

    shape: tuple[int, ...]
    corners: Tensor
    size: tuple[int, ...]
    which: Tensor | None = None

    @cached_property
    def _pads(self) -> tuple[list[int], list[int]]:
        """How far windows stick out before and after, by axis."""
        least, most = (ends.tolist() for ends in torch.aminmax(self.corners, dim=0))
        before = [max(0, -low) for low in least]
        after = [
            max(0, high + window - size)
            for high, window, size in zip(most, self.size, self.shape[2:], strict=True)
        ]
        return before, after

    @cached_property
    def _index(self) -> tuple[Tensor, ...]:
        """Of each window's corner in the padded tensor."""
        return tuple(self.corners[:, axis] + pad for axis, pad in enumerate(self._pads[0]))

    def _padded(self, values: Tensor) -> Tensor:
        before, after = self._pads
        pads = _torch_pads(list(zip(before, after, strict=True)))
        return F.pad(values, pads) if any(pads) else values

    def _views(self, padded: Tensor) -> Tensor:
        """All windows of [C, *padded] as a view [*positions, C, *size]."""
        axes = len(self.size)
        for axis, size in enumerate(self.size):
            padded = padded.unfold(1 + axis, size, 1)
        return padded.permute(*range(1, 1 + axes), 0, *range(1 + axes, 1 + 2 * axes))

    def _seen(self, values: Tensor) -> Tensor:
        """What each row's window shows of values [C, *spatial]: [R, C, *size]."""
        each = self._views(self._padded(values))[self._index]
        return each if self.which is None else each.index_select(0, self.which)

    def take(self, values: Tensor) -> Tensor:
        return self._seen(values.reshape(self.shape[1:]))

    def take_all(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """`take` of several values of one dtype, together."""
        stacked = torch.cat([value.reshape(self.shape[1:]) for value in values])
        return torch.split(self._seen(stacked), self.shape[1], dim=1)

    def inside(self, rows: Tensor) -> Tensor:
        """The coefficients with zeros where a window sticks out."""
        if not any(map(any, self._pads)):
            return rows
        return rows * self._seen(rows.new_ones(1, *self.shape[2:]))

    def whole(self, rows: Tensor) -> Tensor:
        return self.channels_last(rows).movedim(-1, 1).reshape(len(rows), *self.shape)

    def channels_last(self, rows: Tensor) -> Tensor:
        """Whole rows as [R, *spatial, C]."""
        before, after = self._pads
        sizes = [b + size + a for b, size, a in zip(before, self.shape[2:], after, strict=True)]
        full = rows.new_zeros(len(rows), *sizes, self.shape[1])
        # Channels last: each place of a window is then one run of memory.
        axes, count = len(self.size), len(rows)
        index = [torch.arange(count, device=rows.device).reshape(-1, *[1] * axes)]
        for axis, size in enumerate(self.size):
            steps = torch.arange(size, device=rows.device).reshape(-1, *[1] * (axes - axis - 1))
            first = self._index[axis] if self.which is None else self._index[axis][self.which]
            index.append(first.reshape(-1, *[1] * axes) + steps)
        full[tuple(index)] = rows.movedim(1, -1)
        inner = [slice(b, b + size) for b, size in zip(before, self.shape[2:], strict=True)]
        return full[(slice(None), *inner)]

    @property
    def share(self) -> float:
        """Part of the tensor that one window covers; above 1 where it is the larger."""
        return math.prod(self.size) / math.prod(self.shape[2:])

    def joined(self, other: Windows) -> tuple[Windows, list[int], list[int]] | None:
        """Windows that hold those of both, and the pads (as F.pad takes them) that bring each one's coefficients
        there; None where the rows differ in how theirs lie to each other."""
        if self.which is not other.which:
            return None
        shift = other.corners - self.corners
        if len(shift) > 1 and not bool((shift == shift[0]).all()):
            return None
        size, mine, others = [], [], []
        for axis, step in enumerate(shift[0].tolist()):
            low, high = min(0, step), max(self.size[axis], step + other.size[axis])
            size.append(high - low)
            mine.append((-low, high - self.size[axis]))
            others.append((step - low, high - step - other.size[axis]))
        corners = self.corners + shift[0].clamp(max=0)
        return Windows(self.shape, corners, tuple(size), self.which), _torch_pads(mine), _torch_pads(others)


def _torch_pads(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Pads before and after, by axis, as F.pad takes them."""
    return [pad for pair in reversed(pairs) for pad in pair]


@dataclass(frozen=True)
class Phases(Support):
    """All of a tensor of shape (1, C, H, W), in the order of a convolution's strides (s, t): coefficients are [R, n]
    with n = H/s · W/t · C·s·t, the channels last, and in them the places of each remainder by the strides."""

    shape: tuple[int, ...]
    strides: tuple[int, int]

    def _split(self) -> tuple[int, ...]:
        _, channels, height, width = self.shape
        down, across = self.strides
        return channels, height // down, down, width // across, across

    def take(self, values: Tensor) -> Tensor:
        return values.reshape(self._split()).permute(1, 3, 0, 2, 4).flatten()

    def _apart(self, rows: Tensor) -> Tensor:
        channels, high, down, wide, across = self._split()
        return rows.reshape(len(rows), high, wide, channels, down, across)

    def whole(self, rows: Tensor) -> Tensor:
        return self._apart(rows).permute(0, 3, 1, 4, 2, 5).reshape(len(rows), *self.shape)

    def channels_last(self, rows: Tensor) -> Tensor:
        """Whole rows as [R, H, W, C]."""
        _, channels, height, width = self.shape
        return self._apart(rows).permute(0, 1, 4, 2, 5, 3).reshape(len(rows), height, width, channels)


@dataclass(frozen=True)
class Block:
    """Coefficients of R rows at one tensor: [R, *S], or on a part of the tensor in that part's own form."""

    rows: Tensor
    support: Support | None = None

    def whole(self) -> Tensor:
        return self.rows if self.support is None else self.support.whole(self.rows)

    def take(self, values: Tensor) -> Tensor:
        """Values [*S] of the tensor as they meet these coefficients."""
        return values if self.support is None else self.support.take(values)


def added(a: Block, b: Block) -> Block:
    """The sum of two blocks of the same rows at the same tensor."""
    if a.support == b.support:
        return Block(a.rows + b.rows, a.support)
    if isinstance(a.support, Windows) and isinstance(b.support, Windows):
        joined = a.support.joined(b.support)
        if joined is not None:
            windows, mine, others = joined
            return Block(F.pad(a.rows, mine) + F.pad(b.rows, others), windows)
    return Block(a.whole() + b.whole())
