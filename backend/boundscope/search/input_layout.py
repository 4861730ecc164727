"""Parts of a context's box as a pool keeps them: ends of the free inputs, and of those hidden elements of which a part
knows more than the whole box does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains
from boundscope.bounds.interval import Interval
from boundscope.bounds.parts import refinable, wanted_elements
from boundscope.search.clipping import Boxes
from boundscope.search.pool import Column

Rows = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]

BLOCK_ELEMENTS = 1 << 18  # of the widest tensor, in the rows that are carried together
MOST_ROWS, LEAST_ROWS = 2048, 16
HIDDEN = ("hidden_lower", "hidden_upper")  # columns
# Hidden intervals that take more than this for one domain are bounded anew on each part.
MOST_HIDDEN_BYTES = 1 << 18


@dataclass(frozen=True)
class Hidden:
    """Elements of a tensor whose intervals parts keep: flat indices, and their place among all that are kept."""

    name: str
    index: Tensor
    place: slice


class PartLayout:
    """Parts of one context's box as rows of arrays: ends of the free inputs, and of hidden elements."""

    def __init__(self, context: BoxContext) -> None:
        self.context = context
        network = context.network
        ends = [context.intervals[info.name] for info in network.inputs]
        self.lower = torch.cat([one.lower.flatten() for one in ends])
        self.upper = torch.cat([one.upper.flatten() for one in ends])
        self.free = (self.lower < self.upper).nonzero().flatten()
        found: list[Hidden] = []
        count = 0
        for name in refinable(context):
            root = context.intervals[name]
            tall = Interval(root.lower[None], root.upper[None])
            index = wanted_elements(context, name, tall).flatten().nonzero().flatten()
            found.append(Hidden(name, index, slice(count, count + len(index))))
            count += len(index)
        self.hidden_count = count if 8 * count <= MOST_HIDDEN_BYTES else 0
        self.hidden = tuple(found) if self.hidden_count else ()
        widest = max(one.lower.numel() for one in context.intervals.values())
        self.rows = max(LEAST_ROWS, min(MOST_ROWS, BLOCK_ELEMENTS // widest))

    @property
    def inputs(self) -> int:
        """How many inputs are free."""
        return len(self.free)

    @property
    def kept_elements(self) -> NDArray[np.int64]:
        """Which elements the hidden columns belong to: the number of the tensor and the flat index, [2, kept]."""
        tensors = [np.full(len(one.index), number) for number, one in enumerate(self.hidden)]
        indices = [one.index.cpu().numpy() for one in self.hidden]
        if not tensors:
            return np.zeros((2, 0), np.int64)
        return np.stack([np.concatenate(tensors), np.concatenate(indices)]).astype(np.int64)

    @property
    def largest(self) -> Floats:
        """The largest absolute value of each free input."""
        both = torch.maximum(self.lower.abs(), self.upper.abs())
        largest: Floats = both[self.free].cpu().numpy()
        return largest

    def columns(self) -> dict[str, Column]:
        return {
            "lower": Column(np.float64, (self.inputs,)),
            "upper": Column(np.float64, (self.inputs,)),
            **{name: Column(np.float32, (self.hidden_count,)) for name in HIDDEN},
        }

    @cached_property
    def elements(self) -> int:
        """Of all tensors that relaxed nodes read."""
        return sum(math.prod(self.context.network.tensors[name].shape) for name in refinable(self.context))

    def start(self, lower: Floats, upper: Floats) -> Rows:
        """Boxes [D, inputs] as parts of which no more is known."""
        count = len(lower)
        free = self.free.cpu().numpy()
        low = np.full((count, self.hidden_count), -np.inf, np.float32)
        return {
            "lower": lower[:, free],
            "upper": upper[:, free],
            "hidden_lower": low,
            "hidden_upper": -low,
        }

    def nothing(self, count: int) -> tuple[Tensor, Tensor]:
        """Hidden ends of parts of which no more is known than of the root."""
        low = torch.full((count, self.hidden_count), -torch.inf, device=self.context.device)
        return low, -low

    def points(self, free: Floats) -> Floats:
        """Points [N, free inputs] with the inputs that are fixed, [N, inputs]."""
        whole = np.repeat(self.lower.cpu().numpy()[None], len(free), 0)
        whole[:, self.free.cpu().numpy()] = free
        return whole

    def domains(self, boxes: Boxes, hidden: tuple[Tensor, Tensor]) -> Domains:
        """`hidden`: ends [D, kept elements], float32 or float64."""
        context, count = self.context, len(boxes.lower)
        intervals: dict[str, Interval] = {}
        lower, upper = self.input_ends(boxes)
        first = 0
        for info in context.network.inputs:
            part = slice(first, first + info.size)
            first += info.size
            intervals[info.name] = Interval(
                lower[:, part].reshape(count, *info.shape), upper[:, part].reshape(count, *info.shape)
            )
        for one in self.hidden:
            root = context.intervals[one.name]
            shape = root.lower.shape
            low = root.lower.flatten().expand(count, -1).clone()
            high = root.upper.flatten().expand(count, -1).clone()
            kept_low, kept_high = (ends[:, one.place].to(low.dtype) for ends in hidden)
            low[:, one.index] = torch.maximum(low[:, one.index], kept_low)
            high[:, one.index] = torch.minimum(high[:, one.index], kept_high)
            intervals[one.name] = Interval(low.reshape(count, *shape), high.reshape(count, *shape))
        return Domains(context, intervals)

    def input_ends(self, boxes: Boxes) -> tuple[Tensor, Tensor]:
        """Ends of all inputs in order, as a runtime may read them, [D, inputs]."""
        count = len(boxes.lower)
        lower, upper = (end.expand(count, -1).clone() for end in (self.lower, self.upper))
        low, high = boxes.lower, boxes.upper
        least = self.context.model.underflow
        if least:  # as BoxContext.over: a runtime that flushes reads a subnormal input as zero
            low = torch.where((low > 0) & (low < least), 0.0, low)
            high = torch.where((high < 0) & (high > -least), 0.0, high)
        lower[:, self.free], upper[:, self.free] = low, high
        return lower, upper

    def hidden_of(self, domains: Domains) -> tuple[Tensor, Tensor]:
        """What is known of the kept elements on each part: [D, kept] float32, rounded outwards."""
        lows, highs = [], []
        for one in self.hidden:
            ends = domains.interval(one.name)
            lows.append(ends.lower.reshape(domains.count, -1)[:, one.index])
            highs.append(ends.upper.reshape(domains.count, -1)[:, one.index])
        if not lows:
            nothing = torch.zeros(domains.count, 0)
            return nothing, nothing
        return _rounded_down(torch.cat(lows, 1)), -_rounded_down(-torch.cat(highs, 1))


def without_hidden(rows: Rows) -> Rows:
    """What every rank knows of parts."""
    return {name: array for name, array in rows.items() if name not in HIDDEN}


def _rounded_down(values: Tensor) -> Tensor:
    """Float32 at or below float64."""
    nearest = values.to(torch.float32)
    below = torch.nextafter(nearest, torch.full_like(nearest, -torch.inf))
    return torch.where(nearest.to(values.dtype) > values, below, nearest)
