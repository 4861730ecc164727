"""Sampling at given places of an image."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from boundscope_prism.instrument.kernels import Kernels
from boundscope_prism.instrument.operators.table import rule

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER = 0, 1


@rule("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    k: Kernels, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Places, weights and the weighted sum are rounded; which elements a place lies between is not.

    Cubic interpolation and reflected places are torch's own, perturbed once.
    """
    if (
        interpolation_mode not in (BILINEAR, NEAREST)
        or padding_mode not in (ZEROS, BORDER)
        or not grid.numel()
    ):
        sampler = torch.ops.aten.grid_sampler_2d if input.dim() == 4 else torch.ops.aten.grid_sampler_3d
        result: Tensor = sampler(input, grid, interpolation_mode, padding_mode, align_corners)
        return k.at_output(result)
    sizes = input.shape[2:]
    axes = len(sizes)
    # The grid's last axis goes from the last spatial axis to the first.
    places = [
        _place(k, grid[..., axes - 1 - axis].contiguous(), size, padding_mode, align_corners)
        for axis, size in enumerate(sizes)
    ]
    if interpolation_mode == NEAREST:
        return _gathered(input, [place.round() for place in places])
    floors = [place.floor() for place in places]
    high = [k.subtract(place, floor) for place, floor in zip(places, floors, strict=True)]
    low = [k.subtract(1.0, share) for share in high]
    total: Tensor | None = None
    for corner in product((0, 1), repeat=axes):
        shares = [(low, high)[side][axis] for axis, side in enumerate(corner)]
        weight = shares[0]
        for share in shares[1:]:
            weight = k.multiply(weight, share)
        values = _gathered(input, [floor + side for floor, side in zip(floors, corner, strict=True)])
        weight = weight.unsqueeze(1).expand(values.shape)
        total = k.multiply(values, weight) if total is None else k.fma(values, weight, total)
    assert total is not None
    return total


def _place(k: Kernels, x: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    """From -1 to 1 to element numbers."""
    shifted = k.add(x, 1.0)
    if align_corners:
        place = k.multiply(shifted, (size - 1) / 2)
    else:
        place = k.multiply(k.fma(shifted, float(size), -1.0), 0.5)
    return place.clamp(0, size - 1) if padding_mode == BORDER else place


def _gathered(image: Tensor, places: list[Tensor]) -> Tensor:
    """(images, channels, *outputs): the elements at whole-numbered places, zero outside."""
    sizes = image.shape[2:]
    inside = torch.ones(places[0].shape, dtype=torch.bool)
    flat = torch.zeros(places[0].shape, dtype=torch.int64)
    for place, size in zip(places, sizes, strict=True):
        inside &= (place >= 0) & (place <= size - 1)
        flat = flat * size + place.clamp(0, size - 1).nan_to_num(0.0).long()
    images, channels = image.shape[:2]
    index = flat.reshape(images, 1, -1).expand(-1, channels, -1)
    values = image.reshape(images, channels, -1).gather(2, index)
    return values.view(images, channels, *places[0].shape[1:]).masked_fill(~inside.unsqueeze(1), 0.0)
