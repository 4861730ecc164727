"""What a network is run on: arrays, images, or points drawn from the box of a property.

Every point gets one value for each input of the network, in the network's own type. A point's own axes may leave out
the leading axis of length 1 that networks have for batches, and may be flat.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import VariabilityError
from boundscope.network.graph import TensorInfo
from boundscope.properties.types import Box, Property
from boundscope.protocol import Norm
from boundscope.variability.inputs_images import read_images

ARRAYS = (".npy", ".npz")
IMAGES = (".png",)


@dataclass(frozen=True)
class Inputs:
    """`values` holds, for each input of the network by name, the values of all points, [points, *S]; `source` says in
    words where they are from. `cases` is the property's case that each point was drawn from; empty for files."""

    values: Mapping[str, NDArray[Any]]
    source: str
    cases: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of points."""
        return len(next(iter(self.values.values())))

    def digest(self) -> str:
        """SHA-256 of all values, with their names, types and shapes."""
        found = hashlib.sha256()
        for name, array in self.values.items():
            found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


def read_inputs(
    paths: Sequence[Path],
    infos: Sequence[TensorInfo],
    *,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> Inputs:
    """Points from one .npy, one .npz, or PNG files (in the order given, each one point).

    A .npz holds one array for each input of the network, by name, or one array of points. Pixels are divided by 255,
    then (pixel - mean) / std where these are given, one number or one a channel.

    Raises:
        VariabilityError: a file cannot be read or does not fit; it names the file, and the shape expected and found.
    """
    if not infos:
        raise VariabilityError("the network has no input")
    endings = {path.suffix.lower() for path in paths}
    names = ", ".join(path.name for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    if paths and endings <= set(IMAGES):
        if len(infos) != 1:
            raise VariabilityError(
                f"{names}: images fit a network with one input, this one has {len(infos)}; "
                "save the inputs as a .npz with one array an input"
            )
        values = read_images(paths, infos[0].shape, mean, std)
        return Inputs(
            {infos[0].name: _typed(values, infos[0], names)}, f"{_points(len(values))} of PNG images"
        )
    if mean or std:
        raise VariabilityError(f"{names}: mean and std are for PNG images; arrays are taken as they are")
    if len(paths) != 1 or not endings <= set(ARRAYS):
        raise VariabilityError(
            f"{names or 'no file'}: expected one .npy, one .npz, or PNG images (.png) alone"
        )
    (path,) = paths
    read = _read_npy if path.suffix.lower() == ".npy" else _read_npz
    inputs = {info.name: _fitted(array, info, path.name, part) for info, array, part in read(path, infos)}
    counts = {name: len(array) for name, array in inputs.items()}
    if len(set(counts.values())) != 1:
        each = ", ".join(f"'{name}' has {count}" for name, count in counts.items())
        raise VariabilityError(f"{path.name}: every input needs the same number of points, but {each}")
    count = next(iter(counts.values()))
    if count == 0:
        raise VariabilityError(f"{path.name}: holds no points; expected at least one")
    return Inputs(inputs, f"{_points(count)} of {path.name}")


def draw_inputs(prop: Property, infos: Sequence[TensorInfo], count: int, seed: int) -> Inputs:
    """`count` points, uniform in the boxes of the property's cases in turn; of a ball, moved into it.

    Each value is a number of the network's type inside the box wherever the box holds one.

    Raises:
        VariabilityError: the property has no case, or `count` is not positive.
    """
    if count < 1:
        raise VariabilityError(f"{count} points cannot be drawn; draw at least one")
    if not prop.cases:
        raise VariabilityError(
            f"{prop.name}: no input satisfies the property, so there is no box to draw from"
        )
    random = np.random.default_rng(seed)
    cases = tuple(number % len(prop.cases) for number in range(count))
    dtypes = np.concatenate([np.full(info.size, index) for index, info in enumerate(infos)])
    flat = np.stack([_drawn(prop.cases[case].box, random) for case in cases])
    values: dict[str, NDArray[Any]] = {}
    for index, info in enumerate(infos):
        chosen = dtypes == index
        lower = np.stack([prop.cases[case].box.lower[chosen] for case in cases])
        upper = np.stack([prop.cases[case].box.upper[chosen] for case in cases])
        part = _inside(flat[:, chosen], lower, upper, info.dtype)
        values[info.name] = part.reshape(count, *info.shape)
    return Inputs(values, f"{_points(count)} drawn from the box of {prop.name} (seed {seed})", cases)


# ------------------------------------------------------------ arrays


def _read_npy(path: Path, infos: Sequence[TensorInfo]) -> list[tuple[TensorInfo, NDArray[Any], str]]:
    if len(infos) != 1:
        names = ", ".join(f"'{info.name}'" for info in infos)
        raise VariabilityError(
            f"{path.name}: the network has {len(infos)} inputs ({names}); give a .npz with one array of each name"
        )
    array = _loaded(path)
    if not isinstance(array, np.ndarray):
        raise VariabilityError(f"{path.name}: is an archive of arrays; name it .npz")
    return [(infos[0], array, "")]


def _read_npz(path: Path, infos: Sequence[TensorInfo]) -> list[tuple[TensorInfo, NDArray[Any], str]]:
    archive = _loaded(path)
    if isinstance(archive, np.ndarray):
        raise VariabilityError(f"{path.name}: is one array and no archive; name it .npy")
    with archive:
        found = archive.files
        if len(infos) == 1 and len(found) == 1:
            return [(infos[0], _member(archive, found[0], path), found[0])]
        if set(found) != {info.name for info in infos}:
            expected = ", ".join(f"'{info.name}'" for info in infos)
            got = ", ".join(f"'{name}'" for name in found) or "none"
            raise VariabilityError(
                f"{path.name}: expected one array for each input of the network ({expected}), got {got}"
            )
        return [(info, _member(archive, info.name, path), info.name) for info in infos]


def _loaded(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise VariabilityError(f"{path}: there is no such file") from None
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise VariabilityError(f"{path.name}: is not a whole array file ({error})") from error


def _member(archive: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[name]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise VariabilityError(f"{path.name}: array '{name}' cannot be read ({error})") from error
    return array


def _fitted(array: NDArray[Any], info: TensorInfo, file: str, part: str) -> NDArray[Any]:
    """The points of an array, [points, *S]."""
    where = f"{file}, array '{part}'" if part else file
    if array.dtype.kind not in "fiub":
        raise VariabilityError(f"{where}: holds {array.dtype}; expected numbers")
    for own in _layouts(info.shape):
        if array.shape == own:
            return _typed(array.reshape(1, *info.shape), info, where)
        if array.ndim == len(own) + 1 and array.shape[1:] == own:
            return _typed(array.reshape(len(array), *info.shape), info, where)
    expected = " or ".join(f"[points, {', '.join(map(str, own))}]" for own in _layouts(info.shape) if own)
    raise VariabilityError(
        f"{where}: expected points for input '{info.name}' as {expected or '[points]'}, "
        f"got an array of shape {_written(array.shape)}"
    )


def _layouts(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The axes that one point may have: the network's, those without a batch axis of length 1, or flat."""
    found = [shape]
    if shape and shape[0] == 1:
        found.append(shape[1:])
    flat = (math.prod(shape),)
    return found if flat in found else [*found, flat]


def _typed(array: NDArray[Any], info: TensorInfo, where: str) -> NDArray[Any]:
    """In the network's type; refused where a value is not finite in it."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(array, info.dtype)
    if info.dtype.kind == "f" and not np.isfinite(values).all():
        place = np.unravel_index(int(np.flatnonzero(~np.isfinite(values))[0]), values.shape)
        raise VariabilityError(
            f"{where}: element {_written(place[1:])} of point {int(place[0])} is {array[place]}, which is not a "
            f"finite {info.dtype}; inputs must be finite"
        )
    if info.dtype.kind in "iu" and not np.array_equal(values, array):
        raise VariabilityError(
            f"{where}: input '{info.name}' takes {info.dtype}, and the array holds other numbers"
        )
    return values


def _written(shape: Sequence[Any]) -> str:
    return f"[{', '.join(str(int(length)) for length in shape)}]"


def _points(count: int) -> str:
    return "1 point" if count == 1 else f"{count} points"


# ------------------------------------------------------------ drawing


def _drawn(box: Box, random: np.random.Generator) -> NDArray[np.float64]:
    point = box.lower + random.random(box.lower.size) * (box.upper - box.lower)
    ball = box.ball
    if ball is None:
        return point
    centre = ball.centre_lower + (ball.centre_upper - ball.centre_lower) / 2
    if ball.norm is Norm.L0:
        chosen = random.permutation(point.size)[: int(ball.radius)]
        moved = centre.copy()
        moved[chosen] = point[chosen]
        return moved
    distances = np.array([float(factor) for factor in ball.scale]) * (point - centre)
    length = float(np.linalg.norm(distances, 2 if ball.norm is Norm.L2 else 1))
    radius = 0.99 * float(ball.radius)
    return point if length <= radius else centre + (point - centre) * (radius / length)


def _inside(
    values: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Values of `dtype`, moved to the next number inside the box where rounding left it."""
    if dtype.kind != "f":
        return np.rint(values).astype(dtype)
    found = values.astype(dtype)
    up, down = dtype.type(np.inf), dtype.type(-np.inf)
    found = np.where(found.astype(np.float64) < lower, np.nextafter(found, up), found)
    lowered = np.nextafter(found, down)
    return np.where(
        (found.astype(np.float64) > upper) & (lowered.astype(np.float64) >= lower), lowered, found
    )
