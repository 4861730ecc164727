"""Draws a graph: nodes filled by value, edges as curves, and beside them the colour bar with its legend."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFontMetricsF,
    QLinearGradient,
    QPainter,
    QPainterPath,
    QPen,
    QPolygonF,
)

from boundscope_app.graph_layout import GAP_Y, NODE_HEIGHT, NODE_WIDTH, ROW, Layout
from boundscope_app.plots.graph_scene import GraphScene, NodeCell
from boundscope_app.plots.heatmap import MARKS, SHADES, shades, text_on
from boundscope_app.plots.style import Style

BAND_ROWS = 8  # edges are kept in bands of so many rows, so that only those in sight are drawn
NAMES_FROM, OPS_FROM, ARROWS_FROM = 0.62, 0.36, 0.3  # scales from which on these can be seen
RADIUS, ARROW, STUB = 4.0, 6.0, 0.5 * GAP_Y
NO_VALUE = "no value"
Route = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Emphasis:
    """The node that is picked (-1: none) and those that a search has found."""

    current: int = -1
    found: frozenset[int] = frozenset()


class Piece(NamedTuple):
    """What of an edge lies between two rows; `passes`: it starts on the way of the edge, at no node."""

    start: tuple[float, float]
    end: tuple[float, float]
    passes: bool
    arrow: bool

    def add_to(self, path: QPainterPath) -> None:
        add_piece(path, self.start, self.end, passes=self.passes, arrow=self.arrow)


class EdgePaths:
    """The curves of a layout by bands of rows, made when they are first in sight."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._pieces: dict[int, list[Piece]] = defaultdict(list)
        self._bands: dict[int, QPainterPath] = {}
        self._tall: list[QPainterPath] = []
        for route in layout.routes:
            last = len(route) - 2
            for place, (start, end) in enumerate(itertools.pairwise(route)):
                piece = Piece(start, end, place > 0, place == last)
                if end[1] - start[1] < 1.5 * ROW:
                    self._pieces[int(start[1] / ROW) // BAND_ROWS].append(piece)
                else:
                    path = QPainterPath()
                    piece.add_to(path)
                    self._tall.append(path)

    def within(self, top: float, bottom: float) -> list[QPainterPath]:
        """All curves that can be seen between two heights, and perhaps some more."""
        first, final = int(top / ROW) // BAND_ROWS - 1, int(bottom / ROW) // BAND_ROWS
        found = [self._band(band) for band in range(max(0, first), final + 1) if band in self._pieces]
        return found + [path for path in self._tall if path.boundingRect().bottom() >= top]

    def _band(self, band: int) -> QPainterPath:
        if band not in self._bands:
            self._bands[band] = QPainterPath()
            for piece in self._pieces[band]:
                piece.add_to(self._bands[band])
        return self._bands[band]

    def of_edge(self, number: int) -> QPainterPath:
        """One edge from end to end."""
        path, route = QPainterPath(), self._layout.routes[number]
        for place, (start, end) in enumerate(itertools.pairwise(route)):
            add_piece(path, start, end, passes=place > 0, arrow=place == len(route) - 2)
        return path


def add_piece(
    path: QPainterPath, start: tuple[float, float], end: tuple[float, float], *, passes: bool, arrow: bool
) -> None:
    """From one row to a lower one; `passes`: the start is on the way of an edge, no node."""
    x0, x1 = start[0], end[0]
    y0, y1 = start[1] + NODE_HEIGHT / 2, end[1] - NODE_HEIGHT / 2
    if passes:
        path.moveTo(x0, start[1] - NODE_HEIGHT / 2)
        path.lineTo(x0, y0)
    else:
        path.moveTo(x0, y0)
    if x0 == x1:
        path.lineTo(x1, y1)
    else:
        middle = (y0 + y1) / 2
        path.cubicTo(x0, middle, x1, middle, x1, y1)
    if arrow:
        add_arrow(path, x1, y1)


def add_arrow(path: QPainterPath, x: float, y: float) -> None:
    """A head that points down to (x, y)."""
    left, right = QPointF(x - ARROW / 2, y - ARROW), QPointF(x + ARROW / 2, y - ARROW)
    path.addPolygon(QPolygonF([left, QPointF(x, y), right]))


def piece_within(route: Route, first: int, last: int) -> QPainterPath:
    """What of an edge lies in the rows from `first` to before `last`; cut edges end in a stub."""
    path = QPainterPath()
    top, bottom = first * ROW - GAP_Y, last * ROW
    for place, (start, end) in enumerate(itertools.pairwise(route)):
        starts, ends = top <= start[1] < bottom, top <= end[1] < bottom
        if starts and ends:
            add_piece(path, start, end, passes=place > 0, arrow=place == len(route) - 2)
        elif starts:
            y = start[1] + NODE_HEIGHT / 2
            path.moveTo(start[0], y - (NODE_HEIGHT if place else 0))
            path.lineTo(start[0], y + STUB)
        elif ends:
            y = end[1] - NODE_HEIGHT / 2
            path.moveTo(end[0], y - STUB)
            path.lineTo(end[0], y)
            if place == len(route) - 2:
                add_arrow(path, end[0], y)
    return path


class GraphDrawing:
    """Draws a scene in units of its layout; the painter is moved and scaled by the caller."""

    def __init__(self, scene: GraphScene, style: Style, edges: EdgePaths | None = None) -> None:
        self.scene, self.style = scene, style
        self.edges = edges or EdgePaths(scene.layout)
        layout = scene.layout
        self._order = np.argsort(layout.y, kind="stable")
        self._sorted_y = layout.y[self._order]
        self._op_font = style.font(bold=True, px=13)
        self._font = style.font(px=12)
        self._large_font = style.font(bold=True, px=21)
        self._op_metrics, self._metrics = QFontMetricsF(self._op_font), QFontMetricsF(self._font)
        self._large_metrics = QFontMetricsF(self._large_font)

    def nodes_within(self, area: QRectF) -> list[int]:
        """Numbers of the nodes that an area touches."""
        low = np.searchsorted(self._sorted_y, area.top() - NODE_HEIGHT / 2)
        high = np.searchsorted(self._sorted_y, area.bottom() + NODE_HEIGHT / 2, side="right")
        near = self._order[low:high]
        x = self.scene.layout.x[near]
        inside = (x >= area.left() - NODE_WIDTH / 2) & (x <= area.right() + NODE_WIDTH / 2)
        return [int(number) for number in near[inside]]

    def node_at(self, x: float, y: float) -> int:
        """The node at a point of the layout, or -1."""
        hits = self.nodes_within(QRectF(x, y, 0, 0))
        return hits[0] if hits else -1

    def place(self, number: int) -> QRectF:
        layout = self.scene.layout
        left, top = layout.x[number] - NODE_WIDTH / 2, layout.y[number] - NODE_HEIGHT / 2
        return QRectF(float(left), float(top), NODE_WIDTH, NODE_HEIGHT)

    def draw(self, painter: QPainter, area: QRectF, scale: float, emphasis: Emphasis) -> None:
        """What of the graph lies in `area`, with as much detail as can be read at `scale` pixels a unit."""
        theme = self.style.theme
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, not self.style.live or scale >= ARROWS_FROM)
        painter.setPen(self._cosmetic(theme.muted, 1.0))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for path in self.edges.within(area.top(), area.bottom()):
            painter.drawPath(path)
        if emphasis.current >= 0:
            painter.setPen(self._cosmetic(theme.accent, 2.0))
            for number, ends in enumerate(self.scene.layout.graph.edges):
                if emphasis.current in ends:
                    painter.drawPath(self.edges.of_edge(number))
        for number in self.nodes_within(area):
            self.draw_node(painter, number, scale, emphasis)

    def draw_rows(self, painter: QPainter, first: int, last: int, scale: float) -> None:
        """The rows from `first` to before `last`, with a stub of every edge that goes on to another row."""
        layout = self.scene.layout
        painter.setPen(self._cosmetic(self.style.theme.muted, 1.0))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for route in layout.routes:
            if route[0][1] < last * ROW and route[-1][1] >= first * ROW - GAP_Y:
                painter.drawPath(piece_within(route, first, last))
        for number, row in enumerate(layout.depth):
            if first <= row < last:
                self.draw_node(painter, number, scale, Emphasis())

    def _cosmetic(self, color: str, width: float) -> QPen:
        pen = QPen(QColor(color), width * self.style.pen_scale)
        pen.setCosmetic(True)
        return pen

    def draw_node(self, painter: QPainter, number: int, scale: float, emphasis: Emphasis) -> None:
        theme = self.style.theme
        place, cell = self.place(number), self.scene.cells[number]
        node = self.scene.layout.graph.nodes[number]
        if node.terminal:
            fill, ink = QColor(theme.neutral_fill), QColor(theme.text)
        elif cell.share is not None:
            fill = QColor(*shades()[round(cell.share * (SHADES - 1))])
            ink = text_on(fill)
        else:
            fill = QColor(theme.bad_fill if cell.wrong else theme.alternate)
            ink = QColor(theme.bad if cell.wrong else theme.text)
        found = number in emphasis.found
        radius = NODE_HEIGHT / 2 if node.terminal else RADIUS
        if scale < OPS_FROM and not found and number != emphasis.current:
            painter.fillRect(place, fill)
            if cell.share is None:
                painter.setPen(self._cosmetic(theme.border, 1.0))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(place)
            return
        painter.setPen(self._cosmetic(theme.border if cell.share is None else theme.muted, 1.0))
        painter.setBrush(fill)
        painter.drawRoundedRect(place, radius, radius)
        if cell.share is None and not node.terminal:
            painter.setBrush(hatch(self.style, cell.wrong))
            painter.drawRoundedRect(place, radius, radius)
        self._frame(painter, place, radius, found, number == emphasis.current)
        if scale >= OPS_FROM:
            self._write(painter, place, node.op, node.name, cell, ink, scale)

    def _frame(self, painter: QPainter, place: QRectF, radius: float, found: bool, current: bool) -> None:
        """A search's finds have a frame of dashes around them, the picked node a double one."""
        theme = self.style.theme
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if found:
            pen = self._cosmetic(theme.text, 2.0)
            pen.setStyle(Qt.PenStyle.DashLine)
            painter.setPen(pen)
            painter.drawRoundedRect(place.adjusted(-5, -5, 5, 5), radius + 5, radius + 5)
        if current:
            painter.setPen(self._cosmetic(theme.accent, 3.0))
            painter.drawRoundedRect(place.adjusted(-2.5, -2.5, 2.5, 2.5), radius + 2, radius + 2)

    def _write(
        self, painter: QPainter, place: QRectF, op: str, name: str, cell: NodeCell, ink: QColor, scale: float
    ) -> None:
        painter.setPen(ink)
        inner = place.adjusted(8, 2, -8, -2)
        middle = Qt.AlignmentFlag.AlignVCenter
        if scale < NAMES_FROM:
            painter.setFont(self._large_font)
            text = self._large_metrics.elidedText(op, Qt.TextElideMode.ElideRight, inner.width())
            painter.drawText(inner, Qt.AlignmentFlag.AlignCenter, text)
            return
        upper = QRectF(inner.left(), inner.top(), inner.width(), inner.height() / 2)
        lower = upper.translated(0, inner.height() / 2)
        painter.setFont(self._font)
        taken = 0.0
        if cell.text:
            value = self._metrics.elidedText(cell.text, Qt.TextElideMode.ElideRight, 0.6 * inner.width())
            taken = self._metrics.horizontalAdvance(value) + 8
            painter.drawText(upper, Qt.AlignmentFlag.AlignRight | middle, value)
        shown = self._metrics.elidedText(name, Qt.TextElideMode.ElideMiddle, lower.width())
        painter.drawText(lower, Qt.AlignmentFlag.AlignLeft | middle, shown)
        painter.setFont(self._op_font)
        text = self._op_metrics.elidedText(op, Qt.TextElideMode.ElideRight, inner.width() - taken)
        painter.drawText(upper, Qt.AlignmentFlag.AlignLeft | middle, text)


def hatch(style: Style, wrong: bool) -> QBrush:
    """The pattern over what has no value."""
    color = QColor(style.theme.bad if wrong else style.theme.muted)
    color.setAlphaF(0.3)
    return QBrush(color, Qt.BrushStyle.BDiagPattern)


class RampBar:
    """A colour bar with ticks and its unit, and a legend of what has no colour, in a given width."""

    def __init__(self, scene: GraphScene, style: Style, width: float) -> None:
        self.scene, self.style, self.width = scene, style, width
        self._metrics = QFontMetricsF(style.font())
        self._line = self._metrics.height()

    @property
    def height(self) -> float:
        if all(cell.share is None for cell in self.scene.cells):
            return 2.6 * self._line
        return (3.6 if not self.scene.marks else 5.1) * self._line

    def draw(self, painter: QPainter) -> None:
        """At (0, 0): the unit, the colours, the ticks, and the legend."""
        theme, line = self.style.theme, self._line
        painter.setFont(self.style.font())
        painter.setPen(QColor(theme.text))
        colored = any(cell.share is not None for cell in self.scene.cells)
        unit = self.scene.ramp.unit if colored else f"No node has a value: {self.scene.ramp.unit}"
        unit = self._metrics.elidedText(unit, Qt.TextElideMode.ElideRight, self.width)
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(0, 0, self.width, 1.2 * line), left, unit)
        if not colored:
            self._legend(painter, 1.35 * line)
            return
        ticks = self.scene.ramp.ticks()
        margin = max((self._metrics.horizontalAdvance(tick.label) / 2 for tick in ticks), default=0.0)
        bar = QRectF(margin, 1.35 * line, max(40.0, min(self.width, 40 * line) - 2 * margin), 0.7 * line)
        gradient = QLinearGradient(bar.topLeft(), bar.topRight())
        for index in range(0, SHADES, 15):
            gradient.setColorAt(index / (SHADES - 1), QColor(*shades()[index]))
        painter.fillRect(bar, QBrush(gradient))
        painter.setPen(self.style.axis_pen(theme.border))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(bar)
        for tick in ticks:
            x = bar.left() + tick.place * bar.width()
            painter.setPen(self.style.axis_pen(theme.muted))
            painter.drawLine(QPointF(x, bar.bottom()), QPointF(x, bar.bottom() + 4))
            painter.setPen(QColor(theme.text))
            painter.drawText(
                QRectF(x - 60, bar.bottom() + 4, 120, 1.2 * line), Qt.AlignmentFlag.AlignCenter, tick.label
            )
        self._legend(painter, bar.bottom() + 4 + 1.5 * line)

    def _legend(self, painter: QPainter, top: float) -> None:
        theme, line, x = self.style.theme, self._line, 0.0
        for mark, wrong in self.scene.marks:
            swatch = QRectF(x, top + 0.15 * line, 1.6 * line, 0.8 * line)
            painter.fillRect(swatch, QColor(theme.bad_fill if wrong else theme.alternate))
            painter.fillRect(swatch, hatch(self.style, wrong))
            painter.setPen(self.style.axis_pen(theme.border))
            painter.drawRect(swatch)
            painter.setPen(QColor(theme.text))
            name = MARKS.get(mark, mark) or NO_VALUE
            width = self._metrics.horizontalAdvance(name) + 4
            painter.drawText(
                QRectF(swatch.right() + 6, top, width, 1.1 * line),
                Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter,
                name,
            )
            x = swatch.right() + 6 + width + line
