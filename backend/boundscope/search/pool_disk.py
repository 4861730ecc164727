"""Domains on disk: sorted runs of rows in files that are written once, and the private folder that holds them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boundscope.errors import BoundscopeError, OutOfMemoryError

Rows = dict[str, NDArray[Any]]

# Columns of the pool itself; those of its user do not begin with a dot.
URGENCY, NUMBER, PRIORITY, LENGTH = ".urgency", ".number", ".priority", ".length"
SLICE_BYTES = 4 << 20  # gathered at a time, beside what is in memory anyway
MOST_VALUES = 256  # distinct values of a whole-number column that a segment remembers
_PREFIX = "boundscope-domains-"
_LOCK = "lock"


@dataclass(frozen=True)
class Layout:
    """Of one column in a file: its type and the shape of one row."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class SegmentImage(msgspec.Struct, frozen=True):
    """A segment as a checkpoint describes it."""

    name: str
    rows: int
    start: int
    depth: int
    crc32: int
    first: tuple[float, int]
    least: float


@dataclass
class Segment:
    """Rows sorted by their turn, column after column in one file; those before `start` have been taken.

    `first` is the key of the next row, `least` the smallest priority of those that wait.
    """

    path: Path
    rows: int
    depth: int  # rows that growing columns have
    layouts: Mapping[str, Layout]
    crc32: int
    first: tuple[float, int]
    least: float
    start: int = 0
    values: dict[str, frozenset[int]] = field(default_factory=dict)
    synced: bool = False

    def __len__(self) -> int:
        return self.rows - self.start

    @property
    def nbytes(self) -> int:
        return self.rows * sum(layout.row_bytes for layout in self.layouts.values())

    @property
    def image(self) -> SegmentImage:
        return SegmentImage(
            self.path.name, self.rows, self.start, self.depth, self.crc32, self.first, self.least
        )

    def read(self, begin: int, end: int, names: tuple[str, ...] | None = None) -> Rows:
        """Columns (None: all) of the waiting rows begin:end.

        Raises:
            BoundscopeError: the file is gone, too short or unreadable.
        """
        found: Rows = {}
        offset = 0
        try:
            with self.path.open("rb") as file:
                for name, layout in self.layouts.items():
                    if names is None or name in names:
                        file.seek(offset + (self.start + begin) * layout.row_bytes)
                        array = np.empty((end - begin, *layout.shape), layout.dtype)
                        if file.readinto(_bytes_of(array)) != array.nbytes:
                            raise OSError("it ends too early")
                        found[name] = array
                    offset += self.rows * layout.row_bytes
        except OSError as error:
            reason = error.strerror or error
            raise BoundscopeError(
                f"{self.path}, which holds domains of the search, cannot be read back: {reason}; "
                "it must stay where it is while the search runs"
            ) from error
        return found

    def advance(self, count: int) -> None:
        """The next `count` rows have been taken; more must wait behind them."""
        self.start += count
        names = (URGENCY, NUMBER, *((PRIORITY,) if PRIORITY in self.layouts else ()))
        if PRIORITY in self.layouts:
            rows = self.read(0, len(self), names)
            self.least = float(rows[PRIORITY].min())
        else:
            rows = self.read(0, 1, names)
            self.least = float(rows[URGENCY][0])
        self.first = float(rows[URGENCY][0]), int(rows[NUMBER][0])

    def sync(self) -> None:
        """Make sure that a power cut does not take it."""
        if not self.synced:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            self.synced = True


def write_segment(path: Path, count: int, depth: int, columns: Mapping[str, Column]) -> Segment:
    """Write rows 0:count of `columns`, which include `urgency` and `number`, sorted.

    Raises:
        OutOfMemoryError: the disk is full or failing; no file is left.
    """
    crc = 0
    seen: dict[str, set[int] | None] = {}
    least = np.inf
    rated = PRIORITY if PRIORITY in columns else URGENCY
    try:
        with path.open("xb", buffering=0) as file:
            for name, column in columns.items():
                if column.layout.dtype.kind in "iub" and column.layout.shape == () and name != NUMBER:
                    seen[name] = set()
                for array in column.parts(count):
                    view = _bytes_of(array)
                    crc = zlib.crc32(view, crc)
                    _write_all(file.fileno(), view)
                    _note(seen, name, array)
                    if name == rated:
                        least = min(least, float(array.min()))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OutOfMemoryError(
            f"the search's memory is full, and {count} domains that should wait on disk cannot be written to "
            f"{path.parent}: {error.strerror or error}; make room there, or allow more memory"
        ) from error
    return Segment(
        path=path,
        rows=count,
        depth=depth,
        layouts={name: column.layout for name, column in columns.items()},
        crc32=crc,
        first=(float(columns[URGENCY].rows(0, 1)[0]), int(columns[NUMBER].rows(0, 1)[0])),
        least=float(least),
        values={name: frozenset(found) for name, found in seen.items() if found is not None},
    )


@dataclass(frozen=True)
class Column:
    """What one column of a segment is written from: `rows(begin, end)` gives [end - begin, *shape]."""

    layout: Layout
    rows: Callable[[int, int], NDArray[Any]]

    def parts(self, count: int) -> Iterator[NDArray[Any]]:
        step = max(1, SLICE_BYTES // max(1, self.layout.row_bytes))
        for begin in range(0, count, step):
            yield np.ascontiguousarray(self.rows(begin, min(count, begin + step)))


def _note(seen: dict[str, set[int] | None], name: str, array: NDArray[Any]) -> None:
    known = seen.get(name)
    if known is None:
        return
    known.update(np.unique(array).tolist())
    if len(known) > MOST_VALUES:
        seen[name] = None


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _write_all(descriptor: int, view: memoryview) -> None:
    written = 0
    while written < len(view):
        written += os.write(descriptor, view[written:])


def crc_of(path: Path) -> int:
    """CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(SLICE_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


class SpillFolder:
    """A folder of this process alone, made when it is first needed; gone at `close`, and when the interpreter ends.

    Whoever makes one also removes those whose process was killed, in the same place.
    """

    def __init__(self, parent: Path | None) -> None:
        self._parent = parent
        self._path: Path | None = None
        self._finalizer: weakref.finalize[..., SpillFolder] | None = None

    def new_path(self) -> Path:
        """The path of a file that is not there yet."""
        if self._path is None:
            self._path = self._make()
        return self._path / f"{secrets.token_hex(8)}.domains"

    def _make(self) -> Path:
        parent = Path(tempfile.gettempdir()) if self._parent is None else self._parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            _sweep(parent)
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).absolute()
            descriptor = os.open(path / f".{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks: nobody sweeps there
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(path / f".{_LOCK}", path / _LOCK)
        except OSError as error:
            raise OutOfMemoryError(
                f"the search's memory is full, and {parent}, where domains should wait, cannot be written to: "
                f"{error.strerror or error}; make room there, or allow more memory"
            ) from error
        self._finalizer = weakref.finalize(self, _remove, path, descriptor, os.getpid())
        return path

    def close(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._path = self._finalizer = None


def _remove(path: Path, descriptor: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork's end takes nothing from its parent
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _sweep(parent: Path) -> None:
    """Remove what killed processes left: folders that nobody holds the lock of."""
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(path / _LOCK, os.O_RDWR)
        except OSError:
            continue  # another user's, or just being made
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # its process lives
        finally:
            os.close(descriptor)


def link(source: Path, target: Path) -> None:
    """One file under a second name; a copy where the file system cannot."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        # Under another name first: what has its name is whole.
        part = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, target)


def exactly(file: IO[bytes], count: int) -> bytes:
    """So many bytes of a file.

    Raises:
        ValueError: it ends before.
    """
    data = file.read(count)
    if len(data) != count:
        raise ValueError("it ends too early")
    return data
