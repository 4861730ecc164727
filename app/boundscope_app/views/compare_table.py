"""A table whose columns are runs: texts to read, values to sort by, and rows that are marked as different."""

from __future__ import annotations

import math
from dataclasses import dataclass

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor, QFont, QGuiApplication, QKeySequence, QPixmap, QShortcut
from PySide6.QtWidgets import QWidget

from boundscope.records import Cell
from boundscope_app import theme as themes
from boundscope_app.views.row_table import SORT_ROLE, RowTable

Index = QModelIndex | QPersistentModelIndex
MOST_COLUMN_EM = 26


@dataclass(frozen=True)
class Grid:
    """Heads, rows of texts and of the values behind them; `marked` rows are different, columns in `words` hold words.

    `swatches` has a colour and a kind of line for each head that stands for a curve.
    """

    heads: tuple[str, ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()
    values: tuple[tuple[Cell, ...], ...] = ()
    marked: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()
    swatches: tuple[tuple[int, str, Qt.PenStyle], ...] = ()


class GridModel(QAbstractTableModel):
    """Shows a Grid; cells of a marked row stand on a fill of their own, in bold."""

    def __init__(self) -> None:
        super().__init__()
        self.grid = Grid()
        self.pixmaps: dict[int, QPixmap] = {}

    def set_grid(self, grid: Grid, pixmaps: dict[int, QPixmap]) -> bool:
        """Show this; whether heads or rows are others than before."""
        if grid == self.grid:
            return False
        names = [row[0] for row in grid.texts]
        same = grid.heads == self.grid.heads and names == [row[0] for row in self.grid.texts]
        self.pixmaps = pixmaps
        if same:
            self.grid = grid
            if names:
                self.dataChanged.emit(self.index(0, 0), self.index(len(names) - 1, len(grid.heads) - 1))
                self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(grid.heads) - 1)
            return False
        self.beginResetModel()
        self.grid = grid
        self.endResetModel()
        return True

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.grid.texts)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.grid.heads)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if orientation is not Qt.Orientation.Horizontal or section >= len(self.grid.heads):
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.ToolTipRole:
                return self.grid.heads[section]
            case Qt.ItemDataRole.DecorationRole:
                return self.pixmaps.get(section)
            case Qt.ItemDataRole.TextAlignmentRole:
                return self._alignment(section)
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row, column = index.row(), index.column()
        marked = row in self.grid.marked
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.ToolTipRole:
                return self.grid.texts[row][column]
            case Qt.ItemDataRole.TextAlignmentRole:
                return self._alignment(column)
            case Qt.ItemDataRole.FontRole if marked:
                font = QFont()
                font.setBold(True)
                return font
            case Qt.ItemDataRole.BackgroundRole if marked:
                return QColor(themes.current().warn_fill)
            case Qt.ItemDataRole.AccessibleTextRole:
                differs = ", differs" if marked else ""
                return f"{self.grid.heads[column]}, {self.grid.texts[row][0]}: {self.grid.texts[row][column]}{differs}"
            case _ if role == SORT_ROLE:
                value = self.grid.values[row][column]
                return -math.inf if value is None else value
        return None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        side = Qt.AlignmentFlag.AlignLeft if column in self.grid.words else Qt.AlignmentFlag.AlignRight
        return side | Qt.AlignmentFlag.AlignVCenter


class GridTable(RowTable):
    """Shows a GridModel; Ctrl+C copies the selected rows with the heads, as tab-separated text."""

    cuts_heads = True  # the rows that are marked say the same

    def __init__(self, name: str, *, sortable: bool, parent: QWidget | None = None) -> None:
        self.grid_model = GridModel()
        super().__init__(self.grid_model, name, parent, sortable=sortable)
        copy = QShortcut(QKeySequence.StandardKey.Copy, self)
        copy.setContext(Qt.ShortcutContext.WidgetShortcut)
        copy.activated.connect(self.copy_selection)

    def set_grid(self, grid: Grid, pixmaps: dict[int, QPixmap]) -> None:
        if self.grid_model.set_grid(grid, pixmaps):
            self.fit_columns()

    def natural_width(self, column: int, needed: int) -> int:
        return min(needed, MOST_COLUMN_EM * self.fontMetrics().horizontalAdvance("m"))

    def copy_selection(self) -> None:
        rows = sorted({index.row() for index in self.selectionModel().selectedRows()})
        sources = [self.proxy.mapToSource(self.proxy.index(row, 0)).row() for row in rows]
        grid = self.grid_model.grid
        lines = [grid.heads, *(grid.texts[row] for row in sources)]
        QGuiApplication.clipboard().setText("\n".join("\t".join(line) for line in lines))
