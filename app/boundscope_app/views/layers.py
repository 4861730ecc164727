"""The layers table: proven bounds and rounding, and observed noise, of every layer by the name of its ONNX node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
)
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QLabel, QLineEdit, QMenu, QTableView, QWidget

from boundscope.layers import LayerRow
from boundscope.records import Cell, JobRecord, Table
from boundscope_app.selection import LayerSelection
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page, document_page
from boundscope_app.views.text import MINUS, count, number
from boundscope_app.views.variability_model import mark_of

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
GROWN, NAME_MARGIN_PX = 1.25, 24
MOST_ROWS = 400
SORT_ROLE = Qt.ItemDataRole.UserRole


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
        return number(float(value), 3)
    return number(value, 5) if isinstance(value, float) else str(value)


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


class LayersView(View):
    """Sortable, filterable and copyable table of what is proven and measured of every layer."""

    view_id = "layers"
    title = "Layers"
    empty_text = (
        "No layer has bounds yet.\n\nThey appear here, by the name of the ONNX node, while a run goes on."
    )
    noise_text = (
        "No layer has been measured yet.\n\nProven rounding and significant bits appear here, by the name of the ONNX "
        "node, as soon as a rank has taken two samples."
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
        self.table.horizontalHeader().setHighlightSections(False)
        self.table.horizontalHeader().setResizeContentsPrecision(0)  # only the rows in sight
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
        self._columns: tuple[int, ...] = ()
        self._full: set[int] = set()
        self._sized = 0  # rows that there were when the columns got their widths
        self.selection = LayerSelection(self)
        self.selection.changed.connect(self._show_selected)
        self.table.selectionModel().selectionChanged.connect(lambda *_: self._row_chosen())

    def has_data(self, record: JobRecord) -> bool:
        found = record.variability
        return bool(record.layers or record.noise or (found is not None and (found.layers or found.deployed)))

    def set_selection(self, selection: LayerSelection) -> None:
        self.selection.changed.disconnect(self._show_selected)
        self.selection = selection
        selection.changed.connect(self._show_selected)

    def reset(self) -> None:
        self.model.clear()
        self._columns, self._full, self._sized = (), set(), 0
        self.count.setText("")

    def draw(self) -> None:
        assert self.record is not None
        self.take(self.record)
        self._say_count()
        self._show_selected()

    def take(self, record: JobRecord) -> None:
        """Take what is new in the record, and show the columns that have something in them."""
        changed = self.model.update(record)
        if not changed:
            return
        self._full |= full_columns(changed)
        columns = without_case(self._full, self.model.layers)
        if columns != self._columns or self.model.rowCount() > GROWN * self._sized:
            self._columns, self._sized = columns, self.model.rowCount()
            for column in range(len(COLUMNS)):
                self.table.setColumnHidden(column, column not in columns)
            self._size_columns()

    def _size_columns(self) -> None:
        """As wide as what can be seen needs, and the names as the longest of them all: measuring all takes too long."""
        self.table.resizeColumnsToContents()
        longest = max((row.node for row in self.model.layers), key=len, default="")
        needed = self.table.fontMetrics().horizontalAdvance(longest) + NAME_MARGIN_PX
        self.table.setColumnWidth(0, max(self.table.columnWidth(0), needed))

    # ------------------------------------------------------------ the picked layer

    def _row_chosen(self) -> None:
        """Somebody chose rows: the current one is the picked layer. Rows that a filter hides stay picked."""
        index = self.table.currentIndex()
        if index.isValid() and self.table.selectionModel().isRowSelected(index.row()):
            self.selection.pick(self.model.layer(self.proxy.mapToSource(index).row()).node)

    def picked_layer(self) -> str:
        """The layer of the row that is marked, "" where none is."""
        index = self.table.currentIndex()
        if not index.isValid() or not self.table.selectionModel().isRowSelected(index.row()):
            return ""
        return self.model.layer(self.proxy.mapToSource(index).row()).node

    def _show_selected(self, *_: object) -> None:
        """Mark the row of the picked layer, the first of several cases."""
        layer = self.selection.layer
        if layer == self.picked_layer():
            return
        if not layer:
            self.table.clearSelection()
            return
        for row, each in enumerate(self.model.layers):
            index = (
                self.proxy.mapFromSource(self.model.index(row, 0)) if each.node == layer else QModelIndex()
            )
            if index.isValid():
                flags = QItemSelectionModel.SelectionFlag
                self.table.selectionModel().setCurrentIndex(index, flags.ClearAndSelect | flags.Rows)
                self.table.scrollTo(index)
                return
        self.table.clearSelection()

    # ------------------------------------------------------------ filter

    def _filter_changed(self, text: str) -> None:
        self.proxy.set_needle(text)
        self._say_count()
        self._show_selected()

    def _say_count(self) -> None:
        shown, total = self.proxy.rowCount(), self.model.rowCount()
        self.count.setText(f"{total} layers" if shown == total else f"{shown} of {total} layers")

    def shown_layers(self) -> list[LayerRow]:
        """The rows as filtered and sorted."""
        if self.record is not None:
            self.take(self.record)
        rows = (
            self.proxy.mapToSource(self.proxy.index(row, 0)).row() for row in range(self.proxy.rowCount())
        )
        return [self.model.layer(row) for row in rows]

    def tables(self) -> tuple[Table, ...]:
        if self.record is None:
            return ()
        shown = self.shown_layers()
        whole = self.record.layer_table()
        names = whole.columns.index("case"), whole.columns.index("node")
        order = {tuple(row[name] for name in names): row for row in whole.rows}
        return (Table(whole.name, whole.columns, tuple(order[row.case, row.node] for row in shown)),)

    def copy_selection(self) -> None:
        """Put the selected rows on the clipboard as tab-separated text with a header."""
        rows = sorted({index.row() for index in self.table.selectionModel().selectedRows()})
        columns = tuple(sorted({CASE, *self._columns}))
        lines = ["\t".join(COLUMNS[column] for column in columns)]
        for row in rows:
            layer = self.model.layer(self.proxy.mapToSource(self.proxy.index(row, 0)).row())
            values = [layer_values(layer)[column] for column in columns]
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
        columns = without_case(full_columns(layers), layers)
        rows = [
            [shown_text(column, layer_values(layer)[column]) for column in columns]
            for layer in layers[:MOST_ROWS]
        ]
        proven = any(layer.bounds is not None for layer in layers)
        title = "Bounds of every layer" if proven else "Rounding and noise of every layer"
        text = h.heading(title) + h.paragraph(self.caption, muted=True)
        words = frozenset(place for place, column in enumerate(columns) if column in WORDS)
        text += h.grid([COLUMNS[column] for column in columns], rows, words, wide=True)
        if len(layers) > MOST_ROWS:
            text += h.paragraph(
                f"The first {MOST_ROWS} of {len(layers)} layers; the CSV holds them all.", muted=True
            )
        return document_page(document(text, theme), width, height or round(width * ASPECT), theme.base)
