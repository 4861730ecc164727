"""A counterexample as people can judge it: a picture where the input is one, and tables of values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage

from boundscope.protocol import Counterexample
from boundscope_app.views.text import number

LEAST_SIDE = 4
SHOWN_PX = 256
FLAT_SHAPES = {784: (1, 28, 28), 1024: (1, 32, 32), 3072: (3, 32, 32), 150_528: (3, 224, 224)}


@dataclass(frozen=True)
class InputPicture:
    """Pixels uint8 [height, width, 3], and in words how values became colours."""

    pixels: NDArray[np.uint8]
    note: str

    def image(self) -> QImage:
        """Enlarged without smoothing to about SHOWN_PX on its longer side."""
        height, width, _ = self.pixels.shape
        data = np.ascontiguousarray(self.pixels)
        image = QImage(data.data, width, height, 3 * width, QImage.Format.Format_RGB888).copy()
        factor = max(1, SHOWN_PX // max(height, width))
        return image.scaled(
            width * factor,
            height * factor,
            Qt.AspectRatioMode.KeepAspectRatio,
            Qt.TransformationMode.FastTransformation,
        )


def image_shape(shape: tuple[int, ...], count: int) -> tuple[int, int, int] | None:
    """(channels, height, width), channels -1 standing for channels last; None where the input is no image."""
    dims = tuple(size for size in shape)
    while len(dims) > 3 and dims[0] == 1:
        dims = dims[1:]
    if len(dims) == 3 and int(np.prod(dims)) == count:
        if dims[0] in (1, 3) and min(dims[1:]) >= LEAST_SIDE:
            return dims[0], dims[1], dims[2]
        if dims[2] in (1, 3) and min(dims[:2]) >= LEAST_SIDE:
            return -dims[2], dims[0], dims[1]
    if len(dims) == 2 and min(dims) >= LEAST_SIDE and int(np.prod(dims)) == count:
        return 1, dims[0], dims[1]
    flat = sum(size != 1 for size in dims) <= 1
    return FLAT_SHAPES.get(count) if flat else None


def input_picture(found: Counterexample) -> InputPicture | None:
    """The input as a picture, or None where its shape is not that of one."""
    shape = image_shape(found.input_shape, len(found.inputs))
    if shape is None:
        return None
    values = np.array([float(text) for text in found.inputs])
    channels, height, width = shape
    if channels < 0:
        planes = values.reshape(height, width, -channels)
    else:
        planes = values.reshape(channels, height, width).transpose(1, 2, 0)
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        floor, span, note = 0.0, 1.0, "0 is black, 1 is full brightness"
    elif low >= 0 and high <= 255 and high > 8:
        floor, span, note = 0.0, 255.0, "0 is black, 255 is full brightness"
    else:
        floor, span = low, (high - low) or 1.0
        note = f"stretched: {number(low, 3)} is black, {number(high, 3)} is full brightness"
    pixels = np.clip((planes - floor) / span * 255, 0, 255).round().astype(np.uint8)
    return InputPicture(np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels, note)
