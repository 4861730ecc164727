"""The heatmap on the screen: scrolls, follows pointer and keys, and marks the current row."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from boundscope_app.plots.heat import Heat
from boundscope_app.plots.heatmap import HeatmapDrawing, Place
from boundscope_app.plots.style import Style

MARGIN_PX = 8


class HeatmapWidget(QAbstractScrollArea):
    """`picked` gives the row that somebody chose, `hovered` the Place under the pointer or None; `opened` the row that
    somebody wants to see inside, by a double click or Enter."""

    picked = Signal(int)
    opened = Signal(int)
    hovered = Signal(object)

    def __init__(self, style: Style, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.heat = Heat()
        self.current = -1
        self._style = style
        self._drawing: HeatmapDrawing | None = None
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Heatmap of significant bits")
        self.setAccessibleDescription("Up and Down choose a layer; the line below reads its values")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumSize(260, 160)
        self.viewport().setMouseTracking(True)

    def set_style(self, style: Style) -> None:
        self._style = style
        self._lay_out()

    def show_heat(self, heat: Heat) -> None:
        if heat != self.heat:
            self.heat = heat
            self._lay_out()

    def set_current(self, row: int) -> None:
        """Frame this row and bring it into sight; -1 frames none."""
        if row == self.current:
            return
        self.current = row
        drawing = self.drawing
        bar = self.verticalScrollBar()
        if row >= 0:
            top = round(row * drawing.row_px)
            if top < bar.value():
                bar.setValue(top)
            elif top + drawing.row_px > bar.value() + bar.pageStep():
                bar.setValue(round(top + drawing.row_px - bar.pageStep()))
        self.viewport().update()

    @property
    def drawing(self) -> HeatmapDrawing:
        if self._drawing is None:
            width = max(1, self.viewport().width() - 2 * MARGIN_PX)
            self._drawing = HeatmapDrawing(self.heat, self._style, width)
        return self._drawing

    def _lay_out(self) -> None:
        self._drawing = None
        drawing = self.drawing
        page = max(1, round(drawing.room_px(self.viewport().height() - 2 * MARGIN_PX)))
        bar = self.verticalScrollBar()
        bar.setPageStep(page)
        bar.setSingleStep(round(drawing.row_px))
        bar.setRange(0, max(0, round(drawing.rows_px) - page))
        self.viewport().update()

    def _scrolled(self) -> int:
        """How far the rows are scrolled, by whole ones."""
        row_px = self.drawing.row_px
        return round(round(self.verticalScrollBar().value() / row_px) * row_px)

    def row_center(self, row: int) -> tuple[int, int]:
        """Where the first cell of a row is in the viewport, in pixels."""
        drawing = self.drawing
        y = drawing.head_px + (row + 0.5) * drawing.row_px - self._scrolled()
        return round(MARGIN_PX + drawing.name_px + drawing.cell_px / 2), round(MARGIN_PX + y)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        painter.fillRect(self.viewport().rect(), QColor(self._style.theme.base))
        painter.translate(MARGIN_PX, MARGIN_PX)
        height = self.viewport().height() - 2 * MARGIN_PX
        self.drawing.draw(painter, height, self._scrolled(), self.current)
        if self.hasFocus():
            painter.resetTransform()
            painter.setPen(QColor(self._style.theme.accent))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.viewport().rect().adjusted(0, 0, -1, -1))
        painter.end()

    # ------------------------------------------------------------ pointer and keys

    def _place(self, event: QMouseEvent) -> Place | None:
        at = event.position()
        height = self.viewport().height() - 2 * MARGIN_PX
        scrolled = self._scrolled()
        return self.drawing.place_at(at.x() - MARGIN_PX, at.y() - MARGIN_PX, scrolled, height)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self.hovered.emit(self._place(event))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = self._place(event)
        if place is not None and event.button() is Qt.MouseButton.LeftButton:
            self.picked.emit(place.row)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        place = self._place(event)
        if place is not None and event.button() is Qt.MouseButton.LeftButton:
            self.opened.emit(place.row)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Leave:
            self.hovered.emit(None)
        return super().viewportEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.current >= 0:
            self.opened.emit(self.current)
            return
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is None or not self.heat.rows:
            super().keyPressEvent(event)
            return
        self.picked.emit(min(max(self.current + step, 0), len(self.heat.rows) - 1))
