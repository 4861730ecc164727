"""Noise of rounding, layer by layer: a heatmap of significant bits, and the tables behind it."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QComboBox,
    QLabel,
    QPushButton,
    QSplitter,
    QStackedWidget,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from boundscope.protocol import LayerNoise
from boundscope.records import JobRecord, Table, noise_table, variability_tables
from boundscope_app import theme as themes
from boundscope_app.plots.feature_maps import FeatureMaps, FeatureMapsDrawing
from boundscope_app.plots.heat import Heat
from boundscope_app.plots.heatmap import HeatmapDrawing, Place
from boundscope_app.plots.heatmap_widget import HeatmapWidget
from boundscope_app.plots.style import Style, live_style, paper_style
from boundscope_app.selection import LayerSelection
from boundscope_app.theme import Theme
from boundscope_app.views import variability_text as words
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.cell_table import CellModel, CellTable
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page
from boundscope_app.views.text import count, number
from boundscope_app.views.variability_maps import MapsPanel, maps_table, maps_title
from boundscope_app.views.variability_model import (
    by_distribution,
    by_samples,
    digits,
    flag_of,
    full_bits,
    layers_now,
    mark_of,
)

HINT = (
    "Point at a cell to read its layer; a click, or Up and Down, choose a layer; a double click, or Enter, shows its "
    "feature maps."
)
MAPS_TIP = (
    "Show the bits of the chosen layer element by element: a picture a channel (Enter, or a double click)"
)
NO_MAPS_TIP = "Choose a layer first; feature maps are there once the run has ended"
MARGIN = 36
BESIDE_PX = 900
DRAW_SHARE = 0.2  # most of the window's time that drawing takes while large networks are told of


class VariabilityView(View):
    """Heatmap layer × distribution or samples, and beside it the layers, proof and measurement."""

    view_id = "variability"
    title = "Variability"
    empty_text = (
        "No noise has been measured.\n\nA variability run repeats a network under stochastic arithmetic and shows here "
        "how many bits of every layer are significant.\n\nChoose “Variability” in the run form, give it a network and "
        "points, and press Run."
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._drawn: object = None
        self._next_s = 0.0
        self.selection = LayerSelection(self)
        self.selection.changed.connect(self._show_selected)
        self.columns = QComboBox()
        self.columns.addItems(("Distribution", "Samples so far"))
        self.columns.setAccessibleName("Columns of the heatmap")
        self.columns.setToolTip("What the columns are: how bits spread over a layer, or how they settle")
        self.columns.currentIndexChanged.connect(self._redraw)
        self.controls.addWidget(self.columns)
        self.maps_button = QPushButton("Feature maps")
        self.maps_button.setAutoDefault(False)
        self.maps_button.clicked.connect(lambda: self.open_maps(self.selection.layer))
        self.controls.addWidget(self.maps_button)
        self.controls.addStretch(1)
        self.words = QLabel(wordWrap=True)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.words.setAccessibleName("Coverage, baseline and decisions")
        self.words.setContentsMargins(10, 0, 10, 6)
        self.words.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        self.heatmap = HeatmapWidget(live_style(themes.current()))
        self.heatmap.picked.connect(self._pick)
        self.heatmap.hovered.connect(self._hovered)
        self.heatmap.opened.connect(lambda row: self.open_maps(self.heatmap.heat.rows[row].name))
        self.maps = MapsPanel()
        self.maps.left.connect(self.close_maps)
        self.maps.reading.connect(self._say)
        self.picture = QStackedWidget()
        self.picture.addWidget(self.heatmap)
        self.picture.addWidget(self.maps)
        self._make_tables()
        self.reading = QLabel(HINT, wordWrap=True, alignment=Qt.AlignmentFlag.AlignTop)
        self.reading.setFixedHeight(2 * self.fontMetrics().lineSpacing() + 6)
        self.reading.setProperty("role", "muted")
        self.reading.setContentsMargins(10, 3, 10, 3)
        self.reading.setMinimumWidth(1)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        for index, part in enumerate((self.picture, self.tabs)):
            self.splitter.addWidget(part)
            self.splitter.setStretchFactor(index, 1)
        self.splitter.setChildrenCollapsible(False)
        content = QWidget()
        layout = QVBoxLayout(content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.words)
        layout.addWidget(self.splitter, 1)
        layout.addWidget(self.reading)
        self.set_content(content)
        self._offer_maps()

    def _make_tables(self) -> None:
        named = frozenset({0, 1})
        self.layers = CellTable(
            CellModel(words.LAYER_COLUMNS, named, words.layer_text, words.LAYER_TIPS), "Noise of the layers"
        )
        self.deployed = CellTable(
            CellModel(words.DEPLOYED_COLUMNS, named, words.deployed_text, words.DEPLOYED_TIPS),
            "Proof and measurement of the layers",
        )
        for table in (self.layers, self.deployed):
            table.selectionModel().selectionChanged.connect(lambda *_, table=table: self._row_chosen(table))
            table.activated.connect(lambda _index: self.open_maps(self.selection.layer))
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self.layers, "Layers")
        self.tabs.addTab(self.deployed, "Proven and observed")
        self.tabs.setTabVisible(1, False)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The tables stand beside the heatmap where there is room, and below it where there is not."""
        super().resizeEvent(event)
        beside = Qt.Orientation.Horizontal if self.width() >= BESIDE_PX else Qt.Orientation.Vertical
        if beside is not self.splitter.orientation():
            self.splitter.setOrientation(beside)
            wide = beside is Qt.Orientation.Horizontal
            self.splitter.setSizes([500, 500] if wide else [620, 380])

    # ------------------------------------------------------------ the run

    def has_data(self, record: JobRecord) -> bool:
        return bool(record.noise) or (record.variability is not None and bool(record.variability.layers))

    def waiting_text(self) -> str:
        if self.record is not None and self.record.variability is not None:
            return f"Nothing was measured.\n\n{self.record.variability.reason}"
        if self.shows_variability and self.info is not None:
            ended = self.info.state.ended
            return (
                "The run ended before anything was measured."
                if ended
                else "The first noise shows as soon as a rank has taken two samples."
            )
        return f"This run proves and does not measure.\n\n{self.empty_text}"

    def reset(self) -> None:
        self._drawn, self._next_s = None, 0.0
        self.heatmap.set_current(-1)
        self.heatmap.verticalScrollBar().setValue(0)
        self.reading.setText(HINT)
        self.tabs.setCurrentIndex(0)
        self._show_picture(self.heatmap)

    def theme_changed(self) -> None:
        self.heatmap.set_style(live_style(themes.current()))
        self.maps.restyle()

    def _redraw(self) -> None:
        self._next_s = 0.0
        self.mark_dirty()
        if self.isVisible():
            self.refresh()

    def heat(self) -> Heat:
        """What the heatmap shows now."""
        assert self.record is not None
        make = by_distribution if self.columns.currentIndex() == 0 else by_samples
        return make(self.info, self.record)

    def draw(self) -> None:
        assert self.record is not None
        told = sum(len(each) for each in self.record.noise.values())
        key = (told, self.record.variability, self.info, self.columns.currentIndex())
        if self._drawn is not None and key == self._drawn:
            return
        start_s = time.monotonic()
        if start_s < self._next_s:
            self.mark_dirty()
            return
        self._drawn = key
        self._draw_all()
        self._next_s = start_s + (time.monotonic() - start_s) / DRAW_SHARE

    def _draw_all(self) -> None:
        assert self.record is not None
        self.words.setText("\n".join(words.sentences(self.info, self.record)))
        self.heatmap.show_heat(self.heat())
        rows = words.layer_cells(self.record)
        self.layers.set_rows(rows)
        for column in (words.CAUSED, words.NAN, words.INFINITE):
            self.layers.setColumnHidden(column, not any(row[column] for row in rows))
        deployed = words.deployed_cells(self.record)
        self.deployed.set_rows(deployed)
        self.tabs.setTabVisible(1, bool(deployed))
        self._show_selected()

    # ------------------------------------------------------------ layers

    def set_selection(self, selection: LayerSelection) -> None:
        self.selection.changed.disconnect(self._show_selected)
        self.selection = selection
        selection.changed.connect(self._show_selected)

    def _row_chosen(self, table: CellTable) -> None:
        row = table.source_row()
        if row >= 0 and table.selectionModel().isRowSelected(table.currentIndex().row()):
            self.selection.pick(str(table.cells.rows[row][0]))
            self._show_selected()

    def _pick(self, row: int) -> None:
        if 0 <= row < len(self.heatmap.heat.rows):
            self.selection.pick(self.heatmap.heat.rows[row].name)
            self._show_selected()

    # ------------------------------------------------------------ feature maps

    def maps_of(self, layer: str) -> FeatureMaps | None:
        """The pictures of a layer, where the run told them."""
        told = None if self.record is None else self.record.maps.get(layer)
        if told is None or self.record is None:
            return None
        return FeatureMaps(told, full_bits(self.info, layers_now(self.record)))

    @property
    def open_layer(self) -> str:
        """The layer whose feature maps are shown; "" where the heatmap of all layers is."""
        maps = self.maps.maps
        return maps.told.layer if maps is not None and self.picture.currentWidget() is self.maps else ""

    def open_maps(self, layer: str) -> None:
        """Show a layer element by element; nothing happens where there is no picture of it."""
        maps = self.maps_of(layer)
        if maps is None:
            return
        self.selection.pick(layer)
        self._show_picture(self.maps)
        self.maps.show_maps(maps)
        self.maps.enter()
        self._offer_maps()

    def close_maps(self) -> None:
        """Back to the heatmap of all layers, with the layer still chosen."""
        self._show_picture(self.heatmap)
        self.heatmap.setFocus(Qt.FocusReason.OtherFocusReason)
        self._show_selected()

    def _show_picture(self, picture: QWidget) -> None:
        """The heatmap, or feature maps, which need the room of the words above."""
        self.picture.setCurrentWidget(picture)
        self.words.setVisible(picture is self.heatmap)

    def _follow_maps(self) -> None:
        """Where maps are shown and another layer is picked, in whatever view, show its maps, or else all layers."""
        if not self.open_layer or self.open_layer == self.selection.layer:
            return
        maps = self.maps_of(self.selection.layer)
        if maps is None:
            self._show_picture(self.heatmap)
        else:
            self.maps.show_maps(maps)

    def _offer_maps(self) -> None:
        there = self.record is not None and self.selection.layer in self.record.maps
        self.maps_button.setEnabled(there and not self.open_layer)
        self.columns.setEnabled(not self.open_layer)
        tip = MAPS_TIP if there else NO_MAPS_TIP
        self.maps_button.setToolTip(tip)
        self.maps_button.setAccessibleDescription(tip)

    def _say(self, text: str) -> None:
        if self.open_layer:
            self.reading.setText(text)
            self.reading.setToolTip(text)

    def _show_selected(self, *_: object) -> None:
        """Mark the picked layer in heatmap and tables."""
        layer = self.selection.layer
        names = [row.name for row in self.heatmap.heat.rows]
        row = names.index(layer) if layer in names else -1
        self.heatmap.set_current(row)
        for table in (self.layers, self.deployed):
            named = [cells[0] for cells in table.cells.rows]
            table.show_row(named.index(layer) if layer in named else -1)
        self._follow_maps()
        self._offer_maps()
        if self.open_layer:
            return
        if row >= 0:
            self._read(row, None)
        else:
            self.reading.setText(HINT)

    def _hovered(self, place: Place | None) -> None:
        if place is not None:
            self._read(place.row, place.column)
        elif self.heatmap.current >= 0:
            self._read(self.heatmap.current, None)
        else:
            self.reading.setText(HINT)

    def _read(self, row: int, column: int | None) -> None:
        assert self.record is not None
        layers = layers_now(self.record)
        if row >= len(layers):
            return
        text = layer_reading(layers[row])
        heat = self.heatmap.heat
        if column is not None and column < len(heat.columns):
            cell, head = heat.rows[row].cells[column], heat.columns[column]
            name = f"{head.group} after {head.name} samples" if head.group else head.name
            value = cell.mark or ("–" if cell.bits is None else f"{cell.bits:.2f} bits")
            text = f"{name}: {value}  ·  {text}"
        self.reading.setText(text)
        self.reading.setToolTip(text)

    # ------------------------------------------------------------ ways out

    def tables(self) -> tuple[Table, ...]:
        """Layers, decisions, coverage, sources, proof and measurement; while it runs the layers as told so far."""
        if self.record is None or not self.has_data(self.record):
            return ()
        result = self.record.variability
        tables = (noise_table(layers_now(self.record)),) if result is None else variability_tables(result)
        if self.open_layer and self.maps.maps is not None:
            return (*tables, maps_table(self.maps.maps))
        return (*tables, samples_table(self.heat())) if self.columns.currentIndex() else tables

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        assert self.record is not None
        h = Html(theme)
        above = h.heading("Significant bits of every layer") + h.paragraph(self.caption, muted=True)
        above += "".join(h.paragraph(each) for each in words.sentences(self.info, self.record))
        if self.open_layer and self.maps.maps is not None:
            above += h.paragraph(maps_title(self.maps.maps))
        head, tail = document(above, theme), document(words.tables_markup(h, self.record), theme)
        inner = width - 2 * MARGIN
        for part in (head, tail):
            part.setDocumentMargin(0)
            part.setTextWidth(inner)
        drawing, map_high = self._picture(paper_style(theme, scale), inner)
        map_top = MARGIN + round(head.size().height()) + 12
        tail_top = map_top + map_high + 12
        needed = tail_top + round(tail.size().height()) + MARGIN

        def paint(painter: QPainter) -> None:
            painter.save()
            painter.translate(MARGIN, MARGIN)
            head.drawContents(painter)
            painter.translate(0, map_top - MARGIN)
            drawing.draw(painter, map_high)
            painter.translate(0, tail_top - map_top)
            tail.drawContents(painter)
            painter.restore()

        return Page(width, max(height or round(width * ASPECT), needed), theme.base, paint)

    def _picture(self, style: Style, width: float) -> tuple[HeatmapDrawing | FeatureMapsDrawing, int]:
        """What is shown, to be drawn on paper, and how high it is."""
        maps = self.maps.maps
        if self.open_layer and maps is not None:
            only = self.maps.widget.current if self.maps.widget.enlarged else None
            grid = FeatureMapsDrawing(maps, style, width, only=only)
            return grid, round(grid.rows_px + grid.foot_px)
        heatmap = HeatmapDrawing(self.heat(), style, width)
        return heatmap, round(heatmap.head_px + heatmap.rows_px + heatmap.foot_px)


def samples_table(heat: Heat) -> Table:
    """The cells of a heatmap over samples, one row each."""
    rows = tuple(
        (row.name, column.group, int(column.name), cell.bits, cell.mark)
        for row in heat.rows
        for column, cell in zip(heat.columns, row.cells, strict=True)
    )
    return Table("noise_by_samples", ("layer", "samples of", "samples", "mean [bits]", "mark"), rows)


def layer_reading(noise: LayerNoise) -> str:
    """One layer in a line."""
    parts = [f"{noise.layer} ({noise.op})", f"{count(noise.elements)} elements, {count(noise.exact)} exact"]
    if noise.mean_bits is None:
        parts.append(mark_of(noise))
    else:
        parts.append(
            f"bits: mean {noise.mean_bits:.2f} ({number(digits(noise.mean_bits), 3)} decimal digits), "
            f"median {number(noise.median_bits, 4)}, least {number(noise.least_bits, 4)}"
        )
    parts.append(f"{noise.samples} samples")
    return "  ·  ".join(part for part in (*parts, flag_of(noise)) if part)
