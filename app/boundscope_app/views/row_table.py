"""What the tables of the views have in common: whole rows, and columns as wide as their contents need."""

from __future__ import annotations

import math
from typing import ClassVar

from PySide6.QtCore import QAbstractTableModel, QSortFilterProxyModel, Qt, QTimer
from PySide6.QtGui import QPixmap, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QTableView, QWidget

SORT_ROLE = Qt.ItemDataRole.UserRole
SIDE_PX = 6  # between a text and the edge of its column, in heads as in cells
LEAST_HEAD_EM = 8  # of a head that is cut
LEAST_LAST_PX = 160  # a last column that stretches is cut, rather than scrolled to, down to here
ARROW_PX = 16  # for the arrow in the head of the column that sorts


class RowTable(QTableView):
    """A table of whole rows, sorted by a click on a head, in the model's order until then.

    Columns are as wide as what can be seen needs; room that is left goes to all of them alike, unless somebody gave
    one another width. Where room is missing, heads are cut if `cuts_heads`, and scrolled to otherwise.
    """

    cuts_heads: ClassVar[bool] = False

    def __init__(
        self,
        model: QAbstractTableModel,
        name: str,
        parent: QWidget | None = None,
        *,
        sortable: bool = True,
        proxy: QSortFilterProxyModel | None = None,
    ) -> None:
        super().__init__(parent)
        self.proxy = QSortFilterProxyModel(self) if proxy is None else proxy
        self.proxy.setSourceModel(model)
        self.proxy.setSortRole(SORT_ROLE)
        self._natural: dict[int, int] = {}
        self._given: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self.setModel(self.proxy)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setTextElideMode(Qt.TextElideMode.ElideRight)
        header.setResizeContentsPrecision(0)  # only the rows in sight
        if sortable:
            self.setSortingEnabled(True)
            header.setSortIndicatorClearable(True)
            self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
            header.sortIndicatorChanged.connect(lambda *_: self._share_out())
        self.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QTableView.EditTrigger.NoEditTriggers)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollMode(QTableView.ScrollMode.ScrollPerPixel)
        self.setFrameShape(QTableView.Shape.NoFrame)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(round(self.fontMetrics().height() * 1.6))
        self.setStyleSheet(f"QTableView::item {{ padding: 0 {SIDE_PX // 2}px; }}")
        self.setAccessibleName(name)

    # ------------------------------------------------------------ widths

    def fit_columns(self) -> None:
        """Give the columns their widths; once they can be seen, for of what is not Qt measures every row."""
        self._natural, self._given = {}, {}
        if self.isVisible():
            self._measure()

    def setColumnHidden(self, column: int, hide: bool) -> None:
        """As Qt's; the columns get other widths once all is said of them."""
        if hide != self.isColumnHidden(column):
            super().setColumnHidden(column, hide)
            self._natural, self._given = {}, {}
            QTimer.singleShot(0, self, self._measure_again)

    def _measure_again(self) -> None:
        if not self._natural and self.isVisible():
            self._measure()

    def natural_width(self, column: int, needed: int) -> int:
        """The width of a column whose head and visible cells need this much."""
        return needed

    def _measure(self) -> None:
        shown = [column for column in range(self.model().columnCount()) if not self.isColumnHidden(column)]
        least = LEAST_HEAD_EM * self.fontMetrics().horizontalAdvance("m")
        self._cells = {column: max(self.sizeHintForColumn(column), least) for column in shown}
        self._natural = {
            column: self.natural_width(column, max(self._head_width(column), self.sizeHintForColumn(column)))
            for column in shown
        }
        self._share_out()

    def _head_width(self, column: int) -> int:
        header, model = self.horizontalHeader(), self.model()
        across = Qt.Orientation.Horizontal
        text = model.headerData(column, across, Qt.ItemDataRole.DisplayRole)
        picture = model.headerData(column, across, Qt.ItemDataRole.DecorationRole)
        beside = 0
        if isinstance(picture, QPixmap):
            beside = round(picture.width() / picture.devicePixelRatio()) + SIDE_PX
        return header.fontMetrics().horizontalAdvance(str(text or "")) + beside + 2 * SIDE_PX + 2

    def _share_out(self) -> None:
        """Set the widths, unless somebody changed one; what room is left goes to all, or to a last that stretches."""
        header = self.horizontalHeader()
        if any(self.columnWidth(column) != width for column, width in self._given.items()):
            return
        widths = dict(self._natural)
        sorts = header.sortIndicatorSection()
        if sorts in widths:
            widths[sorts] = max(widths[sorts], self._head_width(sorts) + ARROW_PX)
        stretches, last = header.stretchLastSection(), max(widths, default=-1)
        left = self.viewport().width() - sum(widths.values())
        if stretches and left < 0 and widths[last] + left >= LEAST_LAST_PX:
            widths[last] += left
        if left < 0 and self.cuts_heads:
            spare = {
                column: max(0, width - self._cells.get(column, width)) for column, width in widths.items()
            }
            part = min(1.0, -left / max(1, sum(spare.values())))
            widths = {column: width - math.ceil(part * spare[column]) for column, width in widths.items()}
            left = self.viewport().width() - sum(widths.values())
        if widths and left > 0 and not stretches:
            for place, column in enumerate(widths):
                widths[column] += left * (place + 1) // len(widths) - left * place // len(widths)
        for column, width in widths.items():
            self.setColumnWidth(column, width)
        self._given = {
            column: width for column, width in widths.items() if not (stretches and column == last)
        }

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share_out()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._natural and self.proxy.rowCount():
            self._measure()

    def needed_height(self) -> int:
        """The height that shows all rows."""
        rows = self.proxy.rowCount() * self.verticalHeader().defaultSectionSize()
        return (
            rows
            + self.horizontalHeader().sizeHint().height()
            + self.horizontalScrollBar().sizeHint().height()
            + 2
        )

    # ------------------------------------------------------------ rows

    def source_row(self) -> int:
        """The row of the model that is current and selected, or -1."""
        index = self.currentIndex()
        if not index.isValid() or not self.selectionModel().isRowSelected(index.row()):
            return -1
        return self.proxy.mapToSource(index).row()

    def show_row(self, row: int) -> None:
        """Make a row of the model the current one, and bring it into sight; -1 marks none."""
        if row < 0:
            self.clearSelection()
        elif row != self.source_row():
            index = self.proxy.mapFromSource(self.proxy.sourceModel().index(row, 0))
            self.setCurrentIndex(index)
            self.scrollTo(index)
