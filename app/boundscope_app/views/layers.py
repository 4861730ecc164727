"""The layers table: bounds of every tensor by the name of its ONNX node."""

from __future__ import annotations

import math

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QSortFilterProxyModel, Qt
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QLabel, QLineEdit, QMenu, QTableView, QWidget

from boundscope.protocol import LayerBounds
from boundscope.records import Cell, JobRecord, Table
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page, document_page
from boundscope_app.views.text import count, number

Index = QModelIndex | QPersistentModelIndex
COLUMNS = (
    "Node",
    "Case",
    "Operator",
    "Elements",
    "Lower bound",
    "Upper bound",
    "Mean width",
    "Max width",
    "Unstable",
    "Unstable share",
    "Method",
)
WORDS = frozenset({0, 2, 10})
MOST_ROWS = 400
SORT_ROLE = Qt.ItemDataRole.UserRole


def share(layer: LayerBounds) -> float | None:
    """Unstable neurons over all of them."""
    return None if layer.unstable is None or not layer.size else layer.unstable / layer.size


def layer_values(layer: LayerBounds) -> tuple[Cell, ...]:
    """The cells of one row, unformatted, in the order of COLUMNS."""
    return (
        layer.node,
        layer.case,
        layer.op,
        layer.size,
        layer.lower_min,
        layer.upper_max,
        layer.width_mean,
        layer.width_max,
        layer.unstable,
        share(layer),
        layer.method,
    )


def shown_text(column: int, value: Cell) -> str:
    """A cell as people read it."""
    if value is None:
        return "–"
    if column == 9:
        return f"{100 * float(value):.1f} %"
    if column == 3 or column == 8:
        return count(int(value))
    return number(value, 5) if isinstance(value, float) else str(value)


def alignment(column: int) -> Qt.AlignmentFlag:
    """Words to the left, numbers to the right."""
    side = Qt.AlignmentFlag.AlignLeft if column in WORDS else Qt.AlignmentFlag.AlignRight
    return side | Qt.AlignmentFlag.AlignVCenter


class LayerModel(QAbstractTableModel):
    """Rows of one record; grows in place, and says which rows changed."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[tuple[int, str]] = []
        self._layers: list[LayerBounds] = []

    def clear(self) -> None:
        self.beginResetModel()
        self._keys, self._layers = [], []
        self.endResetModel()

    def update(self, record: JobRecord) -> None:
        """Take what is new in the record."""
        keys = list(record.layers)
        for row, key in enumerate(self._keys):
            layer = record.layers[key]
            if layer is not self._layers[row]:
                self._layers[row] = layer
                self.dataChanged.emit(self.index(row, 0), self.index(row, len(COLUMNS) - 1))
        if len(keys) > len(self._keys):
            self.beginInsertRows(QModelIndex(), len(self._keys), len(keys) - 1)
            fresh = keys[len(self._keys) :]
            self._keys.extend(fresh)
            self._layers.extend(record.layers[key] for key in fresh)
            self.endInsertRows()

    def layer(self, row: int) -> LayerBounds:
        return self._layers[row]

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._layers)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if role == Qt.ItemDataRole.DisplayRole and orientation is Qt.Orientation.Horizontal:
            return COLUMNS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole and orientation is Qt.Orientation.Horizontal:
            return alignment(section)
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
            self.needle in text.lower() for text in (layer.node, layer.op, layer.method)
        )

    def lessThan(self, left: Index, right: Index) -> bool:
        first, second = left.data(SORT_ROLE), right.data(SORT_ROLE)
        if isinstance(first, float) and math.isnan(first):
            return False
        if isinstance(second, float) and math.isnan(second):
            return True
        return bool(first < second)


class LayersView(View):
    """Sortable, filterable and copyable table of the bounds of every layer."""

    view_id = "layers"
    title = "Layers"
    empty_text = (
        "No layer has bounds yet.\n\nThey appear here, by the name of the ONNX node, while a run goes on."
    )
    noise_text = (
        "This run measures noise; it has no table of bounds.\n\nThe significant bits of its layers are in the "
        "Variability view."
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = LayerModel()
        self.proxy = LayerProxy()
        self.proxy.setSourceModel(self.model)
        self.filter = QLineEdit(placeholderText="Filter by node, operator or method", clearButtonEnabled=True)
        self.filter.setAccessibleName("Filter layers")
        self.filter.textChanged.connect(self._filter_changed)
        self.count = QLabel()
        self.count.setProperty("role", "muted")
        self.controls.addWidget(self.filter, 1)
        self.controls.addWidget(self.count)
        self.table = QTableView()
        self.table.setModel(self.proxy)
        self.table.setSortingEnabled(True)
        self.table.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.table.horizontalHeader().setSortIndicatorClearable(True)
        self.table.setAlternatingRowColors(True)
        self.table.setShowGrid(False)
        self.table.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(26)
        self.table.setStyleSheet("QTableView::item { padding: 0 8px; }")
        self.table.setFrameShape(self.table.Shape.NoFrame)
        self.table.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        self.table.setAccessibleName("Bounds of every layer")
        copy = QShortcut(QKeySequence.StandardKey.Copy, self.table)
        copy.setContext(Qt.ShortcutContext.WidgetShortcut)
        copy.activated.connect(self.copy_selection)
        self.set_content(self.table)

    def has_data(self, record: JobRecord) -> bool:
        return bool(record.layers)

    def reset(self) -> None:
        self.model.clear()

    def draw(self) -> None:
        assert self.record is not None
        before = self.model.rowCount()
        self.model.update(self.record)
        if self.model.rowCount() != before:
            self.table.resizeColumnsToContents()
            cases = {case for case, _ in self.record.layers}
            self.table.setColumnHidden(1, len(cases) == 1)
        self._say_count()

    def _filter_changed(self, text: str) -> None:
        self.proxy.set_needle(text)
        self._say_count()

    def _say_count(self) -> None:
        shown, total = self.proxy.rowCount(), self.model.rowCount()
        self.count.setText(f"{total} layers" if shown == total else f"{shown} of {total} layers")

    def shown_layers(self) -> list[LayerBounds]:
        """The rows as filtered and sorted."""
        if self.record is not None:
            self.model.update(self.record)
        rows = (
            self.proxy.mapToSource(self.proxy.index(row, 0)).row() for row in range(self.proxy.rowCount())
        )
        return [self.model.layer(row) for row in rows]

    def tables(self) -> tuple[Table, ...]:
        if self.record is None:
            return ()
        whole = self.record.layer_table()
        order = {(row[0], row[1]): row for row in whole.rows}
        rows = tuple((*order[layer.case, layer.node], share(layer)) for layer in self.shown_layers())
        return (Table(whole.name, (*whole.columns, "unstable share"), rows),)

    def copy_selection(self) -> None:
        """Put the selected rows on the clipboard as tab-separated text with a header."""
        rows = sorted({index.row() for index in self.table.selectionModel().selectedRows()})
        lines = ["\t".join(COLUMNS)]
        for row in rows:
            layer = self.model.layer(self.proxy.mapToSource(self.proxy.index(row, 0)).row())
            values = layer_values(layer)
            lines.append(
                "\t".join("" if v is None else repr(v) if isinstance(v, float) else str(v) for v in values)
            )
        QGuiApplication.clipboard().setText("\n".join(lines))

    def extend_menu(self, menu: QMenu) -> None:
        menu.addAction("Copy selected rows", self.copy_selection)
        menu.addSeparator()

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        h = Html(theme)
        layers = self.shown_layers()
        rows = [[shown_text(i, v) for i, v in enumerate(layer_values(layer))] for layer in layers[:MOST_ROWS]]
        text = h.heading("Bounds of every layer") + h.paragraph(self.caption, muted=True)
        text += h.grid(COLUMNS, rows, WORDS, wide=True)
        if len(layers) > MOST_ROWS:
            text += h.paragraph(
                f"The first {MOST_ROWS} of {len(layers)} layers; the CSV holds them all.", muted=True
            )
        return document_page(document(text, theme), width, height or round(width * ASPECT), theme.base)
