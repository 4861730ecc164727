"""The page of a comparison: what was asked of each run and what came of it, one column a run, and layer by layer."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPixmap
from PySide6.QtWidgets import QCheckBox, QLabel, QSplitter, QTabWidget, QVBoxLayout, QWidget

from boundscope import comparison
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT
from boundscope_app.views.clause_list import line_swatch
from boundscope_app.views.compare import CompareLayersView
from boundscope_app.views.compare_table import Grid, GridTable
from boundscope_app.views.compare_text import decisions_grid, facts_grid, noise_grid, widths_grid
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page, document_page

LAYERS_SHARE = 0.45  # of the height, at most
PARTS = ("Widths of layers", "Significant digits", "Decisions")


class CompareFactsView(CompareLayersView):
    """A table with one column a run, above tables of layers; options that differ are marked."""

    view_id = "compare"
    title = "Compare"
    empty_text = "Select two to eight runs in the Jobs table and press Ctrl+D to put them side by side."
    stands_before = "instances"

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._arranged = False
        self.only_different = QCheckBox("Only what differs")
        self.only_different.toggled.connect(self._redraw)
        self.said = QLabel()
        self.said.setProperty("role", "muted")
        self.controls.addWidget(self.only_different)
        self.controls.addWidget(self.said)
        self.controls.addStretch(1)
        self.add_end_button()
        self.facts = GridTable("What differs between the runs", sortable=False)
        self.parts = tuple(GridTable(name, sortable=True) for name in PARTS)
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        for name, table in zip(PARTS, self.parts, strict=True):
            self.tabs.addTab(table, name)
        for table in self.parts[:2]:
            table.selectionModel().selectionChanged.connect(lambda *_, table=table: self._row_chosen(table))
        self.splitter = QSplitter(Qt.Orientation.Vertical)
        self.splitter.addWidget(self.facts)
        self.splitter.addWidget(self.tabs)
        self.splitter.setSizes([560, 440])
        self.splitter.setChildrenCollapsible(False)
        content = QWidget()
        layout = QVBoxLayout(content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.notes)
        layout.addWidget(self.splitter, 1)
        self.set_content(content)

    def has_data(self, record: JobRecord) -> bool:
        return bool(self.runs)

    def draw(self) -> None:
        theme = themes.current()
        self.show_notes((*comparison.noise_sentences(self.runs), *comparison.notes(self.runs)))
        facts = facts_grid(self.runs, self.heads, theme, only_different=self.only_different.isChecked())
        self.facts.set_grid(facts, _pixmaps(facts))
        differing = len(facts.marked)
        self.said.setText(
            f"{differing} {'option differs' if differing == 1 else 'options differ'}"
            if differing
            else "No option differs"
        )
        shown = False
        for index, (table, grid) in enumerate(zip(self.parts, self._grids(theme), strict=True)):
            table.set_grid(grid, _pixmaps(grid))
            self.tabs.setTabVisible(index, bool(grid.texts))
            shown = shown or bool(grid.texts)
        self.tabs.setVisible(shown)
        if not self._arranged:
            self._arrange()
        self._show_selected()

    def _arrange(self) -> None:
        """Give the tables of layers what they need, up to their share, and the rest to the differences; once."""
        whole = self.splitter.height()
        most = max(table.needed_height() for table in self.parts) + self.tabs.tabBar().sizeHint().height()
        below = min(most, round(LAYERS_SHARE * whole))
        self.splitter.setSizes([whole - below, below])
        self._arranged = self.isVisible()

    def reset(self) -> None:
        self._arranged = False

    def _grids(self, theme: Theme) -> tuple[Grid, Grid, Grid]:
        runs, heads = self.runs, self.heads
        return (
            widths_grid(runs, heads, theme),
            noise_grid(runs, heads, theme),
            decisions_grid(runs, heads, theme),
        )

    # ------------------------------------------------------------ the picked layer

    def _row_chosen(self, table: GridTable) -> None:
        row = table.source_row()
        if row >= 0:
            self.selection.pick(str(table.grid_model.grid.values[row][0]))
            self._show_selected()

    def _show_selected(self, *_: object) -> None:
        """Mark the picked layer, the first of several cases, in both tables; one of its rows that is marked stays."""
        layer = self.selection.layer
        for table in self.parts[:2]:
            names = [values[0] for values in table.grid_model.grid.values]
            row = table.source_row()
            if row < 0 or names[row] != layer:
                table.show_row(names.index(layer) if layer in names else -1)

    # ------------------------------------------------------------ ways out

    def tables(self) -> tuple[Table, ...]:
        """The differences as shown, and the tables of layers, noise and decisions that have rows."""
        if not self.runs:
            return ()
        only = self.only_different.isChecked()
        return (comparison.facts_table(self.runs, only_different=only), *comparison.tables(self.runs)[1:])

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        h = Html(theme)
        text = h.heading("Runs compared") + h.paragraph(self.caption, muted=True)
        for sentence in (*comparison.noise_sentences(self.runs), *comparison.notes(self.runs)):
            text += h.paragraph(sentence)
        only = self.only_different.isChecked()
        text += _markup(h, facts_grid(self.runs, self.heads, theme, only_different=only))
        for name, grid in zip(PARTS, self._grids(theme), strict=True):
            if grid.texts:
                text += h.heading(name) + _markup(h, grid)
        text += h.paragraph("≠ an option that differs", muted=True)
        return document_page(document(text, theme), width, height or round(width * ASPECT), theme.base)


def _pixmaps(grid: Grid) -> dict[int, QPixmap]:
    return {column: line_swatch(color, pen) for column, color, pen in grid.swatches}


def _markup(h: Html, grid: Grid) -> str:
    return h.grid(grid.heads, grid.texts, grid.words, wide=True)
