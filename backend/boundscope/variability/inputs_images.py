"""PNG images as a network's inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import VariabilityError

Float64 = NDArray[np.float64]
# Pixel formats of 8 bits a channel; others would lose something on the way.
_FORMATS = ("L", "RGB", "RGBA")


def png_files(folder: Path) -> tuple[Path, ...]:
    """The PNG files of a folder, sorted by name.

    Raises:
        VariabilityError: there is none, or the folder cannot be read.
    """
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".png")
    except OSError as error:
        raise VariabilityError(f"{folder} cannot be read: {error.strerror or error}") from error
    if not found:
        raise VariabilityError(f"{folder}: expected PNG images (.png), the folder has none")
    return tuple(found)


def read_images(
    paths: Sequence[Path], shape: tuple[int, ...], mean: Sequence[float], std: Sequence[float]
) -> Float64:
    """[images, *shape]: pixels / 255, then (pixel - mean) / std, one number or one a channel.

    `shape` is the network's input: [.., channels, height, width] or [.., height, width, channels] with leading axes
    of length 1, or for grey images anything of as many elements.

    Raises:
        VariabilityError: an image cannot be read or has another size; it names the file.
    """
    if any(value <= 0 for value in std):
        raise VariabilityError("every std must be above 0")
    return np.stack([_image(path, shape, mean, std) for path in paths])


def _image(path: Path, shape: tuple[int, ...], mean: Sequence[float], std: Sequence[float]) -> Float64:
    pixels = _pixels(path) / 255.0  # [height, width, channels]
    channels = pixels.shape[2]
    for name, numbers in (("mean", mean), ("std", std)):
        if len(numbers) not in (0, 1, channels):
            raise VariabilityError(
                f"{path.name}: has {channels} channel(s), and there are {len(numbers)} numbers for {name}"
            )
    if mean:
        pixels = pixels - np.array(mean)
    if std:
        pixels = pixels / np.array(std)
    return _arranged(pixels, shape, path)


def _arranged(pixels: Float64, shape: tuple[int, ...], path: Path) -> Float64:
    height, width, channels = pixels.shape
    if len(shape) >= 3 and pixels.size == math.prod(shape):
        if shape[-3:] == (channels, height, width):
            return pixels.transpose(2, 0, 1).reshape(shape)
        if shape[-3:] == (height, width, channels):
            return pixels.reshape(shape)
    if channels == 1 and pixels.size == math.prod(shape):
        return pixels.reshape(shape)
    raise VariabilityError(
        f"{path.name}: expected an image for the network's input [{', '.join(map(str, shape))}], "
        f"got {width} × {height} pixels of {channels} channel(s)"
    )


def _pixels(path: Path) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as file:
            file.load()
            image: Image.Image = file
            if image.mode == "1":
                image = image.convert("L")
            elif image.mode == "P":
                image = image.convert("RGBA" if "transparency" in image.info else "RGB")
            if image.mode not in _FORMATS:
                raise VariabilityError(
                    f"{path.name}: expected 8-bit grey, RGB or RGBA pixels, got the format {image.mode}"
                )
            pixels = np.asarray(image, dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise VariabilityError(f"{path.name}: is not a whole PNG image ({error})") from error
    return pixels[:, :, None] if pixels.ndim == 2 else pixels
