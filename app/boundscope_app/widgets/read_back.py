"""What the daemon read of the network and the property, in words and as tables, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocumentFragment
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QLabel,
    QTableWidget,
    QTableWidgetItem,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from boundscope.protocol import NetworkSummary, Progress, PropertySummary
from boundscope_app import theme as themes
from boundscope_app.format import count, network_line
from boundscope_app.link_types import Inspection
from boundscope_app.widgets.reading_line import ReadingLine

NOTHING = "Choose a network and a property: what they mean is read back here before anything runs."
READING = "Reading…"
MOST_PROBLEMS = 6
TABLE_LINES = 8


class ReadBack(QWidget):
    """Shows one Inspection, or that there is none yet."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("What was read")
        self._state = _words(self)
        self.line = ReadingLine(self)
        self._problems = _words(self)
        self._network = _words(self, Qt.TextFormat.RichText)
        self._property = _words(self, Qt.TextFormat.RichText)
        self.inputs = _table(("Input", "from", "to"), "Input box", self)
        self.clauses = _table(("Case", "Clause", "Violated where"), "Clauses", self)
        for table, stretched in ((self.inputs, (1, 2)), (self.clauses, (2,))):
            for section in stretched:
                table.horizontalHeader().setSectionResizeMode(section, QHeaderView.ResizeMode.Stretch)
        self.tables = QTabWidget(self)
        self.tables.setAccessibleName("Input box and clauses")
        self.tables.addTab(self.inputs, "Input box")
        self.tables.addTab(self.clauses, "Violated where")
        self.tables.setUsesScrollButtons(True)
        self.tables.setMinimumHeight(self.fontMetrics().height() * TABLE_LINES)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        for part in (self._state, self.line, self._problems, self._network, self._property):
            column.addWidget(part)
        column.addWidget(self.tables, 1)
        column.addStretch(0)
        themes.notifier.changed.connect(self._restyle)
        self._restyle()
        self._shown = Inspection(0)
        self.show_nothing()

    @property
    def words(self) -> str:
        """All that stands there as text, tables apart."""
        labels = (self._state, self._problems, self._network, self._property)
        return "\n".join(label.accessibleName() for label in labels if not label.isHidden())

    def show_nothing(self) -> None:
        self.line.end()
        self._fill(Inspection(0), NOTHING)

    def show_reading(self, keep_network: bool, keep_property: bool) -> None:
        """While the daemon reads; only what cannot have changed stays."""
        kept = Inspection(
            self._shown.token,
            self._shown.network if keep_network else None,
            self._shown.property if keep_property else None,
        )
        self.line.begin()
        self._fill(kept, READING)

    def show_progress(self, progress: Progress) -> None:
        """How far the reading is."""
        self.line.show_progress(progress)

    def show_inspection(self, inspection: Inspection) -> None:
        self.line.end()
        self._fill(inspection, "")

    def _fill(self, inspection: Inspection, state: str) -> None:
        self._shown = inspection
        _set(self._state, state)
        unsupported = inspection.network.unsupported if inspection.network else ()
        problems = (*inspection.problems, *unsupported[:MOST_PROBLEMS])
        if len(unsupported) > MOST_PROBLEMS:
            problems += (f"… and {len(unsupported) - MOST_PROBLEMS} more operators that have no bound rule.",)
        _set(self._problems, "\n".join(problems))
        _set(self._network, "" if inspection.network is None else _network_words(inspection.network))
        _set(self._property, "" if inspection.property is None else _property_words(inspection.property))
        self.tables.setVisible(inspection.property is not None)
        if inspection.property is not None:
            self._fill_tables(inspection.property)

    def _fill_tables(self, summary: PropertySummary) -> None:
        _fill(
            self.inputs,
            [(row.variable, row.lower, row.upper) for row in summary.inputs],
            summary.inputs_total,
        )
        rows = [(str(row.case), str(row.clause), row.text) for row in summary.clauses]
        _fill(self.clauses, rows, summary.clauses_total)
        self.tables.setTabText(0, f"Input box ({count(summary.inputs_total, 'row')})")
        self.tables.setTabText(1, f"Violated where ({count(summary.clauses_total, 'clause')})")

    def _restyle(self) -> None:
        self._problems.setStyleSheet(f"color: {themes.current().bad}")


def _network_words(network: NetworkSummary) -> str:
    return f"<b>{escape(network.name)}</b><br>{escape(network_line(network))}"


def _property_words(summary: PropertySummary) -> str:
    sentences = "<br>".join(escape(sentence) for sentence in summary.words)
    return f"<b>{escape(summary.name)}</b> ({escape(summary.format)})<br>{sentences}"


def _words(parent: QWidget, text_format: Qt.TextFormat = Qt.TextFormat.PlainText) -> QLabel:
    label = QLabel(parent)
    label.setWordWrap(True)
    label.setTextFormat(text_format)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def _set(label: QLabel, text: str) -> None:
    label.setText(text)
    rich = label.textFormat() is Qt.TextFormat.RichText
    label.setAccessibleName(QTextDocumentFragment.fromHtml(text).toPlainText() if rich else text)
    label.setVisible(bool(text))


def _table(columns: tuple[str, ...], name: str, parent: QWidget) -> QTableWidget:
    table = QTableWidget(0, len(columns), parent)
    table.setHorizontalHeaderLabels(columns)
    table.setAccessibleName(name)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setAlternatingRowColors(True)
    table.setShowGrid(False)
    table.setTabKeyNavigation(False)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(round(table.fontMetrics().height() * 1.5))
    table.horizontalHeader().setStretchLastSection(True)
    table.horizontalHeader().setHighlightSections(False)
    table.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
    return table


def _fill(table: QTableWidget, rows: Sequence[tuple[str, ...]], total: int) -> None:
    more = total - len(rows)
    table.clearSpans()
    table.setRowCount(len(rows) + (1 if more > 0 else 0))
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            item = QTableWidgetItem(cell)
            item.setToolTip(cell)
            table.setItem(row, column, item)
    if more > 0:
        item = QTableWidgetItem(f"… and {count(more, 'more row', 'more rows')}")
        item.setFlags(Qt.ItemFlag.ItemIsEnabled)
        table.setItem(len(rows), 0, item)
        table.setSpan(len(rows), 0, 1, table.columnCount())
    for column in range(table.columnCount()):
        if table.horizontalHeader().sectionResizeMode(column) is not QHeaderView.ResizeMode.Stretch:
            table.resizeColumnToContents(column)
