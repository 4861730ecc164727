"""What is drawn inside a panel: lines, stacks, and marks, all mapped to pixels in double precision here.

Qt's own transforms would lose values such as 1e12 ± 1 in an SVG, which keeps six digits of each coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from boundscope_app.plots.clip import clip_area, clip_line, finite_pieces
from boundscope_app.plots.series import FloatArray, from_time, hold, thin_line, thin_stack
from boundscope_app.plots.style import Style

MARKERS_UP_TO = 60
PIECE_POINTS = 256


class PixelItem(QGraphicsItem):
    """An item that fills a ViewBox and draws in its pixels."""

    def __init__(self, box: pg.ViewBox, z: float) -> None:
        super().__init__(box)
        self.box = box
        self.setZValue(z)

    def boundingRect(self) -> QRectF:
        return QRectF(self.box.rect())

    def to_x(self, values: FloatArray) -> FloatArray:
        """Pixels from the left of the box."""
        low, high = (float(end) for end in self.box.viewRange()[0])
        width = float(self.box.rect().width())
        return (values - low) * (width / (high - low))

    def to_y(self, values: FloatArray) -> FloatArray:
        """Pixels from the top of the box."""
        low, high = (float(end) for end in self.box.viewRange()[1])
        height = float(self.box.rect().height())
        return height - (values - low) * (height / (high - low))


@dataclass(frozen=True)
class Line:
    """One curve: x [n] ascending, y [n] on the scaled axis with NaN for gaps; held as steps until `end`."""

    x: FloatArray
    y: FloatArray
    color: str
    end: float = 0.0
    width: float | None = None
    dashed: bool = False
    steps: bool = True  # each value holds until the next; otherwise joined by straight lines
    marker: str = ""  # "up", "down" or none
    zeros: FloatArray | None = None  # times at which the value is exactly 0
    pen: Qt.PenStyle = (
        Qt.PenStyle.SolidLine
    )  # where the line is not `dashed`; tells runs apart without colours


class LineItem(PixelItem):
    """A curve that is kept and given new data; draws at most `style.buckets` buckets."""

    def __init__(self, box: pg.ViewBox, style: Style, z: float = 1.0) -> None:
        super().__init__(box, z)
        self.style = style
        self._line: Line | None = None
        self._corners: tuple[FloatArray, FloatArray] | None = None

    def set_line(self, line: Line | None) -> None:
        self._line = line
        self._corners = None
        self.setVisible(line is not None)
        self.update()

    def set_ready(self, line: Line) -> None:
        """Take a line that is a staircase already, with NaN between its parts."""
        self._line = line
        self._corners = (line.x, line.y)
        self.setVisible(True)
        self.update()

    @property
    def has_points(self) -> bool:
        return self._line is not None and len(self._line.x) > 0

    def corners(self) -> tuple[FloatArray, FloatArray]:
        """The thinned staircase on the scaled axes."""
        if self._corners is None:
            assert self._line is not None
            line = self._line
            x, y = line.x, line.y
            if self.style.buckets is not None:
                x, y = thin_line(x, y, self.style.buckets)
            self._corners = hold(x, y, line.end) if line.steps else (x, y)
        return self._corners

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        line = self._line
        if line is None or len(line.x) == 0:
            return
        x, y = self.corners()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.style.antialias)
        dash = Qt.PenStyle.DashLine if line.dashed else line.pen
        painter.setPen(self.style.pen(line.color, line.width, dash))
        draw_polylines(painter, self.to_x(x), self.to_y(y), self.box.rect())
        if line.marker and np.count_nonzero(np.isfinite(line.y)) <= MARKERS_UP_TO:
            self._draw_markers(painter, line)
        if line.zeros is not None and len(line.zeros):
            self._draw_zeros(painter, line)

    def _draw_zeros(self, painter: QPainter, line: Line) -> None:
        """Hollow circles on the zero line, one a pixel at most, so that a margin of 0 is never mistaken for none."""
        assert line.zeros is not None
        height = float(self.to_y(np.zeros(1))[0])
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        painter.setPen(QPen(QColor(line.color), 1.2))
        painter.setBrush(QColor(self.style.theme.base))
        size = 3.0 if self.style.live else 4.5
        for x in np.unique(np.round(self.to_x(line.zeros))):
            if 0 <= x <= self.box.rect().width():
                painter.drawEllipse(QPointF(float(x), height), size, size)

    def _draw_markers(self, painter: QPainter, line: Line) -> None:
        size = 3.5 if self.style.live else 5.5
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        painter.setPen(QPen(QColor(self.style.theme.base), 0.6))
        painter.setBrush(QBrush(QColor(line.color)))
        tip = -1.0 if line.marker == "up" else 1.0
        for x, y in zip(self.to_x(line.x), self.to_y(line.y), strict=True):
            if np.isfinite(y) and self.box.rect().contains(x, y):
                painter.drawPolygon(
                    [
                        QPointF(x, y + tip * size),
                        QPointF(x - size, y - tip * size * 0.8),
                        QPointF(x + size, y - tip * size * 0.8),
                    ]
                )


class BandItem(PixelItem):
    """The area between two staircases, faintly filled: the gap between a lower and an upper bound."""

    def __init__(self, box: pg.ViewBox, style: Style) -> None:
        super().__init__(box, -5.0)
        self.style = style
        self._edges: tuple[LineItem, LineItem] | None = None
        self._color = ""

    def set_edges(self, lower: LineItem | None, upper: LineItem | None, color: str) -> None:
        self._edges = None if lower is None or upper is None else (lower, upper)
        self._color = color
        self.update()

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        if self._edges is None or not all(edge.has_points for edge in self._edges):
            return
        (low_x, low_y), (high_x, high_y) = (edge.corners() for edge in self._edges)
        start = float(max(low_x[0], high_x[0]))
        low_x, low_y = from_time(low_x, low_y, start)
        high_x, high_y = from_time(high_x, high_y, start)
        x = self.to_x(np.concatenate((low_x, high_x[::-1])))
        y = self.to_y(np.concatenate((low_y, high_y[::-1])))
        if len(low_x) == 0 or len(high_x) == 0 or not np.isfinite(y).all():
            return
        rect = self.box.rect()
        fill = QColor(self._color)
        fill.setAlphaF(0.09)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        draw_area(painter, x, y, rect, self.style)


class StackItem(PixelItem):
    """Areas stacked on one another: x [n] ascending, parts [categories, n] in bytes."""

    def __init__(self, box: pg.ViewBox, style: Style, colors: Sequence[str]) -> None:
        super().__init__(box, 0.0)
        self.style = style
        self.colors = tuple(colors)
        self._x: FloatArray = np.empty(0)
        self._tops: FloatArray = np.empty((0, 0))

    def set_parts(self, x: FloatArray, parts: FloatArray) -> None:
        tops = np.cumsum(parts, axis=0)
        if self.style.buckets is not None and len(x):
            kept = thin_stack(x, tops[-1], self.style.buckets)
            x, tops = x[kept], tops[:, kept]
        self._x, self._tops = x, tops
        self.update()

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        if len(self._x) == 0:
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.style.antialias)
        x = self.to_x(self._x)
        rect = self.box.rect()
        below = self.to_y(np.zeros(len(x)))
        for color, tops in zip(self.colors, self._tops, strict=True):
            above = self.to_y(tops)
            if np.any(above != below):
                fill = QColor(color)
                fill.setAlphaF(0.72)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(fill)
                outline_x = np.concatenate((x, x[::-1]))
                outline_y = np.concatenate((above, below[::-1]))
                draw_area(painter, outline_x, outline_y, rect, self.style)
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.setPen(self.style.pen(color, 1.0))
                draw_polylines(painter, x, above, rect)
            below = above


def draw_polylines(painter: QPainter, x: FloatArray, y: FloatArray, rect: QRectF) -> None:
    """Draw x, y [n] in pixels, broken at NaN and cut at the rectangle."""
    for piece_x, piece_y in finite_pieces(x, y):
        for part_x, part_y in clip_line(piece_x, piece_y, rect):
            if len(part_x) == 1:
                painter.drawPoint(QPointF(float(part_x[0]), float(part_y[0])))
            else:
                # In short pieces: Qt takes half the time for them, and hardly any for those out of sight. The last
                # stretch of a piece begins the next one too, so that no corner lacks its join. Dashes go on.
                solid = painter.pen().style() is Qt.PenStyle.SolidLine
                length = PIECE_POINTS if solid else len(part_x)
                for first in range(0, len(part_x) - 1, length):
                    piece = slice(max(0, first - 1), first + length + 1)
                    painter.drawPolyline(pg.functions.arrayToQPolygonF(part_x[piece], part_y[piece]))


def draw_area(painter: QPainter, x: FloatArray, y: FloatArray, rect: QRectF, style: Style) -> None:
    """Fill a polygon x, y [n] in pixels; on a page it is cut at the rectangle, on the screen the ViewBox clips."""
    polygon = pg.functions.arrayToQPolygonF(x, y)
    painter.drawPolygon(polygon if style.live else clip_area(polygon, rect))
