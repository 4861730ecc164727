"""The network as a graph, its nodes coloured by what is proven or measured of them."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from html import escape

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QKeySequence, QPainter, QShortcut, QStandardItemModel
from PySide6.QtWidgets import QComboBox, QLabel, QLineEdit, QToolButton, QVBoxLayout, QWidget

from boundscope.layers import LayerRow, node_of
from boundscope.protocol import NetworkSummary
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.graph_layout import ROW, Layout, graph_of, laying_out
from boundscope_app.plots.graph_drawing import Emphasis, GraphDrawing, RampBar
from boundscope_app.plots.graph_scene import GraphScene
from boundscope_app.plots.graph_widget import STEP, GraphWidget
from boundscope_app.plots.style import live_style, paper_style
from boundscope_app.selection import LayerSelection
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.graph_columns import columns_for
from boundscope_app.views.graph_model import (
    BY_ID,
    MEASURES,
    cells_of,
    node_lines,
    ramp_of,
    rows_by_node,
    shown_measures,
)
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page

HINT = (
    "Click a node, or use the arrow keys, to choose a layer in all views; drag to move, scroll to zoom, 0 shows all, "
    "Ctrl+F searches."
)
DRAW_SHARE = 0.2  # most of the window's time that drawing takes while large networks are told of
LAYOUT_BUDGET_S = 0.02
MARGIN = 36


class GraphView(View):
    """A layered drawing of the network; picks the layer of all views, and shows theirs."""

    view_id = "graph"
    title = "Graph"
    empty_text = (
        "No network has been read yet.\n\nIts graph appears here as soon as a run has loaded it; the nodes take the "
        "colours of their bounds or of their noise while the run goes on."
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.selection = LayerSelection(self)
        self._network: NetworkSummary | None = None
        self._layout: Layout | None = None
        self._steps: Generator[None, None, Layout] | None = None
        self._rows: dict[str, LayerRow] = {}
        self._numbers: dict[str, int] = {}
        self._drawn: object = None
        self._next_s = 0.0
        self._chosen = False  # whether somebody chose the colours of this run
        self._make_controls()
        self.graph = GraphWidget(live_style(themes.current()))
        self.graph.picked.connect(self._picked)
        self.graph.hovered.connect(self._hovered)
        self.graph.tip = self._tip
        self.reading = QLabel(HINT, wordWrap=True, alignment=Qt.AlignmentFlag.AlignTop)
        self.reading.setFixedHeight(2 * self.fontMetrics().lineSpacing() + 6)
        self.reading.setProperty("role", "muted")
        self.reading.setContentsMargins(10, 3, 10, 3)
        self.reading.setMinimumWidth(1)
        self.reading.setAccessibleName("Values of the node")
        self.reading.setTextFormat(Qt.TextFormat.PlainText)
        content = QWidget()
        layout = QVBoxLayout(content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.graph, 1)
        layout.addWidget(self.reading)
        self.set_content(content)
        self.selection.changed.connect(self._selected)

    def _make_controls(self) -> None:
        self.measure = QComboBox()
        for each in MEASURES:
            self.measure.addItem(each.title, each.id)
        self.measure.setAccessibleName("Colour of the nodes")
        self.measure.setToolTip("What the colours of the nodes stand for")
        self.measure.activated.connect(self._choose)
        self.search = QLineEdit(placeholderText="Find a node or operator", clearButtonEnabled=True)
        self.search.setAccessibleName("Find a node")
        self.search.setToolTip("Enter goes to the next find, Shift+Enter to the one before (Ctrl+F)")
        self.search.textChanged.connect(self._emphasize)
        self.search.returnPressed.connect(self._entered)
        find = QShortcut(QKeySequence(QKeySequence.StandardKey.Find), self)
        find.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        find.activated.connect(lambda: self.search.setFocus(Qt.FocusReason.ShortcutFocusReason))
        self.found = QLabel()
        self.found.setProperty("role", "muted")
        self.controls.addWidget(self.measure)
        self.controls.addWidget(self.search, 1)
        self.controls.addWidget(self.found)
        for text, name, tip, work in (
            ("\u2212", "Zoom out", "Smaller (−)", lambda: self.graph.zoom(1 / STEP)),
            ("+", "Zoom in", "Larger (+)", lambda: self.graph.zoom(STEP)),
            ("Fit", "Show all", "Show the whole graph (0)", lambda: self.graph.show_all()),
        ):
            button = QToolButton()
            button.setText(text)
            button.setAccessibleName(name)
            button.setToolTip(tip)
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            button.clicked.connect(work)
            self.controls.addWidget(button)

    # ------------------------------------------------------------ the run

    def has_data(self, record: JobRecord) -> bool:
        return record.network is not None and bool(record.network.nodes)

    def set_selection(self, selection: LayerSelection) -> None:
        self.selection.changed.disconnect(self._selected)
        self.selection = selection
        selection.changed.connect(self._selected)

    def reset(self) -> None:
        self._drawn, self._next_s, self._chosen = None, 0.0, False
        self._rows = {}
        self.search.clear()
        self.found.setText("")
        self.reading.setText(HINT)

    def theme_changed(self) -> None:
        self.graph.set_style(live_style(themes.current()))

    def _take_network(self, network: NetworkSummary) -> None:
        if network is self._network:
            return
        same, self._network = network == self._network, network
        if same:  # the same graph keeps its places, also for another run of it
            return
        self._layout, self._numbers = None, {}
        self._steps = laying_out(graph_of(network))
        self.graph.show_scene(GraphScene())

    def _arrange(self, until_s: float) -> bool:
        """Go on looking for places; whether they are found."""
        while self._layout is None and self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as done:
                self._layout, self._steps = done.value, None
                nodes = enumerate(done.value.graph.nodes)
                self._numbers = {node.name: number for number, node in nodes if not node.terminal}
            if time.monotonic() > until_s:
                break
        return self._layout is not None

    def draw(self) -> None:
        record = self.record
        assert record is not None
        assert record.network is not None
        start_s = time.monotonic()
        self._take_network(record.network)
        arranged = self._arrange(start_s + LAYOUT_BUDGET_S)
        if not arranged or time.monotonic() > start_s + LAYOUT_BUDGET_S:  # drawing comes the next time
            self.mark_dirty()
            self.reading.setText(f"Arranging {len(record.network.nodes)} nodes …")
            return
        key = (record.last_number, self.measure.currentData(), self.info)
        if self._drawn is not None and key == self._drawn:
            return
        if start_s < self._next_s:
            self.mark_dirty()
            return
        fresh, self._drawn = self._drawn is None, key
        self._rows = rows_by_node(record)
        self._offer_measures()
        self.graph.show_scene(self.scene())
        if fresh:
            self._emphasize()
        self._read(self.graph.emphasis.current)
        self._next_s = start_s + (time.monotonic() - start_s) / DRAW_SHARE

    def _offer_measures(self) -> None:
        """Quantities that this run has no value of cannot be chosen; the first that it has is shown."""
        shown = shown_measures(self._rows)
        model = self.measure.model()
        assert isinstance(model, QStandardItemModel)
        for index, each in enumerate(MEASURES):
            model.item(index).setEnabled(each.id in shown)
        if shown and not self._chosen and self.measure.currentData() not in shown:
            self.measure.setCurrentIndex(self.measure.findData(shown[0]))

    def scene(self) -> GraphScene:
        """What the graph shows now; finds the places first where that was not yet done."""
        assert self.record is not None
        assert self.record.network is not None
        self._take_network(self.record.network)
        self._arrange(math.inf)
        assert self._layout is not None
        measure = BY_ID[self.measure.currentData()]
        ramp = ramp_of(measure, self._rows, self.info, self.record)
        return GraphScene(self._layout, cells_of(self._layout.graph, measure, self._rows, ramp), ramp)

    def _scene_now(self) -> GraphScene:
        """Of all that the run has said: the one on the screen where that shows it."""
        assert self.record is not None
        if self._drawn != (self.record.last_number, self.measure.currentData(), self.info):
            self._rows = rows_by_node(self.record)
            self._offer_measures()
            return self.scene()
        return self.graph.scene

    def _choose(self) -> None:
        self._chosen, self._next_s = True, 0.0
        self.mark_dirty()
        if self.isVisible():
            self.refresh()

    # ------------------------------------------------------------ picking and finding

    def _picked(self, number: int) -> None:
        node = self.graph.scene.layout.graph.nodes[number]
        self.graph.set_emphasis(replace(self.graph.emphasis, current=number))
        self._read(number)
        self.selection.pick("" if node.terminal else self._layer_name(node.name))

    def _layer_name(self, node: str) -> str:
        """The name that other views have for a node: that of the picked layer, where it is one of its outputs."""
        picked = self.selection.layer
        return picked if picked and node_of(picked, self._numbers) == node else node

    def _selected(self, layer: str) -> None:
        current = self.graph.emphasis.current
        nodes = self.graph.scene.layout.graph.nodes
        number = self._numbers.get(node_of(layer, self._numbers), -1) if layer else -1
        if number < 0 and 0 <= current < len(nodes) and nodes[current].terminal and not layer:
            return  # an input or output of the network is picked here; other views have no layer for it
        self.graph.set_emphasis(replace(self.graph.emphasis, current=number))
        self._read(number)

    def _emphasize(self) -> None:
        """Mark what the search finds, and the picked layer."""
        needle = self.search.text().strip().lower()
        nodes = self.graph.scene.layout.graph.nodes
        hits = [
            number
            for number, node in enumerate(nodes)
            if needle and (needle in node.name.lower() or needle in node.op.lower())
        ]
        layer = self.selection.layer
        current = self._numbers.get(node_of(layer, self._numbers), -1) if layer else -1
        self.graph.set_emphasis(Emphasis(current, frozenset(hits)))
        self.found.setText(f"{len(hits)} found" if needle else "")

    def _entered(self) -> None:
        shifted = QGuiApplication.keyboardModifiers() & Qt.KeyboardModifier.ShiftModifier
        self.step_found(-1 if shifted else 1)

    def step_found(self, by: int) -> None:
        """Pick the next node that the search finds, in the network's order, round the end."""
        hits = sorted(self.graph.emphasis.found)
        if not hits:
            return
        now = self.graph.emphasis.current
        if by > 0:
            number = next((hit for hit in hits if hit > now), hits[0])
        else:
            number = next((hit for hit in reversed(hits) if hit < now), hits[-1])
        self._picked(number)
        self.found.setText(f"{hits.index(number) + 1} of {len(hits)}")

    # ------------------------------------------------------------ reading

    def _lines(self, number: int) -> tuple[str, list[tuple[str, str]]]:
        node = self.graph.scene.layout.graph.nodes[number]
        return node.name, node_lines(node, self._rows.get(node.name))

    def _tip(self, number: int) -> str:
        name, lines = self._lines(number)
        rows = "".join(
            f"<tr><td>{escape(key)}&nbsp;&nbsp;</td><td>{escape(value)}</td></tr>" for key, value in lines
        )
        return f"<b>{escape(name)}</b><table>{rows}</table>"

    def _hovered(self, number: int) -> None:
        self._read(number if number >= 0 else self.graph.emphasis.current)

    def _read(self, number: int) -> None:
        if not 0 <= number < len(self.graph.scene.layout.graph.nodes):
            self.reading.setText(HINT)
            self.reading.setToolTip("")
            return
        name, (operator, shape, *lines) = self._lines(number)
        first = f"{name} ({operator[1]}, {shape[1]})"
        text = "  ·  ".join([first, *(f"{key}: {value}" for key, value in lines)])
        self.reading.setText(text)
        self.reading.setToolTip(text)

    # ------------------------------------------------------------ ways out

    def tables(self) -> tuple[Table, ...]:
        """Values of all nodes; the same as without a window."""
        return () if self.record is None or self.record.network is None else (self.record.graph_table(),)

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        h = Html(theme)
        assert self.record is not None
        scene, style = self._scene_now(), paper_style(theme, scale)
        measure = BY_ID[self.measure.currentData()]
        head = document(
            h.heading(f"Graph of the network: {measure.title.lower()}")
            + h.paragraph(self.caption, muted=True),
            theme,
        )
        inner = width - 2 * MARGIN
        head.setDocumentMargin(0)
        head.setTextWidth(inner)
        bar = RampBar(scene, style, inner)
        top = MARGIN + round(head.size().height()) + 28
        least = height or round(width * ASPECT)
        room = least - top - bar.height - 16 - MARGIN
        columns = columns_for(scene.layout, inner, room)
        drawing = GraphDrawing(scene, style)
        bar_top = max(top + columns.height + 16, least - MARGIN - bar.height)

        def steps(painter: QPainter) -> Iterator[None]:
            painter.save()
            painter.translate(MARGIN, MARGIN)
            head.drawContents(painter)
            painter.restore()
            for left, first, last in columns.parts:
                yield
                painter.save()
                painter.translate(MARGIN + left, top)
                painter.scale(columns.scale, columns.scale)
                painter.translate(0, -first * ROW)
                drawing.draw_rows(painter, first, last, columns.scale)
                painter.restore()
            painter.save()
            painter.translate(MARGIN, bar_top)
            bar.draw(painter)
            painter.restore()

        def paint(painter: QPainter) -> None:
            for _ in steps(painter):
                pass

        bottom = max(least, round(bar_top + bar.height) + MARGIN)
        return Page(width, bottom, theme.base, paint, steps)
