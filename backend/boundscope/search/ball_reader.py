"""Whether one input lies in an ε-ball, by the ball's own description. A reader of its own: it shares nothing with
`properties`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from boundscope.errors import PropertyError
from boundscope.protocol import EpsilonBall, Norm

# Decimals that never end were written to 25 digits: an input counts as its centre within that rounding.
WRITTEN = Fraction(1, 10**24)


@dataclass(frozen=True)
class BallAnswer:
    """Whether the decimals lie in the ball and its clip range, and what people must know besides."""

    inside: bool
    note: str


def judge(
    ball: EpsilonBall, center_path: str | os.PathLike[str], shape: tuple[int, ...], inputs: Sequence[str]
) -> BallAnswer:
    """The answer in exact arithmetic, roots avoided.

    Args:
        ball: the description of the job.
        center_path: the original centre, .npy or PNG.
        shape: of the network's input.
        inputs: decimal texts X_0 … X_{n−1}, in row-major order of `shape`.

    Raises:
        PropertyError: the centre cannot be read or does not go with the inputs.
    """
    raw = _centre(Path(center_path), shape)
    if len(raw) != len(inputs):
        raise PropertyError(f"{center_path}: {len(raw)} numbers; the counterexample has {len(inputs)}")
    epsilon = _number(ball.epsilon)
    means, stds = [_number(text) for text in ball.mean], [_number(text) for text in ball.std]
    channels = _channels(shape, max(len(means), len(stds), 1))
    changes = []
    for value, channel, text in zip(raw, channels, inputs, strict=True):
        mean = means[channel] if means else Fraction(0)
        std = stds[channel] if stds else Fraction(1)
        centre, written = (value - mean) / std, Fraction(text)
        reach = epsilon / std if ball.norm is Norm.LINF else Fraction(0)
        spare = 0 if _ends(centre) and not reach else WRITTEN * (abs(centre) + reach)
        changes.append(max(Fraction(0), abs(written - centre) - spare) * std)
        if not _within_clip(ball, written * std + mean, WRITTEN * abs(written) * std):
            return BallAnswer(False, f"the input {text} lies outside the clip range")
    return _by_norm(ball.norm, epsilon, changes)


def _by_norm(norm: Norm, epsilon: Fraction, changes: list[Fraction]) -> BallAnswer:
    if norm is Norm.L2:
        size = sum((change**2 for change in changes), Fraction(0))
        inside, shown = size <= epsilon**2, f"{float(size) ** 0.5:.9g}"
    elif norm is Norm.L1:
        size = sum(changes, Fraction(0))
        inside, shown = size <= epsilon, f"{float(size):.9g}"
    elif norm is Norm.L0:
        count = sum(change > 0 for change in changes)
        inside, shown = count <= epsilon, str(count)
    else:
        size = max(changes)
        inside, shown = size <= epsilon, f"{float(size):.9g}"
    side = "within" if inside else "which is not within"
    return BallAnswer(
        inside, f"its {norm.label} distance from the centre is {shown}, {side} {float(epsilon):g}"
    )


def _within_clip(ball: EpsilonBall, value: Fraction, spare: Fraction) -> bool:
    return (ball.lower is None or value >= _number(ball.lower) - spare) and (
        ball.upper is None or value <= _number(ball.upper) + spare
    )


def _ends(value: Fraction) -> bool:
    """Whether the decimals of a number end."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _number(text: str) -> Fraction:
    numerator, _, denominator = text.partition("/")
    return Fraction(numerator.strip()) / Fraction(denominator.strip() or 1)


def _channels(shape: tuple[int, ...], count: int) -> list[int]:
    """Which mean and std each input takes: along [.., channels, height, width], else [.., channels]."""
    index = np.zeros(shape, dtype=int)
    if count > 1:
        if len(shape) >= 3 and shape[-3] == count:
            index += np.arange(count)[:, None, None]
        else:
            index += np.arange(count)
    return [int(one) for one in index.ravel()]


def _centre(path: Path, shape: tuple[int, ...]) -> list[Fraction]:
    """The numbers of the centre in the network's order."""
    try:
        if path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n":
            pixels = _in_order(_image(path), shape)
            return [Fraction(int(pixel), 255) for pixel in pixels.ravel()]
        array = np.load(path, allow_pickle=False)
        return [Fraction(float(value)) for value in array.ravel()]
    except (OSError, ValueError, EOFError) as error:
        raise PropertyError(f"{path}: the centre cannot be read again: {error}") from error


def _image(path: Path) -> np.ndarray[Any, Any]:
    from PIL import Image

    with Image.open(path) as image:
        if image.mode == "1":
            return np.asarray(image.convert("L"))
        if image.mode == "P":
            return np.asarray(image.convert("RGBA" if "transparency" in image.info else "RGB"))
        return np.asarray(image)


def _in_order(pixels: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """[height, width, channels] as it is, or with the channels first where the network's shape says so."""
    if pixels.ndim == 3 and len(shape) >= 3 and shape[-3:] == (pixels.shape[2], *pixels.shape[:2]):
        return np.moveaxis(pixels, 2, 0)
    return pixels
