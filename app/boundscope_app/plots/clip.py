"""Cutting lines at a rectangle, so that an SVG holds nothing outside the axes: not every viewer honours clip paths."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QPolygonF

from boundscope_app.plots.series import FloatArray

Piece = tuple[FloatArray, FloatArray]


def finite_pieces(x: FloatArray, y: FloatArray) -> list[Piece]:
    """The stretches of x, y [n] between entries that are not finite."""
    inside = np.isfinite(x) & np.isfinite(y)
    if inside.all():
        return [(x, y)] if len(x) else []
    edges = np.flatnonzero(np.diff(np.concatenate(([False], inside, [False])).astype(np.int8)))
    return [(x[start:end], y[start:end]) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def clip_line(x: FloatArray, y: FloatArray, rect: QRectF) -> list[Piece]:
    """The parts of a line x, y [n] within the rectangle (Liang and Barsky 1984, for all segments at once)."""
    left, right, top, bottom = rect.left(), rect.right(), rect.top(), rect.bottom()
    inside = (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
    if inside.all():
        return [(x, y)] if len(x) else []
    if len(x) < 2:
        return []
    x0, y0, dx, dy = x[:-1], y[:-1], np.diff(x), np.diff(y)
    enters, leaves = np.zeros(len(dx)), np.ones(len(dx))
    for slope, room in ((-dx, x0 - left), (dx, right - x0), (-dy, y0 - top), (dy, bottom - y0)):
        with np.errstate(over="ignore"):
            at = np.divide(room, slope, out=np.zeros_like(room), where=slope != 0)
        enters = np.where(slope < 0, np.maximum(enters, at), enters)
        leaves = np.where(slope > 0, np.minimum(leaves, at), leaves)
        leaves = np.where((slope == 0) & (room < 0), -1.0, leaves)
    kept = np.flatnonzero(enters <= leaves)
    if len(kept) == 0:
        return []
    joined = (np.diff(kept) == 1) & (leaves[kept[:-1]] == 1.0) & (enters[kept[1:]] == 0.0)
    pieces = []
    for run in np.split(kept, np.flatnonzero(~joined) + 1):
        ends_x = x0[run] + leaves[run] * dx[run]
        ends_y = y0[run] + leaves[run] * dy[run]
        first = run[0]
        pieces.append(
            (
                np.concatenate(([x0[first] + enters[first] * dx[first]], ends_x)),
                np.concatenate(([y0[first] + enters[first] * dy[first]], ends_y)),
            )
        )
    return pieces


def clip_area(polygon: QPolygonF, rect: QRectF) -> QPolygonF:
    """The part of a polygon within the rectangle."""
    return polygon if rect.contains(polygon.boundingRect()) else polygon.intersected(QPolygonF(rect))
