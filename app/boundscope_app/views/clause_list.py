"""The list beside a plot: which curves are shown, their colours, and their values at the cursor."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QPainter, QPen, QPixmap
from PySide6.QtWidgets import (
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QToolButton,
    QTreeView,
    QVBoxLayout,
    QWidget,
)

Index = QModelIndex | QPersistentModelIndex
SWATCH_PX = (30, 12)


@dataclass(frozen=True)
class Row:
    """One curve: its key, what it is called, the colour of its swatch (or none), and its values as text."""

    key: Hashable
    name: str
    color: str = ""
    values: tuple[str, ...] = ()
    tip: str = ""
    pen: Qt.PenStyle | None = None  # a swatch that is a line of this kind; None: a square


class CurveListModel(QAbstractTableModel):
    """Rows with a check mark each; unknown keys start as checked."""

    checks_changed = Signal()

    def __init__(self, columns: Sequence[str], tips: Sequence[str] = ()) -> None:
        super().__init__()
        self._columns, self._tips = tuple(columns), tuple(tips)
        self._rows: list[Row] = []
        self._unchecked: set[Hashable] = set()
        self._swatches: dict[tuple[str, Qt.PenStyle | None], QPixmap] = {}

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows in this order."""
        rows = list(rows)
        if rows == self._rows:
            return
        if [row.key for row in rows] == [row.key for row in self._rows]:
            self._rows = rows
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(self._columns) - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def forget_checks(self) -> None:
        self._unchecked.clear()

    def is_checked(self, key: Hashable) -> bool:
        return key not in self._unchecked

    def set_checked(self, keys: Sequence[Hashable], checked: bool) -> None:
        """Check or uncheck these keys."""
        if checked:
            self._unchecked.difference_update(keys)
        else:
            self._unchecked.update(keys)
        if self._rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self._rows) - 1, 0))
        self.checks_changed.emit()

    def row(self, index: int) -> Row:
        return self._rows[index]

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._columns)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        return flags | Qt.ItemFlag.ItemIsUserCheckable if index.column() == 0 else flags

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self._columns[section]
        if role == Qt.ItemDataRole.ToolTipRole and self._tips:
            return self._tips[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if section else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return row.name if column == 0 else row.values[column - 1]
        if role == Qt.ItemDataRole.TextAlignmentRole and column:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.tip or row.name
        if column == 0 and role == Qt.ItemDataRole.CheckStateRole:
            return Qt.CheckState.Checked if self.is_checked(row.key) else Qt.CheckState.Unchecked
        if column == 0 and role == Qt.ItemDataRole.DecorationRole and row.color:
            return self._swatch(row.color, row.pen)
        return None

    def setData(self, index: Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.CheckStateRole:
            return False
        self.set_checked([self._rows[index.row()].key], Qt.CheckState(value) is Qt.CheckState.Checked)
        return True

    def _swatch(self, color: str, pen: Qt.PenStyle | None) -> QPixmap:
        key = color, pen
        if key not in self._swatches:
            self._swatches[key] = square(color) if pen is None else line_swatch(color, pen)
        return self._swatches[key]


def square(color: str) -> QPixmap:
    pixmap = QPixmap(12, 12)
    pixmap.fill(QColor(color))
    return pixmap


def line_swatch(color: str, pen: Qt.PenStyle) -> QPixmap:
    """A short line, as the curve is drawn; sharp on screens of any scale up to 3."""
    pixmap = QPixmap(SWATCH_PX[0] * 3, SWATCH_PX[1] * 3)
    pixmap.setDevicePixelRatio(3)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setPen(QPen(QColor(color), 2.0, pen))
    painter.drawLine(0, SWATCH_PX[1] // 2, SWATCH_PX[0], SWATCH_PX[1] // 2)
    painter.end()
    return pixmap


class CurveList(QWidget):
    """A filter, the rows, and buttons that check all or none of the rows that pass the filter."""

    def __init__(self, model: CurveListModel, what: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = model
        self.proxy = QSortFilterProxyModel()
        self.proxy.setSourceModel(model)
        self.proxy.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self.proxy.setFilterKeyColumn(0)
        self.filter = QLineEdit(placeholderText=f"Filter {what}", clearButtonEnabled=True)
        self.filter.setAccessibleName(f"Filter {what}")
        self.filter.textChanged.connect(self.proxy.setFilterFixedString)
        self.tree = QTreeView(rootIsDecorated=False, uniformRowHeights=True)
        self.tree.setModel(self.proxy)
        self.tree.setStyleSheet("QTreeView::item { padding: 2px 4px; }")
        self.tree.setAccessibleName(what.capitalize())
        self.tree.setFrameShape(self.tree.Shape.NoFrame)
        self.tree.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        self.tree.header().setStretchLastSection(False)
        self.tree.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for column in range(1, model.columnCount()):
            self.tree.header().setSectionResizeMode(column, QHeaderView.ResizeMode.ResizeToContents)
        bar = QHBoxLayout()
        bar.addWidget(self.filter, 1)
        for text, checked in (("All", True), ("None", False)):
            button = QToolButton()
            button.setText(text)
            button.setAccessibleName(f"{'Show' if checked else 'Hide'} all {what}")
            button.clicked.connect(lambda _=False, c=checked: model.set_checked(self.passing(), c))
            bar.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(4, 0, 4, 4)
        layout.addLayout(bar)
        layout.addWidget(self.tree, 1)

    def passing(self) -> list[Hashable]:
        """Keys of the rows that pass the filter."""
        rows = (self.proxy.mapToSource(self.proxy.index(i, 0)).row() for i in range(self.proxy.rowCount()))
        return [self.model.row(row).key for row in rows]
