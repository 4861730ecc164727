"""The graph on the screen: zoom, pan, pick with pointer or keys, and only what is in sight is drawn."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QToolTip, QWidget

from boundscope_app.graph_layout import Layout
from boundscope_app.plots.graph_drawing import EdgePaths, Emphasis, GraphDrawing, RampBar
from boundscope_app.plots.graph_scene import GraphScene
from boundscope_app.plots.style import Style

MARGIN_PX = 16
LEAST_SCALE, MOST_SCALE, NICE_SCALE, READABLE = 0.02, 3.0, 1.25, 0.62
STEP = 1.25
KEY_ZOOM = {Qt.Key.Key_Plus: STEP, Qt.Key.Key_Equal: STEP, Qt.Key.Key_Minus: 1 / STEP}


class GraphWidget(QAbstractScrollArea):
    """`picked` gives the number of the node that somebody chose, `hovered` the one under the pointer, or -1."""

    picked = Signal(int)
    hovered = Signal(int)

    def __init__(self, style: Style, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.scene = GraphScene()
        self.scale = 1.0
        self.emphasis = Emphasis()
        self.tip: Callable[[int], str] = lambda number: self.scene.layout.graph.nodes[number].name
        self._style = style
        self._edges = EdgePaths(self.scene.layout)
        self._drawing = GraphDrawing(self.scene, style, self._edges)
        self._own_zoom = False  # whether somebody has zoomed or moved, so that a new size keeps what is shown
        self._press: QPointF | None = None
        self._dragging = False
        self._near: dict[str, list[list[int]]] = {}
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName("Graph of the network")
        self.setAccessibleDescription(
            "Down and Up follow the edges, Left and Right go to the neighbour, plus and minus zoom, 0 shows all"
        )
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumSize(240, 160)
        self.viewport().setMouseTracking(True)

    # ------------------------------------------------------------ what is shown

    def set_style(self, style: Style) -> None:
        self._style = style
        self._drawing = GraphDrawing(self.scene, style, self._edges)
        self.viewport().update()

    def show_scene(self, scene: GraphScene) -> None:
        """Show this; the same layout with other cells keeps zoom and place."""
        if scene == self.scene:
            return
        fresh = scene.layout is not self.scene.layout
        self.scene = scene
        if fresh:
            self._edges, self._own_zoom = EdgePaths(scene.layout), False
            self._find_neighbours(scene.layout)
            self.emphasis = Emphasis()
        self._drawing = GraphDrawing(scene, self._style, self._edges)
        if fresh:
            self.show_start()
        self.viewport().update()

    def set_emphasis(self, emphasis: Emphasis) -> None:
        if emphasis != self.emphasis:
            moved = emphasis.current != self.emphasis.current
            self.emphasis = emphasis
            if moved and emphasis.current >= 0:
                self.bring_into_sight(emphasis.current)
            self.viewport().update()

    @property
    def bar_height(self) -> int:
        return round(self._bar().height) + MARGIN_PX

    def _bar(self) -> RampBar:
        return RampBar(self.scene, self._style, max(60, self.viewport().width() - 2 * MARGIN_PX))

    @property
    def _room(self) -> tuple[int, int]:
        """Pixels that the graph has across and down, above the colour bar."""
        return max(1, self.viewport().width()), max(1, self.viewport().height() - self.bar_height)

    # ------------------------------------------------------------ zoom and place

    def show_all(self) -> None:
        """The whole graph, as large as it fits."""
        self._own_zoom = True
        self._set_scale(self._fitting())

    def show_start(self) -> None:
        """The whole graph where it can be read so; else its width, from the top."""
        self._own_zoom = False
        fitting, across = self._fitting(), self._fitting(down=False)
        self._set_scale(fitting if fitting >= READABLE else min(1.0, max(READABLE, across)))
        self.verticalScrollBar().setValue(0)
        bar = self.horizontalScrollBar()
        bar.setValue(bar.maximum() // 2)
        if self.emphasis.current >= 0:
            self.bring_into_sight(self.emphasis.current)

    def _fitting(self, down: bool = True) -> float:
        layout, (across_px, down_px) = self.scene.layout, self._room
        scale = (across_px - 2 * MARGIN_PX) / max(1.0, layout.width)
        if down:
            scale = min(scale, (down_px - 2 * MARGIN_PX) / max(1.0, layout.height))
        return min(max(scale, LEAST_SCALE), NICE_SCALE)

    def zoom(self, factor: float, at: QPointF | None = None) -> None:
        """Larger or smaller around a point of the viewport, its middle where none is given."""
        at = at or QPointF(self._room[0] / 2, self._room[1] / 2)
        fixed = self.to_layout(at)
        self._own_zoom = True
        self._set_scale(min(max(self.scale * factor, LEAST_SCALE), MOST_SCALE))
        moved = self.to_viewport(fixed) - at
        self._scroll(moved.x(), moved.y())

    def _set_scale(self, scale: float) -> None:
        self.scale = scale
        layout = self.scene.layout
        sizes = (layout.width * scale, layout.height * scale)
        for bar, size, room in zip(
            (self.horizontalScrollBar(), self.verticalScrollBar()), sizes, self._room, strict=True
        ):
            bar.setPageStep(room)
            bar.setSingleStep(40)
            bar.setRange(0, max(0, round(size) + 2 * MARGIN_PX - room))
        self.viewport().update()

    def _scroll(self, dx: float, dy: float) -> None:
        for bar, by in ((self.horizontalScrollBar(), dx), (self.verticalScrollBar(), dy)):
            bar.setValue(bar.value() + round(by))

    def _origin(self) -> QPointF:
        """Where the layout's corner is in the viewport; what is smaller than its room stands in the middle across."""
        layout, (across_px, _) = self.scene.layout, self._room
        x = MARGIN_PX - self.horizontalScrollBar().value()
        if self.horizontalScrollBar().maximum() == 0:
            x = round((across_px - layout.width * self.scale) / 2)
        return QPointF(x, MARGIN_PX - self.verticalScrollBar().value())

    def to_layout(self, at: QPointF) -> QPointF:
        return (at - self._origin()) / self.scale

    def to_viewport(self, at: QPointF) -> QPointF:
        return at * self.scale + self._origin()

    def bring_into_sight(self, number: int) -> None:
        """Scroll until a node can be seen."""
        place = self._drawing.place(number)
        across_px, down_px = self._room
        corner, far = self.to_viewport(place.topLeft()), self.to_viewport(place.bottomRight())
        dx = min(0.0, corner.x() - MARGIN_PX) or max(0.0, far.x() + MARGIN_PX - across_px)
        dy = min(0.0, corner.y() - MARGIN_PX) or max(0.0, far.y() + MARGIN_PX - down_px)
        self._scroll(dx, dy)

    def node_center(self, number: int) -> QPointF:
        """Where a node is in the viewport, in pixels."""
        return self.to_viewport(self._drawing.place(number).center())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._own_zoom:
            self._set_scale(self.scale)
        else:
            self.show_start()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.viewport().update()

    # ------------------------------------------------------------ drawing

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = self._style.theme
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        painter.fillRect(self.viewport().rect(), QColor(theme.base))
        across_px, down_px = self._room
        painter.save()
        painter.setClipRect(0, 0, across_px, down_px)
        painter.translate(self._origin())
        painter.scale(self.scale, self.scale)
        area = QRectF(self.to_layout(QPointF(0, 0)), self.to_layout(QPointF(across_px, down_px)))
        self._drawing.draw(painter, area, self.scale, self.emphasis)
        painter.restore()
        if self.scene.cells:
            painter.setPen(QColor(theme.grid))
            painter.drawLine(0, down_px, across_px, down_px)
            painter.translate(MARGIN_PX, down_px + MARGIN_PX / 2)
            self._bar().draw(painter)
        if self.hasFocus():
            painter.resetTransform()
            painter.setPen(QColor(theme.accent))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.viewport().rect().adjusted(0, 0, -1, -1))
        painter.end()

    # ------------------------------------------------------------ pointer

    def node_at(self, at: QPointF) -> int:
        """The node under a point of the viewport, or -1."""
        if at.y() >= self._room[1]:
            return -1
        place = self.to_layout(at)
        return self._drawing.node_at(place.x(), place.y())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._press, self._dragging = event.position(), False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._press is None:
            self.hovered.emit(self.node_at(event.position()))
            return
        by = event.position() - self._press
        if self._dragging or by.manhattanLength() >= QApplication.startDragDistance():
            self._dragging = self._own_zoom = True
            self._press = event.position()
            self.viewport().setCursor(Qt.CursorShape.ClosedHandCursor)
            self._scroll(-by.x(), -by.y())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._press is not None and not self._dragging:
            number = self.node_at(event.position())
            if number >= 0:
                self.picked.emit(number)
        self._press = None
        self.viewport().unsetCursor()

    def wheelEvent(self, event: QWheelEvent) -> None:
        turns = event.angleDelta().y() / 120
        if turns:
            self.zoom(STEP**turns, event.position())
        event.accept()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Leave:
            self.hovered.emit(-1)
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            number = self.node_at(QPointF(event.pos()))
            if number >= 0:
                QToolTip.showText(event.globalPos(), self.tip(number), self.viewport())
            else:
                QToolTip.hideText()
            return True
        return super().viewportEvent(event)

    # ------------------------------------------------------------ keys

    def _find_neighbours(self, layout: Layout) -> None:
        count = len(layout.graph.nodes)
        above: list[list[int]] = [[] for _ in range(count)]
        below: list[list[int]] = [[] for _ in range(count)]
        for start, end in layout.graph.edges:
            above[end].append(start)
            below[start].append(end)
        rows: dict[int, list[int]] = {}
        for number in sorted(range(count), key=lambda n: float(layout.x[n])):
            rows.setdefault(layout.depth[number], []).append(number)
        beside: list[list[int]] = [[] for _ in range(count)]
        for row in rows.values():
            for number in row:
                beside[number] = row
        self._near = {"above": above, "below": below, "beside": beside}

    def neighbour(self, number: int, key: Qt.Key) -> int:
        """Where an arrow key leads from a node: along the straightest edge, or to the next one of its row."""
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            row = self._near["beside"][number]
            place = row.index(number) + (1 if key is Qt.Key.Key_Right else -1)
            return row[place] if 0 <= place < len(row) else number
        near = self._near["below" if key is Qt.Key.Key_Down else "above"][number]
        x = self.scene.layout.x
        return min(near, key=lambda n: (abs(float(x[n] - x[number])), n), default=number)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, count = Qt.Key(event.key()), len(self.scene.layout.graph.nodes)
        if key in KEY_ZOOM:
            self.zoom(KEY_ZOOM[key])
        elif key is Qt.Key.Key_0:
            self.show_all()
        elif count and key in (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Left, Qt.Key.Key_Right):
            now = self.emphasis.current
            self.picked.emit(0 if now < 0 else self.neighbour(now, key))
        elif count and key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            self.picked.emit(0 if key is Qt.Key.Key_Home else count - 1)
        else:
            super().keyPressEvent(event)
