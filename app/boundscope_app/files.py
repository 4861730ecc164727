"""What a dropped or opened path is, and if it is nothing that we read, why. No Qt."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER_LIMIT = 2000
FOLDER_DEPTH = 4


class Kind(enum.StrEnum):
    NETWORK = "network"
    PROPERTY = "property"
    CENTER = "input"
    POINTS = "points"
    INSTANCES = "benchmark"


SUFFIXES: dict[str, Kind] = {
    ".onnx": Kind.NETWORK,
    ".onnx.gz": Kind.NETWORK,
    ".vnnlib": Kind.PROPERTY,
    ".vnnlib.gz": Kind.PROPERTY,
    ".npy": Kind.CENTER,
    ".png": Kind.CENTER,
    ".npz": Kind.POINTS,
    ".csv": Kind.INSTANCES,
    ".csv.gz": Kind.INSTANCES,
}
READABLE = (
    "It takes .onnx, .vnnlib (both also .gz), .npy, .npz, .png, an instances.csv, or a folder of these."
)
NETWORK_FILTER = "ONNX networks (*.onnx *.onnx.gz)"
PROPERTY_FILTER = "VNN-LIB properties (*.vnnlib *.vnnlib.gz)"
CENTER_FILTER = "Inputs (*.npy *.png)"
POINTS_FILTER = "Points (*.npy *.npz *.png)"
INSTANCES_FILTER = "Benchmarks (*.csv *.csv.gz)"
ALL_FILTER = (
    "All that Boundscope reads (*.onnx *.onnx.gz *.vnnlib *.vnnlib.gz *.npy *.npz *.png *.csv *.csv.gz)"
)

HINTS: dict[str, str] = {
    ".pt": "A PyTorch file holds no fixed graph: write it as ONNX with torch.onnx.export first.",
    ".pth": "A PyTorch file holds no fixed graph: write it as ONNX with torch.onnx.export first.",
    ".h5": "Convert the Keras model to ONNX first, with tf2onnx for instance.",
    ".keras": "Convert the Keras model to ONNX first, with tf2onnx for instance.",
    ".pb": "Convert the TensorFlow graph to ONNX first, with tf2onnx for instance.",
    ".tflite": "Convert the TFLite model to ONNX first, with tf2onnx for instance.",
    ".jpg": "JPEG changes pixel values: save the input as PNG or as .npy.",
    ".jpeg": "JPEG changes pixel values: save the input as PNG or as .npy.",
    ".zip": "Unpack it and drop the folder.",
    ".tar": "Unpack it and drop the folder.",
}
MAGIC: dict[str, tuple[bytes, str]] = {
    ".npy": (b"\x93NUMPY", "does not begin as a NumPy array; write it with numpy.save"),
    ".png": (b"\x89PNG\r\n\x1a\n", "does not begin as a PNG image; save it as PNG again"),
    ".npz": (b"PK", "does not begin as a NumPy archive; write it with numpy.savez"),
    ".gz": (b"\x1f\x8b", "does not begin as gzip data; drop the unpacked file or compress it again"),
}
LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Found:
    """Readable paths by kind in the order given, and one sentence for each path that is not readable."""

    networks: tuple[Path, ...] = ()
    properties: tuple[Path, ...] = ()
    centers: tuple[Path, ...] = ()
    points: tuple[Path, ...] = ()
    benchmarks: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.networks or self.properties or self.centers or self.points or self.benchmarks)


def kind_of(path: Path | str) -> Kind | None:
    """The kind by name alone; None for what we do not read."""
    name = Path(path).name.lower()
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)


def problem_with(path: Path) -> str | None:
    """Why this file cannot be read by its name and first bytes; None where nothing speaks against it."""
    if not path.exists():
        return f"{path.name} is not there: {path}"
    kind = kind_of(path)
    if kind is None:
        hint = HINTS.get(path.suffix.lower(), READABLE)
        return f"{path.name} is not a file that Boundscope reads. {hint}"
    try:
        with path.open("rb") as stream:
            start = stream.read(32)
    except OSError as error:
        return f"{path.name} cannot be opened: {error.strerror or error}"
    if not start:
        return f"{path.name} is empty."
    if start.startswith(LFS_POINTER):
        return f"{path.name} is a Git LFS pointer, not the file itself: run “git lfs pull” in its repository."
    magic = MAGIC.get(path.suffix.lower())
    if magic is not None and not start.startswith(magic[0]):
        return f"{path.name} {magic[1]}."
    return None


def _walk(folder: Path) -> list[Path]:
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        if len(Path(root).relative_to(folder).parts) >= FOLDER_DEPTH:
            folders.clear()
        found.extend(Path(root, name) for name in sorted(names) if _found_in_folders(name))
        if len(found) >= FOLDER_LIMIT:
            return found[:FOLDER_LIMIT]
    return found


def _found_in_folders(name: str) -> bool:
    """Whether it is taken along with its folder: a table may be anything, unless it is named as benchmarks' are."""
    kind = kind_of(name)
    return kind is not None and (kind is not Kind.INSTANCES or name.lower().startswith("instances"))


def examine(paths: Iterable[Path]) -> Found:
    """Sort paths by kind, looking into folders (four levels, 2 000 files), and say what is wrong."""
    kinds: dict[Kind, list[Path]] = {kind: [] for kind in Kind}
    problems: list[str] = []
    for path in paths:
        members = _walk(path) if path.is_dir() else [path]
        if path.is_dir() and not members:
            problems.append(f"The folder {path.name} holds nothing that Boundscope reads. {READABLE}")
        for member in members:
            problem = problem_with(member)
            kind = kind_of(member)
            if problem is not None or kind is None:
                problems.append(problem or f"{member.name} is not a file that Boundscope reads. {READABLE}")
            else:
                kinds[kind].append(member)
    return Found(
        tuple(kinds[Kind.NETWORK]),
        tuple(kinds[Kind.PROPERTY]),
        tuple(kinds[Kind.CENTER]),
        tuple(kinds[Kind.POINTS]),
        tuple(kinds[Kind.INSTANCES]),
        tuple(problems),
    )


def images_of(folder: Path) -> tuple[Path, ...]:
    """The PNG images directly in a folder, by name."""
    return tuple(sorted(each for each in folder.glob("*") if each.suffix.lower() == ".png"))


def image_folder(paths: Iterable[Path]) -> Path | None:
    """The folder of which these are all the images, or that was given itself and holds nothing else of ours."""
    given = tuple(paths)
    if len(given) == 1 and given[0].is_dir():
        members = _walk(given[0])
        return given[0] if members and set(members) == set(images_of(given[0])) else None
    if len(given) > 1 and {each.parent for each in given} == {given[0].parent}:
        return given[0].parent if set(given) == set(images_of(given[0].parent)) else None
    return None


def looks_droppable(paths: Iterable[Path]) -> bool:
    """Whether anything among the paths may be of use, without opening a file (asked while dragging)."""
    return any(path.is_dir() or kind_of(path) is not None for path in paths)
