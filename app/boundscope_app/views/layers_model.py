"""Rows and columns of the layers table: cells, their texts, and the model that grows while a run tells of layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QSortFilterProxyModel, Qt

from boundscope.layers import LayerRow
from boundscope.records import Cell, JobRecord
from boundscope_app.views.row_table import SORT_ROLE
from boundscope_app.views.text import MINUS, aligned, count, number, step_name
from boundscope_app.views.variability_model import mark_of

Index = QModelIndex | QPersistentModelIndex
COLUMNS = (
    "Node",
    "Case",
    "Operator",
    "Elements",
    "Lower",
    "Upper",
    "Mean width",
    "Max width",
    "Unstable",
    "Share",
    "Method",
    "Proven rounding",
    "Observed",
    "Of proven",
    "Mean bits",
    "Digits",
    "Noise",
)
TIPS = (
    "The name of the ONNX node",
    "The input box of the property, counted from 0",
    "The operator of the ONNX node",
    "Elements of the output",
    "Least proven lower bound of an element",
    "Greatest proven upper bound of an element",
    "Mean over the elements of the proven upper bound minus the lower",
    "Greatest proven upper bound minus the lower of an element",
    "Neurons that can be on either side of their kink",
    "Unstable neurons over all of them",
    "The method that proved the bounds",
    "Proven: no two results of this arithmetic for one point differ by more, in the layer’s unit",
    "Largest difference of a sample from the unperturbed run, in the layer’s unit",
    "Largest part of the proven rounding that was observed",
    "Mean significant bits of the elements that are not exact",
    "The mean as decimal digits",
    "Why a layer has no significant bits: it is exact in every sample, or NaN, or infinite",
)
WORDS = frozenset({0, 2, 10, 16})
PERCENT, COUNTS, ROUGH = frozenset({9, 13}), frozenset({3, 8}), frozenset({11, 12})
BITS = frozenset({14, 15})
ALWAYS = frozenset({0, 2, 3})  # columns that are shown also where they are empty
CASE = 1


def layer_values(row: LayerRow) -> tuple[Cell, ...]:
    """The cells of one row, unformatted, in the order of COLUMNS."""
    one, proof, noise = row.bounds, row.deployed, row.noise
    return (
        row.node,
        row.case,
        row.op,
        row.elements,
        None if one is None else one.lower_min,
        None if one is None else one.upper_max,
        None if one is None else one.width_mean,
        row.width,
        None if one is None else one.unstable,
        row.unstable_share,
        None if one is None else one.method,
        None if proof is None else proof.rounding,
        None if proof is None else proof.observed,
        None if proof is None else proof.used,
        row.mean_bits,
        row.digits,
        (None if noise is None else mark_of(noise)) or None,
    )


def shown_text(column: int, value: Cell) -> str:
    """A cell as people read it."""
    if value is None:
        return "–"
    if column in PERCENT:
        share = 100 * float(value)
        return f"{share:.1f} %" if column == 9 else f"{number(share, 3)} %"
    if column in COUNTS:
        return count(int(value))
    if column in BITS:
        return f"{float(value):.2f}".replace("-", MINUS)
    if column in ROUGH:
        return aligned(float(value), 3)
    return aligned(value, 5) if isinstance(value, float) else step_name(str(value))


def alignment(column: int) -> Qt.AlignmentFlag:
    """Words to the left, numbers to the right."""
    side = Qt.AlignmentFlag.AlignLeft if column in WORDS else Qt.AlignmentFlag.AlignRight
    return side | Qt.AlignmentFlag.AlignVCenter


def full_columns(rows: Iterable[LayerRow]) -> set[int]:
    """Columns that some row has a value in, and those that are always shown."""
    full = set(ALWAYS)
    for row in rows:
        full.update(column for column, value in enumerate(layer_values(row)) if value is not None)
    return full


def without_case(columns: set[int], rows: Iterable[LayerRow]) -> tuple[int, ...]:
    """The columns in order; "Case" is left out where all rows are of one."""
    several = len({row.case for row in rows}) > 1
    return tuple(sorted(columns if several else columns - {CASE}))


class LayerModel(QAbstractTableModel):
    """Rows of one record; grows in place, and says which rows changed."""

    def __init__(self) -> None:
        super().__init__()
        self._layers: list[LayerRow] = []

    def clear(self) -> None:
        self.beginResetModel()
        self._layers = []
        self.endResetModel()

    def update(self, record: JobRecord) -> Sequence[LayerRow]:
        """Take what is new in the record; the rows that came or changed."""
        rows, old = record.layer_rows(), self._layers
        count = len(old)
        if [(row.case, row.node) for row in old] != [(row.case, row.node) for row in rows[:count]]:
            self.beginResetModel()
            self._layers = list(rows)
            self.endResetModel()
            return rows
        changed = []
        for place, row in enumerate(old):
            if row != rows[place]:
                old[place] = rows[place]
                changed.append(rows[place])
                self.dataChanged.emit(self.index(place, 0), self.index(place, len(COLUMNS) - 1))
        if len(rows) > count:
            self.beginInsertRows(QModelIndex(), count, len(rows) - 1)
            old.extend(rows[count:])
            self.endInsertRows()
        return [*changed, *rows[count:]]

    def layer(self, row: int) -> LayerRow:
        return self._layers[row]

    @property
    def layers(self) -> Sequence[LayerRow]:
        return self._layers

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._layers)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return alignment(section)
        if role == Qt.ItemDataRole.ToolTipRole:
            return TIPS[section]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        column = index.column()
        value = layer_values(self._layers[index.row()])[column]
        if role == Qt.ItemDataRole.DisplayRole:
            return shown_text(column, value)
        if role == SORT_ROLE:
            return -math.inf if value is None else value
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return str(value)
        return None


class LayerProxy(QSortFilterProxyModel):
    """Keeps rows whose node, operator or method holds the text; numbers sort as numbers, NaN last."""

    def __init__(self) -> None:
        super().__init__()
        self.needle = ""
        self.setSortRole(SORT_ROLE)

    def set_needle(self, text: str) -> None:
        self.needle = text.strip().lower()
        self.invalidate()

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        layer = self.sourceModel().layer(row)  # type: ignore[attr-defined]
        return not self.needle or any(
            self.needle in text.lower()
            for text in (layer.node, layer.op, "" if layer.bounds is None else layer.bounds.method)
        )

    def lessThan(self, left: Index, right: Index) -> bool:
        first, second = left.data(SORT_ROLE), right.data(SORT_ROLE)
        if isinstance(first, float) and math.isnan(first):
            return False
        if isinstance(second, float) and math.isnan(second):
            return True
        return bool(first < second)
