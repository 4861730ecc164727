"""How a long graph is cut into columns that stand beside each other on a page. No Qt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from boundscope_app.graph_layout import GAP_Y, ROW, Layout

STUB = 0.5 * GAP_Y  # how far edges go on beyond a cut
GUTTER_PX = 28.0
HIGHEST_PX = 9000.0
LARGE_SCALES = (1.6, 1.4, 1.2)  # for graphs that fit the page as they are
SCALES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)


@dataclass(frozen=True)
class Columns:
    """`parts`: left edge in pixels, first row, and the row after the last; all drawn at one scale."""

    scale: float
    height: float
    parts: tuple[tuple[float, int, int], ...]


def columns_for(layout: Layout, width: float, room: float) -> Columns:
    """As large as the width allows, in as few columns as the room needs; then higher, then smaller."""
    rows = max(layout.depth, default=0) + 1
    across = max(layout.width, 1.0)
    for scale in (*LARGE_SCALES, *SCALES):
        most = int((width + GUTTER_PX) // (across * scale + GUTTER_PX))
        if most < 1:
            continue
        wanted = math.ceil((rows * ROW + STUB) * scale / max(room, ROW))
        count = min(most, wanted, rows)
        each = math.ceil(rows / count)
        height = (each * ROW + STUB) * scale
        if height <= (room if scale > 1 else HIGHEST_PX):
            return _parts(layout, width, scale, rows, each, height)
    scale = min(width / across, HIGHEST_PX / (rows * ROW + STUB))
    return _parts(layout, width, scale, rows, rows, (rows * ROW + STUB) * scale)


def _parts(layout: Layout, width: float, scale: float, rows: int, each: int, height: float) -> Columns:
    count = math.ceil(rows / each)
    pitch = layout.width * scale + GUTTER_PX
    left = (width - (count * pitch - GUTTER_PX)) / 2
    parts = tuple((left + k * pitch, k * each, min(rows, (k + 1) * each)) for k in range(count))
    return Columns(scale, height, parts)
