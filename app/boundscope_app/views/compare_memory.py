"""Memory of several runs against time, one curve a run or one a rank: what sharding bought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from PySide6.QtWidgets import QComboBox

from boundscope import comparison
from boundscope.comparison import LETTERS
from boundscope.protocol import VariabilityJob
from boundscope.records import Cell, JobRecord, Table
from boundscope_app.plots.figure import LegendEntry
from boundscope_app.plots.items import Line
from boundscope_app.plots.panel import Dot, Level
from boundscope_app.plots.scale import LinearScale
from boundscope_app.plots.series import FloatArray
from boundscope_app.theme import Theme
from boundscope_app.views.compare import run_style
from boundscope_app.views.compare_plot import Overlay
from boundscope_app.views.compare_time import CompareTimeView
from boundscope_app.views.memory_model import MemoryModel
from boundscope_app.views.text import byte_size, byte_unit

LIMIT_NEAR = 1.8


class Spread(IntEnum):
    """What becomes of a run's ranks."""

    WORST = 0
    SUM = 1
    RANKS = 2


SPREADS = ("Worst rank", "Sum of ranks", "Every rank")


@dataclass(frozen=True)
class Curve:
    """Bytes that a run's ledger held: times [n], bytes [n]; `rank` None where ranks are taken together."""

    rank: int | None
    x: FloatArray
    y: FloatArray

    def peak(self) -> tuple[float, float]:
        """When it was fullest, and how full."""
        index = int(np.argmax(self.y))
        return float(self.x[index]), float(self.y[index])

    def at(self, time_s: float | None) -> float:
        """Bytes at this time (None: at the end); 0 before the first sample."""
        index = len(self.x) - 1 if time_s is None else int(np.searchsorted(self.x, time_s, side="right")) - 1
        return float(self.y[index]) if index >= 0 else 0.0


def curves_of(model: MemoryModel, spread: Spread) -> tuple[Curve, ...]:
    """One curve a rank, or one of all, on the times at which any rank told; a rank holds what it told last."""
    ranks = [
        Curve(rank, series.x, series.parts.sum(axis=0))
        for rank, series in sorted(model.ranks.items())
        if len(series.x)
    ]
    if spread is Spread.RANKS or not ranks:
        return tuple(ranks)
    times = np.unique(np.concatenate([curve.x for curve in ranks]))
    held = np.zeros((len(ranks), len(times)))
    for row, curve in enumerate(ranks):
        index = np.searchsorted(curve.x, times, side="right") - 1
        held[row] = np.where(index >= 0, curve.y[np.maximum(index, 0)], 0.0)
    together = held.sum(axis=0) if spread is Spread.SUM else held.max(axis=0)
    return (Curve(None, times, together),)


def limit_of(model: MemoryModel, spread: Spread) -> float | None:
    """The budget of a rank, or of all ranks together for their sum; None where a rank has none."""
    limits = [series.limit_bytes for series in model.ranks.values()]
    known = [float(limit) for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return None
    return sum(known) if spread is Spread.SUM else min(known)


class CompareMemoryView(CompareTimeView):
    """One curve a run: its fullest rank, or all of its ranks; or one curve a rank."""

    view_id = "compare_memory"
    title = "Memory"
    empty_text = (
        "None of these runs has told of its memory yet.\n\nThe memory of each is drawn here while it goes on. Runs "
        "that measure noise keep no account of it by category."
    )
    replaces = "memory"
    stands_before = "memory"
    list_columns = ("Run", "Holds", "Peak")

    def add_choices(self) -> None:
        self.models: list[MemoryModel] = []
        self._curves: list[tuple[Curve, ...]] = []
        self.spread = QComboBox()
        self.spread.addItems(SPREADS)
        self.spread.setAccessibleName("Ranks of a run")
        self.spread.setToolTip("One curve a run: its fullest rank or the sum of all; or one curve a rank")
        self.spread.currentIndexChanged.connect(self._spread_changed)
        self.controls.addWidget(self.spread)
        self.fit = QComboBox()
        self.fit.addItems(("Scale: automatic", "Scale: limit"))
        self.fit.setAccessibleName("Memory scale")
        self.fit.setToolTip("Up to the highest peak, or up to the limit")
        self.fit.currentIndexChanged.connect(self.redraw)
        self.controls.addWidget(self.fit)

    def reset(self) -> None:
        self.models = [MemoryModel() for _ in self.runs]
        self._curves = [() for _ in self.runs]
        super().reset()

    @property
    def _spread(self) -> Spread:
        return Spread(self.spread.currentIndex())

    def _spread_changed(self) -> None:
        self._curves = [curves_of(model, self._spread) for model in self.models]
        self.redraw()

    def take_new(self, record: JobRecord) -> bool:
        grown = [model.update(run.record) for model, run in zip(self.models, self.runs, strict=True)]
        for place, grew in enumerate(grown):
            if grew:
                self._curves[place] = curves_of(self.models[place], self._spread)
        return any(grown)

    def run_has_data(self, place: int) -> bool:
        memory = self.runs[place].record.memory.values()
        if not isinstance(self.runs[place].info.job, VariabilityJob):
            return any(series.elapsed_s for series in memory)
        return any(any(held) for series in memory for held in series.by_category.values())

    def why_not(self, place: int) -> str:
        if isinstance(self.runs[place].info.job, VariabilityJob):
            return "measures noise and keeps no account of memory by category; its resident peak is in the table."
        ended = self.runs[place].info.state.ended
        return "has told nothing of its memory." if ended else "has told nothing of its memory yet."

    def values_at(self, place: int, time_s: float | None) -> tuple[str, str]:
        curves = self._curves[place]
        held = max((curve.at(time_s) for curve in curves), default=0.0)
        whole = max(self._sampled(place), self._whole(place))
        return byte_size(held, padded=True), byte_size(whole, padded=True)

    def _sampled(self, place: int) -> float:
        """The highest point of a run's curves."""
        return max((curve.peak()[1] for curve in self._curves[place]), default=0.0)

    def _whole(self, place: int) -> float:
        """The peak of the fullest rank's ledger, which may fall between two samples; 0 for a sum."""
        if self._spread is Spread.SUM:
            return 0.0
        return float(max(comparison.peaks(self.runs[place].record).values(), default=0))

    def overlay(self, places: tuple[int, ...], theme: Theme, *, live: bool) -> Overlay:
        lines, dots = [], []
        for place in places:
            color, pen = run_style(theme, place)
            for curve in self._curves[place]:
                lines.append(Line(curve.x, curve.y, color, width=2.0, steps=False, pen=pen))
            fullest = max(self._curves[place], key=lambda curve: curve.peak()[1])
            when, peak = fullest.peak()
            dots.append(Dot(when, peak, f"{LETTERS[place]} {byte_size(peak)}", color))
        highest = max((dot.y for dot in dots), default=0.0)
        limits = self._limits(places)
        shows_limit = bool(limits) and (self.fit.currentIndex() == 1 or max(limits) <= LIMIT_NEAR * highest)
        top = 1.14 * (max(highest, max(limits)) if shows_limit else highest or 1.0)
        unit, size = byte_unit(top)
        end = max((float(curve.x[-1]) for place in places for curve in self._curves[place]), default=0.0)
        what = SPREADS[self._spread].lower()
        header = [(f"Memory held, {what}", theme.text), ("○ highest sample", theme.text)]
        if any(self._between(place) for place in places):
            header.append(("peaks between samples are higher", theme.muted))
        for limit in dict.fromkeys(map(byte_size, limits)):
            header.append((f"limit {limit}{'' if shows_limit else ' ↑'}", theme.bad))
        return Overlay(
            tuple(lines),
            (0.0, 1.02 * (end or 1e-3)),
            (0.0, top),
            f"Memory [{unit}]",
            LinearScale(size),
            tuple(Level(limit, theme.bad) for limit in limits) if shows_limit else (),
            tuple(dots),
            tuple(header),
            self._legend(places, theme, shows_limit),
        )

    def _between(self, place: int) -> str:
        """Says so where the peak fell between two samples, so that no curve reaches it."""
        return ", between two samples" if self._whole(place) > self._sampled(place) else ""

    def tip(self, place: int) -> str:
        return f"{super().tip(place)}\nPeak {self.values_at(place, None)[1]}{self._between(place)}"

    def _limits(self, places: Sequence[int]) -> list[float]:
        found = (limit_of(self.models[place], self._spread) for place in places)
        return sorted({limit for limit in found if limit is not None})

    def _legend(self, places: Sequence[int], theme: Theme, shows_limit: bool) -> tuple[LegendEntry, ...]:
        entries = []
        for place in places:
            color, pen = run_style(theme, place)
            text = f"{self.heads[place]}: peak {self.values_at(place, None)[1]}{self._between(place)}"
            entries.append(LegendEntry(text, color, pen=pen))
        if shows_limit:
            entries.append(LegendEntry("limit", theme.bad, "dashed"))
        return tuple(entries)

    def tables(self) -> tuple[Table, ...]:
        """The curves shown, as drawn, with each run's limit."""
        if not self.runs:
            return ()
        self.take()
        rows: list[tuple[Cell, ...]] = []
        for place in self.shown():
            limit = limit_of(self.models[place], self._spread)
            for curve in self._curves[place]:
                of = "all" if curve.rank is None else curve.rank
                rows.extend(
                    (LETTERS[place], self.names[place], self.runs[place].info.id, of, x, round(y), limit)
                    for x, y in zip(curve.x.tolist(), curve.y.tolist(), strict=True)
                )
        held = f"held, {SPREADS[self._spread].lower()} [B]"
        columns = ("run", "what differs", "job", "rank", "time since its start [s]", held, "limit [B]")
        return (Table("compare_memory", columns, tuple(rows)),)
