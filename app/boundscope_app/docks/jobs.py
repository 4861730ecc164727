"""The jobs table below: state, verdict, progress and duration of every run, and boxes to mark those to compare."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import (
    QEvent,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtGui import QAction, QColor, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDockWidget,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QMenu,
    QPushButton,
    QStackedWidget,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from boundscope.comparison import LEAST_RUNS, MOST_RUNS
from boundscope.protocol import JobInfo, Progress
from boundscope_app import theme as themes
from boundscope_app.docks.jobs_model import INFO_ROLE, PROGRESS, RUN, SORT_ROLE, STARTED, STATE, JobsModel
from boundscope_app.format import progress_fraction
from boundscope_app.runs import RunModel

WIDEST = (
    "☐ interrupted",
    "",
    "CROWN-IBP",
    "Ranks",
    "out of memory",
    "12 345 domains, 6 789 open",
    "Started",
    "59 min 00 s",
    "Host",
)
PADDING_EM = 1.5
BAR_HEIGHT_PX = 3
CHECK_EM = 2  # what the box takes, at the left of the first column
MARK_TEXT = f"To compare runs, tick the boxes of {LEAST_RUNS} to {MOST_RUNS} of them, or press Space on each."
EMPTY = "No runs yet. Choose a network and a property in the run form, then press Run (Ctrl+R)."


class ProgressDelegate(QStyledItemDelegate):
    """A thin bar below the text while a job runs; in the colour of warnings while it is paused.

    There is none below a branch and bound: no length of it would be true.
    """

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().paint(painter, option, index)
        info = index.data(INFO_ROLE)
        if isinstance(info, JobInfo) and not info.state.ended and not _endless(info.progress):
            selected = bool(option.state & QStyle.StateFlag.State_Selected)
            theme = themes.current()
            color = theme.accent_text if selected else theme.warn if info.state.held else theme.accent
            self._paint_bar(painter, option.rect, progress_fraction(info.progress), QColor(color))

    def _paint_bar(self, painter: QPainter, cell: QRect, fraction: float | None, color: QColor) -> None:
        area = QRect(cell.left() + 2, cell.bottom() - BAR_HEIGHT_PX, cell.width() - 4, BAR_HEIGHT_PX)
        ground = QColor(color)
        ground.setAlpha(60)
        painter.fillRect(area, ground)
        area.setWidth(round(area.width() * (fraction or 0.0)))
        painter.fillRect(area, color)


def _endless(progress: Progress | None) -> bool:
    return progress is not None and progress.open is not None


class JobsTable(QTableView):
    """A click on a run's box marks it and shows nothing else; Space marks the current run."""

    def selectionCommand(
        self, index: QModelIndex | QPersistentModelIndex, event: QEvent | None = None
    ) -> QItemSelectionModel.SelectionFlag:
        if isinstance(event, QMouseEvent) and self._on_box(index, event.position().toPoint()):
            return QItemSelectionModel.SelectionFlag.NoUpdate
        return super().selectionCommand(index, event)

    def _on_box(self, index: QModelIndex | QPersistentModelIndex, at: QPoint) -> bool:
        if not index.isValid() or index.column() != STATE:
            return False
        return at.x() - self.visualRect(index).left() < self.box_px

    @property
    def box_px(self) -> int:
        return CHECK_EM * self.fontMetrics().horizontalAdvance("m")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        current = self.currentIndex()
        plain = event.modifiers() is Qt.KeyboardModifier.NoModifier or not event.modifiers()
        if event.key() == Qt.Key.Key_Space and plain and current.isValid():
            box, role = current.siblingAtColumn(STATE), Qt.ItemDataRole.CheckStateRole
            marked = Qt.CheckState(box.data(role)) is Qt.CheckState.Checked
            self.model().setData(box, Qt.CheckState.Unchecked if marked else Qt.CheckState.Checked, role)
            return
        super().keyPressEvent(event)


class JobsDock(QDockWidget):
    """`chosen` gives the id of the run to show; `picked_changed` says that others, or more of them, are selected.
    `compare_wanted` asks to put the marked runs side by side.

    Selecting several rows marks these; one row alone is shown, and leaves the marks as they are.
    """

    chosen = Signal(str)
    picked_changed = Signal()
    compare_wanted = Signal()

    def __init__(self, runs: RunModel, parent: QWidget) -> None:
        super().__init__("Jobs", parent)
        self.setObjectName("jobs")
        self._runs = runs
        self.model = JobsModel(runs, self)
        self._proxy = QSortFilterProxyModel(self)
        self._proxy.setSourceModel(self.model)
        self._proxy.setSortRole(SORT_ROLE)
        self.table = JobsTable(self)
        self._set_up_table()
        self._empty = QLabel(EMPTY, self)
        self._empty.setProperty("role", "muted")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setWordWrap(True)
        self._stack = QStackedWidget(self)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self._full())
        self.setWidget(self._stack)
        self._actions: tuple[QAction, ...] = ()
        for signal in (self.model.modelReset, self.model.rowsInserted, self.model.rowsRemoved):
            signal.connect(self._show_state)
        self.model.marks_changed.connect(self._show_marks)
        self._proxy.rowsRemoved.connect(self._go_to_neighbour)
        runs.selected.connect(self.show_selected)
        runs.listed.connect(lambda: self.show_selected(runs.selected_id))
        self._show_state()

    def _full(self) -> QWidget:
        """The table, and below it what its boxes are for."""
        self.bar = QWidget(self)
        self.compare_button, self.clear_button = QPushButton("Compare"), QPushButton("Untick all")
        self.compare_button.clicked.connect(self.compare_wanted)
        self.clear_button.clicked.connect(self.unmark)
        for button, tip in (
            (self.compare_button, "Put the runs with a ticked box side by side (Ctrl+D)"),
            (self.clear_button, "Take the tick from all boxes"),
        ):
            button.setToolTip(tip)
            button.setAccessibleDescription(tip)
            button.setAutoDefault(False)
        self._mark_text = QLabel()
        self._mark_text.setProperty("role", "muted")
        self._mark_text.setAccessibleName("Runs to compare")
        self._mark_text.setMinimumWidth(1)
        row = QHBoxLayout(self.bar)
        row.setContentsMargins(4, 2, 4, 2)
        row.addWidget(self.compare_button)
        row.addWidget(self.clear_button)
        row.addWidget(self._mark_text, 1)
        whole = QWidget(self)
        column = QVBoxLayout(whole)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.table, 1)
        column.addWidget(self.bar)
        return whole

    def _set_up_table(self) -> None:
        table = self.table
        table.setModel(self._proxy)
        table.setAccessibleName("Jobs")
        table.setAccessibleDescription(
            "All runs, newest first. Choosing one shows it in the views; its box, or Space, marks it to be compared, "
            "and Ctrl+click or Shift+arrows mark several; Ctrl+D compares those that are marked"
        )
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.setTabKeyNavigation(False)
        table.setAlternatingRowColors(True)
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.setSortingEnabled(True)
        table.sortByColumn(STARTED, Qt.SortOrder.DescendingOrder)
        table.setItemDelegateForColumn(PROGRESS, ProgressDelegate(table))
        table.verticalHeader().hide()
        em = table.fontMetrics().horizontalAdvance("m")
        table.verticalHeader().setDefaultSectionSize(round(table.fontMetrics().height() * 1.6))
        header = table.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionsMovable(True)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(3 * em)
        for column, text in enumerate(WIDEST):
            header.resizeSection(column, table.fontMetrics().horizontalAdvance(text) + round(PADDING_EM * em))
        header.setSectionResizeMode(RUN, QHeaderView.ResizeMode.Stretch)
        table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        table.customContextMenuRequested.connect(self._show_menu)
        table.selectionModel().selectionChanged.connect(self._selection_changed)

    def set_actions(self, actions: Sequence[QAction]) -> None:
        """What the context menu of a run offers."""
        self._actions = tuple(actions)

    def tick(self) -> None:
        """Once a second: durations move."""
        if self.isVisible():
            self.model.tick()

    def show_selected(self, job_id: str) -> None:
        """Mark the run that is selected elsewhere."""
        row = self.model.row_of(job_id)
        if row < 0:
            self.table.clearSelection()
            return
        index = self._proxy.mapFromSource(self.model.index(row, STATE))
        if job_id not in self.picked():
            self.table.selectRow(index.row())
            self.table.scrollTo(index)

    def picked(self) -> tuple[str, ...]:
        """The runs whose rows are selected, the oldest first."""
        rows = {self._proxy.mapToSource(index).row() for index in self.table.selectionModel().selectedRows()}
        return tuple(self.model.id_at(row) for row in sorted(rows, reverse=True))

    def _selection_changed(self, _selected: QItemSelection, _deselected: QItemSelection) -> None:
        """One row alone is the run to show; while several are selected, what is shown stays."""
        picked = self.picked()
        if len(picked) == 1:
            self.chosen.emit(picked[0])
        elif picked:
            self.model.set_marked(picked)
        self.picked_changed.emit()

    @property
    def marked(self) -> tuple[str, ...]:
        """The runs that are marked to be compared, the oldest first."""
        return self.model.marked

    def unmark(self) -> None:
        """Mark no run; of several selected rows, only that of the shown run stays."""
        if len(self.picked()) > 1:
            row = self.model.row_of(self._runs.selected_id)
            self.table.clearSelection()
            if row >= 0:
                self.table.selectRow(self._proxy.mapFromSource(self.model.index(row, STATE)).row())
        self.model.set_marked(())

    def _show_marks(self) -> None:
        count = len(self.marked)
        self.compare_button.setText(f"Compare ({count})" if count else "Compare")
        self.compare_button.setEnabled(LEAST_RUNS <= count <= MOST_RUNS)
        self.clear_button.setVisible(count > 0)
        text = MARK_TEXT if not count else ""
        if count == 1:
            text = "One run is ticked: tick another to compare them."
        elif count > MOST_RUNS:
            text = f"At most {MOST_RUNS} runs can be compared."
        self._mark_text.setText(text)
        self._mark_text.setAccessibleDescription(text)
        self.picked_changed.emit()

    def _go_to_neighbour(self) -> None:
        """The run that was shown has gone: show the one that stands in its place."""
        current = self.table.currentIndex()
        gone = self._runs.selected_id and self._runs.info(self._runs.selected_id) is None
        if gone and current.isValid() and not self.picked():
            self.table.selectRow(current.row())

    def _show_menu(self, at: QPoint) -> None:
        if self._actions and self.table.indexAt(at).isValid():
            menu = QMenu(self)
            menu.addActions(self._actions)
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.popup(self.table.viewport().mapToGlobal(at))

    def _show_state(self) -> None:
        self._stack.setCurrentIndex(1 if self.model.rowCount() else 0)
        self.bar.setVisible(self.model.rowCount() >= LEAST_RUNS)
        self._show_marks()
