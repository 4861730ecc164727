"""One plot: a ViewBox with its axes, grid, header and marks, laid out so that nothing is cut or covered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter
from PySide6.QtWidgets import QGraphicsItem, QGraphicsWidget, QStyleOptionGraphicsItem, QWidget

from boundscope_app.plots.items import PixelItem
from boundscope_app.plots.scale import LinearScale, Scale, Tick
from boundscope_app.plots.style import Style

TICK_PX = 5.0


@dataclass(frozen=True)
class Span:
    """A named stretch of time."""

    start_s: float
    end_s: float
    name: str


@dataclass(frozen=True)
class Level:
    """A horizontal line at a place of the scaled axis, with a note that stands beside it in the margin."""

    place: float
    color: str
    note: str = ""
    dashed: bool = True
    note_color: str = ""


@dataclass(frozen=True)
class Dot:
    """A marked point, such as a peak; the header says what it is, or a note beside it where that finds room."""

    x: float
    y: float
    note: str = ""
    color: str = ""


class Panel(QGraphicsWidget):
    """Axes around a ViewBox. `x_low … x_high` and `y_low … y_high` are shown until somebody zooms."""

    def __init__(self, style: Style, x_label: str, y_label: str) -> None:
        super().__init__()
        self.style_ = style
        self.x_label, self.y_label = x_label, y_label
        self.scale_: Scale = LinearScale()
        self.header: tuple[tuple[str, str], ...] = ()
        self.spans: tuple[Span, ...] = ()
        self.levels: tuple[Level, ...] = ()
        self.dots: tuple[Dot, ...] = ()
        self.pins: tuple[float, ...] = ()
        self.cursor_s: float | None = None
        self.strip = False
        self.share = 1.0  # of a figure's height, as against other panels
        self.shows_x_label = self.shows_y_label = True
        self.zoomed = False
        self.left_px = 0.0
        self.box = pg.ViewBox(enableMenu=False, defaultPadding=0.0)
        self.box.setParentItem(self)
        self.box.disableAutoRange()
        self.box.sigRangeChanged.connect(self._range_changed)
        self.box.sigRangeChangedManually.connect(self._zoomed)
        self._grid = _Grid(self)
        self._marks = _Marks(self)
        self._full = (0.0, 1.0, 0.0, 1.0)

    # ------------------------------------------------------------ range

    def set_full_range(self, x_low: float, x_high: float, y_low: float, y_high: float) -> None:
        """The range that holds all data; shown unless somebody zoomed."""
        self._full = (x_low, x_high, y_low, y_high)
        if not self.zoomed:
            self.show_all()

    def show_all(self) -> None:
        self.zoomed = False
        x_low, x_high, y_low, y_high = self._full
        if self.box.viewRange() != [[x_low, x_high], [y_low, y_high]]:
            self.box.setRange(
                xRange=(x_low, x_high), yRange=(y_low, y_high), padding=0, disableAutoRange=False
            )

    def show_range(self, ranges: Sequence[Sequence[float]]) -> None:
        """Show what another panel shows, as zoomed by somebody."""
        self.zoomed = True
        self.box.setRange(xRange=ranges[0], yRange=ranges[1], padding=0, disableAutoRange=False)

    def _zoomed(self, *_: object) -> None:
        self.zoomed = True

    def _range_changed(self, *_: object) -> None:
        for item in self.box.childItems():
            if isinstance(item, PixelItem):
                item.update()
        self.update()

    def x_at(self, scene_x: float) -> float:
        """Time at a scene coordinate."""
        return float(self.box.mapSceneToView(QPointF(scene_x, 0.0)).x())

    # ------------------------------------------------------------ layout

    def metrics(self) -> QFontMetricsF:
        return QFontMetricsF(self.style_.font())

    def tick_width(self) -> float:
        """Width that the value axis needs for ticks and their labels."""
        widest = max((self.metrics().horizontalAdvance(t.label) for t in self.y_ticks()), default=0.0)
        return math.ceil(widest + TICK_PX + 8)

    def label_width(self) -> float:
        """Width that the value axis needs for its name."""
        return self.metrics().height() + 6 if self.y_label else 0.0

    def top_px(self) -> float:
        line = self.metrics().height()
        return (line + 6 if self.header else 4.0) + (line + 8 if self.strip else 0.0)

    def bottom_px(self) -> float:
        line = self.metrics().height()
        return TICK_PX + line + 4 + (line + 4 if self.x_label and self.shows_x_label else 0.0)

    def right_px(self) -> float:
        """Width that notes of levels need on the right."""
        notes = any(level.note for level in self.levels)
        return self.metrics().height() + 8 if notes else self.metrics().horizontalAdvance("00") + 4

    def arrange(self, left_px: float, right_px: float) -> None:
        """Place the ViewBox within the panel, this far from the left and from the right."""
        self.left_px = left_px
        rect = QRectF(
            self.left_px,
            self.top_px(),
            max(20.0, self.size().width() - self.left_px - right_px),
            max(20.0, self.size().height() - self.top_px() - self.bottom_px()),
        )
        if rect != self.box.geometry():
            self.box.setGeometry(rect)
        self._range_changed()

    def x_ticks(self) -> list[Tick]:
        (low, high), _ = self.box.viewRange()
        width = max(20.0, self.box.geometry().width())
        return LinearScale().ticks(
            low, high, max(2, int(width / (self.metrics().horizontalAdvance("0") * 9)))
        )

    def y_ticks(self) -> list[Tick]:
        _, (low, high) = self.box.viewRange()
        return self.scale_.ticks(
            low, high, max(2, int(self.box.geometry().height() / (self.metrics().height() * 2.4)))
        )

    # ------------------------------------------------------------ drawing

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        theme = self.style_.theme
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.style_.antialias)
        rect = self.box.geometry()
        painter.fillRect(rect, QColor(theme.base))
        self._paint_header(painter)
        self._paint_spans(painter, rect)
        self._paint_axes(painter, rect)
        self._paint_notes(painter, rect)

    def _paint_notes(self, painter: QPainter, rect: QRectF) -> None:
        """Notes of levels, upright in the right margin from their level on, where no data are."""
        metrics = self.metrics()
        _, (low, high) = self.box.viewRange()
        for level in self.levels:
            length = metrics.horizontalAdvance(level.note) + 8
            if not level.note or not low <= level.place <= high or length > rect.height():
                continue
            y = rect.bottom() - (level.place - low) / (high - low) * rect.height()
            painter.setPen(QColor(level.note_color or level.color))
            painter.drawLine(QPointF(rect.right(), y), QPointF(rect.right() + TICK_PX, y))
            painter.save()
            painter.translate(rect.right() + 3, max(y, rect.top() + length))
            painter.rotate(-90)
            place = QRectF(0, 0, length, metrics.height() + 2)
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, level.note)
            painter.restore()

    def _paint_header(self, painter: QPainter) -> None:
        x = self.box.geometry().left()
        line = self.metrics().height()
        right = self.size().width()
        for index, (text, color) in enumerate(self.header):
            font = self.style_.font(bold=index == 0)
            metrics = QFontMetricsF(font)
            if index == 0:
                text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, max(0.0, right - x))
            width = metrics.horizontalAdvance(text)
            if index and x + width > right:
                break
            painter.setFont(font)
            painter.setPen(QColor(color))
            painter.drawText(QRectF(x, 1, right - x, line + 3), Qt.AlignmentFlag.AlignVCenter, text)
            x += width + metrics.horizontalAdvance("00")

    def _paint_spans(self, painter: QPainter, rect: QRectF) -> None:
        if not self.strip:
            return
        theme = self.style_.theme
        metrics = self.metrics()
        painter.setFont(self.style_.font())
        height = metrics.height() + 4
        top = rect.top() - height - 3
        (low, high), _ = self.box.viewRange()
        bands: list[tuple[QRectF, str]] = []
        for index, span in enumerate(self.spans):
            start = rect.left() + (max(low, span.start_s) - low) / (high - low) * rect.width()
            end = rect.left() + (min(high, span.end_s) - low) / (high - low) * rect.width()
            if end > start:
                band = QRectF(start, top, end - start, height)
                fill = QColor(theme.neutral_fill if index % 2 == 0 else theme.border)
                fill.setAlphaF(1.0 if index % 2 == 0 else 0.45)
                painter.fillRect(band, fill)
                bands.append((band, span.name))
        painter.setPen(QColor(theme.text))
        for place, name in place_names(bands, metrics, rect.right()):
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, name)

    def _paint_axes(self, painter: QPainter, rect: QRectF) -> None:
        theme, style, metrics = self.style_.theme, self.style_, self.metrics()
        painter.setFont(style.font())
        line = metrics.height()
        (low, high), (y_low, y_high) = self.box.viewRange()
        for tick in self.x_ticks():
            x = rect.left() + (tick.place - low) / (high - low) * rect.width()
            self._tick(painter, QPointF(x, rect.bottom()), QPointF(0, TICK_PX if tick.label else TICK_PX / 2))
            painter.setPen(QColor(theme.text))
            place = QRectF(x - 60, rect.bottom() + TICK_PX + 1, 120, line + 2)
            painter.drawText(place, Qt.AlignmentFlag.AlignHCenter, tick.label)
        for tick in self.y_ticks():
            y = rect.bottom() - (tick.place - y_low) / (y_high - y_low) * rect.height()
            self._tick(painter, QPointF(rect.left(), y), QPointF(-TICK_PX if tick.label else -TICK_PX / 2, 0))
            painter.setPen(QColor(theme.text))
            place = QRectF(0, y - line, rect.left() - TICK_PX - 3, 2 * line)
            painter.drawText(place, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, tick.label)
        painter.setPen(style.axis_pen(theme.border))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(rect)
        painter.setPen(QColor(theme.text))
        if self.x_label and self.shows_x_label:
            width = max(rect.width(), metrics.horizontalAdvance(self.x_label) + 4)
            left = rect.center().x() - width / 2
            place = QRectF(left, rect.bottom() + TICK_PX + line + 2, width, line + 4)
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, self.x_label)
        if self.y_label and self.shows_y_label:
            painter.save()
            painter.translate(2, rect.center().y())
            painter.rotate(-90)
            length = max(rect.height(), metrics.horizontalAdvance(self.y_label) + 4)
            place = QRectF(-length / 2, 0, length, line + 2)
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, self.y_label)
            painter.restore()

    def _tick(self, painter: QPainter, start: QPointF, length: QPointF) -> None:
        painter.setPen(self.style_.axis_pen(self.style_.theme.muted))
        painter.drawLine(start, start + length)


def place_names(
    bands: Sequence[tuple[QRectF, str]], metrics: QFontMetricsF, right: float
) -> list[tuple[QRectF, str]]:
    """Where each name stands: in the middle of its band, or from the band's start on where the band is too narrow.

    A name that would touch its neighbour is left out.
    """
    ideal = []
    for band, name in bands:
        width = metrics.horizontalAdvance(name) + 6
        left = band.center().x() - width / 2 if width <= band.width() else band.left()
        ideal.append(
            (QRectF(min(left, right - width), band.top(), width, band.height()), width <= band.width(), name)
        )
    fitting = [place for place, fits, _ in ideal if fits]
    placed: list[tuple[QRectF, str]] = []
    for place, fits, name in ideal:
        others = fitting + [done for done, _ in placed]
        if fits or not any(place.intersects(other) for other in others):
            placed.append((place, name))
    return placed


class _Grid(PixelItem):
    """Grid lines at labelled ticks, and the boundaries of steps."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(panel.box, -10.0)
        self.owner = panel

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        style, rect = self.owner.style_, self.box.rect()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, style.antialias)
        painter.setPen(style.axis_pen(style.theme.grid))
        (low, high), (y_low, y_high) = self.box.viewRange()
        for tick in self.owner.x_ticks():
            if tick.label:
                x = (tick.place - low) / (high - low) * rect.width()
                painter.drawLine(QPointF(x, 0), QPointF(x, rect.height()))
        for tick in self.owner.y_ticks():
            if tick.label:
                y = rect.height() - (tick.place - y_low) / (y_high - y_low) * rect.height()
                painter.drawLine(QPointF(0, y), QPointF(rect.width(), y))
        painter.setPen(style.pen(style.theme.border, 1.0, Qt.PenStyle.DotLine))
        for span in self.owner.spans[:-1]:
            if low < span.end_s < high:
                x = (span.end_s - low) / (high - low) * rect.width()
                painter.drawLine(QPointF(x, 0), QPointF(x, rect.height()))


class _Marks(PixelItem):
    """Levels, labelled points, pins and the cursor, above the data."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(panel.box, 10.0)
        self.owner = panel
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemClipsToShape, True)

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        style = self.owner.style_
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, style.antialias)
        painter.setFont(style.font())
        for level in self.owner.levels:
            self._paint_level(painter, level)
        for dot in self.owner.dots:
            self._paint_dot(painter, dot)
        self._paint_dot_notes(painter)
        (low, high), _ = self.box.viewRange()
        times = [(pin, style.theme.accent, Qt.PenStyle.DashLine) for pin in self.owner.pins]
        if self.owner.cursor_s is not None:
            times.append((self.owner.cursor_s, style.theme.muted, Qt.PenStyle.SolidLine))
        for time_s, color, line in times:
            if low <= time_s <= high:
                x = (time_s - low) / (high - low) * self.box.rect().width()
                painter.setPen(style.pen(color, 1.2, line))
                painter.drawLine(QPointF(x, 0), QPointF(x, self.box.rect().height()))

    def _paint_level(self, painter: QPainter, level: Level) -> None:
        _, (low, high) = self.box.viewRange()
        if not low <= level.place <= high:
            return
        style, rect = self.owner.style_, self.box.rect()
        y = rect.height() - (level.place - low) / (high - low) * rect.height()
        line = Qt.PenStyle.DashLine if level.dashed else Qt.PenStyle.SolidLine
        painter.setPen(style.pen(level.color, 1.2, line))
        painter.drawLine(QPointF(0, y), QPointF(rect.width(), y))

    def _paint_dot(self, painter: QPainter, dot: Dot) -> None:
        (x_low, x_high), (y_low, y_high) = self.box.viewRange()
        if not (x_low <= dot.x <= x_high and y_low <= dot.y <= y_high):
            return
        style, rect = self.owner.style_, self.box.rect()
        x = (dot.x - x_low) / (x_high - x_low) * rect.width()
        y = rect.height() - (dot.y - y_low) / (y_high - y_low) * rect.height()
        painter.setPen(style.pen(dot.color or style.theme.text, 1.4))
        painter.setBrush(QColor(style.theme.base))
        radius = style.font_px / 4
        painter.drawEllipse(QPointF(x, y), radius, radius)
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def _paint_dot_notes(self, painter: QPainter) -> None:
        """Each note on the side of its dot where it is inside the box and touches neither a dot nor another note."""
        style, rect = self.owner.style_, self.box.rect()
        metrics = QFontMetricsF(style.font())
        noted = [dot for dot in self.owner.dots if dot.note]
        if not noted:
            return
        gap = style.font_px / 2
        xs = self.to_x(np.array([dot.x for dot in noted]))
        ys = self.to_y(np.array([dot.y for dot in noted]))
        taken = [QRectF(x - gap, y - gap, 2 * gap, 2 * gap) for x, y in zip(xs, ys, strict=True)]
        for dot, x, y, own in zip(noted, xs, ys, list(taken), strict=True):
            if not rect.contains(QPointF(x, y)):
                continue
            width, height = metrics.horizontalAdvance(dot.note) + 6, metrics.height()
            lefts = (x + gap, x - gap - width, x - width / 2)
            places = [
                QRectF(left, top, width, height)
                for top in (y - gap - height, y - height / 2, y + gap)
                for left in lefts
            ]
            for place in places:
                others = (other for other in taken if other is not own)
                if (
                    rect.contains(place)
                    and not place.intersects(own)
                    and not any(map(place.intersects, others))
                ):
                    ground = QColor(style.theme.base)
                    ground.setAlphaF(0.78)
                    painter.fillRect(place, ground)
                    painter.setPen(QColor(style.theme.text))
                    painter.drawText(place, Qt.AlignmentFlag.AlignCenter, dot.note)
                    taken.append(place)
                    break
