"""Numbers as they grow, and thinned out to what a screen can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Growing:
    """A float64 array that follows a growing list; only new entries are converted. None becomes NaN.

    `bad` counts the entries that are NaN or ±∞ in the list itself (None is merely absent); these are NaN here.
    """

    def __init__(self) -> None:
        self._buffer: FloatArray = np.empty(64)
        self.count = 0
        self.bad = 0

    def follow(self, values: Sequence[float | int | None]) -> bool:
        """Take what was appended since the last time; whether there was anything."""
        fresh = values[self.count :]
        if not fresh:
            return False
        new = np.array(fresh, dtype=np.float64)
        finite = np.isfinite(new)
        if not finite.all():
            self.bad += sum(1 for value in fresh if value is not None and not math.isfinite(value))
            new[~finite] = np.nan
        end = self.count + len(new)
        if end > len(self._buffer):
            grown = np.empty(max(end, 2 * len(self._buffer)))
            grown[: self.count] = self._buffer[: self.count]
            self._buffer = grown
        self._buffer[self.count : end] = new
        self.count = end
        return True

    @property
    def values(self) -> FloatArray:
        """[count]; a view, not to be written to."""
        return self._buffer[: self.count]


def bucket_starts(x: FloatArray, buckets: int) -> NDArray[np.intp]:
    """Index of the first entry of each non-empty bucket of equal width; x [n] ascending, n > 0."""
    edges = np.linspace(x[0], x[-1], buckets + 1)[:-1]
    return np.unique(np.searchsorted(x, edges, side="left"))


def thin_line(x: FloatArray, y: FloatArray, buckets: int) -> tuple[FloatArray, FloatArray]:
    """Least and greatest value of each of at most `buckets` buckets, as a line that looks like the whole.

    x [n] ascending, y [n] with NaN for gaps; both come back unchanged where n ≤ 4·buckets. A bucket that is all
    NaN stays a gap. The first and the last entry are kept as they are.
    """
    if len(x) <= 4 * buckets:
        return x, y
    starts = bucket_starts(x, buckets)
    low = np.fmin.reduceat(y, starts)
    high = np.fmax.reduceat(y, starts)
    thin_x = np.empty(2 * len(starts) + 2)
    thin_y = np.empty(2 * len(starts) + 2)
    thin_x[0], thin_x[-1] = x[0], x[-1]
    thin_y[0], thin_y[-1] = y[0], y[-1]
    thin_x[1:-1] = np.repeat(x[starts], 2)
    thin_y[1:-1:2], thin_y[2:-1:2] = low, high
    return thin_x, thin_y


def thin_stack(x: FloatArray, total: FloatArray, buckets: int) -> NDArray[np.intp]:
    """Indices of the samples of greatest and least total in each bucket, in order; all where n ≤ 4·buckets."""
    if len(x) <= 4 * buckets:
        return np.arange(len(x))
    starts = bucket_starts(x, buckets)
    ends = np.append(starts[1:], len(x))
    kept = {0, len(x) - 1}
    for start, end in zip(starts, ends, strict=True):
        part = total[start:end]
        kept.add(int(start + np.argmax(part)))
        kept.add(int(start + np.argmin(part)))
    return np.array(sorted(kept), dtype=np.intp)


def hold(x: FloatArray, y: FloatArray, end: float) -> tuple[FloatArray, FloatArray]:
    """Corners of the staircase on which each value holds until the next entry, and the last one until `end`."""
    if len(x) == 0:
        return x, y
    last = max(end, float(x[-1]))
    corners_x = np.append(np.repeat(x, 2)[1:], last)
    return corners_x, np.repeat(y, 2)


def from_time(x: FloatArray, y: FloatArray, start: float) -> tuple[FloatArray, FloatArray]:
    """The part of a staircase of corners from `start` on, which is at least x[0]."""
    index = int(np.searchsorted(x, start, side="right")) - 1
    corner_x, corner_y = x[index:].copy(), y[index:]
    corner_x[0] = start
    return corner_x, corner_y


def last_before(x: FloatArray, y: FloatArray, time_s: float) -> float | None:
    """The value that holds at this time: the last finite one at or before it."""
    upto = int(np.searchsorted(x, time_s, side="right"))
    finite = np.flatnonzero(np.isfinite(y[:upto]))
    return float(y[finite[-1]]) if len(finite) else None
