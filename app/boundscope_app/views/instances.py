"""A whole benchmark: a row an instance, as they end, and what is to be said of the one that is chosen."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSortFilterProxyModel, Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QComboBox,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QSplitter,
    QWidget,
)

from boundscope.protocol import InstancesJob, JobInfo
from boundscope.records import JobRecord, Table, instance_table
from boundscope_app import theme as themes
from boundscope_app.theme import Theme
from boundscope_app.views import instances_text as words
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.cell_table import CellModel, CellTable
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page, document_page

Index = QModelIndex | QPersistentModelIndex
DETAIL_HINT = "A double click, or Enter, shows here why an instance has its verdict, and its counterexample."


class InstanceModel(CellModel):
    """Cells whose verdict has its colour."""

    def __init__(self) -> None:
        super().__init__(words.COLUMNS, words.WORDS, words.cell_text, words.TIPS)
        self.theme_changed()

    def theme_changed(self) -> None:
        """Take colours from the current theme."""
        theme = themes.current()
        self._colors = {word: QColor(theme.verdict_colors(key)[0]) for word, key in words.KEYS.items()}
        self._bold = QFont()
        self._bold.setBold(True)
        if self.rows:
            last = self.index(len(self.rows) - 1, len(words.COLUMNS) - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if index.column() == words.VERDICT:
            if role == Qt.ItemDataRole.ForegroundRole:
                return self._colors.get(str(self.rows[index.row()][words.VERDICT]))
            if role == Qt.ItemDataRole.FontRole:
                return self._bold
        return super().data(index, role)


class InstanceProxy(QSortFilterProxyModel):
    """Keeps rows of the verdict and with the text that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted, self._needle = words.ALL, ""

    def set_wanted(self, wanted: str, text: str) -> None:
        """`wanted` is one of `words.FILTERS`."""
        self._wanted, self._needle = wanted, text.strip().casefold()
        self.invalidate()

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        model = self.sourceModel()
        assert isinstance(model, InstanceModel)
        cells = model.rows[row]
        return words.fits(cells, self._wanted) and words.holds(cells, self._needle)


class InstanceTable(CellTable):
    """Enter is as good as a double click."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self.activated.emit(self.currentIndex())
            return
        super().keyPressEvent(event)


class InstancesView(View):
    """Sortable, filterable table of the instances of a benchmark, live; below it one of them in words."""

    view_id = "instances"
    title = "Instances"
    empty_text = (
        "No instance has begun.\n\nA benchmark is a file instances.csv whose lines name a network, a property and a "
        "time limit. Drop one on the window, and press Run."
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.verdict = QComboBox()
        self.verdict.addItems(words.FILTERS)
        self.verdict.setAccessibleName("Show instances of one verdict")
        self.verdict.setToolTip("Which instances are shown")
        self.filter = QLineEdit(placeholderText="Filter by network, property or reason")
        self.filter.setClearButtonEnabled(True)
        self.filter.setAccessibleName("Filter instances")
        self.count = QLabel()
        self.count.setProperty("role", "muted")
        self.controls.addWidget(self.verdict)
        self.controls.addWidget(self.filter, 1)
        self.controls.addWidget(self.count)
        self.model = InstanceModel()
        self.proxy = InstanceProxy()
        self.table = InstanceTable(self.model, "Instances of the benchmark", proxy=self.proxy)
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.detail = QPlainTextEdit(readOnly=True)
        self.detail.setPlaceholderText(DETAIL_HINT)
        self.detail.setAccessibleName("The chosen instance")
        self.detail.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.detail.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.detail.setTabChangesFocus(True)
        for part in (self.table, self.detail):  # the view has one menu for all of it
            part.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        self._detailed = -1
        splitter = QSplitter(Qt.Orientation.Vertical)
        for part, stretch in ((self.table, 7), (self.detail, 3)):
            splitter.addWidget(part)
            splitter.setStretchFactor(splitter.count() - 1, stretch)
        splitter.setChildrenCollapsible(False)
        self.set_content(splitter)
        copy = QShortcut(QKeySequence.StandardKey.Copy, self.table)
        copy.setContext(Qt.ShortcutContext.WidgetShortcut)
        copy.activated.connect(self.copy_data)
        self.verdict.currentIndexChanged.connect(self._filter_changed)
        self.filter.textChanged.connect(self._filter_changed)
        self.table.activated.connect(lambda _: self.show_detail(self.table.source_row()))
        self.table.doubleClicked.connect(lambda _: self.show_detail(self.table.source_row()))

    # ------------------------------------------------------------ the run

    def suits(self, info: JobInfo | None) -> bool:
        return info is not None and isinstance(info.job, InstancesJob)

    def has_data(self, record: JobRecord) -> bool:
        return bool(record.instances) or record.instance_now is not None

    def waiting_text(self) -> str:
        return self.empty_text

    def reset(self) -> None:
        self._detailed = -1
        self.detail.clear()
        self.model.set_rows(())

    def theme_changed(self) -> None:
        self.model.theme_changed()

    def draw(self) -> None:
        assert self.record is not None
        self.table.set_rows(words.rows(self.info, self.record))
        self._say_count()
        if self._detailed >= 0:
            self._write_detail()

    def _filter_changed(self) -> None:
        self.proxy.set_wanted(self.verdict.currentText(), self.filter.text())
        self._say_count()

    def _say_count(self) -> None:
        self.count.setText(words.count_text(self.model.rows, self.proxy.rowCount()))

    # ------------------------------------------------------------ one of them

    def show_detail(self, row: int) -> None:
        """Say below the table what became of one instance (its row in the model)."""
        if 0 <= row < len(self.model.rows):
            self._detailed = row
            self.detail.setPlainText("")
            self._write_detail()

    def _write_detail(self) -> None:
        assert self.record is not None
        text = words.detail(self.info, self.record, self._detailed)
        if text != self.detail.toPlainText():
            self.detail.setPlainText(text)

    # ------------------------------------------------------------ ways out

    def extend_menu(self, menu: QMenu) -> None:
        show = menu.addAction("Show the chosen instance", lambda: self.show_detail(self.table.source_row()))
        show.setEnabled(self.table.source_row() >= 0)
        copy = menu.addAction("Copy selected text", self.detail.copy)
        copy.setEnabled(self.detail.textCursor().hasSelection())
        menu.addSeparator()

    def tables(self) -> tuple[Table, ...]:
        """The instances that have ended, as filtered and sorted."""
        if self.record is None:
            return ()
        self.model.set_rows(words.rows(self.info, self.record))
        numbers = [int(str(row[words.NUMBER])) - 1 for row in self.table.shown_rows()]
        ended = [self.record.instances[number] for number in numbers if number in self.record.instances]
        return (instance_table(ended),)

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        assert self.record is not None
        h = Html(theme)
        paper = document(words.page_markup(h, self.caption, self.record, self.tables()[0]), theme)
        return document_page(paper, width, height or round(width * ASPECT), theme.base)
