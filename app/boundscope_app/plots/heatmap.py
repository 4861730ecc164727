"""A heatmap of significant bits: named rows, grouped columns, marks where there is no number, and a colour bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QLinearGradient, QPainter

from boundscope_app.plots.heat import Column, Heat, HeatCell, HeatRow
from boundscope_app.plots.style import Style

SHADES = 256
NAME_SHARE = 0.34
LEAST_VALUE_PX = 4.0
MARKS = {"exact": "exact in every sample", "mean 0": "mean zero", "empty": "no elements"}
DARK_TEXT, LIGHT_TEXT = "#14161a", "#ffffff"


@cache
def shades() -> tuple[tuple[int, int, int], ...]:
    """Viridis in SHADES steps, red, green and blue in 0 … 255: dark for few bits, yellow for all of them."""
    table = pg.colormap.get("viridis").getLookupTable(nPts=SHADES)
    return tuple((int(r), int(g), int(b)) for r, g, b in table[:, :3])


# Of differences: brown for fewer, blue for more; the two also differ for people who do not tell red from green.
DIVERGING = (
    (0.0, (127, 59, 8)),
    (0.25, (224, 130, 20)),
    (0.5, (247, 247, 247)),
    (0.75, (67, 147, 195)),
    (1.0, (5, 48, 97)),
)


def difference_color(bits: float, full_bits: int) -> QColor:
    """The colour of a difference; beyond ±full_bits that of the end."""
    share = min(max(0.5 + 0.5 * bits / full_bits, 0.0), 1.0)
    upper = next(place for place, (at, _) in enumerate(DIVERGING) if at >= share) or 1
    (low, from_color), (high, to_color) = DIVERGING[upper - 1], DIVERGING[upper]
    part = (share - low) / (high - low)
    return QColor(*(round(a + part * (b - a)) for a, b in zip(from_color, to_color, strict=True)))


def color_of(bits: float, full_bits: int) -> QColor:
    """The colour of so many bits; below 0 and above `full_bits` that of the end."""
    share = min(max(bits / full_bits, 0.0), 1.0)
    return QColor(*shades()[round(share * (SHADES - 1))])


def text_on(color: QColor) -> QColor:
    """Black or white, whichever contrasts more (WCAG 2.1 relative luminance)."""

    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    luminance = (
        0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) + 0.0722 * linear(color.blueF())
    )
    return QColor(DARK_TEXT if luminance > 0.2 else LIGHT_TEXT)


@dataclass(frozen=True)
class Place:
    """A cell by row and column; column None where the pointer is on the name or beside the cells."""

    row: int
    column: int | None


class HeatmapDrawing:
    """Lays a heatmap out in a width and draws it; rows scroll, head and colour bar stay."""

    def __init__(self, heat: Heat, style: Style, width: float) -> None:
        self.heat, self.style, self.width = heat, style, width
        self.metrics = QFontMetricsF(style.font())
        self.line = self.metrics.height()
        self.row_px = round(self.line * 1.45)
        advance = self.metrics.horizontalAdvance
        widest = max((advance(row.name) for row in heat.rows), default=0.0)
        self.name_px = min(widest + 12, NAME_SHARE * width)
        flags = max((advance(row.flag) for row in heat.rows), default=0.0)
        self.flag_px = min(flags + 12, 0.25 * width) if flags else 4.0
        self.cell_px = max(1.0, (width - self.name_px - self.flag_px) / max(1, len(heat.columns)))
        self.grouped = any(column.group for column in heat.columns)
        cells = (cell for row in heat.rows for cell in row.cells if cell.mark)
        self.marks = tuple(dict.fromkeys((cell.mark, cell.wrong) for cell in cells))

    # ------------------------------------------------------------ places

    @property
    def head_px(self) -> float:
        """Height of the title of the columns, their groups and names."""
        return (3 if self.grouped else 2) * (self.line + 3) + 2

    @property
    def foot_px(self) -> float:
        """Height of the colour bar with its ticks and its unit, and of the legend of marks."""
        return 2.4 * self.line + 6 + (self.line + 6 if self.marks else 0.0)

    @property
    def rows_px(self) -> float:
        return len(self.heat.rows) * self.row_px

    def room_px(self, height: float) -> float:
        """What a widget of this height has for rows: whole ones, so that none is cut where they scroll."""
        room = max(float(self.row_px), height - self.head_px - self.foot_px)
        return min(self.rows_px, room // self.row_px * self.row_px)

    def place_at(self, x: float, y: float, scrolled: float, height: float) -> Place | None:
        """What is under a point of a widget of this height that shows rows from `scrolled` on."""
        if not self.head_px <= y < self.head_px + self.room_px(height):
            return None
        row = int((y - self.head_px + scrolled) // self.row_px)
        if not 0 <= row < len(self.heat.rows):
            return None
        column = int((x - self.name_px) // self.cell_px)
        return Place(row, column if 0 <= column < len(self.heat.columns) else None)

    # ------------------------------------------------------------ drawing

    def draw(self, painter: QPainter, height: float, scrolled: float = 0.0, current: int = -1) -> None:
        """Everything, in (0, 0, width, height): rows from `scrolled` on, the current one framed."""
        painter.setFont(self.style.font())
        painter.save()
        area = QRectF(0, self.head_px, self.width, self.room_px(height))
        painter.setClipRect(area, Qt.ClipOperation.IntersectClip)
        for index, row in enumerate(self.heat.rows):
            top = self.head_px + index * self.row_px - scrolled
            if top + self.row_px > area.top() and top < area.bottom():
                self._draw_row(painter, row, top, index == current)
        painter.restore()
        self._draw_head(painter)
        self._draw_bar(painter, area.bottom())

    def _draw_head(self, painter: QPainter) -> None:
        theme, high = self.style.theme, self.line + 3
        painter.setPen(QColor(theme.muted))
        title = QRectF(self.name_px, 0, self.width - self.name_px, high)
        text = self.metrics.elidedText(self.heat.column_title, Qt.TextElideMode.ElideRight, title.width())
        painter.drawText(title, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)
        top = high
        if self.grouped:
            self._draw_groups(painter, top)
            top += high
        painter.setPen(QColor(theme.text))
        for index, width in self.named_columns():
            center = self.name_px + (index + 0.5) * self.cell_px
            place = QRectF(center - width / 2, top, width, high)
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, self.heat.columns[index].name)

    def named_columns(self) -> list[tuple[int, float]]:
        """Columns whose names are written, each with the width for it; where cells are narrow, some are left out."""
        columns = self.heat.columns
        widest = max((self.metrics.horizontalAdvance(column.name) for column in columns), default=0.0) + 6
        step = max(1, math.ceil(widest / self.cell_px))
        named = []
        for start, end in groups(columns):
            named += [index for index in range(start, end, step) if index == start or index + step <= end]
        return [(index, step * self.cell_px) for index in named]

    def _draw_groups(self, painter: QPainter, top: float) -> None:
        for start, end in groups(self.heat.columns):
            left = self.name_px + start * self.cell_px
            place = QRectF(left + 1, top, (end - start) * self.cell_px - 2, self.line + 2)
            painter.fillRect(place, QColor(self.style.theme.neutral_fill))
            painter.setPen(QColor(self.style.theme.text))
            text = self.heat.columns[start].group
            name = self.metrics.elidedText(text, Qt.TextElideMode.ElideRight, place.width())
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, name)

    def _draw_row(self, painter: QPainter, row: HeatRow, top: float, current: bool) -> None:
        theme = self.style.theme
        painter.setPen(QColor(theme.text))
        place = QRectF(0, top, self.name_px - 6, self.row_px)
        name = self.metrics.elidedText(row.name, Qt.TextElideMode.ElideMiddle, place.width())
        painter.drawText(place, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, name)
        for index, cell in enumerate(row.cells):
            left = self.name_px + index * self.cell_px
            self._draw_cell(painter, cell, QRectF(left, top, self.cell_px, self.row_px))
        if row.flag:
            painter.setPen(QColor(theme.bad))
            left = self.name_px + len(row.cells) * self.cell_px + 6
            place = QRectF(left, top, self.width - left - 2, self.row_px)
            flag = self.metrics.elidedText(row.flag, Qt.TextElideMode.ElideRight, place.width())
            painter.drawText(place, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, flag)
        if current:
            painter.setPen(self.style.axis_pen(theme.accent))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(0.5, top + 0.5, self.width - 1.5, self.row_px - 1))

    def _draw_cell(self, painter: QPainter, cell: HeatCell, place: QRectF) -> None:
        theme = self.style.theme
        inner = place.adjusted(0.5, 0.5, -0.5, -0.5) if self.cell_px > 6 else place
        if cell.bits is not None:
            fill = self._color(cell.bits)
            painter.fillRect(inner, fill)
            text = f"{cell.bits:+.2f}" if self.heat.diverging else f"{cell.bits:.1f}"
            self._write(painter, text.replace("-", "\u2212"), inner, text_on(fill))
            return
        painter.fillRect(inner, QColor(theme.alternate))
        if cell.mark:
            self._write(painter, cell.mark, inner, self._hatch(painter, inner, cell.wrong))

    def _color(self, bits: float) -> QColor:
        choose = difference_color if self.heat.diverging else color_of
        return choose(bits, self.heat.full_bits)

    def _hatch(self, painter: QPainter, place: QRectF, wrong: bool) -> QColor:
        """Fill a place as one without a number; the colour for the word on it."""
        theme = self.style.theme
        color = QColor(theme.bad if wrong else theme.muted)
        lines = QColor(color)
        lines.setAlphaF(0.3)
        painter.fillRect(place, QColor(theme.bad_fill if wrong else theme.alternate))
        painter.fillRect(place, QBrush(lines, Qt.BrushStyle.BDiagPattern))
        return color

    def _draw_legend(self, painter: QPainter, top: float) -> None:
        """What the hatched cells are, also where their word finds no room in them."""
        left = self.name_px
        for mark, wrong in self.marks:
            swatch = QRectF(left, top + 0.15 * self.line, 1.6 * self.line, 0.8 * self.line)
            self._hatch(painter, swatch, wrong)
            painter.setPen(self.style.axis_pen(self.style.theme.border))
            painter.drawRect(swatch)
            painter.setPen(QColor(self.style.theme.text))
            name = MARKS.get(mark, mark)
            width = self.metrics.horizontalAdvance(name) + 4
            place = QRectF(swatch.right() + 6, top, width, self.line + 2)
            painter.drawText(place, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, name)
            left = place.right() + self.line

    def _write(self, painter: QPainter, text: str, place: QRectF, color: QColor) -> None:
        if self.metrics.horizontalAdvance(text) + LEAST_VALUE_PX <= place.width():
            painter.setPen(color)
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)

    def _draw_bar(self, painter: QPainter, top: float) -> None:
        theme = self.style.theme
        advance = self.metrics.horizontalAdvance(self.heat.unit) + 20
        full, diverging = self.heat.full_bits, self.heat.diverging
        width = max(60.0, min(self.width - self.name_px - advance, 40 * self.line))
        bar = QRectF(self.name_px, top + 0.5 * self.line, width, 0.7 * self.line)
        gradient = QLinearGradient(bar.topLeft(), bar.topRight())
        for index in range(0, SHADES, 15):
            share = index / (SHADES - 1)
            gradient.setColorAt(share, self._color(full * (2 * share - 1) if diverging else full * share))
        painter.fillRect(bar, QBrush(gradient))
        painter.setPen(self.style.axis_pen(theme.border))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(bar)
        for bits in (-full, -full / 2, 0, full / 2, full) if diverging else ticks(full):
            x = bar.left() + (0.5 + 0.5 * bits / full if diverging else bits / full) * bar.width()
            painter.setPen(self.style.axis_pen(theme.muted))
            painter.drawLine(QPointF(x, bar.bottom()), QPointF(x, bar.bottom() + 4))
            painter.setPen(QColor(theme.text))
            place = QRectF(x - 40, bar.bottom() + 4, 80, self.line + 2)
            text = f"{bits:+g}".replace("-", "\u2212") if diverging and bits else f"{bits:g}"
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)
        unit = QRectF(bar.right() + 14, bar.center().y() - self.line, advance, 2 * self.line)
        painter.drawText(unit, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, self.heat.unit)
        if self.marks:
            self._draw_legend(painter, bar.bottom() + self.line + 10)


def groups(columns: Sequence[Column]) -> list[tuple[int, int]]:
    """First column of each run of one group, and the column after its last."""
    starts = [
        index for index, column in enumerate(columns) if not index or column.group != columns[index - 1].group
    ]
    return list(zip(starts, [*starts[1:], len(columns)], strict=True))


def ticks(full_bits: int) -> list[int]:
    """Round numbers of bits from 0 on, and the whole precision at the end."""
    step = next((each for each in (1, 2, 4, 8) if full_bits / each <= 7), 16)
    return [bits for bits in range(0, full_bits, step) if full_bits - bits >= step / 2] + [full_bits]
