"""Significant bits of one layer, element by element: a picture a channel, in a grid, with a colour bar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QImage, QPainter

from boundscope.protocol import LayerMap
from boundscope_app.plots.heat import Column, Heat
from boundscope_app.plots.heatmap import SHADES, HeatmapDrawing, color_of, shades, text_on
from boundscope_app.plots.style import Style

T = TypeVar("T", np.int8, np.float32)

INEXACT, EXACT, ZERO_MEAN, NAN, INFINITE = range(5)
NONE = -1  # fills the last row of a vector that is wrapped
MARKS = {EXACT: "exact", ZERO_MEAN: "mean 0", NAN: "NaN", INFINITE: "Inf"}
LEGEND = {
    EXACT: "exact in every sample",
    ZERO_MEAN: "mean zero",
    NAN: "NaN",
    INFINITE: "infinite",
}
TILE_PX = 96  # about the longer side of a picture
LEAST_TILE_PX = 56  # where all of them are in sight then
MOST_CELL_PX = 28
WRAP = 32  # elements of a vector in a row
GAP_PX = 10
FRAME_PX = 3  # around a picture, for the frame of the current one


@dataclass(frozen=True)
class Spot:
    """A cell: the picture's place in the grid, and the cell in it."""

    tile: int
    row: int
    column: int


@dataclass(frozen=True)
class FeatureMaps:
    """A layer's pictures as arrays [channels, height, width]. A vector is one picture, its elements in rows of WRAP."""

    told: LayerMap
    full_bits: int

    @property
    def vector(self) -> bool:
        return self.told.of_channels == 1 and self.told.height == 1

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        return self._arranged(np.frombuffer(self.told.kinds, np.int8), NONE)

    @cached_property
    def bits(self) -> NDArray[np.float32]:
        """NaN where a cell has no inexact element."""
        return self._arranged(np.frombuffer(self.told.bits, "<f4"), np.nan)

    def _arranged(self, flat: NDArray[T], filler: float) -> NDArray[T]:
        told = self.told
        if not self.vector:
            return flat.reshape(len(told.channels), told.height, told.width)
        columns = min(WRAP, told.width)
        rows = -(-told.width // columns)
        filled = np.full(rows * columns, filler, flat.dtype)
        filled[: told.width] = flat
        return filled.reshape(1, rows, columns)

    @cached_property
    def means(self) -> tuple[float | None, ...]:
        """Mean bits of each picture; None where no element is inexact."""
        found = []
        for bits in self.bits:
            held = bits[np.isfinite(bits)]
            found.append(float(held.mean()) if held.size else None)
        return tuple(found)

    def name(self, tile: int) -> str:
        return "all elements" if self.told.of_channels == 1 else f"channel {self.told.channels[tile]}"

    def place(self, spot: Spot) -> str:
        """Which element, or which block of them, a cell is."""
        block = self.told.block
        if self.vector:
            first = (spot.row * self.bits.shape[2] + spot.column) * block
            return f"element {first}" if block == 1 else f"elements {first} to {first + block - 1}"
        row, column = spot.row * block, spot.column * block
        if block == 1:
            return f"row {row}, column {column}"
        return f"rows {row} to {row + block - 1}, columns {column} to {column + block - 1}"

    def value(self, spot: Spot) -> str:
        kind = int(self.kinds[spot.tile, spot.row, spot.column])
        bits = float(self.bits[spot.tile, spot.row, spot.column])
        return f"{bits:.2f} bits" if kind == INEXACT else MARKS.get(kind, "")

    @cached_property
    def marks(self) -> tuple[int, ...]:
        """Kinds without a number of bits that there are."""
        return tuple(kind for kind in LEGEND if (self.kinds == kind).any())


class FeatureMapsDrawing:
    """Lays the pictures out in a width and draws them; `only` enlarges one of them to the whole height given."""

    def __init__(
        self, maps: FeatureMaps, style: Style, width: float, height: float = 0.0, only: int | None = None
    ) -> None:
        self.maps, self.style, self.width, self.only = maps, style, width, only
        self.metrics = QFontMetricsF(style.font())
        self.line = self.metrics.height()
        self._bar = HeatmapDrawing(Heat((Column(""),), full_bits=maps.full_bits), style, width)
        self.tiles = (only,) if only is not None else tuple(range(len(maps.told.channels)))
        self._named = max(self.metrics.horizontalAdvance(self._caption(tile)) for tile in self.tiles)
        _, rows, columns = maps.bits.shape
        if only is not None or len(self.tiles) == 1:
            across = (width - 2 * FRAME_PX) / columns
            room = (
                max(40.0, height - self.foot_px - self.line - GAP_PX - FRAME_PX) if height else across * rows
            )
            self._place(max(1.0, min(across, room / rows, 4.0 * MOST_CELL_PX)))
        else:
            for tile_px in (*range(TILE_PX, LEAST_TILE_PX - 1, -4), TILE_PX):
                self._place(max(1.0, min(MOST_CELL_PX, tile_px / max(rows, columns))))
                if self.rows_px <= height - self.foot_px:
                    break

    def _place(self, cell_px: float) -> None:
        """Lay the pictures out with cells of a size."""
        _, rows, columns = self.maps.bits.shape
        self.cell_px = cell_px
        self.picture = (columns * cell_px, rows * cell_px)
        self.step_x = max(self.picture[0], min(self._named, self.width)) + GAP_PX
        self.step_y = self.picture[1] + self.line + GAP_PX + FRAME_PX
        self.columns = max(1, min(len(self.tiles), int((self.width + GAP_PX) // self.step_x)))

    @property
    def rows_px(self) -> float:
        return float(math.ceil(len(self.tiles) / self.columns) * self.step_y)

    @property
    def foot_px(self) -> float:
        """Height of the colour bar, and of the legend of what has no bits."""
        return self._bar.foot_px + (self.line + 6 if self.maps.marks else 0.0)

    def room_px(self, height: float) -> float:
        """What a widget of this height has for pictures: whole rows, where at least one fits."""
        room = max(1.0, height - self.foot_px)
        return min(self.rows_px, room // self.step_y * self.step_y) if room >= self.step_y else room

    def _caption(self, tile: int) -> str:
        mean = self.maps.means[tile]
        return f"{self.maps.name(tile)}: {'–' if mean is None else f'{mean:.1f}'}"

    def tile_rect(self, tile: int) -> QRectF:
        """Where a picture is, from the top of the grid."""
        row, column = divmod(self.tiles.index(tile), self.columns)
        return QRectF(
            column * self.step_x + FRAME_PX, row * self.step_y + self.line + FRAME_PX, *self.picture
        )

    def spot_at(self, x: float, y: float) -> Spot | None:
        """The cell under a point, from the top of the grid."""
        column, row = int(x // self.step_x), int(y // self.step_y)
        index = row * self.columns + column
        if x < 0 or y < 0 or column >= self.columns or index >= len(self.tiles):
            return None
        tile = self.tiles[index]
        rect = self.tile_rect(tile)
        if not rect.contains(QPointF(x, y)):
            return None
        _, rows, columns = self.maps.bits.shape
        found = Spot(
            tile,
            min(rows - 1, int((y - rect.top()) / self.cell_px)),
            min(columns - 1, int((x - rect.left()) / self.cell_px)),
        )
        return None if self.maps.kinds[found.tile, found.row, found.column] == NONE else found

    def draw(self, painter: QPainter, height: float, scrolled: float = 0.0, current: int = -1) -> None:
        """Everything, in (0, 0, width, height): the grid from `scrolled` on, and the colour bar at the bottom."""
        painter.setFont(self.style.font())
        room = self.room_px(height)
        painter.save()
        painter.setClipRect(QRectF(0, 0, self.width, room), Qt.ClipOperation.IntersectClip)
        painter.translate(0, -scrolled)
        for tile in self.tiles:
            rect = self.tile_rect(tile)
            if rect.bottom() >= scrolled and rect.top() - self.line <= scrolled + room:
                self._draw_tile(painter, tile, rect, tile == current)
        painter.restore()
        self._draw_foot(painter, room)

    def _draw_tile(self, painter: QPainter, tile: int, rect: QRectF, current: bool) -> None:
        theme = self.style.theme
        painter.setPen(QColor(theme.text))
        top = rect.top() - self.line - FRAME_PX
        place = QRectF(rect.left(), top, self.step_x - GAP_PX, self.line)
        text = self.metrics.elidedText(self._caption(tile), Qt.TextElideMode.ElideRight, place.width())
        painter.drawText(place, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)
        painter.drawImage(rect, self._image(tile))
        self._write_values(painter, tile, rect)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(self.style.axis_pen(theme.accent if current else theme.border))
        painter.drawRect(rect.adjusted(-0.5, -0.5, 0.5, 0.5))
        if current:
            painter.drawRect(rect.adjusted(-2, -2, 2, 2))

    def _write_values(self, painter: QPainter, tile: int, rect: QRectF) -> None:
        """Bits in the cells, where they are large enough for the widest number."""
        advance = self.metrics.horizontalAdvance("\u2212" + "00.0") + 2
        if self.cell_px < max(advance, self.line):
            return
        for row, column in np.ndindex(*self.maps.kinds[tile].shape):
            kind, bits = int(self.maps.kinds[tile, row, column]), float(self.maps.bits[tile, row, column])
            if kind == NONE:
                continue
            text = f"{bits:.1f}".replace("-", "\u2212") if kind == INEXACT else MARKS[kind]
            fill = color_of(bits, self.maps.full_bits) if kind == INEXACT else self._mark_color(kind)
            painter.setPen(text_on(fill))
            place = QRectF(
                rect.left() + column * self.cell_px,
                rect.top() + row * self.cell_px,
                self.cell_px,
                self.cell_px,
            )
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)

    def _image(self, tile: int) -> QImage:
        table = np.array(shades(), np.uint8)
        kinds, bits = self.maps.kinds[tile], self.maps.bits[tile]
        with np.errstate(invalid="ignore"):
            share = np.clip(np.nan_to_num(bits / self.maps.full_bits), 0.0, 1.0)
        pixels = table[np.rint(share * (SHADES - 1)).astype(np.int64)]
        for kind in (NONE, *MARKS):
            color = self._mark_color(kind)
            pixels[kinds == kind] = (color.red(), color.green(), color.blue())
        rows, columns = kinds.shape
        data = np.ascontiguousarray(pixels)
        return QImage(data.data, columns, rows, 3 * columns, QImage.Format.Format_RGB888).copy()

    def _mark_color(self, kind: int) -> QColor:
        theme = self.style.theme
        return QColor({NONE: theme.base, NAN: theme.bad, INFINITE: theme.warn}.get(kind, theme.neutral_fill))

    def _draw_foot(self, painter: QPainter, top: float) -> None:
        painter.save()
        painter.translate(0, top - self._bar.head_px)
        self._bar.draw(painter, self._bar.head_px + self._bar.foot_px)
        painter.restore()
        left, top = self._bar.name_px, top + self._bar.foot_px
        for kind in self.maps.marks:
            swatch = QRectF(left, top + 0.15 * self.line, 1.6 * self.line, 0.8 * self.line)
            painter.fillRect(swatch, self._mark_color(kind))
            painter.setPen(self.style.axis_pen(self.style.theme.border))
            painter.drawRect(swatch)
            painter.setPen(QColor(self.style.theme.text))
            width = self.metrics.horizontalAdvance(LEGEND[kind]) + 4
            place = QRectF(swatch.right() + 6, top, width, self.line + 2)
            painter.drawText(place, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, LEGEND[kind])
            left = place.right() + self.line
