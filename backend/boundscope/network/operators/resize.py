"""Upsample and Resize: to the nearest element, or linearly between the two nearest along each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import torch
from torch import Tensor

from boundscope.network.operators.base import OnnxNode, OnnxOperator, operator, require


@dataclass(frozen=True)
class NearestTake(OnnxOperator):
    """`indices[axis]` are the input indices taken along each axis, None where the axis stays as it is."""

    indices: tuple[tuple[int, ...] | None, ...]
    rounds: ClassVar[bool] = False

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        for axis, taken in enumerate(self.indices):
            if taken is not None:
                x = x.index_select(axis, torch.tensor(taken, dtype=torch.int64, device=x.device))
        return (x,)


@dataclass(frozen=True)
class LinearResize(OnnxOperator):
    """Along each axis, `places[axis]` are the input positions that are read, between elements where they are not
    whole; None where the axis stays as it is. One axis after another, so linear, bilinear or trilinear."""

    places: tuple[tuple[float, ...] | None, ...]
    onnx_type = "Resize"

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = require(inputs[0])
        for axis, places in enumerate(self.places):
            if places is None:
                continue
            below = [min(math.floor(place), x.shape[axis] - 1) for place in places]
            above = [min(index + 1, x.shape[axis] - 1) for index in below]
            share = [place - index for place, index in zip(places, below, strict=True)]
            weight = torch.tensor(share, dtype=x.dtype, device=x.device)
            weight = weight.reshape(-1, *(1,) * (x.ndim - axis - 1))
            low, high = (
                x.index_select(axis, torch.tensor(index, dtype=torch.int64, device=x.device))
                for index in (below, above)
            )
            x = low * (1 - weight) + high * weight
        return (x,)

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        """Runtimes compute positions in float32, with an error in proportion to the position."""
        longest = max((max(places) for places in self.places if places), default=0.0)
        return 8 + 4 * math.ceil(longest)

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        return self.evaluate([require(inputs[0]).abs()])[0]


@operator("Upsample")
@dataclass(frozen=True)
class Upsample(NearestTake):
    """Scales are an attribute in opset 7 and an input in 9; deprecated since 10."""

    parameters: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        mode = node.text("mode", "nearest")
        if mode not in ("nearest", "linear", "bilinear"):
            node.unsupported(f"mode '{mode}'")
        given = node.constant(1)
        scales = node.numbers("scales") if given is None else tuple(float(s) for s in given.reshape(-1))
        if scales is None or len(scales) != node.rank:
            node.fail("its scales are missing")
        sizes = [math.floor(size * scale) for size, scale in zip(node.shape, scales, strict=True)]
        if mode != "nearest":
            return cast(Self, LinearResize(_between(node.shape, sizes, scales, "asymmetric")))
        return cls(_nearest(node.shape, sizes, scales, "asymmetric", "floor"))


@operator("Resize")
@dataclass(frozen=True)
class Resize(NearestTake):
    """Scales are input 1 in opset 10; since 11 the inputs are roi, scales and sizes."""

    parameters: ClassVar[tuple[int, ...]] = (1, 2, 3)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        mode = node.text("mode", "nearest")
        transform = (
            "asymmetric" if node.opset < 11 else node.text("coordinate_transformation_mode", "half_pixel")
        )
        rounding = "floor" if node.opset < 11 else node.text("nearest_mode", "round_prefer_floor")
        known = transform in _TRANSFORMS and (mode == "linear" or rounding in _ROUNDINGS)
        if mode not in ("nearest", "linear") or not known:
            node.unsupported(f"mode '{mode}' with '{transform}' and '{rounding}'")
        if mode == "linear" and node.integer("antialias", 0):
            node.unsupported("antialias")
        if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            node.unsupported("a keep_aspect_ratio_policy other than stretch")
        axes = node.axes(node.integers("axes") or tuple(range(node.rank)))
        given = node.constant(1 if node.opset < 11 else 2)
        sizes, scales = list(node.shape), [1.0] * node.rank
        if given is not None and given.size:
            for axis, scale in zip(axes, given.reshape(-1), strict=True):
                sizes[axis], scales[axis] = math.floor(node.shape[axis] * float(scale)), float(scale)
        else:
            wanted = node.constant_integers(3)
            if wanted is None or len(wanted) != len(axes):
                node.fail("its scales and sizes are missing")
            for axis, size in zip(axes, wanted, strict=True):
                sizes[axis], scales[axis] = size, size / node.shape[axis]
        if mode == "linear":
            return cast(Self, LinearResize(_between(node.shape, sizes, scales, transform)))
        return cls(_nearest(node.shape, sizes, scales, transform, rounding))


_TRANSFORMS = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
_ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def _nearest(
    shape: Sequence[int], sizes: Sequence[int], scales: Sequence[float], transform: str, rounding: str
) -> tuple[tuple[int, ...] | None, ...]:
    """Input indices along each axis."""
    result: list[tuple[int, ...] | None] = []
    for length, size, scale in zip(shape, sizes, scales, strict=True):
        if length == size and scale == 1.0:
            result.append(None)
            continue
        positions = [_position(i, length, size, scale, transform) for i in range(size)]
        result.append(tuple(min(max(_rounded(p, rounding), 0), length - 1) for p in positions))
    return tuple(result)


def _between(
    shape: Sequence[int], sizes: Sequence[int], scales: Sequence[float], transform: str
) -> tuple[tuple[float, ...] | None, ...]:
    """Input positions along each axis, kept inside it."""
    result: list[tuple[float, ...] | None] = []
    for length, size, scale in zip(shape, sizes, scales, strict=True):
        if length == size and scale == 1.0:
            result.append(None)
            continue
        positions = (_position(i, length, size, scale, transform) for i in range(size))
        result.append(tuple(min(max(p, 0.0), length - 1.0) for p in positions))
    return tuple(result)


def _position(index: int, length: int, size: int, scale: float, transform: str) -> float:
    """Place of an output index among the input's indices (ONNX Resize, coordinate_transformation_mode)."""
    if transform == "asymmetric":
        return index / scale
    if transform == "align_corners":
        return index * (length - 1) / (size - 1) if size > 1 else 0.0
    if transform == "pytorch_half_pixel" and size <= 1:
        return 0.0
    return (index + 0.5) / scale - 0.5


def _rounded(position: float, rounding: str) -> int:
    if rounding == "floor":
        return math.floor(position)
    if rounding == "ceil":
        return math.ceil(position)
    if rounding == "round_prefer_floor":
        return math.ceil(position - 0.5)
    return math.floor(position + 0.5)
