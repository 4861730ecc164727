"""Files dragged over a window: it lights up and says what a drop would do, and reports the drop as paths."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragMoveEvent,
    QDropEvent,
    QFont,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QWidget

from boundscope_app import files
from boundscope_app import theme as themes

MARGIN_PX = 6


class DropOverlay(QWidget):
    """Covers its parent while something is dragged over it; lets all events through."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("drop-overlay")
        self.setAccessibleName("Drop target")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAttribute(Qt.WidgetAttribute.WA_NoSystemBackground)
        self.text = ""
        self.welcome = True
        self.hide()

    def light_up(self, text: str, welcome: bool) -> None:
        """Show what a drop would do; `welcome` False says why nothing would come of it."""
        self.text, self.welcome = text, welcome
        self.setAccessibleDescription(text)
        parent = self.parentWidget()
        if parent is not None:
            self.setGeometry(parent.rect())
        self.raise_()
        self.show()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        palette = self.palette()
        accent = palette.highlight().color() if self.welcome else QColor(themes.current().warn)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        veil = palette.window().color()
        veil.setAlpha(190)
        painter.fillRect(self.rect(), veil)
        painter.setPen(QPen(accent, 3, Qt.PenStyle.DashLine))
        painter.drawRoundedRect(
            QRectF(self.rect()).adjusted(MARGIN_PX, MARGIN_PX, -MARGIN_PX, -MARGIN_PX), 8, 8
        )
        font = QFont(self.font())
        font.setPointSizeF(font.pointSizeF() * 1.4)
        painter.setFont(font)
        flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
        area = QRectF(self.rect()).adjusted(40, 40, -40, -40)
        box = painter.boundingRect(area, int(flags), self.text).adjusted(-18, -12, 18, 12)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(accent)
        painter.drawRoundedRect(box, 6, 6)
        painter.setPen(palette.highlightedText().color() if self.welcome else palette.base().color())
        painter.drawText(area, int(flags), self.text)
        painter.end()


class DropTarget(QObject):
    """Makes a widget and all inside it one target; `dropped` gives local paths, `refused` a reason."""

    dropped = Signal(object)  # tuple[Path, ...]
    refused = Signal(str)

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self._widget = widget
        self.overlay = DropOverlay(widget)
        widget.setAcceptDrops(True)
        widget.installEventFilter(self)

    def claim_children(self) -> None:
        """Children that take drops themselves (line edits, plots) leave them to the whole window."""
        for child in self._widget.findChildren(QWidget):
            if child.acceptDrops() and not child.isWindow():
                child.setAcceptDrops(False)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        match event.type():
            case QEvent.Type.DragEnter if isinstance(event, QDragEnterEvent):
                return self._enter(event)
            case QEvent.Type.DragMove if isinstance(event, QDragMoveEvent):
                if event.mimeData().hasUrls():
                    event.acceptProposedAction()
                return event.mimeData().hasUrls()
            case QEvent.Type.DragLeave:
                self.overlay.hide()
            case QEvent.Type.Drop if isinstance(event, QDropEvent):
                self.overlay.hide()
                return self._drop(event)
            case QEvent.Type.Resize if self.overlay.isVisible():
                self.overlay.setGeometry(self._widget.rect())
            case _:
                pass
        return False

    def _enter(self, event: QDragEnterEvent) -> bool:
        if not event.mimeData().hasUrls():
            return False
        paths = _local_paths(event)
        if paths and files.looks_droppable(paths):
            self.overlay.light_up(_promise(paths), welcome=True)
        else:
            self.overlay.light_up(_reason(paths), welcome=False)
        event.acceptProposedAction()  # also for wrong files, so that the drop can say why
        return True

    def _drop(self, event: QDropEvent) -> bool:
        if not event.mimeData().hasUrls():
            return False
        event.acceptProposedAction()
        paths = _local_paths(event)
        if paths:
            self.dropped.emit(paths)
        else:
            self.refused.emit(_reason(paths))
        return True


def _local_paths(event: QDropEvent) -> tuple[Path, ...]:
    return tuple(Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile())


def _promise(paths: tuple[Path, ...]) -> str:
    if len(paths) == 1:
        kind = "folder" if paths[0].is_dir() else files.kind_of(paths[0])
        verb = "add to the library" if kind == "folder" else f"use as the {kind}"
        return f"Drop {paths[0].name} to {verb}"
    return f"Drop {len(paths)} items to use them"


def _reason(paths: tuple[Path, ...]) -> str:
    if not paths:
        return "Only files on this computer can be dropped here; download it first."
    return files.problem_with(paths[0]) or f"{paths[0].name}: {files.READABLE}"
