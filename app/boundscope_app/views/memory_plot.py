"""Draws the memory of ranks into a figure: one panel a rank, stacked by category, on one common scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from boundscope.protocol import MEMORY_CATEGORIES
from boundscope_app.plots.figure import Figure, LegendEntry
from boundscope_app.plots.items import Line, LineItem, StackItem
from boundscope_app.plots.panel import Dot, Level, Panel
from boundscope_app.plots.scale import LinearScale
from boundscope_app.plots.style import Style
from boundscope_app.views.memory_model import MemoryModel, RankMemorySeries
from boundscope_app.views.text import byte_size, byte_unit

MOST_PANELS = 64
RESIDENT_NEAR = 3.0
LIMIT_NEAR = 1.8
IN_WORDS = {
    "weights": "weights",
    "gathered": "gathered weights",
    "rows": "rows (A matrices)",
    "slopes": "slopes (α, β)",
    "workspace": "workspace",
    "other": "other",
}


class Fit(IntEnum):
    """Up to what the value axis reaches."""

    AUTO = 0
    LEDGER = 1
    RESIDENT = 2
    LIMIT = 3


@dataclass(frozen=True)
class MemoryChoice:
    """The ranks drawn, how far the axis reaches, pinned times, and peaks (rank, bytes) that the result tells."""

    ranks: tuple[int, ...]
    fit: Fit
    pins: tuple[float, ...] = ()
    ledger_peaks: tuple[tuple[int, int], ...] = ()


@dataclass
class RankPanel:
    """A panel and the items in it, kept from one drawing to the next."""

    panel: Panel
    stack: StackItem
    resident: LineItem
    rank: int = -1


class MemoryPlot:
    """A figure with a panel for every rank shown."""

    def __init__(self, style: Style) -> None:
        self.figure = Figure(style)
        self.figure.columns = 0
        self.figure.linked = True
        self.figure.legend.horizontal = True
        self._style = style
        self._pool: list[RankPanel] = []

    def set_style(self, style: Style) -> None:
        self._style = style
        self.figure.set_style(style)
        for each in self._pool:
            each.stack.colors = style.theme.series[: len(MEMORY_CATEGORIES)]

    def rank_of(self, panel: Panel | None) -> int | None:
        """The rank that a panel shows."""
        return next((each.rank for each in self._pool if each.panel is panel), None)

    def show(self, model: MemoryModel, choice: MemoryChoice) -> None:
        """Draw the choice; only the data of `model` are read."""
        if not self._style.live:
            px = 17 if len(choice.ranks) <= 4 else 15 if len(choice.ranks) <= 12 else 12
            self.set_style(replace(self._style, font_px=px))
        while len(self._pool) < len(choice.ranks):
            self._pool.append(self._new_panel())
        top, shows_resident = self._top(model, choice)
        unit, size = byte_unit(top)
        end = (model.end_s or 1e-3) * 1.02
        for index, each in enumerate(self._pool):
            each.panel.setVisible(index < len(choice.ranks))
            if index < len(choice.ranks):
                each.rank = choice.ranks[index]
                each.panel.y_label = f"Memory [{unit}]"
                each.panel.scale_ = LinearScale(size)
                each.panel.pins = choice.pins
                whole = float(dict(choice.ledger_peaks).get(each.rank, 0))
                self._fill(each, model.ranks[each.rank], top, shows_resident, whole)
                each.panel.set_full_range(0.0, end, 0.0, top)
        self.figure.legend.entries = self._legend(model, choice, shows_resident)
        self.figure.arrange()

    def _new_panel(self) -> RankPanel:
        panel = Panel(self._style, "Elapsed time [s]", "Memory")
        stack = StackItem(panel.box, self._style, self._style.theme.series[: len(MEMORY_CATEGORIES)])
        resident = LineItem(panel.box, self._style, 2.0)
        self.figure.add_panel(panel)
        return RankPanel(panel, stack, resident)

    def _top(self, model: MemoryModel, choice: MemoryChoice) -> tuple[float, bool]:
        """Upper end of the value axis, and whether the resident line is within it."""
        shown = [model.ranks[rank] for rank in choice.ranks]
        ledger = max((series.peak()[1] for series in shown), default=0.0)
        resident = max((float(series.resident.max()) for series in shown if len(series.x)), default=0.0)
        limit = float(max((series.limit_bytes or 0 for series in shown), default=0))
        top = ledger
        if choice.fit >= Fit.RESIDENT or (choice.fit is Fit.AUTO and resident <= RESIDENT_NEAR * ledger):
            top = max(top, resident)
        if choice.fit is Fit.LIMIT or (choice.fit is Fit.AUTO and limit <= LIMIT_NEAR * top):
            top = max(top, limit)
        top = 1.14 * (top or 1.0)
        return top, resident <= top

    def _fill(
        self, each: RankPanel, series: RankMemorySeries, top: float, shows_resident: bool, whole: float
    ) -> None:
        """Draw one rank; `whole` is its ledger's peak, which may fall between two samples."""
        theme = self._style.theme
        each.stack.set_parts(series.x, series.parts)
        each.resident.set_line(
            Line(series.x, series.resident, theme.text, width=1.2, steps=False) if shows_resident else None
        )
        when, peak = series.peak()
        each.panel.dots = (Dot(when, peak),)
        limit = series.limit_bytes
        within = limit is not None and limit <= top
        each.panel.levels = (Level(float(limit), theme.bad),) if limit is not None and within else ()
        header = [(f"Rank {each.rank}", theme.text), (f"○ peak {byte_size(peak)}", theme.text)]
        if whole > peak:
            header[1:] = [
                (f"peak {byte_size(whole)}, between samples", theme.text),
                (f"○ highest sample {byte_size(peak)}", theme.muted),
            ]
        if limit is not None:
            header.append((f"limit {byte_size(limit)}{'' if within else ' ↑'}", theme.bad))
        if len(series.x):
            off_scale = "" if shows_resident else " ↑"
            header.append((f"resident {byte_size(float(series.resident.max()))}{off_scale}", theme.muted))
        each.panel.header = tuple(header)

    def _legend(
        self, model: MemoryModel, choice: MemoryChoice, shows_resident: bool
    ) -> tuple[LegendEntry, ...]:
        theme = self._style.theme
        entries = [
            LegendEntry(IN_WORDS[category], theme.series[index], "fill")
            for index, category in enumerate(MEMORY_CATEGORIES)
            if any(model.ranks[rank].parts[index].any() for rank in choice.ranks)
        ]
        if shows_resident:
            entries.append(LegendEntry("resident", theme.text))
        if any(each.panel.levels for each in self._pool[: len(choice.ranks)]):
            entries.append(LegendEntry("limit", theme.bad, "dashed"))
        if not shows_resident:
            entries.append(LegendEntry("↑ beyond the axis", kind="note"))
        if len(choice.ranks) < len(model.ranks):
            entries.append(LegendEntry(f"{len(choice.ranks)} of {len(model.ranks)} ranks", kind="note"))
        return tuple(entries)


def reading(model: MemoryModel, ranks: Sequence[int], time_s: float | None) -> str:
    """What the fullest of these ranks held at this time, by category."""
    held = {rank: model.ranks[rank].at(time_s) for rank in ranks}
    if not held:
        return ""
    rank = max(held, key=lambda r: float(held[r].sum()))
    parts = sorted(zip(MEMORY_CATEGORIES, held[rank], strict=True), key=lambda part: -part[1])
    listed = ", ".join(f"{IN_WORDS[name]} {byte_size(float(value))}" for name, value in parts if value)
    return f"rank {rank} holds {byte_size(float(held[rank].sum()))}" + (f" ({listed})" if listed else "")
