"""How a figure is drawn: quick on the screen, fine on paper."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QPen
from PySide6.QtWidgets import QApplication

from boundscope_app.theme import Theme


@dataclass(frozen=True)
class Style:
    """Colours, line widths and text size of one figure.

    `buckets` is how far lines are thinned out (None: every point is drawn). `pen_scale` widens the pens that Qt
    does not scale (axes) when the figure is drawn at a larger scale.
    """

    theme: Theme
    antialias: bool = False
    line_width: float = 1.0
    buckets: int | None = 1000
    font_px: int = 12
    pen_scale: float = 1.0

    @property
    def live(self) -> bool:
        return self.buckets is not None

    def font(self, *, bold: bool = False, px: int | None = None) -> QFont:
        font = QFont(QApplication.font())
        font.setPixelSize(px or self.font_px)
        font.setBold(bold)
        return font

    def pen(
        self, color: str | QColor, width: float | None = None, line: Qt.PenStyle = Qt.PenStyle.SolidLine
    ) -> QPen:
        """A pen in figure units; lines on the screen are one pixel wide, because wider ones are many times slower."""
        pen = QPen(QColor(color))
        pen.setWidthF(1.0 if self.live else width or self.line_width)
        pen.setStyle(line)
        pen.setCosmetic(False)
        if not self.live:
            pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        return pen

    def axis_pen(self, color: str) -> QPen:
        pen = QPen(QColor(color))
        pen.setWidthF(self.pen_scale)
        pen.setCosmetic(True)
        return pen


def live_style(theme: Theme) -> Style:
    """For the screen; axes are one point wide on it, however many pixels that is."""
    app = QApplication.instance()
    return Style(theme, pen_scale=app.devicePixelRatio() if isinstance(app, QApplication) else 1.0)


def paper_style(theme: Theme, scale: float) -> Style:
    """Antialiased, every point, lines 1.8 wide, text for a page of 1600."""
    return Style(theme, antialias=True, line_width=1.8, buckets=None, font_px=17, pen_scale=scale)
