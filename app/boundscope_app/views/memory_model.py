"""The memory series of a record as arrays, kept up to date at the cost of what is new."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boundscope.protocol import MEMORY_CATEGORIES
from boundscope.records import JobRecord, MemorySeries
from boundscope_app.plots.series import FloatArray, Growing


class RankMemorySeries:
    """One rank: times [n], bytes by category [categories, n], resident bytes [n], limit."""

    def __init__(self) -> None:
        self._x = Growing()
        self._parts = [Growing() for _ in MEMORY_CATEGORIES]
        self._resident = Growing()
        self.limit_bytes: int | None = None

    def update(self, series: MemorySeries) -> bool:
        grew = self._x.follow(series.elapsed_s)
        for part, category in zip(self._parts, MEMORY_CATEGORIES, strict=True):
            part.follow(series.by_category[category])
        self._resident.follow(series.resident_bytes)
        self.limit_bytes = series.limit_bytes
        return grew

    @property
    def x(self) -> FloatArray:
        return self._x.values

    @property
    def parts(self) -> FloatArray:
        return np.stack([part.values for part in self._parts])

    @property
    def resident(self) -> FloatArray:
        return self._resident.values

    def peak(self) -> tuple[float, float]:
        """When the ledger was fullest, and how full."""
        total = self.parts.sum(axis=0)
        if len(total) == 0:
            return 0.0, 0.0
        index = int(np.argmax(total))
        return float(self.x[index]), float(total[index])

    def at(self, time_s: float | None) -> FloatArray:
        """Bytes by category at this time (None: at the end); zeros before the first sample."""
        index = len(self.x) - 1 if time_s is None else int(np.searchsorted(self.x, time_s, side="right")) - 1
        return self.parts[:, index] if index >= 0 else np.zeros(len(MEMORY_CATEGORIES))


class MemoryModel:
    """All ranks of a record."""

    def __init__(self) -> None:
        self.ranks: dict[int, RankMemorySeries] = {}

    def update(self, record: JobRecord) -> bool:
        """Take what is new; whether there was anything."""
        ranks = sorted(record.memory)
        grown = [
            self.ranks.setdefault(rank, RankMemorySeries()).update(record.memory[rank]) for rank in ranks
        ]
        return any(grown)

    @property
    def end_s(self) -> float:
        return max((float(series.x.max()) for series in self.ranks.values() if len(series.x)), default=0.0)

    def fullest(self, ranks: Sequence[int], most: int) -> tuple[int, ...]:
        """At most `most` of these ranks, those with the highest peaks, in the order of their numbers."""
        if len(ranks) <= most:
            return tuple(sorted(ranks))
        return tuple(sorted(sorted(ranks, key=lambda rank: -self.ranks[rank].peak()[1])[:most]))
