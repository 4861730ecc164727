"""Properties made of an input, a label and a radius: no other output may reach the label's."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import PropertyError
from boundscope.properties.assemble import make_clause
from boundscope.properties.decimals import enclosure, parse_rational, rounded_text
from boundscope.properties.linear import make_constraint, subtract, variable
from boundscope.properties.types import Box, Case, Clause, NormBall, Property
from boundscope.protocol import EpsilonBall, Norm

FORMAT = "ε-ball"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_NPY_MAGIC = b"\x93NUMPY"


def ball_property(
    ball: EpsilonBall, center_path: str | Path, *, input_shape: tuple[int, ...], output_count: int
) -> Property:
    """The property of an ε-ball around the centre in `center_path` (.npy or PNG, told by content).

    Values of a .npy are taken exactly as stored; pixels of a PNG are divided by 255. Then, exactly, the
    interval [value − ε, value + ε] is cut to the clip range, and mean and std are applied to its ends. The
    box holds the result as decimals, exact where these end, else rounded outward to 25 digits; in other norms
    than L∞ it encloses the ball, which is described beside it (with L0 it is the clip range). Pixels go
    where `input_shape` says: [.., channels, height, width], [.., height, width, channels] or, for a grey
    image, any shape of the same size. Raises PropertyError for whatever does not fit.
    """
    norm = "" if ball.norm is Norm.LINF else f"{ball.norm.label} "
    name = f"{ball.center.name}, {norm}ε = {ball.epsilon}, label {ball.label}"
    if output_count < 2:
        raise PropertyError(f"{name}: the network has {output_count} output; a label needs at least two")
    if not 0 <= ball.label < output_count:
        raise PropertyError(
            f"{name}: the label must be one of the network's outputs, 0 to {output_count - 1}"
        )
    options = _Options.of(ball, name)
    centre = _read_centre(Path(center_path), ball.center.name, input_shape)
    channels = _channels(name, input_shape, len(options.mean))
    box = _box(name, centre, channels, options)
    if ball.norm is not Norm.LINF:
        box = dataclasses.replace(box, ball=_norm_ball(name, centre, channels, options))
    clauses = tuple(_rival(j, ball.label) for j in range(output_count) if j != ball.label)
    return Property(name, FORMAT, centre.values.size, output_count, (Case(box, clauses),))


@dataclass(frozen=True)
class _Options:
    """The numbers of an EpsilonBall, checked; mean and std have one entry, or one a channel."""

    norm: Norm
    epsilon: Fraction
    lower: Fraction | None
    upper: Fraction | None
    mean: tuple[Fraction, ...]
    std: tuple[Fraction, ...]

    @classmethod
    def of(cls, ball: EpsilonBall, name: str) -> _Options:
        epsilon = _number(ball.epsilon, "ε", name)
        if epsilon < 0:
            raise PropertyError(f"{name}: ε must not be negative")
        lower = None if ball.lower is None else _number(ball.lower, "the clip range's lower end", name)
        upper = None if ball.upper is None else _number(ball.upper, "the clip range's upper end", name)
        if lower is not None and upper is not None and lower > upper:
            raise PropertyError(f"{name}: the clip range [{ball.lower}, {ball.upper}] is empty")
        if ball.norm is Norm.L0:
            if epsilon.denominator != 1:
                raise PropertyError(
                    f"{name}: with L0, ε is the number of inputs that may change; give a whole number"
                )
            if lower is None or upper is None:
                raise PropertyError(
                    f"{name}: an L0 ball needs a clip range, or a changed input could be anything"
                )
        size = max(len(ball.mean), len(ball.std), 1)
        mean = tuple(_number(text, "mean", name) for text in ball.mean) or (Fraction(0),) * size
        std = tuple(_number(text, "std", name) for text in ball.std) or (Fraction(1),) * size
        if len(mean) != len(std):
            raise PropertyError(f"{name}: {len(mean)} means but {len(std)} stds; give one of each a channel")
        if any(value <= 0 for value in std):
            raise PropertyError(f"{name}: every std must be above 0")
        return cls(ball.norm, epsilon, lower, upper, mean, std)


@dataclass(frozen=True)
class _Centre:
    """Flat values [inputs] in the network's order, each to be divided by `divisor`."""

    values: NDArray[Any]
    divisor: int


def _number(text: str, what: str, name: str) -> Fraction:
    try:
        return parse_rational(text)
    except ValueError as error:
        raise PropertyError(f"{name}: {what}: {error}") from error


def _rival(other: int, label: int) -> Clause:
    left, right = variable(~other), variable(~label)
    return make_clause([make_constraint(">=", left, right, subtract(left, right))])


# ---------------------------------------------------------------- the box


def _box(name: str, centre: _Centre, channels: NDArray[np.int64], options: _Options) -> Box:
    lower_text, upper_text = [], []
    floats = np.empty((2, centre.values.size), dtype=np.float64)
    known: dict[tuple[Any, int], tuple[str, str, float, float]] = {}
    for index, pair in enumerate(zip(centre.values.tolist(), channels.tolist(), strict=True)):
        found = known.get(pair)
        if found is None:
            try:
                found = known[pair] = _interval(Fraction(pair[0]) / centre.divisor, pair[1], options)
            except ValueError as error:
                raise PropertyError(f"{name}: X_{index}: {error}") from error
        lower_text.append(found[0])
        upper_text.append(found[1])
        floats[:, index] = found[2:]
    return Box(tuple(lower_text), tuple(upper_text), floats[0], floats[1])


def _interval(centre: Fraction, channel: int, options: _Options) -> tuple[str, str, float, float]:
    """Both ends as text, the lower one rounded down and the upper one rounded up to float64."""
    lower, upper = centre - options.epsilon, centre + options.epsilon
    if options.norm is Norm.L0:
        lower, upper = _changed_anyhow(centre, options)
    if options.lower is not None:
        lower = max(lower, options.lower)
    if options.upper is not None:
        upper = min(upper, options.upper)
    if lower > upper:
        how_far = "" if options.norm is Norm.L0 else "further than ε "
        raise ValueError(
            f"the centre {float(centre):g} lies {how_far}outside the clip range; correct the centre or "
            "the range (they count before mean and std)"
        )
    mean, std = options.mean[channel], options.std[channel]
    lower_text = rounded_text((lower - mean) / std, up=False)
    upper_text = rounded_text((upper - mean) / std, up=True)
    below, _ = enclosure(lower_text, Decimal(lower_text))
    _, above = enclosure(upper_text, Decimal(upper_text))
    return lower_text, upper_text, below, above


def _changed_anyhow(centre: Fraction, options: _Options) -> tuple[Fraction, Fraction]:
    """Where a single input may go in an L0 ball, before the clip range: anywhere in it, if it may change at all."""
    assert options.lower is not None
    assert options.upper is not None
    if options.epsilon and options.lower <= centre <= options.upper:
        return options.lower, options.upper
    return centre, centre


def _norm_ball(name: str, centre: _Centre, channels: NDArray[np.int64], options: _Options) -> NormBall:
    texts: list[tuple[str, str]] = []
    floats = np.empty((2, centre.values.size), dtype=np.float64)
    missing = Fraction(0)  # the least distance of the clip range from the centre: squared in L2, else summed
    known: dict[tuple[Any, int], tuple[tuple[str, str], tuple[float, float], Fraction]] = {}
    for index, pair in enumerate(zip(centre.values.tolist(), channels.tolist(), strict=True)):
        found = known.get(pair)
        if found is None:
            found = known[pair] = _middle(Fraction(pair[0]) / centre.divisor, pair[1], options)
        texts.append(found[0])
        floats[:, index] = found[1]
        if found[2]:
            missing += found[2] ** 2 if options.norm is Norm.L2 else found[2]
    reach = options.epsilon**2 if options.norm is Norm.L2 else options.epsilon
    if options.norm is not Norm.L0 and missing > reach:
        raise PropertyError(
            f"{name}: no input of the clip range lies within ε of the centre in the {options.norm.label} norm; "
            "correct the centre or the range (they count before mean and std)"
        )
    below = np.array([_float_below(std) for std in options.std])
    return NormBall(
        norm=options.norm,
        radius=options.epsilon,
        centre_lower_text=tuple(lower for lower, _ in texts),
        centre_upper_text=tuple(upper for _, upper in texts),
        centre_lower=floats[0],
        centre_upper=floats[1],
        scale=tuple(options.std[channel] for channel in channels.tolist()),
        scale_below=below[channels],
        radius_above=-_float_below(-options.epsilon),
    )


def _middle(
    centre: Fraction, channel: int, options: _Options
) -> tuple[tuple[str, str], tuple[float, float], Fraction]:
    """The centre of one input, rounded down and up, as text and as float64; how far outside the clip range it is."""
    outside = Fraction(0)
    if options.lower is not None:
        outside = max(outside, options.lower - centre)
    if options.upper is not None:
        outside = max(outside, centre - options.upper)
    value = (centre - options.mean[channel]) / options.std[channel]
    lower, upper = rounded_text(value, up=False), rounded_text(value, up=True)
    below, _ = enclosure(lower, Decimal(lower))
    _, above = enclosure(upper, Decimal(upper))
    return (lower, upper), (below, above), outside


def _float_below(value: Fraction) -> float:
    """The largest float64 at or below."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def _channels(name: str, shape: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """The channel of each input, flat [inputs]; all 0 where there is one mean for all."""
    size = math.prod(shape)
    if count == 1:
        return np.zeros(size, dtype=np.int64)
    for axis in (-3, -1):
        if len(shape) >= 3 and shape[axis] == count:
            along = [1] * len(shape)
            along[axis] = count
            index = np.arange(count, dtype=np.int64).reshape(along)
            return np.broadcast_to(index, shape).reshape(-1)
    raise PropertyError(
        f"{name}: {count} means and stds, but the network's input {_written(shape)} has no axis of {count} "
        "channels; give one mean and one std"
    )


# ---------------------------------------------------------------- the centre


def _read_centre(path: Path, name: str, shape: tuple[int, ...]) -> _Centre:
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise PropertyError(f"{name}: cannot be read ({error.strerror or error})") from error
    if start.startswith(_NPY_MAGIC):
        return _Centre(_array_values(path, name, shape), 1)
    if start == _PNG_MAGIC:
        return _Centre(_image_values(path, name, shape), 255)
    raise PropertyError(f"{name}: is neither a .npy array nor a PNG image; save the centre as one of them")


def _array_values(path: Path, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise PropertyError(f"{name}: is not a whole .npy array of numbers ({error})") from error
    if array.dtype.kind not in "fiu":
        raise PropertyError(f"{name}: holds {array.dtype}; expected floating-point or integer numbers")
    if array.size != math.prod(shape):
        raise PropertyError(
            f"{name}: holds {array.size} values {_written(array.shape)} but the network's input "
            f"{_written(shape)} has {math.prod(shape)}"
        )
    has, wanted = [[size for size in each if size != 1] for each in (array.shape, shape)]
    if len(has) > 1 and has != wanted and sorted(has) == sorted(wanted):
        raise PropertyError(
            f"{name}: has the axes {_written(array.shape)} where the network has {_written(shape)}; transpose "
            "it to the network's order"
        )
    values = np.asarray(array).reshape(-1)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        index = int(np.flatnonzero(~np.isfinite(values))[0])
        raise PropertyError(f"{name}: value {index} is {values[index]}; the centre must be finite")
    if values.dtype.itemsize > 8:
        raise PropertyError(f"{name}: holds {values.dtype}; save it as float64 or float32")
    return values


def _image_values(path: Path, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Pixels 0 … 255 in the network's order."""
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            image.load()
            pixels = _pixels(image, name)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise PropertyError(f"{name}: is not a whole PNG image ({error})") from error
    height, width, count = pixels.shape
    if len(shape) >= 3 and shape[-3:] == (count, height, width) and pixels.size == math.prod(shape):
        return pixels.transpose(2, 0, 1).reshape(-1)
    if len(shape) >= 3 and shape[-3:] == (height, width, count) and pixels.size == math.prod(shape):
        return pixels.reshape(-1)
    if pixels.size != math.prod(shape):
        raise PropertyError(
            f"{name}: the image is {width} × {height} pixels of {count} channel(s), {pixels.size} values, but "
            f"the network's input {_written(shape)} has {math.prod(shape)}"
        )
    if count == 1:
        return pixels.reshape(-1)
    raise PropertyError(
        f"{name}: the network's input {_written(shape)} does not say where the {count} channels of a "
        f"{width} × {height} image go; give the centre as a .npy in the network's order"
    )


def _pixels(image: Any, name: str) -> NDArray[np.uint8]:
    """[height, width, channels] of an image of 8 bits a channel."""
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    if image.mode not in ("L", "RGB", "RGBA"):
        raise PropertyError(
            f"{name}: the PNG has the pixel format {image.mode}; save it as 8-bit grey, RGB or RGBA, or give "
            "a .npy"
        )
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _written(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
