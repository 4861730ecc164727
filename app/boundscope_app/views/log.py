"""The log of a run: filtered by text and level, and following the end while one looks at it."""

from __future__ import annotations

import re
import textwrap
import time
from typing import ClassVar

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontMetrics,
    QGuiApplication,
    QKeySequence,
    QResizeEvent,
    QShortcut,
)
from PySide6.QtWidgets import QComboBox, QLabel, QLineEdit, QMenu, QTableView, QWidget

from boundscope.protocol import LogLine
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page, document_page
from boundscope_app.views.text import count, many

Index = QModelIndex | QPersistentModelIndex
Line = tuple[float, int, LogLine]
LEVELS = ("debug", "info", "warning", "error")
COLUMNS = ("Time", "Rank", "Level", "Text")
MOST_ROWS = 200
LONG_WORD = re.compile(r"\S{8}(?=\S{8})")
SURELY_SHORT = 24  # letters that a row of the narrowest window has room for
MOST_FOLDED = 1000  # rows that are looked at again when the width changes
MOST_TEXT_LINES = 8  # of one row on the screen; the tool tip has it all


def clock(time_s: float) -> str:
    """Local time of day with milliseconds."""
    whole = int(time_s)
    return time.strftime("%H:%M:%S", time.localtime(whole)) + f".{int((time_s - whole) * 1000):03d}"


def rank_name(rank: int) -> str:
    return "daemon" if rank < 0 else str(rank)


def level_color(level: str, theme: Theme) -> str:
    return {"error": theme.bad, "warning": theme.warn, "debug": theme.muted}.get(level, theme.text)


class LogModel(QAbstractTableModel):
    """The lines that pass the filter, in their order; only new lines are looked at when the log grows."""

    def __init__(self, font: QFont) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self._seen = 0
        self._needle = ""
        self._least = 0
        self._font = font

    def _passes(self, line: LogLine) -> bool:
        level = LEVELS.index(line.level) if line.level in LEVELS else 1
        return level >= self._least and self._needle in line.text.lower()

    def set_filter(self, needle: str, least_level: str, log: list[Line]) -> None:
        """Keep lines of at least this level that hold the text."""
        self._needle, self._least = needle.strip().lower(), LEVELS.index(least_level)
        self.beginResetModel()
        self.lines = [line for line in log if self._passes(line[2])]
        self._seen = len(log)
        self.endResetModel()

    def clear(self) -> None:
        self.beginResetModel()
        self.lines, self._seen = [], 0
        self.endResetModel()

    def update(self, log: list[Line]) -> list[Line]:
        """Take what is new; the lines added."""
        fresh = [line for line in log[self._seen :] if self._passes(line[2])]
        self._seen = len(log)
        if fresh:
            self.beginInsertRows(QModelIndex(), len(self.lines), len(self.lines) + len(fresh) - 1)
            self.lines.extend(fresh)
            self.endInsertRows()
        return fresh

    def shown_text(self, row: int) -> str:
        """The text of a row as one line, whose long words may break."""
        return LONG_WORD.sub("\\g<0>\u200b", self.lines[row][2].text.replace("\n", " ⏎ "))

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.lines)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if role == Qt.ItemDataRole.DisplayRole and orientation is Qt.Orientation.Horizontal:
            return COLUMNS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        time_s, rank, line = self.lines[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            if index.column() == 3:
                return self.shown_text(index.row())
            return (clock(time_s), rank_name(rank), line.level)[index.column()]
        if role == Qt.ItemDataRole.ForegroundRole:
            return QColor(level_color(line.level, themes.current()))
        if role == Qt.ItemDataRole.FontRole and index.column() in (0, 3):
            return self._font
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop
        if role == Qt.ItemDataRole.ToolTipRole and index.column() == 3:
            return line.text
        return None


class LogTable(QTableView):
    """Tells when it has another size."""

    resized = Signal()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.resized.emit()


class LogView(View):
    """Time, rank, level and text of every line."""

    view_id = "log"
    title = "Log"
    empty_text = "The log is empty.\n\nWhat a run says while it works appears here."
    level_names: ClassVar[tuple[str, ...]] = (
        "All levels",
        "Info and above",
        "Warnings and errors",
        "Errors only",
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        self._metrics = QFontMetrics(font)
        self._long: list[int] = []  # rows whose text may need more than one line
        self._measured = 0
        self.model = LogModel(font)
        self.filter = QLineEdit(placeholderText="Filter by text", clearButtonEnabled=True)
        self.filter.setAccessibleName("Filter log by text")
        self.level = QComboBox()
        self.level.addItems(self.level_names)
        self.level.setAccessibleName("Least level shown")
        self.count = QLabel()
        self.count.setProperty("role", "muted")
        self.controls.addWidget(self.filter, 1)
        self.controls.addWidget(self.level)
        self.controls.addWidget(self.count)
        self.filter.textChanged.connect(self._filter_changed)
        self.level.currentIndexChanged.connect(self._filter_changed)
        self.table = self._make_table()
        self.table.resized.connect(lambda: self._fold(self._long))
        self.set_content(self.table)

    def _make_table(self) -> LogTable:
        table = LogTable()
        table.setModel(self.model)
        table.setShowGrid(False)
        table.setWordWrap(True)
        table.setStyleSheet("QTableView::item { padding: 1px 3px; }")
        table.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        table.setFrameShape(table.Shape.NoFrame)
        table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        table.setVerticalScrollMode(QTableView.ScrollMode.ScrollPerPixel)
        table.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        table.setAccessibleName("Log lines")
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(self._metrics.height() + 4)
        table.horizontalHeader().setHighlightSections(False)
        table.horizontalHeader().setStretchLastSection(True)
        for column, sample in enumerate(("00:00:00.000", "daemon", "warning")):
            table.setColumnWidth(column, self._metrics.horizontalAdvance(sample) + 16)
        copy = QShortcut(QKeySequence.StandardKey.Copy, table)
        copy.setContext(Qt.ShortcutContext.WidgetShortcut)
        copy.activated.connect(self.copy_selection)
        return table

    def has_data(self, record: JobRecord) -> bool:
        return bool(record.log)

    def reset(self) -> None:
        self.model.clear()
        self._long, self._measured = [], 0

    def draw(self) -> None:
        assert self.record is not None
        bar = self.table.verticalScrollBar()
        follows = bar.value() >= bar.maximum() - 1
        self.model.update(self.record.log)
        self._fold_new()
        if follows:
            self.table.scrollToBottom()
        self._say_count()

    @property
    def _line_length(self) -> int:
        """How many letters of the text find room beside one another."""
        room = self.table.horizontalHeader().sectionSize(len(COLUMNS) - 1) - 12
        return max(16, room // self._metrics.horizontalAdvance("0") - 1)

    def _fold_new(self) -> None:
        """Make room for the texts of new rows that do not fit one line; the others keep the height that all have."""
        lines = self.model.lines
        fresh = [row for row in range(self._measured, len(lines)) if len(lines[row][2].text) > SURELY_SHORT]
        self._measured = len(lines)
        self._long += fresh
        self._fold(fresh)

    def _fold(self, rows: list[int]) -> None:
        length, line_px = self._line_length, self._metrics.lineSpacing()
        for row in rows[-MOST_FOLDED:]:
            text = self.model.lines[row][2].text.replace("\n", " ⏎ ")
            needed = min(MOST_TEXT_LINES, len(textwrap.wrap(text[: MOST_TEXT_LINES * length], length)))
            self.table.setRowHeight(row, max(1, needed) * line_px + 4)

    def _filter_changed(self) -> None:
        if self.record is not None:
            self.model.set_filter(self.filter.text(), LEVELS[self.level.currentIndex()], self.record.log)
            self._long, self._measured = [], 0
            self._fold_new()
            self._say_count()

    def _say_count(self) -> None:
        shown, total = len(self.model.lines), 0 if self.record is None else len(self.record.log)
        whole = many(total, "line")
        self.count.setText(whole if shown == total else f"{count(shown)} of {whole}")

    def tables(self) -> tuple[Table, ...]:
        if self.record is None:
            return ()
        self.model.update(self.record.log)
        whole = self.record.log_table()
        rows = tuple((time_s, rank, line.level, line.text) for time_s, rank, line in self.model.lines)
        return (Table(whole.name, whole.columns, rows),)

    def copy_selection(self) -> None:
        """Put the selected lines on the clipboard as text."""
        rows = sorted({index.row() for index in self.table.selectionModel().selectedRows()})
        text = "\n".join(
            f"{clock(t)}  {rank_name(rank):>6}  {line.level:<7}  {line.text}"
            for t, rank, line in (self.model.lines[row] for row in rows)
        )
        QGuiApplication.clipboard().setText(text)

    def extend_menu(self, menu: QMenu) -> None:
        menu.addAction("Copy selected lines", self.copy_selection)
        menu.addSeparator()

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        h = Html(theme)
        if self.record is not None:
            self.model.update(self.record.log)
        lines = self.model.lines
        rows = [(clock(t), rank_name(rank), line.level, line.text) for t, rank, line in lines[-MOST_ROWS:]]
        text = h.heading("Log") + h.paragraph(self.caption, muted=True)
        if len(lines) > MOST_ROWS:
            text += h.paragraph(
                f"The last {MOST_ROWS} of {len(lines)} lines; the CSV holds them all.", muted=True
            )
        text += h.grid(COLUMNS, rows, frozenset({0, 1, 2, 3}), wide=True)
        return document_page(document(text, theme), width, height or round(width * ASPECT), theme.base)
