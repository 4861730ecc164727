"""How branch and bound stands over time: domains bounded and open, in a panel of its own below the margins."""

from __future__ import annotations

import bisect
import math

import numpy as np

from boundscope.protocol import SearchPoint
from boundscope.records import JobRecord
from boundscope_app.plots.figure import LegendEntry
from boundscope_app.plots.items import Line, LineItem
from boundscope_app.plots.panel import Panel
from boundscope_app.plots.scale import LinearScale, Scale, SignedLogScale
from boundscope_app.plots.series import FloatArray, Growing
from boundscope_app.plots.style import Style
from boundscope_app.views.text import count, domains_text

SHARE = 0.5  # of the height of the margins
BOUNDED, OPEN = "bounded so far", "open, waiting"


class SearchModel:
    """The search points of a record as arrays, kept up to date at the cost of what is new."""

    def __init__(self) -> None:
        self._x, self._done, self._open = Growing(), Growing(), Growing()
        self._times: list[float] = []
        self._counts: tuple[list[int], list[int]] = ([], [])
        self.points: list[SearchPoint] = []

    def update(self, record: JobRecord) -> bool:
        """Take what is new; whether there was anything."""
        fresh = record.search[len(self.points) :]
        if not fresh:
            return False
        self.points += fresh
        self._times += [point.elapsed_s for point in fresh]
        self._counts[0].extend(point.done for point in fresh)
        self._counts[1].extend(point.open for point in fresh)
        self._x.follow(self._times)
        self._done.follow(self._counts[0])
        self._open.follow(self._counts[1])
        return True

    @property
    def start_s(self) -> float:
        return self._times[0] if self._times else math.inf

    @property
    def end_s(self) -> float:
        return self._times[-1] if self._times else 0.0

    @property
    def most(self) -> int:
        """The greatest count of either kind."""
        return int(max(self._done.values.max(initial=0), self._open.values.max(initial=0)))

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Times, domains bounded and domains open; each [n]."""
        return self._x.values, self._done.values, self._open.values

    def at(self, time_s: float) -> SearchPoint | None:
        """The standing at this time; None before the first."""
        upto = bisect.bisect_right(self._times, time_s)
        return self.points[upto - 1] if upto else None


class SearchPanel:
    """A panel with two lines on one axis, logarithmic with a place for 0, or linear."""

    def __init__(self, style: Style) -> None:
        self.panel = Panel(style, "Elapsed time [s]", "Domains")
        self.panel.share = SHARE
        self.panel.setVisible(False)
        self._done = LineItem(self.panel.box, style, 1.0)
        self._open = LineItem(self.panel.box, style, 2.0)

    def show(self, model: SearchModel, style: Style, *, logarithmic: bool, pins: tuple[float, ...]) -> None:
        """Draw the points; without any there is no panel."""
        shown = bool(model.points)
        self.panel.setVisible(shown)
        if not shown:
            return
        scale: Scale = SignedLogScale(1.0) if logarithmic else LinearScale()
        self.panel.scale_ = scale
        self.panel.pins = pins
        x, done, waiting = model.arrays()
        colors = line_colors(style)
        for item, values, color, dashed in (
            (self._done, done, colors[0], False),
            (self._open, waiting, colors[1], True),
        ):
            item.set_line(Line(x, scale.to(values), color, end=model.end_s, width=2.0, dashed=dashed))
        last = model.points[-1]
        theme = style.theme
        self.panel.header = (
            (f"━ {count(last.done)} bounded", colors[0]),
            (f"╌ {count(last.open)} open", colors[1]),
            (depth_text(last), theme.muted),
            (f"splitting {last.branching.value}s", theme.muted),
        )

    def set_times(self, start_s: float, end_s: float, model: SearchModel) -> None:
        """Share a time axis from `start_s` to `end_s`."""
        top = float(self.panel.scale_.to(np.array([float(max(model.most, 1))]))[0])
        self.panel.set_full_range(start_s, end_s, -0.04 * top, 1.12 * top)


def line_colors(style: Style) -> tuple[str, str]:
    """Of domains bounded, and of open ones."""
    return style.theme.text, style.theme.accent


def depth_text(point: SearchPoint) -> str:
    return f"deepest {count(point.depth)} {'split' if point.depth == 1 else 'splits'}"


def legend_entries(model: SearchModel, style: Style) -> tuple[LegendEntry, ...]:
    """What the lines of an exported panel mean."""
    if not model.points:
        return ()
    colors = line_colors(style)
    return (
        LegendEntry(""),
        LegendEntry("Domains of branch and bound", kind="title"),
        LegendEntry(BOUNDED, colors[0]),
        LegendEntry(OPEN, colors[1], "dashed"),
    )


def search_reading(model: SearchModel, time_s: float) -> str:
    """What the panel says at this time: "12 345 domains, 410 open, deepest 17 splits"; "" before the search."""
    point = model.at(time_s)
    if point is None:
        return ""
    clauses = f"{count(point.clauses_open)} {'clause' if point.clauses_open == 1 else 'clauses'} left"
    return f"{domains_text(point.done, point.open)}, {depth_text(point)}, {clauses}"
