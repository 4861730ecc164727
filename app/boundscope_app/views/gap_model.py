"""The gap series of a record as arrays, kept up to date at the cost of what is new."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from boundscope.records import GapSeries, JobRecord
from boundscope_app.plots.panel import Span
from boundscope_app.plots.series import FloatArray, Growing, last_before, thin_line
from boundscope_app.views.gap_search import SearchModel

Key = tuple[int, int]  # case, clause
BUCKETS = 1000


class Bound:
    """One bound over time. An absent value (None) is no news; NaN and ±∞ are gaps, and counted."""

    def __init__(self) -> None:
        self._x, self._y = Growing(), Growing()
        self._times: list[float] = []
        self._values: list[float] = []
        self._ordered = True
        self._thin: tuple[int, FloatArray, FloatArray] | None = None
        self._last_s = -math.inf
        self.last: float | None = None
        self.low = float("inf")
        self.high = float("-inf")

    def extend(self, times: Sequence[float], values: Sequence[float | None]) -> None:
        for time_s, value in zip(times, values, strict=True):
            if value is not None:
                self._ordered = self._ordered and (not self._times or time_s >= self._times[-1])
                self._times.append(time_s)
                self._values.append(value)
                if math.isfinite(value):
                    self.low, self.high = min(self.low, value), max(self.high, value)
                    if time_s >= self._last_s:
                        self._last_s, self.last = time_s, value
        self._x.follow(self._times)
        self._y.follow(self._values)

    @property
    def bad(self) -> int:
        return self._y.bad

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Times ascending, and values with NaN for gaps; both [n]."""
        x, y = self._x.values, self._y.values
        if self._ordered:
            return x, y
        order = np.argsort(x, kind="stable")
        return x[order], y[order]

    def zeros(self) -> FloatArray:
        """Times at which the bound is exactly 0."""
        x, y = self.arrays()
        zeros: FloatArray = x[y == 0]
        return zeros

    def thinned(self) -> tuple[FloatArray, FloatArray]:
        """As `arrays`, in at most BUCKETS buckets with the extremes of each."""
        if self._thin is None or self._thin[0] != self._x.count:
            x, y = self.arrays()
            self._thin = (self._x.count, *thin_line(x, y, BUCKETS))
        return self._thin[1], self._thin[2]

    def at(self, time_s: float | None) -> float | None:
        """The value that holds at this time (None: at the end)."""
        if time_s is None:
            return self.last
        x, y = self.arrays()
        return last_before(x, y, time_s)


@dataclass
class ClauseBounds:
    """Both bounds of one clause, and how many entries of its series were taken."""

    lower: Bound = field(default_factory=Bound)
    upper: Bound = field(default_factory=Bound)
    taken: int = 0

    def update(self, series: GapSeries) -> bool:
        count = len(series.elapsed_s)
        if count == self.taken:
            return False
        times = series.elapsed_s[self.taken : count]
        self.lower.extend(times, series.lower[self.taken : count])
        self.upper.extend(times, series.upper[self.taken : count])
        self.taken = count
        return True


class GapModel:
    """All clauses of a record, and the branch and bound that it may hold."""

    def __init__(self) -> None:
        self.clauses: dict[Key, ClauseBounds] = {}
        self.changed: set[Key] = set()
        self.search = SearchModel()
        self.searched = False
        self.start_s = math.inf
        self.end_s = 0.0
        self._steps: list[tuple[float, str]] = []

    def update(self, record: JobRecord) -> None:
        """Take what is new; `changed` then holds the clauses that grew, `searched` whether the search went on."""
        self.changed = set()
        self.searched = self.search.update(record)
        if self.searched:
            self.start_s = min(self.start_s, self.search.start_s)
            self.end_s = max(self.end_s, self.search.end_s)
        for key, series in record.gaps.items():
            bounds = self.clauses.setdefault(key, ClauseBounds())
            before = bounds.taken
            if bounds.update(series):
                self.changed.add(key)
                times = series.elapsed_s[before : bounds.taken]
                self.start_s = min(self.start_s, min(times))
                self.end_s = max(self.end_s, max(times))
                self._note_steps(times, series.step[before : bounds.taken])

    def _note_steps(self, times: Sequence[float], steps: Sequence[str]) -> None:
        previous = ""
        for time_s, step in zip(times, steps, strict=True):
            if step and step == previous:
                self._steps[-1] = (time_s, step)
            elif step:
                self._steps.append((time_s, step))
            previous = step

    def spans(self) -> tuple[Span, ...]:
        """The steps in order of time: a step reaches from the end of the one before to its own last value."""
        spans: list[Span] = []
        for time_s, step in sorted(self._steps):
            if spans and spans[-1].name == step:
                spans[-1] = Span(spans[-1].start_s, time_s, step)
            else:
                spans.append(Span(spans[-1].end_s if spans else 0.0, time_s, step))
        return tuple(spans)

    def step_at(self, time_s: float) -> str:
        """The step that gave the values which hold at this time; "" before the first."""
        before = [step for end, step in sorted(self._steps) if end <= time_s]
        return before[-1] if before else ""

    def bad(self, keys: Iterable[Key]) -> int:
        """How many values of these clauses are NaN or ±∞."""
        return sum(self.clauses[key].lower.bad + self.clauses[key].upper.bad for key in keys)

    def worst_first(self, keys: Iterable[Key], time_s: float | None = None) -> list[Key]:
        """The clauses by their proven lower bound, least first; those without one come before, by what was seen."""

        def rank(key: Key) -> tuple[float, float, Key]:
            lower, upper = self.clauses[key].lower.at(time_s), self.clauses[key].upper.at(time_s)
            return (-math.inf if lower is None else lower, math.inf if upper is None else upper, key)

        return sorted(keys, key=rank)


class ColorSlots:
    """Gives the clauses at the front their colours, and lets each keep its colour while it stays there."""

    def __init__(self, count: int) -> None:
        self._slots: list[Key | None] = [None] * count

    def assign(self, front: Sequence[Key]) -> dict[Key, int]:
        """Slot of each of the first clauses; in the order of their names where all are new."""
        wanted = set(front[: len(self._slots)])
        self._slots = [key if key in wanted else None for key in self._slots]
        for key in sorted(wanted.difference(self._slots)):
            self._slots[self._slots.index(None)] = key
        return {key: slot for slot, key in enumerate(self._slots) if key is not None}
