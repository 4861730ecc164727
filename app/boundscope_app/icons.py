"""The window's few icons, drawn in the theme's own colours so that they suit light and dark at any scale."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPainterPath, QPen, QPixmap, QPolygonF

from boundscope_app.examples import resources_folder
from boundscope_app.theme import Theme

SIDE = 64
SIZES_PX = (16, 20, 24, 32, 48, 64, 128)


def _open(painter: QPainter, theme: Theme) -> None:
    path = QPainterPath(QPointF(8, 50))
    for x, y in (
        (8, 14),
        (26, 14),
        (32, 22),
        (54, 22),
        (54, 30),
        (20, 30),
        (8, 50),
        (46, 50),
        (58, 30),
        (54, 30),
    ):
        path.lineTo(x, y)
    painter.drawPath(path)


def _run(painter: QPainter, theme: Theme) -> None:
    painter.setBrush(QColor(theme.good))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawPolygon(QPolygonF([QPointF(16, 10), QPointF(54, 32), QPointF(16, 54)]))


def _stop(painter: QPainter, theme: Theme) -> None:
    painter.setBrush(QColor(theme.bad))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawRoundedRect(QRectF(14, 14, 36, 36), 4, 4)


def _pause(painter: QPainter, theme: Theme) -> None:
    painter.setBrush(QColor(theme.text))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawRoundedRect(QRectF(14, 12, 13, 40), 3, 3)
    painter.drawRoundedRect(QRectF(37, 12, 13, 40), 3, 3)


def _continue(painter: QPainter, theme: Theme) -> None:
    painter.setBrush(QColor(theme.text))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawRoundedRect(QRectF(10, 12, 9, 40), 3, 3)
    painter.drawPolygon(QPolygonF([QPointF(26, 12), QPointF(58, 32), QPointF(26, 52)]))


def _export(painter: QPainter, theme: Theme) -> None:
    painter.drawPolyline([QPointF(10, 38), QPointF(10, 54), QPointF(54, 54), QPointF(54, 38)])
    painter.drawLine(32, 8, 32, 40)
    painter.drawPolyline([QPointF(20, 28), QPointF(32, 40), QPointF(44, 28)])


def _search(painter: QPainter, theme: Theme) -> None:
    painter.drawEllipse(QRectF(10, 10, 32, 32))
    painter.drawLine(38, 38, 54, 54)


SHAPES: dict[str, Callable[[QPainter, Theme], None]] = {
    "open": _open,
    "run": _run,
    "stop": _stop,
    "pause": _pause,
    "continue": _continue,
    "export": _export,
    "search": _search,
}


def icon(name: str, theme: Theme) -> QIcon:
    """The icon of an action, with a paler picture for where it is disabled."""
    result = QIcon()
    for mode, opacity in ((QIcon.Mode.Normal, 1.0), (QIcon.Mode.Disabled, 0.35)):
        for size in SIZES_PX:
            result.addPixmap(_draw(SHAPES[name], theme, size, opacity), mode)
    return result


def _draw(shape: Callable[[QPainter, Theme], None], theme: Theme, size: int, opacity: float) -> QPixmap:
    pixmap = QPixmap(size, size)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setOpacity(opacity)
    painter.scale(size / SIDE, size / SIDE)
    painter.setPen(
        QPen(QColor(theme.text), 5, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin)
    )
    shape(painter, theme)
    painter.end()
    return pixmap


def application_icon() -> QIcon:
    """The icon that comes with the resources; an empty one where they are not installed."""
    folder = resources_folder()
    return QIcon() if folder is None else QIcon(str(folder / "icons" / "boundscope.svg"))
