"""The file of a saved pool: a head, then the rows of those domains that were in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Literal

import msgspec
import numpy as np

from boundscope.search.pool_disk import NUMBER, URGENCY, Rows, SegmentImage, exactly
from boundscope.search.pool_memory import Column

Order = Literal["best", "depth"]


class PoolImage(msgspec.Struct, frozen=True):
    """The head."""

    order: Order
    columns: dict[str, tuple[str, tuple[int, ...], bool, int | float]]
    number: int
    pushes: int
    blocks: tuple[tuple[int, int], ...]  # rows and depth of each
    segments: tuple[SegmentImage, ...]

    @property
    def pool_columns(self) -> dict[str, Column]:
        return {
            name: Column(np.dtype(dtype), tuple(shape), grows, fill)
            for name, (dtype, shape, grows, fill) in self.columns.items()
        }

    def write(self, file: IO[bytes]) -> None:
        head = msgspec.msgpack.encode(self)
        file.write(len(head).to_bytes(8, "little") + head)

    @classmethod
    def read(cls, file: IO[bytes]) -> PoolImage:
        """Raises ValueError: the head is damaged; with what is wrong."""
        try:
            return msgspec.msgpack.decode(
                exactly(file, int.from_bytes(exactly(file, 8), "little")), type=PoolImage
            )
        except msgspec.DecodeError as error:
            raise ValueError(f"the head of a pool cannot be read: {error}") from error


def stored(columns: Mapping[str, Column]) -> dict[str, tuple[str, tuple[int, ...], bool, int | float]]:
    """Columns as a head tells them."""
    return {name: (np.dtype(one.dtype).str, one.shape, one.grows, one.fill) for name, one in columns.items()}


def write_pool(
    file: IO[bytes], columns: Mapping[str, Column], sizes: Sequence[int], number: int, blocks: Iterable[Rows]
) -> None:
    """Write rows as a pool in the order "best" of these columns, none of which grows, that has everything in memory.

    Args:
        sizes: how many rows each of `blocks` has; `number` is of the next domain.
    """
    counts = tuple((size, 0) for size in sizes)
    PoolImage("best", stored(columns), number=number, pushes=0, blocks=counts, segments=()).write(file)
    for rows in blocks:
        for name in (URGENCY, NUMBER, *columns):
            file.write(np.ascontiguousarray(rows[name]).tobytes())
