"""A sortable table of cells: shown as text, sorted as the numbers they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QSortFilterProxyModel, Qt
from PySide6.QtWidgets import QTableView, QWidget

from boundscope.records import Cell
from boundscope_app.views.row_table import SORT_ROLE, RowTable

Index = QModelIndex | QPersistentModelIndex
MOST_NAME_EM = 11
CellRow = tuple[Cell, ...]


class CellModel(QAbstractTableModel):
    """Rows of cells; `tips` explain the columns, and columns in `words` stand to the left."""

    def __init__(
        self,
        columns: Sequence[str],
        words: frozenset[int],
        text: Callable[[int, Cell], str],
        tips: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._columns, self._words, self._text, self._tips = tuple(columns), words, text, tuple(tips)
        self.rows: tuple[CellRow, ...] = ()

    def set_rows(self, rows: tuple[CellRow, ...]) -> bool:
        """Show these rows; whether there are others than before, or in another number."""
        if rows == self.rows:
            return False
        if [row[0] for row in rows] == [row[0] for row in self.rows]:
            self.rows = rows
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(self._columns) - 1))
            return False
        self.beginResetModel()
        self.rows = rows
        self.endResetModel()
        return True

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._columns)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self._columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(section)
        if role == Qt.ItemDataRole.ToolTipRole and section < len(self._tips):
            return self._tips[section]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        value = self.rows[index.row()][index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(index.column(), value)
        if role == SORT_ROLE:
            return -math.inf if value is None else value
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(index.column())
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._text(index.column(), value) if value is None else str(value)
        return None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        side = Qt.AlignmentFlag.AlignLeft if column in self._words else Qt.AlignmentFlag.AlignRight
        return side | Qt.AlignmentFlag.AlignVCenter


class CellTable(RowTable):
    """Shows a CellModel; names in the first column are cut in the middle where they are long."""

    def __init__(
        self,
        model: CellModel,
        name: str,
        parent: QWidget | None = None,
        proxy: QSortFilterProxyModel | None = None,
    ) -> None:
        super().__init__(model, name, parent, proxy=proxy)
        self.cells = model
        self.setSelectionMode(QTableView.SelectionMode.SingleSelection)

    def set_rows(self, rows: tuple[CellRow, ...]) -> None:
        if self.cells.set_rows(rows):
            self.fit_columns()

    def natural_width(self, column: int, needed: int) -> int:
        most = MOST_NAME_EM * self.fontMetrics().horizontalAdvance("m")
        return needed if column else min(needed, most)

    def shown_rows(self) -> tuple[CellRow, ...]:
        """The rows in the order in which they stand."""
        return tuple(
            self.cells.rows[self.proxy.mapToSource(self.proxy.index(row, 0)).row()]
            for row in range(self.proxy.rowCount())
        )
