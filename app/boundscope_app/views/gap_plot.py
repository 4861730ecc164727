"""Draws clause bounds into a figure; the same for the screen and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from boundscope_app.plots.figure import Figure, LegendEntry
from boundscope_app.plots.items import BandItem, Line, LineItem
from boundscope_app.plots.panel import Level, Panel
from boundscope_app.plots.scale import (
    LinearScale,
    Scale,
    SignedLogScale,
    common_exponent,
    signed_log_for,
    tick_label,
)
from boundscope_app.plots.series import FloatArray, hold
from boundscope_app.plots.style import Style
from boundscope_app.views.gap_model import Bound, GapModel, Key
from boundscope_app.views.gap_search import SearchPanel, legend_entries, search_reading
from boundscope_app.views.text import aligned, clause_name, number, seconds, step_name

FRONT = 8
ABOVE_ZERO = "> 0"  # a bound of 0 of a clause that branch and bound has excluded
LATE = 0.5
SHORT = 0.02


@dataclass(frozen=True)
class GapChoice:
    """What to draw: the clauses shown (worst first), those with a colour of their own, and the scale."""

    shown: tuple[Key, ...]
    slots: dict[Key, int]
    signed_log: bool
    pins: tuple[float, ...] = ()
    excluded: frozenset[Key] = frozenset()  # clauses that the verdict excludes

    @property
    def single_case(self) -> bool:
        return len({case for case, _ in self.shown}) <= 1


class GapPlot:
    """A figure whose lines are kept from one drawing to the next: margins, and below them the domains of a search."""

    def __init__(self, style: Style) -> None:
        self.figure = Figure(style)
        self.panel = Panel(style, "Elapsed time [s]", "Margin [output units]")
        self.panel.strip = True
        self.figure.add_panel(self.panel)
        self.search = SearchPanel(style)
        self.figure.add_panel(self.search.panel)
        self.figure.linked_times = True
        self._others = LineItem(self.panel.box, style, -1.0)
        self._band = BandItem(self.panel.box, style)
        self._pairs = [
            (LineItem(self.panel.box, style, 2.0), LineItem(self.panel.box, style, 1.0)) for _ in range(FRONT)
        ]

    def set_style(self, style: Style) -> None:
        self.figure.set_style(style)

    def show(self, model: GapModel, choice: GapChoice) -> None:
        """Draw the choice; only the data of `model` are read."""
        scale = self._scale(model, choice)
        self.panel.scale_ = scale
        self._draw_front(model, choice, scale)
        self._draw_others(model, choice, scale)
        self.panel.spans = tuple(replace(span, name=step_name(span.name)) for span in model.spans())
        self.panel.pins = choice.pins
        self._set_levels()
        self._set_header(model, choice, scale)
        self.search.show(model.search, self.figure.style_, logarithmic=choice.signed_log, pins=choice.pins)
        self._set_range(model, choice, scale)
        self.figure.arrange()

    def _scale(self, model: GapModel, choice: GapChoice) -> Scale:
        if not choice.signed_log:
            return LinearScale()
        values = [bound.thinned()[1] for key in choice.shown for bound in _bounds(model, key)]
        return signed_log_for(np.concatenate(values) if values else np.empty(0))

    def _draw_front(self, model: GapModel, choice: GapChoice, scale: Scale) -> None:
        theme = self.figure.style_.theme
        worst = choice.shown[0] if choice.shown else None
        drawn = {slot: key for key, slot in choice.slots.items() if key in choice.shown}
        self._band.set_edges(None, None, "")
        for slot, items in enumerate(self._pairs):
            key = drawn.get(slot)
            if key is None:
                for item in items:
                    item.set_line(None)
                continue
            color = theme.series[slot]
            for item, bound, upper in zip(items, _bounds(model, key), (False, True), strict=True):
                x, y = bound.thinned() if self.figure.style_.live else bound.arrays()
                width = 2.8 if key == worst else 1.6
                item.set_line(
                    Line(
                        x,
                        scale.to(y),
                        color,
                        end=model.end_s,
                        width=width * (0.75 if upper else 1.0),
                        dashed=upper,
                        marker="down" if upper else "up",
                        zeros=bound.zeros(),
                    )
                )
            if key == worst:
                self._band.set_edges(*items, color)

    def _draw_others(self, model: GapModel, choice: GapChoice, scale: Scale) -> None:
        others = [key for key in choice.shown if key not in choice.slots]
        if not others:
            self._others.set_line(None)
            return
        xs: list[FloatArray] = []
        ys: list[FloatArray] = []
        for key in others:
            lower = model.clauses[key].lower
            x, y = lower.thinned() if self.figure.style_.live else lower.arrays()
            if len(x):
                x, y = hold(x, y, model.end_s)
                xs += [x, np.array([np.nan])]
                ys += [y, np.array([np.nan])]
        if not xs:
            self._others.set_line(None)
            return
        color = self.figure.style_.theme.disabled
        self._others.set_ready(Line(np.concatenate(xs), scale.to(np.concatenate(ys)), color, width=0.8))

    def _set_levels(self) -> None:
        theme = self.figure.style_.theme
        self.panel.levels = (
            Level(0.0, theme.text, "proven above this line", dashed=False, note_color=theme.good),
        )

    def _set_header(self, model: GapModel, choice: GapChoice, scale: Scale) -> None:
        theme = self.figure.style_.theme
        parts: list[tuple[str, str]] = []
        if choice.shown:
            key = choice.shown[0]
            lower, upper = (bound.at(None) for bound in _bounds(model, key))
            name = clause_name(*key, choice.single_case)
            said = f"margin ≥ {number(lower, 4)}"
            if lower == 0 and key in choice.excluded:
                said = f"margin {ABOVE_ZERO}"
            elif lower is None:
                said = "no bound yet" if upper is None else f"margin ≤ {number(upper, 4)} seen"
            parts.append((f"Worst: {name}, {said}", theme.text))
        bad = model.bad(choice.shown)
        if bad:
            noun = "value is" if bad == 1 else "values are"
            parts.append((f"{bad} {noun} NaN or ∞, drawn as gaps", theme.warn))
        if isinstance(scale, SignedLogScale):
            edge = tick_label(scale.threshold, scale.threshold, common_exponent(scale.threshold))
            parts.append((f"signed log axis, linear within ±{edge}", theme.muted))
        self.panel.header = tuple(parts)

    def _set_range(self, model: GapModel, choice: GapChoice, scale: Scale) -> None:
        low = high = 0.0
        for key in choice.shown:
            bounds = _bounds(model, key) if key in choice.slots else _bounds(model, key)[:1]
            for bound in bounds:
                if bound.low <= bound.high:
                    ends = scale.to(np.array([bound.low, bound.high]))
                    low, high = min(low, float(ends[0])), max(high, float(ends[1]))
        span = (high - low) or 1.0
        start, end = time_range(model.start_s, model.end_s)
        self.panel.set_full_range(start, end, low - 0.06 * span, high + 0.1 * span)
        if model.search.points:
            self.search.set_times(start, end, model.search)

    def legend(self, model: GapModel, choice: GapChoice) -> tuple[LegendEntry, ...]:
        """The legend of an exported figure: clauses with their bounds, and what the line kinds mean."""
        theme = self.figure.style_.theme
        entries = [LegendEntry("Clause, bounds at the end", kind="title")]
        for key in choice.shown:
            if key in choice.slots:
                low, high = (aligned(bound.at(None), 4) for bound in _bounds(model, key))
                low = ABOVE_ZERO if low == "0" and key in choice.excluded else low
                name = clause_name(*key, choice.single_case)
                entries.append(LegendEntry(f"{name}: {low} … {high}", theme.series[choice.slots[key]]))
        others = sum(key not in choice.slots for key in choice.shown)
        if others:
            noun = "clause" if others == 1 else "clauses"
            entries.append(LegendEntry(f"{others} other {noun}, lower bound only", theme.disabled))
        entries += [
            LegendEntry(""),
            LegendEntry("proven lower bound", theme.text),
            LegendEntry("least margin seen at an input", theme.text, "dashed"),
        ]
        entries += legend_entries(model.search, self.figure.style_)
        entries += pin_entries(model, choice)
        return tuple(entries)


def time_range(first_s: float, last_s: float) -> tuple[float, float]:
    """From 0 to just after the last reading; from just before the first where these all come late, but not at once."""
    last_s = max(last_s, 1e-3)
    late = first_s > LATE * last_s and last_s - first_s > SHORT * last_s
    start = max(0.0, first_s - 0.15 * (last_s - first_s) - 0.01 * last_s) if late else 0.0
    return start, last_s + 0.02 * (last_s - start)


def pin_entries(model: GapModel, choice: GapChoice) -> Sequence[LegendEntry]:
    """What the worst clause read at each pin."""
    if not choice.pins:
        return ()
    entries = [LegendEntry(""), LegendEntry("Pinned readings", kind="title")]
    entries += [LegendEntry(reading(model, choice, pin)) for pin in choice.pins]
    return entries


def reading(model: GapModel, choice: GapChoice, time_s: float) -> str:
    """What the worst clause of that moment read, as one line."""
    keys = model.worst_first(choice.shown, time_s)
    if not keys:
        return ": ".join(part for part in (seconds(time_s), search_reading(model.search, time_s)) if part)
    low, high = (bound.at(time_s) for bound in _bounds(model, keys[0]))
    step = model.step_at(time_s)
    name = clause_name(*keys[0], choice.single_case)
    text = f"{seconds(time_s)}{f' ({step_name(step)})' if step else ''}: {name} {number(low, 4)} … {number(high, 4)}"
    return " · ".join(part for part in (text, search_reading(model.search, time_s)) if part)


def _bounds(model: GapModel, key: Key) -> tuple[Bound, Bound]:
    clause = model.clauses[key]
    return clause.lower, clause.upper
