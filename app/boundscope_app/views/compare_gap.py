"""Bounds on the margin of one clause in several runs against time: which method closes the gap, and how fast."""

from __future__ import annotations

import numpy as np
from PySide6.QtWidgets import QComboBox

from boundscope.comparison import LETTERS
from boundscope.protocol import InstancesJob, VariabilityJob
from boundscope.records import Cell, JobRecord, Table
from boundscope_app.plots.figure import LegendEntry
from boundscope_app.plots.items import Line
from boundscope_app.plots.panel import Level
from boundscope_app.plots.scale import (
    LinearScale,
    Scale,
    SignedLogScale,
    common_exponent,
    signed_log_for,
    tick_label,
)
from boundscope_app.theme import Theme
from boundscope_app.views.compare import run_style
from boundscope_app.views.compare_plot import Overlay
from boundscope_app.views.compare_time import CompareTimeView
from boundscope_app.views.gap_model import Bound, GapModel, Key
from boundscope_app.views.gap_plot import time_range
from boundscope_app.views.text import clause_name, number

WORST = "Worst clause of each run"
BOUNDS = ("Both bounds", "Lower bound", "Upper bound")


class CompareGapView(CompareTimeView):
    """Proven lower and reached upper bound of a clause, or of each run's worst, of every run."""

    view_id = "compare_bound_gap"
    title = "Bound gap"
    empty_text = (
        "None of these runs has bounds on a margin yet.\n\nThe margins of each are drawn here while it goes on. Runs "
        "that measure noise prove none."
    )
    replaces = "bound_gap"
    stands_before = "bound_gap"
    list_columns = ("Run", "Margin", "Clause")

    def add_choices(self) -> None:
        self.models: list[GapModel] = []
        self._keys: tuple[Key, ...] = ()
        self.scale = QComboBox()
        self.scale.addItems(("Signed log", "Linear"))
        self.scale.setAccessibleName("Margin scale")
        self.scale.setToolTip("The signed logarithm has a place for zero")
        self.clause = QComboBox()
        self.clause.addItem(WORST, None)
        self.clause.setAccessibleName("Clause")
        self.clause.setToolTip("The clause whose margin is drawn")
        self.bounds = QComboBox()
        self.bounds.addItems(BOUNDS)
        self.bounds.setAccessibleName("Bounds drawn")
        self.bounds.setToolTip("The margin proven, the least margin that an input reached, or both")
        for choice in (self.scale, self.clause, self.bounds):
            choice.currentIndexChanged.connect(self.redraw)
            self.controls.addWidget(choice)

    def reset(self) -> None:
        self.models = [GapModel() for _ in self.runs]
        self._set_keys(())
        super().reset()

    def take_new(self, record: JobRecord) -> bool:
        grew = False
        for model, run in zip(self.models, self.runs, strict=True):
            model.update(run.record)
            grew = grew or bool(model.changed)
        if grew:
            self._set_keys(tuple(sorted({key for model in self.models for key in model.clauses})))
        return grew

    def _set_keys(self, keys: tuple[Key, ...]) -> None:
        """Offer these clauses; the chosen one stays chosen."""
        if keys == self._keys:
            return
        chosen = self.clause.currentData()
        self._keys = keys
        single = len({case for case, _ in keys}) <= 1
        self.clause.blockSignals(True)
        self.clause.clear()
        self.clause.addItem(WORST, None)
        for key in keys:
            self.clause.addItem(clause_name(*key, single).capitalize(), key)
        self.clause.setCurrentIndex(1 + keys.index(chosen) if chosen in keys else 0)
        self.clause.blockSignals(False)

    def key_of(self, place: int, time_s: float | None = None) -> Key | None:
        """The clause that is drawn of a run: the chosen one, or the run's worst at the end."""
        model = self.models[place]
        chosen = self.clause.currentData()
        if chosen is not None:
            return tuple(chosen) if tuple(chosen) in model.clauses else None
        return next(iter(model.worst_first(model.clauses)), None)

    def run_has_data(self, place: int) -> bool:
        return any(series.elapsed_s for series in self.runs[place].record.gaps.values())

    def why_not(self, place: int) -> str:
        job = self.runs[place].info.job
        if isinstance(job, VariabilityJob):
            return "measures noise and proves no margin."
        if isinstance(job, InstancesJob):
            return "is a benchmark of many properties; run one of its instances alone to compare margins."
        return "has no bounds." if self.runs[place].info.state.ended else "has no bounds yet."

    def bounds_of(self, place: int) -> tuple[tuple[Bound, bool], ...]:
        """The bounds that are drawn of a run, each with whether it is the upper one."""
        key = self.key_of(place)
        if key is None:
            return ()
        both = (self.models[place].clauses[key].lower, False), (self.models[place].clauses[key].upper, True)
        return (both, both[:1], both[1:])[self.bounds.currentIndex()]

    def values_at(self, place: int, time_s: float | None) -> tuple[str, str]:
        key = self.key_of(place)
        if key is None:
            return "–", "none of this number"
        clause = self.models[place].clauses[key]
        single = len({case for case, _ in self.models[place].clauses}) <= 1
        margin = f"{number(clause.lower.at(time_s), 4)} … {number(clause.upper.at(time_s), 4)}"
        return margin, clause_name(*key, single)

    def overlay(self, places: tuple[int, ...], theme: Theme, *, live: bool) -> Overlay:
        found = [(place, bound, upper) for place in places for bound, upper in self.bounds_of(place)]
        arrays = [bound.thinned() if live else bound.arrays() for _, bound, _ in found]
        scale: Scale = LinearScale()
        if self.scale.currentIndex() == 0:
            scale = signed_log_for(np.concatenate([y for _, y in arrays]) if arrays else np.empty(0))
        ends = [self.models[place].end_s for place in places]
        end = max(ends, default=0.0)
        lines = []
        for (place, bound, upper), (x, y) in zip(found, arrays, strict=True):
            color, pen = run_style(theme, place)
            lines.append(
                Line(
                    x,
                    scale.to(y),
                    color,
                    end=self.models[place].end_s,
                    width=1.4 if upper else 2.4,
                    marker="down" if upper else "up",
                    zeros=bound.zeros(),
                    pen=pen,
                )
            )
        start, end = time_range(min((self.models[place].start_s for place in places), default=0.0), end)
        return Overlay(
            tuple(lines),
            (start, end),
            self._range(found, scale),
            "Margin [output units]",
            scale,
            (Level(0.0, theme.text, "proven above this line", dashed=False, note_color=theme.good),),
            (),
            self._header(scale, theme),
            self._legend(places, theme),
        )

    def _range(self, found: list[tuple[int, Bound, bool]], scale: Scale) -> tuple[float, float]:
        low = high = 0.0
        for _, bound, _ in found:
            if bound.low <= bound.high:
                places = scale.to(np.array([bound.low, bound.high]))
                low, high = min(low, float(places[0])), max(high, float(places[1]))
        span = (high - low) or 1.0
        return low - 0.06 * span, high + 0.1 * span

    def _header(self, scale: Scale, theme: Theme) -> tuple[tuple[str, str], ...]:
        parts = [(self.clause.currentText(), theme.text)]
        parts.append(("▲ proven lower bound", theme.muted))
        parts.append(("▼ least margin seen at an input", theme.muted))
        if isinstance(scale, SignedLogScale):
            edge = tick_label(scale.threshold, scale.threshold, common_exponent(scale.threshold))
            parts.append((f"signed log axis, linear within ±{edge}", theme.muted))
        return tuple(parts)

    def _legend(self, places: tuple[int, ...], theme: Theme) -> tuple[LegendEntry, ...]:
        entries = []
        for place in places:
            color, pen = run_style(theme, place)
            margin, clause = self.values_at(place, None)
            entries.append(LegendEntry(f"{self.heads[place]}: {clause}, {margin}", color, pen=pen))
        return tuple(entries)

    def tables(self) -> tuple[Table, ...]:
        """The bounds shown of the runs shown."""
        if not self.runs:
            return ()
        self.take()
        rows: list[tuple[Cell, ...]] = []
        for place in self.shown():
            key = self.key_of(place)
            if key is None:
                continue
            series = self.runs[place].record.gaps[key]
            drawn = self.bounds.currentIndex()
            for time_s, lower, upper, step in zip(
                series.elapsed_s, series.lower, series.upper, series.step, strict=True
            ):
                bounds = (None if drawn == 2 else lower, None if drawn == 1 else upper)
                if bounds != (None, None):
                    named = LETTERS[place], self.names[place], self.runs[place].info.id
                    rows.append((*named, *key, time_s, *bounds, step))
        columns = (
            "run",
            "what differs",
            "job",
            "case",
            "clause",
            "time since its start [s]",
            "margin lower bound [output units]",
            "margin upper bound [output units]",
            "step",
        )
        return (Table("compare_bound_gap", columns, tuple(rows)),)
