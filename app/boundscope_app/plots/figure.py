"""A figure: panels, a caption and a legend beside the data, on the screen or drawn for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QGraphicsWidget, QStyleOptionGraphicsItem, QWidget

from boundscope_app.plots.panel import Panel
from boundscope_app.plots.style import Style

PANEL_ASPECT = 1.9


@dataclass(frozen=True)
class LegendEntry:
    """One line of the legend; `kind` is "line", "dashed", "fill", "note" or "title"."""

    text: str
    color: str = ""
    kind: str = "line"
    pen: Qt.PenStyle = Qt.PenStyle.SolidLine


class Legend(QGraphicsWidget):
    """Entries one below the other in a column of their own, or in rows above the panels."""

    def __init__(self, style: Style) -> None:
        super().__init__()
        self.style_ = style
        self.horizontal = False
        self.entries: tuple[LegendEntry, ...] = ()

    def _entry_width(self, entry: LegendEntry) -> float:
        metrics = QFontMetricsF(self.style_.font(bold=entry.kind == "title"))
        swatch = 2.2 * self.style_.font_px if entry.color else 0.0
        return metrics.horizontalAdvance(entry.text) + swatch + self.style_.font_px

    def _line_height(self) -> float:
        return QFontMetricsF(self.style_.font()).height() * 1.35

    def needed_width(self) -> float:
        """Width of the column."""
        return max((self._entry_width(entry) for entry in self.entries), default=0.0)

    def places(self, width: float) -> list[QRectF]:
        """Where each entry stands in an area of this width."""
        line = self._line_height()
        if not self.horizontal:
            return [QRectF(0, index * line, width, line) for index in range(len(self.entries))]
        places, x, y = [], 0.0, 0.0
        for entry in self.entries:
            needed = self._entry_width(entry)
            if x and x + needed > width:
                x, y = 0.0, y + line
            places.append(QRectF(x, y, min(needed, width), line))
            x += needed + 0.6 * self.style_.font_px
        return places

    def needed_height(self, width: float) -> float:
        """Height of the rows in an area of this width."""
        places = self.places(width)
        return places[-1].bottom() if places else 0.0

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        style = self.style_
        for entry, place in zip(self.entries, self.places(self.size().width()), strict=True):
            text_place = place
            if entry.color:
                swatch = QRectF(place.left(), place.top(), 1.6 * style.font_px, place.height())
                self._swatch(painter, swatch, entry)
                text_place = place.adjusted(2.2 * style.font_px, 0, 0, 0)
            painter.setFont(style.font(bold=entry.kind == "title"))
            painter.setPen(QColor(style.theme.muted if entry.kind == "note" else style.theme.text))
            painter.drawText(
                text_place, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, entry.text
            )

    def _swatch(self, painter: QPainter, rect: QRectF, entry: LegendEntry) -> None:
        if entry.kind == "fill":
            side = self.style_.font_px * 0.8
            square = QRectF(rect.left(), rect.center().y() - side / 2, rect.width(), side)
            fill = QColor(entry.color)
            fill.setAlphaF(0.72)
            painter.fillRect(square, fill)
            painter.setPen(self.style_.pen(entry.color, 1.0))
            painter.drawRect(square)
            return
        dash = Qt.PenStyle.DashLine if entry.kind == "dashed" else entry.pen
        painter.setPen(self.style_.pen(entry.color, 2.0, dash))
        middle = rect.center().y()
        painter.drawLine(QPointF(rect.left(), middle), QPointF(rect.right(), middle))


class Figure(pg.GraphicsView):  # type: ignore[misc]  # pyqtgraph has no types
    """Panels in a grid. On the screen it follows the widget's size; for a page `draw_on` gives the size."""

    hovered = Signal(object, object)  # panel or None, time in seconds or None
    clicked = Signal(object, float, float)  # panel, time, how near a pin counts as hit
    zoom_changed = Signal()

    def __init__(self, style: Style, parent: QWidget | None = None) -> None:
        super().__init__(parent, useOpenGL=False, background=None)
        self.style_ = style
        self.panels: list[Panel] = []
        self.columns = 1
        self.linked = False  # whether zooming into one panel zooms into all
        self.linked_times = False  # whether it only gives all the same time axis
        self.caption = ""
        self.legend = Legend(style)
        self.scene().addItem(self.legend)
        self._caption_item = _Caption(self)
        self.scene().addItem(self._caption_item)
        self._size = QRectF(0, 0, 100, 100)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        self.setMouseTracking(True)
        self.setMinimumSize(260, 160)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.scene().sigMouseMoved.connect(self._moved)
        self.scene().sigMouseClicked.connect(self._clicked)
        self.set_style(style)

    def set_style(self, style: Style) -> None:
        """Other colours or widths from now on."""
        self.style_ = style
        self.legend.style_ = style
        self.setBackground(QColor(style.theme.base if not style.live else style.theme.window))
        for panel in self.panels:
            panel.style_ = style
            for item in panel.box.childItems():
                if hasattr(item, "style"):
                    item.style = style
        self.scene().update()

    def add_panel(self, panel: Panel) -> None:
        self.panels.append(panel)
        self.scene().addItem(panel)
        panel.box.sigRangeChangedManually.connect(lambda *_: self._zoomed(panel))

    def _zoomed(self, panel: Panel) -> None:
        times, values = panel.box.viewRange()
        for other in self.visible_panels():
            if other is not panel and self.linked:
                other.show_range((times, values))
            elif other is not panel and self.linked_times:
                other.show_range((times, other.box.viewRange()[1]))
        self.zoom_changed.emit()

    def show_all(self) -> None:
        for panel in self.panels:
            panel.show_all()
        self.zoom_changed.emit()

    @property
    def zoomed(self) -> bool:
        return any(panel.zoomed for panel in self.visible_panels())

    def visible_panels(self) -> list[Panel]:
        return [panel for panel in self.panels if panel.isVisible()]

    # ------------------------------------------------------------ layout

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        super().resizeEvent(event)
        if event is not None and hasattr(self, "panels"):
            self._size = QRectF(0, 0, self.width(), self.height())
            self.arrange()

    def arrange(self) -> None:
        """Give every visible panel its place; their axes are aligned."""
        area = self._panel_area()
        panels = self.visible_panels()
        if not panels or area.width() <= 0 or area.height() <= 0:
            return
        columns = self._column_count(len(panels), area)
        rows = -(-len(panels) // columns)
        shares = [
            max(panel.share for panel in panels[row * columns : (row + 1) * columns]) for row in range(rows)
        ]
        tops = [area.top() + area.height() * sum(shares[:row]) / sum(shares) for row in range(rows + 1)]
        for index, panel in enumerate(panels):
            panel.shows_y_label = index % columns == 0
            panel.shows_x_label = index >= columns * (rows - 1)
        for _ in range(2):  # tick labels depend on the height, and the width on the tick labels
            ticks = max(panel.tick_width() for panel in panels)
            label = panels[0].label_width()
            right = max(panel.right_px() for panel in panels)
            width = (area.width() - label) / columns
            for index, panel in enumerate(panels):
                row, column = divmod(index, columns)
                extra = 0.0 if column == 0 else label
                height = tops[row + 1] - tops[row]
                place = QRectF(area.left() + column * width + extra, tops[row], width, height)
                panel.setGeometry(place.adjusted(0, 0, label if column == 0 else 0, 0))
                panel.arrange(ticks + (label if column == 0 else 0.0), right)

    def _panel_area(self) -> QRectF:
        """What caption and legend leave to the panels; places these two."""
        if self.style_.live:
            area = self._size.adjusted(8, 4, -4, -4)
        else:
            area = self._size.adjusted(24, 18, -24, -14)
            line = QFontMetricsF(self.style_.font()).height()
            self._caption_item.setGeometry(QRectF(area.left(), area.top(), area.width(), line + 4))
            area.setTop(area.top() + line + 12)
        legend = self.legend
        legend.setVisible(bool(legend.entries))
        if legend.entries and legend.horizontal:
            height = legend.needed_height(area.width())
            legend.setGeometry(QRectF(area.left(), area.top(), area.width(), height))
            area.setTop(area.top() + height + 6)
        elif legend.entries:
            width = legend.needed_width()
            legend.setGeometry(QRectF(area.right() - width, area.top(), width, area.height()))
            area.setRight(area.right() - width - self.style_.font_px)
        return area

    def _column_count(self, panels: int, area: QRectF) -> int:
        """The fixed number, or the one that makes panels nearest to PANEL_ASPECT."""
        if self.columns:
            return min(self.columns, panels)

        def distance(columns: int) -> float:
            rows = -(-panels // columns)
            shape = (area.width() / columns) / (area.height() / rows)
            return abs(math.log(shape / PANEL_ASPECT)) + 0.15 * (rows * columns - panels) / panels

        return min(range(1, panels + 1), key=distance)

    def draw_on(self, painter: QPainter, width: float, height: float) -> None:
        """Draw the figure into (0, 0, width, height) of the painter."""
        self._size = QRectF(0, 0, width, height)
        self.scene().setSceneRect(self._size)
        self.arrange()
        self.scene().prepareForPaint()
        self.scene().render(painter, self._size, self._size, Qt.AspectRatioMode.IgnoreAspectRatio)

    # ------------------------------------------------------------ keyboard and focus

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and Right move the cursor (with Shift ten times as far), Space pins, Home undoes the zoom."""
        panels = self.visible_panels()
        step = {Qt.Key.Key_Left: -0.01, Qt.Key.Key_Right: 0.01}.get(Qt.Key(event.key()))
        if not panels or (step is None and event.key() not in (Qt.Key.Key_Space, Qt.Key.Key_Home)):
            super().keyPressEvent(event)
            return
        low, high = panels[0].box.viewRange()[0]
        now = panels[0].cursor_s
        if step is not None:
            far = 10 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1
            at = (low if step > 0 else high) if now is None else now + step * far * (high - low)
            self.hovered.emit(panels[0], min(max(at, low), high))
        elif event.key() == Qt.Key.Key_Home:
            self.show_all()
        elif now is not None:
            self.clicked.emit(panels[0], now, 0.005 * (high - low))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self.viewport())
            painter.setPen(QColor(self.style_.theme.accent))
            painter.drawRect(self.viewport().rect().adjusted(0, 0, -1, -1))
            painter.end()

    # ------------------------------------------------------------ pointer

    def panel_at(self, place: QPointF) -> Panel | None:
        for panel in self.visible_panels():
            if panel.box.sceneBoundingRect().contains(place):
                return panel
        return None

    def _moved(self, place: QPointF) -> None:
        panel = self.panel_at(place)
        self.hovered.emit(panel, None if panel is None else panel.x_at(place.x()))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.hovered.emit(None, None)

    def _clicked(self, event: object) -> None:
        place = event.scenePos()  # type: ignore[attr-defined]
        panel = self.panel_at(place)
        if panel is None or event.button() is not Qt.MouseButton.LeftButton:  # type: ignore[attr-defined]
            return
        if event.double():  # type: ignore[attr-defined]
            return
        near = abs(panel.x_at(place.x() + 5) - panel.x_at(place.x()))
        self.clicked.emit(panel, panel.x_at(place.x()), near)

    def set_marks(self, cursor_s: float | None, pins: Sequence[float]) -> None:
        """Draw the cursor and the pins at these times in every panel."""
        for panel in self.panels:
            if panel.cursor_s != cursor_s or panel.pins != tuple(pins):
                panel.cursor_s, panel.pins = cursor_s, tuple(pins)
                panel._marks.update()


class _Caption(QGraphicsWidget):
    """The line above an exported figure that says what was run."""

    def __init__(self, figure: Figure) -> None:
        super().__init__()
        self.figure = figure

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        style = self.figure.style_
        if style.live or not self.figure.caption:
            return
        painter.setFont(style.font())
        painter.setPen(QColor(style.theme.muted))
        text = QFontMetricsF(style.font()).elidedText(
            self.figure.caption, Qt.TextElideMode.ElideMiddle, self.size().width()
        )
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter, text)
