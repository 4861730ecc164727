"""Large arrays that lie in files: mapped, read a band at a time, and let go of.

A mapped array takes memory only where it was read, and only until `drop_pages`: what is read again comes from the file,
or from what the kernel still keeps of it for all processes of the machine. So whoever walks through one keeps to bands.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from boundscope.errors import NetworkError

Array = np.ndarray[Any, np.dtype[Any]]

BAND_BYTES = 1 << 20


@dataclass(frozen=True)
class FileState:
    """What tells that a file is still the one that was opened."""

    path: Path
    mark: tuple[int, int, int, int]

    @classmethod
    def of(cls, path: Path, file: BinaryIO) -> FileState:
        return cls(path, _mark(os.fstat(file.fileno())))

    def require(self) -> None:
        """
        Raises:
            NetworkError: the file is gone, or another.
        """
        try:
            same = _mark(os.stat(self.path)) == self.mark
        except OSError:
            same = False
        if not same:
            raise NetworkError(
                f"{self.path}: was changed while its weights were in use, so that no result could be trusted; "
                "run again once it stays as it is"
            )


def _mark(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


class MappedFile:
    """A file's content as memory that cannot be written to."""

    def __init__(self, file: BinaryIO) -> None:
        """
        Raises:
            OSError: it cannot be mapped.
        """
        self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
        """Values stored one after another from `offset` on. They may begin at any byte (numpy's flag ALIGNED)."""
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._memory, dtype, count, offset).reshape(shape)


def _mapping(array: Array) -> mmap.mmap | None:
    """The memory map that an array lies in."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def is_mapped(array: Array) -> bool:
    """Whether an array lies in a file, so that it takes no memory once it was let go of."""
    return _mapping(array) is not None


def drop_pages(array: Array) -> None:
    """Let go of the memory of a contiguous mapped array; its values stay, in the file. Of others nothing happens."""
    memory = _mapping(array)
    if memory is None or not array.nbytes or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = _address(array) - _address(np.frombuffer(memory, np.uint8))
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    memory.madvise(mmap.MADV_DONTNEED, first, min(len(memory), start + array.nbytes) - first)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def bands(array: Array, band_bytes: int = BAND_BYTES) -> Iterator[tuple[slice, Array]]:
    """An array by parts of its first axis, with where they are; of a mapped one each is let go of after its turn."""
    if not array.ndim or array.nbytes <= band_bytes:
        yield slice(0, len(array) if array.ndim else 1), array
        drop_pages(array)
        return
    step = max(1, band_bytes // max(1, array.nbytes // len(array)))
    for first in range(0, len(array), step):
        part = slice(first, min(first + step, len(array)))
        yield part, array[part]
        if array.flags.c_contiguous:
            drop_pages(array[part])


def count_where(array: Array, test: Callable[[Array], Array]) -> int:
    """How many elements a test is true of, looked at a band at a time."""
    return sum(int(np.count_nonzero(test(part))) for _, part in bands(array))


def take_columns(array: Array, columns: Array) -> Array:
    """Some columns of a matrix [m, n], as `array[:, columns]`, contiguous."""
    found = np.empty((len(array), len(columns)), array.dtype)
    for rows, part in bands(array):
        found[rows] = part[:, columns]
    return found


def as_tensor(array: Array) -> torch.Tensor:
    """An array that nobody writes to as a tensor: on the same memory where torch can use it, which asks for values in
    their order at addresses that are multiples of their size."""
    usable = np.require(array, requirements=["C", "A"])
    if usable.flags.writeable:
        return torch.from_numpy(usable)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(usable)


def release(constants: Mapping[str, Array]) -> None:
    """Let go of the memory of all arrays that are mapped."""
    for array in constants.values():
        drop_pages(array)
