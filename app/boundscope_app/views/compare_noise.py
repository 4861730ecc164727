"""Two measuring runs beside one another on one scale of colours, and how many digits more or fewer one has."""

from __future__ import annotations

import math

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import QComboBox, QLabel, QSplitter, QVBoxLayout, QWidget

from boundscope import comparison
from boundscope.comparison import LETTERS, Run
from boundscope.protocol import VariabilityJob
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.plots.heat import Column, Heat, HeatCell, HeatRow
from boundscope_app.plots.heatmap import HeatmapDrawing, Place
from boundscope_app.plots.heatmap_widget import HeatmapWidget
from boundscope_app.plots.style import live_style, paper_style
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT
from boundscope_app.views.compare import CompareLayersView
from boundscope_app.views.compare_text import noise_grid, signed
from boundscope_app.views.html import Html, document
from boundscope_app.views.page import Page
from boundscope_app.views.text import number
from boundscope_app.views.variability_model import DISTRIBUTION, by_distribution, digits

HINT = "Point at a cell to read its layer; a click, or Up and Down, choose a layer in all views."
MARGIN, BETWEEN = 36, 24
BESIDE_PX = 900
SHARE = 0.62  # of a page's width, for the two runs


def pair_heat(first: Heat, second: Heat, groups: tuple[str, str]) -> Heat:
    """Both runs' columns in one map, on one scale; a layer that one run lacks has empty cells there."""
    columns = tuple(Column(name, group) for group in groups for name in DISTRIBUTION)
    lacking = (HeatCell(),) * len(DISTRIBUTION)
    one, two = ({row.name: row for row in heat.rows} for heat in (first, second))
    rows = []
    for name in dict.fromkeys((*one, *two)):
        left, right = one.get(name), two.get(name)
        cells = (
            *(lacking if left is None else left.cells),
            *(lacking if right is None else right.cells),
        )
        flag = next((row.flag for row in (left, right) if row is not None and row.flag), "")
        rows.append(HeatRow(name, cells, flag))
    full = max(first.full_bits, second.full_bits)
    return Heat(columns, tuple(rows), full, first.column_title)


def difference_heat(pair: Heat, group: str) -> Heat:
    """Bits of the second run minus those of the first; a mark where only one of them has a number."""
    half = len(DISTRIBUTION)
    rows = []
    for row in pair.rows:
        cells = tuple(
            _difference(left, right) for left, right in zip(row.cells[:half], row.cells[half:], strict=True)
        )
        rows.append(HeatRow(row.name, cells))
    found = [abs(cell.bits) for row in rows for cell in row.cells if cell.bits is not None]
    full = max(1, math.ceil(max(found, default=0.0)))
    columns = tuple(Column(name, group) for name in DISTRIBUTION)
    title = "Difference; blue: more significant bits"
    return Heat(columns, tuple(rows), full, title, diverging=True, unit="bits")


def _difference(left: HeatCell, right: HeatCell) -> HeatCell:
    if left.bits is not None and right.bits is not None:
        return HeatCell(right.bits - left.bits)
    if left.mark == right.mark:
        return HeatCell(mark=left.mark, wrong=left.wrong)
    marks = " / ".join(cell.mark or ("–" if cell.bits is None else "number") for cell in (left, right))
    return HeatCell(mark=marks, wrong=left.wrong or right.wrong)


class CompareNoiseView(CompareLayersView):
    """A and B, chosen among the runs that measure: SR beside UD, or one precision beside another."""

    view_id = "compare_variability"
    title = "Variability"
    empty_text = "Fewer than two of these runs have measured noise yet; two are needed to compare them."
    replaces = "variability"
    stands_before = "variability"

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._ids: tuple[str, ...] = ()
        self.first, self.second = QComboBox(), QComboBox()
        for box, name in ((self.first, "First run"), (self.second, "Second run")):
            box.setAccessibleName(name)
            box.setToolTip(f"{name} of the difference: second minus first")
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.currentIndexChanged.connect(self._redraw)
        self.controls.addWidget(self.first)
        self.controls.addWidget(QLabel("and"))
        self.controls.addWidget(self.second)
        self.controls.addStretch(1)
        self.add_end_button()
        self.pair = HeatmapWidget(live_style(themes.current()))
        self.pair.setAccessibleName("Heatmap of the significant bits of two runs")
        self.difference = HeatmapWidget(live_style(themes.current()))
        self.difference.setAccessibleName("Heatmap of the difference of significant bits")
        bars = self.pair.verticalScrollBar(), self.difference.verticalScrollBar()
        bars[0].valueChanged.connect(bars[1].setValue)
        bars[1].valueChanged.connect(bars[0].setValue)
        for each in (self.pair, self.difference):
            each.picked.connect(self._pick)
            each.hovered.connect(lambda place, each=each: self._hovered(each, place))
        self.reading = QLabel(HINT, wordWrap=True, alignment=Qt.AlignmentFlag.AlignTop)
        self.reading.setFixedHeight(2 * self.fontMetrics().lineSpacing() + 6)
        self.reading.setProperty("role", "muted")
        self.reading.setContentsMargins(10, 3, 10, 3)
        self.reading.setMinimumWidth(1)
        self.reading.setAccessibleName("Reading of the picked layer")
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        for part in (self.pair, self.difference):
            self.splitter.addWidget(part)
        self.splitter.setSizes([620, 380])
        self.splitter.setChildrenCollapsible(False)
        content = QWidget()
        layout = QVBoxLayout(content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.notes)
        layout.addWidget(self.splitter, 1)
        layout.addWidget(self.reading)
        self.set_content(content)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The difference stands beside the two runs where there is room, and below them where there is not."""
        super().resizeEvent(event)
        wide = self.width() >= BESIDE_PX
        beside = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        if beside is not self.splitter.orientation():
            self.splitter.setOrientation(beside)
            self.splitter.setSizes([620, 380] if wide else [500, 500])

    # ------------------------------------------------------------ the runs

    def suits(self, info: object) -> bool:
        return sum(isinstance(run.info.job, VariabilityJob) for run in self.runs) >= comparison.LEAST_RUNS

    def has_data(self, record: JobRecord) -> bool:
        return len(self._with_noise()) >= comparison.LEAST_RUNS

    def _with_noise(self) -> tuple[int, ...]:
        """Places of the runs that have measured something."""
        return tuple(
            place
            for place, run in enumerate(self.runs)
            if run.record.noise or (run.record.variability is not None and run.record.variability.layers)
        )

    def reset(self) -> None:
        """No maps of other runs, of which a picked layer would be read."""
        for each in (self.pair, self.difference):
            each.show_heat(Heat())

    def theme_changed(self) -> None:
        for each in (self.pair, self.difference):
            each.set_style(live_style(themes.current()))

    def _offer(self) -> None:
        """Offer the runs that have measured something; those chosen stay chosen."""
        places = self._with_noise()
        ids = tuple(self.runs[place].info.id for place in places)
        heads = [self.heads[place] for place in places]
        texts = [self.first.itemText(index) for index in range(self.first.count())]
        if ids == self._ids and heads == texts:
            return
        self._ids = ids
        for box, start in ((self.first, 0), (self.second, 1)):
            chosen = box.currentData()
            box.blockSignals(True)
            box.clear()
            for job_id, head in zip(ids, heads, strict=True):
                box.addItem(head, job_id)
            box.setCurrentIndex(ids.index(chosen) if chosen in ids else start)
            box.blockSignals(False)

    def chosen(self) -> tuple[int, int]:
        """Places of the first and the second run."""
        self._offer()
        ids = [run.info.id for run in self.runs]
        return ids.index(self.first.currentData()), ids.index(self.second.currentData())

    def chosen_runs(self) -> tuple[Run, Run]:
        first, second = self.chosen()
        return self.runs[first], self.runs[second]

    def heats(self) -> tuple[Heat, Heat]:
        """The two runs, and their difference."""
        first, second = self.chosen()
        one, two = (by_distribution(run.info, run.record) for run in self.chosen_runs())
        pair = pair_heat(one, two, (self.heads[first], self.heads[second]))
        return pair, difference_heat(pair, f"{LETTERS[second]} − {LETTERS[first]}")

    def draw(self) -> None:
        pair, difference = self.heats()
        self.show_notes(self._sentences())
        self.pair.show_heat(pair)
        self.difference.show_heat(difference)
        self._show_selected()

    def _sentences(self) -> tuple[str, ...]:
        if len(set(self.chosen())) < 2:
            return ("Both sides show one run: choose another for one of them.",)
        return (*comparison.noise_sentences(self.runs), *self._flips())

    def _flips(self) -> tuple[str, ...]:
        return tuple(
            f"{row.layer}: decisions flipped "
            + ", ".join(
                f"{LETTERS[place]} {flipped} of {row.decisions[place]}"
                for place, flipped in enumerate(row.flipped)
                if flipped is not None
            )
            for row in comparison.decision_rows(self.runs)
        )

    # ------------------------------------------------------------ layers

    def _pick(self, row: int) -> None:
        if 0 <= row < len(self.pair.heat.rows):
            self.selection.pick(self.pair.heat.rows[row].name)
            self._show_selected()

    def _show_selected(self, *_: object) -> None:
        names = [row.name for row in self.pair.heat.rows]
        layer = self.selection.layer
        row = names.index(layer) if layer in names else -1
        self.pair.set_current(row)
        self.difference.set_current(row)
        self.reading.setText(HINT if row < 0 else self.layer_reading(row))

    def _hovered(self, widget: HeatmapWidget, place: Place | None) -> None:
        if place is None:
            self._show_selected()
            return
        text = self.layer_reading(place.row)
        if place.column is not None and place.column < len(widget.heat.columns):
            head, cell = widget.heat.columns[place.column], widget.heat.rows[place.row].cells[place.column]
            bits = signed(cell.bits) if widget.heat.diverging else number(cell.bits, 4)
            text = f"{head.group}, {head.name}: {cell.mark or f'{bits} bits'}  ·  {text}"
        self.reading.setText(text)

    def layer_reading(self, row: int) -> str:
        """One layer in a line: mean bits and decimal digits of both runs, and their difference."""
        cells = self.pair.heat.rows[row].cells
        mean = DISTRIBUTION.index("mean")
        pair = cells[mean], cells[len(DISTRIBUTION) + mean]
        parts = [self.pair.heat.rows[row].name]
        for place, cell in zip(self.chosen(), pair, strict=True):
            said = (
                cell.mark
                or f"mean {number(cell.bits, 4)} bits ({number(digits(cell.bits), 3)} decimal digits)"
            )
            parts.append(f"{self.heads[place]}: {said}")
        one, two = (digits(cell.bits) for cell in pair)
        if one is not None and two is not None:
            parts.append(f"difference {signed(two - one)} decimal digits")
        return "  ·  ".join(parts)

    # ------------------------------------------------------------ ways out

    def tables(self) -> tuple[Table, ...]:
        """The cells of both maps, one row each; and the layers with their mean digits."""
        if not self.runs or len(self._with_noise()) < comparison.LEAST_RUNS:
            return ()
        pair, difference = self.heats()
        half = len(DISTRIBUTION)
        rows = []
        for row, apart in zip(pair.rows, difference.rows, strict=True):
            for place, name in enumerate(DISTRIBUTION):
                left, right = row.cells[place], row.cells[half + place]
                cells = (left.bits, left.mark, right.bits, right.mark, apart.cells[place].bits)
                rows.append((row.name, name, *cells))
        one, two = (self.heads[place].replace("  ", " ") for place in self.chosen())
        columns = (
            "layer",
            "over its elements",
            f"{one} [bits]",
            f"mark of {one}",
            f"{two} [bits]",
            f"mark of {two}",
            f"{two} minus {one} [bits]",
        )
        return (
            Table("compare_variability", columns, tuple(rows)),
            comparison.noise_comparison_table(self.runs),
        )

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        h = Html(theme)
        above = h.heading("Significant bits of two runs, and their difference")
        above += h.paragraph(self.caption, muted=True)
        above += "".join(h.paragraph(each) for each in self._sentences())
        grid = noise_grid(self.runs, self.heads, theme)
        below = h.heading("Mean significant digits") + h.grid(grid.heads, grid.texts, grid.words, wide=True)
        head, tail = document(above, theme), document(below, theme)
        inner = width - 2 * MARGIN
        for part in (head, tail):
            part.setDocumentMargin(0)
            part.setTextWidth(inner)
        left = round(inner * SHARE)
        pair, difference = self.heats()
        style = paper_style(theme, scale)
        maps = HeatmapDrawing(pair, style, left), HeatmapDrawing(difference, style, inner - left - BETWEEN)
        top = MARGIN + round(head.size().height()) + 12
        high = max(round(each.head_px + each.rows_px + each.foot_px) for each in maps)
        tail_top = top + high + 12

        def paint(painter: QPainter) -> None:
            painter.save()
            painter.translate(MARGIN, MARGIN)
            head.drawContents(painter, QRectF(0, 0, inner, head.size().height()))
            painter.translate(0, top - MARGIN)
            maps[0].draw(painter, high)
            painter.translate(left + BETWEEN, 0)
            maps[1].draw(painter, high)
            painter.translate(-left - BETWEEN, tail_top - top)
            tail.drawContents(painter)
            painter.restore()

        needed = tail_top + round(tail.size().height()) + MARGIN
        return Page(width, max(height or round(width * ASPECT), needed), theme.base, paint)
