"""A sortable table of cells: shown as text, sorted as the numbers they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QSortFilterProxyModel, Qt
from PySide6.QtWidgets import QTableView, QWidget

from boundscope.records import Cell

Index = QModelIndex | QPersistentModelIndex
SORT_ROLE = Qt.ItemDataRole.UserRole
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


class CellTable(QTableView):
    """Shows a CellModel; sorted by a click on a head, in the model's order until then."""

    def __init__(
        self,
        model: CellModel,
        name: str,
        parent: QWidget | None = None,
        proxy: QSortFilterProxyModel | None = None,
    ) -> None:
        super().__init__(parent)
        self.cells = model
        self.proxy = QSortFilterProxyModel(self) if proxy is None else proxy
        self.proxy.setSourceModel(model)
        self.proxy.setSortRole(SORT_ROLE)
        self.setModel(self.proxy)
        self.setSortingEnabled(True)
        self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        self.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QTableView.SelectionMode.SingleSelection)
        self.setEditTriggers(QTableView.EditTrigger.NoEditTriggers)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setTabKeyNavigation(False)
        self.setFrameShape(QTableView.Shape.NoFrame)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(round(self.fontMetrics().height() * 1.6))
        self.horizontalHeader().setHighlightSections(False)
        self.setAccessibleName(name)

    def set_rows(self, rows: tuple[CellRow, ...]) -> None:
        if self.cells.set_rows(rows):
            self.resizeColumnsToContents()
            most = MOST_NAME_EM * self.fontMetrics().horizontalAdvance("m")
            self.setColumnWidth(0, min(self.columnWidth(0), most))

    def source_row(self) -> int:
        """The row of the model that is current, or -1."""
        return self.proxy.mapToSource(self.currentIndex()).row() if self.currentIndex().isValid() else -1

    def show_row(self, row: int) -> None:
        """Make a row of the model the current one, and bring it into sight; -1 marks none."""
        if row < 0:
            self.clearSelection()
        elif row != self.source_row() or not self.selectionModel().isRowSelected(self.currentIndex().row()):
            index = self.proxy.mapFromSource(self.cells.index(row, 0))
            self.setCurrentIndex(index)
            self.scrollTo(index)

    def shown_rows(self) -> tuple[CellRow, ...]:
        """The rows in the order in which they stand."""
        return tuple(
            self.cells.rows[self.proxy.mapToSource(self.proxy.index(row, 0)).row()]
            for row in range(self.proxy.rowCount())
        )
