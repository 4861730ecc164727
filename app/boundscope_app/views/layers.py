"""The layers table: proven bounds and rounding, and observed noise, of every layer by the name of its ONNX node."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, Qt
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QLabel, QLineEdit, QMenu, QWidget

from boundscope.layers import LayerRow
from boundscope.records import JobRecord, Table
from boundscope_app.selection import LayerSelection
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.html import Html, document
from boundscope_app.views.layers_model import (
    CASE,
    COLUMNS,
    WORDS,
    LayerModel,
    LayerProxy,
    full_columns,
    layer_values,
    shown_text,
    without_case,
)
from boundscope_app.views.page import Page, document_page
from boundscope_app.views.row_table import SIDE_PX, RowTable
from boundscope_app.views.text import many

GROWN = 1.25
MOST_ROWS = 150  # of a picture; more of them take long to set and are too high to read


class LayerTable(RowTable):
    """Its first column is as wide as the longest name needs, also where that is not in sight."""

    def natural_width(self, column: int, needed: int) -> int:
        model = self.proxy.sourceModel()
        assert isinstance(model, LayerModel)
        longest = max((row.node for row in model.layers), key=len, default="") if column == 0 else ""
        return max(needed, self.fontMetrics().horizontalAdvance(longest) + 2 * SIDE_PX)


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
        self.filter = QLineEdit(placeholderText="Filter by node, operator or method", clearButtonEnabled=True)
        self.filter.setAccessibleName("Filter layers")
        self.filter.textChanged.connect(self._filter_changed)
        self.count = QLabel()
        self.count.setProperty("role", "muted")
        self.controls.addWidget(self.filter, 1)
        self.controls.addWidget(self.count)
        self.table = LayerTable(self.model, "Bounds of every layer", proxy=self.proxy)
        copy = QShortcut(QKeySequence.StandardKey.Copy, self.table)
        copy.setContext(Qt.ShortcutContext.WidgetShortcut)
        copy.activated.connect(self.copy_selection)
        self.set_content(self.table)
        self._columns: tuple[int, ...] = ()
        self._full: set[int] = set()
        self._sized = 0  # rows that there were when the columns were last given their widths
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
            self._columns, self._sized = columns, 0
            for column in range(len(COLUMNS)):
                self.table.setColumnHidden(column, column not in columns)
            self._sized = self.model.rowCount()
            self.table.fit_columns()

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
        self.count.setText(many(total, "layer") if shown == total else f"{shown} of {many(total, 'layer')}")

    def shown_layers(self, most: int | None = None) -> list[LayerRow]:
        """The rows as filtered and sorted, all or the first so many."""
        if self.record is not None:
            self.take(self.record)
        rows = (
            self.proxy.mapToSource(self.proxy.index(row, 0)).row()
            for row in range(self.proxy.rowCount())[:most]
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
        shown = self.shown_layers(MOST_ROWS)
        columns = without_case(full_columns(shown), shown)
        rows = [[shown_text(column, layer_values(layer)[column]) for column in columns] for layer in shown]
        proven = any(layer.bounds is not None for layer in shown)
        title = "Bounds of every layer" if proven else "Rounding and noise of every layer"
        text = h.heading(title) + h.paragraph(self.caption, muted=True)
        words = frozenset(place for place, column in enumerate(columns) if column in WORDS)
        text += h.grid([COLUMNS[column] for column in columns], rows, words, wide=True)
        total = self.proxy.rowCount()
        if total > MOST_ROWS:
            text += h.paragraph(
                f"The first {MOST_ROWS} of {total} layers; the CSV holds them all.", muted=True
            )
        return document_page(document(text, theme), width, height or round(width * ASPECT), theme.base)
