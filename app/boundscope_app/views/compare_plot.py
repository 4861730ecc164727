"""Curves of several runs in one panel, on the screen and on a page: lines are kept from one drawing to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundscope_app.plots.figure import Figure, LegendEntry
from boundscope_app.plots.items import Line, LineItem
from boundscope_app.plots.panel import Dot, Level, Panel
from boundscope_app.plots.scale import LinearScale, Scale
from boundscope_app.plots.style import Style

TIME_LABEL = "Time since each run’s start [s]"


@dataclass(frozen=True)
class Overlay:
    """What is drawn: lines on the scaled axis, marks, the ranges of both axes, and the words beside it."""

    lines: tuple[Line, ...]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    y_label: str
    scale: Scale = field(default_factory=LinearScale)
    levels: tuple[Level, ...] = ()
    dots: tuple[Dot, ...] = ()
    header: tuple[tuple[str, str], ...] = ()
    legend: tuple[LegendEntry, ...] = ()


class OverlayPlot:
    """A figure of one panel with as many lines as were ever needed at a time."""

    def __init__(self, style: Style) -> None:
        self.figure = Figure(style)
        self.figure.legend.horizontal = True
        self.panel = Panel(style, TIME_LABEL, "")
        self.figure.add_panel(self.panel)
        self._pool: list[LineItem] = []

    def set_style(self, style: Style) -> None:
        self.figure.set_style(style)

    @property
    def live(self) -> bool:
        return self.figure.style_.live

    def show(self, overlay: Overlay, pins: tuple[float, ...]) -> None:
        """Draw the overlay; on the screen the list beside the plot is its legend."""
        while len(self._pool) < len(overlay.lines):
            self._pool.append(LineItem(self.panel.box, self.figure.style_, 1.0))
        for place, item in enumerate(self._pool):
            item.set_line(overlay.lines[place] if place < len(overlay.lines) else None)
        panel = self.panel
        panel.y_label, panel.scale_ = overlay.y_label, overlay.scale
        panel.levels, panel.dots, panel.header = overlay.levels, overlay.dots, overlay.header
        panel.pins = pins
        panel.set_full_range(*overlay.x_range, *overlay.y_range)
        self.figure.legend.entries = () if self.live else overlay.legend
        self.figure.arrange()
