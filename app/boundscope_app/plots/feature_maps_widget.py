"""A layer's feature maps on the screen: a grid of pictures that scrolls and follows pointer and keys."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from boundscope_app.plots.feature_maps import FeatureMaps, FeatureMapsDrawing, Spot
from boundscope_app.plots.style import Style

MARGIN_PX = 8


class FeatureMapsWidget(QAbstractScrollArea):
    """`picked` gives the picture that somebody chose, `hovered` the Spot under the pointer or None; `left` asks to go
    back to the layers. A picture is enlarged by a double click or Enter, and put back by the same or Backspace."""

    picked = Signal(int)
    hovered = Signal(object)
    left = Signal()

    def __init__(self, style: Style, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.maps: FeatureMaps | None = None
        self.current = 0
        self.enlarged = False
        self._style = style
        self._drawing: FeatureMapsDrawing | None = None
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Feature maps of significant bits")
        self.setAccessibleDescription(
            "Arrow keys choose a channel, Enter enlarges it, Backspace goes back; the line below reads its values"
        )
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumSize(260, 160)
        self.viewport().setMouseTracking(True)

    def set_style(self, style: Style) -> None:
        self._style = style
        self._lay_out()

    def show_maps(self, maps: FeatureMaps | None) -> None:
        """Show another layer, from its first picture on; the same one stays as it is."""
        same = maps is not None and self.maps is not None and maps.told == self.maps.told
        if same and maps == self.maps:
            return
        self.maps = maps
        if not same:
            self.current, self.enlarged = 0, False
            self.verticalScrollBar().setValue(0)
        self._lay_out()

    @property
    def drawing(self) -> FeatureMapsDrawing | None:
        if self._drawing is None and self.maps is not None:
            width = max(1, self.viewport().width() - 2 * MARGIN_PX)
            only = self.current if self.enlarged else None
            self._drawing = FeatureMapsDrawing(self.maps, self._style, width, self._height, only)
        return self._drawing

    @property
    def _height(self) -> int:
        return self.viewport().height() - 2 * MARGIN_PX

    def _lay_out(self) -> None:
        self._drawing = None
        drawing = self.drawing
        if drawing is not None:
            page = max(1, round(drawing.room_px(self._height)))
            bar = self.verticalScrollBar()
            bar.setPageStep(page)
            bar.setSingleStep(max(1, round(drawing.step_y)))
            bar.setRange(0, max(0, round(drawing.rows_px) - page))
        self.viewport().update()

    def enlarge(self, enlarged: bool) -> None:
        """Show the current picture alone, or all."""
        if self.enlarged is not enlarged:
            self.enlarged = enlarged
            self._lay_out()
            self._bring_into_sight()

    def choose(self, tile: int) -> None:
        """Frame a picture and bring it into sight."""
        if self.maps is not None and 0 <= tile < len(self.maps.told.channels):
            self.current = tile
            if self.enlarged:
                self._lay_out()
            self._bring_into_sight()
            self.picked.emit(tile)

    def _bring_into_sight(self) -> None:
        drawing, bar = self.drawing, self.verticalScrollBar()
        if drawing is not None:
            rect = drawing.tile_rect(self.current)
            top = round(rect.top() // drawing.step_y * drawing.step_y)
            if top < bar.value():
                bar.setValue(top)
            elif rect.bottom() > bar.value() + bar.pageStep():
                bar.setValue(round(top + drawing.step_y - bar.pageStep()))
        self.viewport().update()

    def tile_center(self, tile: int) -> QPoint:
        """Where a picture is in the viewport."""
        assert self.drawing is not None
        center = self.drawing.tile_rect(tile).center()
        return QPoint(
            round(MARGIN_PX + center.x()), round(MARGIN_PX + center.y() - self.verticalScrollBar().value())
        )

    # ------------------------------------------------------------ drawing

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
        if self.drawing is not None:
            self.drawing.draw(painter, self._height, self.verticalScrollBar().value(), self.current)
        if self.hasFocus():
            painter.resetTransform()
            painter.setPen(QColor(self._style.theme.accent))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.viewport().rect().adjusted(0, 0, -1, -1))
        painter.end()

    # ------------------------------------------------------------ pointer and keys

    def _spot(self, event: QMouseEvent) -> Spot | None:
        at, drawing = event.position(), self.drawing
        if drawing is None or at.y() - MARGIN_PX > drawing.room_px(self._height):
            return None
        return drawing.spot_at(at.x() - MARGIN_PX, at.y() - MARGIN_PX + self.verticalScrollBar().value())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self.hovered.emit(self._spot(event))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        spot = self._spot(event)
        if spot is not None and event.button() is Qt.MouseButton.LeftButton:
            self.choose(spot.tile)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self._spot(event) is not None and event.button() is Qt.MouseButton.LeftButton:
            self.enlarge(not self.enlarged)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Leave:
            self.hovered.emit(None)
        return super().viewportEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, drawing = Qt.Key(event.key()), self.drawing
        if drawing is None:
            super().keyPressEvent(event)
            return
        last = len(drawing.maps.told.channels) - 1
        across = 1 if self.enlarged else drawing.columns
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Up: -across, Qt.Key.Key_Down: across}
        if key in steps:
            wanted = self.current + steps[key]
            if 0 <= wanted <= last:
                self.choose(wanted)
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            self.choose(0 if key is Qt.Key.Key_Home else last)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.enlarge(not self.enlarged)
        elif key is Qt.Key.Key_Backspace:
            if self.enlarged:
                self.enlarge(False)
            else:
                self.left.emit()
        else:
            super().keyPressEvent(event)
