"""Operators that pick, join and pad elements: Concat, Split, Slice, Gather, Pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


class Moving(OnnxOperator):
    """Every output element is an input element or a constant."""

    rounds: ClassVar[bool] = False


@operator("Concat")
@dataclass(frozen=True)
class Concat(Moving):
    """Join along `axis`; constants among the parts stay inputs."""

    axis: int

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(node.axis(node.integer("axis")))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return (torch.cat([require(x) for x in inputs], dim=self.axis),)


@operator("Split")
@dataclass(frozen=True)
class Split(Moving):
    """Cut along `axis` into parts of these sizes. An attribute before opset 13, an input since."""

    axis: int
    sizes: tuple[int, ...]
    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        axis = node.axis(node.integer("axis", 0))
        sizes = node.integers("split") if node.opset < 13 else node.constant_integers(1)
        length = node.shape[axis]
        if sizes is None:
            count = node.integer("num_outputs", node.output_count)
            part = -(-length // count)
            sizes = tuple(min(part, length - i * part) for i in range(count))
        if sum(sizes) != length or min(sizes) < 0 or len(sizes) != node.output_count:
            node.fail(f"parts of {list(sizes)} do not make up axis {axis} of an input of {list(node.shape)}")
        return cls(axis, sizes)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        return tuple(torch.split(require(inputs[0]), list(self.sizes), dim=self.axis))


@operator("Slice")
@dataclass(frozen=True)
class Slice(Moving):
    """Elements start, start + step, … before stop of each axis named.

    Resolved as Python's `slice.indices`; with a negative step a stop of −1 is one before the first element.
    Attributes before opset 10, inputs since.
    """

    axes: tuple[int, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    parameters: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)

    @classmethod
    def form(cls, constant: Sequence[bool]) -> type[OnnxOperator]:
        return cls if all(constant[1:3]) else DynamicSlice

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        if node.opset < 10:
            starts, stops, axes = node.integers("starts"), node.integers("ends"), node.integers("axes")
            steps: tuple[int, ...] | None = None
        else:
            starts, stops, axes, steps = (node.constant_integers(i) for i in (1, 2, 3, 4))
        if starts is None or stops is None:
            node.fail("its starts or ends are missing")
        axes = node.axes(tuple(range(len(starts))) if axes is None else axes)
        steps = (1,) * len(starts) if steps is None else steps
        if not len(starts) == len(stops) == len(axes) == len(steps) or 0 in steps:
            node.fail(f"starts {starts}, ends {stops}, axes {axes} and steps {steps} do not go together")
        resolved = [
            slice(start, stop, step).indices(node.shape[axis])
            for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True)
        ]
        return cls(
            axes, tuple(r[0] for r in resolved), tuple(r[1] for r in resolved), tuple(r[2] for r in resolved)
        )

    def indices(self, position: int) -> range:
        """Indices taken along `axes[position]`."""
        return range(self.starts[position], self.stops[position], self.steps[position])

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        for position, axis in enumerate(self.axes):
            taken = self.indices(position)
            if taken.step > 0:
                part = slice(taken.start, taken.start + len(taken) * taken.step, taken.step)
                x = x[(slice(None),) * axis + (part,)]
            else:
                x = x.index_select(axis, torch.tensor(list(taken), dtype=torch.int64, device=x.device))
        return (x,)


@dataclass(frozen=True)
class DynamicSlice(Moving):
    """A Slice whose starts or stops depend on the network's input: x, starts and stops remain inputs.

    Shapes are static all the same: the number of elements must not depend on the input. Steps are positive.
    """

    axes: tuple[int, ...]
    steps: tuple[int, ...]
    onnx_type = "Slice"
    parameters: ClassVar[tuple[int, ...]] = (3, 4)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        count = math.prod(node.tensor(1).shape)
        axes, steps = node.constant_integers(3), node.constant_integers(4)
        axes = node.axes(tuple(range(count)) if axes is None else axes)
        steps = (1,) * count if steps is None else steps
        if not len(axes) == len(steps) == count:
            node.fail(f"{count} starts, axes {axes} and steps {steps} do not go together")
        if min(steps, default=1) < 1:
            node.unsupported("a negative step with starts or ends that depend on the network's input")
        return cls(axes, steps)

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, starts, stops = (require(value) for value in inputs[:3])
        for position, axis in enumerate(self.axes):
            ends = (int(starts.flatten()[position]), int(stops.flatten()[position]))
            first, last, step = slice(*ends, self.steps[position]).indices(x.shape[axis])
            x = x[(slice(None),) * axis + (slice(first, last, step),)]
        return (x,)


@operator("Gather")
@dataclass(frozen=True)
class Gather(Moving):
    """Slices of x along `axis`: the axis is replaced by the axes of `indices` (row-major, non-negative)."""

    axis: int
    indices: tuple[int, ...]
    index_shape: tuple[int, ...]
    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def form(cls, constant: Sequence[bool]) -> type[OnnxOperator]:
        return cls if all(constant[1:2]) else DynamicGather

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        axis = node.axis(node.integer("axis", 0))
        indices = node.constant(1)
        if indices is None:
            node.fail("its indices are missing")
        length = node.shape[axis]
        flat = tuple(int(i) for i in indices.reshape(-1))
        if any(not -length <= i < length for i in flat):
            node.fail(f"an index lies outside axis {axis} of an input of shape {list(node.shape)}")
        return cls(axis, tuple(i % length for i in flat), tuple(indices.shape))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        taken = x.index_select(self.axis, torch.tensor(self.indices, dtype=torch.int64, device=x.device))
        return (taken.reshape((*x.shape[: self.axis], *self.index_shape, *x.shape[self.axis + 1 :])),)


@dataclass(frozen=True)
class DynamicGather(Moving):
    """A Gather whose indices depend on the network's input. Negative ones count from the end."""

    axis: int
    onnx_type = "Gather"

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        return cls(node.axis(node.integer("axis", 0)))

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, indices = require(inputs[0]), require(inputs[1]).to(torch.int64)
        flat = torch.where(indices < 0, indices + x.shape[self.axis], indices).flatten()
        taken = x.index_select(self.axis, flat)
        return (taken.reshape((*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])),)


@operator("ScatterND")
@dataclass(frozen=True)
class ScatterND(Moving):
    """Data with `updates` in place of the slices that `indices` [*I, Q] name; updates are [*I, *data.shape[Q:]]."""

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        if (reduction := node.text("reduction", "none")) != "none":
            node.unsupported(f"reduction '{reduction}'")
        indices = node.constant(1)
        if indices is not None and indices.size:
            axes = np.array(node.shape[: indices.shape[-1]])
            rows = np.where(indices < 0, indices + axes, indices).reshape(-1, indices.shape[-1])
            if len(np.unique(rows, axis=0)) < len(rows):
                node.unsupported("writing one element twice")
        return cls()

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        data, indices, updates = (require(value) for value in inputs[:3])
        depth = indices.shape[-1]
        axes = torch.tensor(data.shape[:depth], dtype=torch.int64, device=indices.device)
        places = torch.where(indices < 0, indices + axes, indices).to(torch.int64).reshape(-1, depth)
        dtype = torch.promote_types(data.dtype, updates.dtype)
        written = updates.to(dtype).reshape(-1, *data.shape[depth:])
        return (data.to(dtype).index_put(tuple(places.unbind(1)), written),)


@operator("Pad")
@dataclass(frozen=True)
class Pad(Moving):
    """Add (or, where negative, cut) elements around every axis: `begins` and `ends` of all axes.

    Modes: "constant" (of `value`), "reflect", "edge", "wrap". Attributes before opset 11, inputs since.
    """

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    mode: str = "constant"
    value: float = 0.0
    parameters: ClassVar[tuple[int, ...]] = (1, 2, 3)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        mode = node.text("mode", "constant")
        if node.opset < 11:
            pads, axes, value = node.integers("pads"), None, node.number("value", 0.0)
        else:
            pads, axes = node.constant_integers(1), node.constant_integers(3)
            given = node.constant(2)
            value = 0.0 if given is None or not given.size else float(given.reshape(-1)[0])
        axes = node.axes(tuple(range(node.rank)) if axes is None else axes)
        if pads is None or len(pads) != 2 * len(axes):
            node.fail(f"pads {pads} are not two for each of {len(axes)} axes")
        if not math.isfinite(value):
            node.unsupported(f"padding with {value}")
        if mode not in ("constant", "reflect", "edge", "wrap"):
            node.unsupported(f"mode '{mode}'")
        begins, ends = [0] * node.rank, [0] * node.rank
        for i, axis in enumerate(axes):
            begins[axis], ends[axis] = pads[i], pads[i + len(axes)]
        if any(b + e + size < 0 for b, e, size in zip(begins, ends, node.shape, strict=True)):
            node.fail(f"pads {list(pads)} cut off more than an input of shape {list(node.shape)} has")
        return cls(tuple(begins), tuple(ends), mode, value)

    def source_indices(self, axis: int, length: int) -> list[int]:
        """Input index of each output position along an axis of this length (modes other than "constant")."""
        positions = range(-self.begins[axis], length + self.ends[axis])
        if self.mode == "edge":
            return [min(max(p, 0), length - 1) for p in positions]
        if self.mode == "wrap":
            return [p % length for p in positions]
        period = max(1, 2 * (length - 1))
        return [min(p % period, period - p % period) for p in positions]

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        if self.mode == "constant":
            pads = [v for pair in zip(reversed(self.begins), reversed(self.ends), strict=True) for v in pair]
            return (F.pad(x, pads, value=self.value),)
        for axis in range(x.ndim):
            if self.begins[axis] or self.ends[axis]:
                indices = self.source_indices(axis, x.shape[axis])
                x = x.index_select(axis, torch.tensor(indices, dtype=torch.int64, device=x.device))
        return (x,)
