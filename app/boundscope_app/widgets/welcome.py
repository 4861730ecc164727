"""The centre while no run is selected: one clear next step, and the examples to begin with."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from boundscope.protocol import Verdict
from boundscope_app import theme as themes
from boundscope_app.examples import Example
from boundscope_app.widgets.primary import primary_style

COLUMNS = 2
PAGE_WIDTH_EM = 64
EXPECTED = {
    Verdict.VERIFIED: "is verified",
    Verdict.VIOLATED: "is violated, with a counterexample",
    Verdict.UNKNOWN: "stays unknown",
}


class Welcome(QWidget):
    """Says what to do first, and offers the examples; `example_chosen`, `open_chosen`, `run_chosen`."""

    example_chosen = Signal(object)  # Example
    open_chosen = Signal()
    run_chosen = Signal()

    def __init__(self, examples: Sequence[Example], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Start page")
        page = QWidget(self)
        self._scroll = QScrollArea(self)
        self._scroll.setWidget(page)
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(self._scroll)
        column = QVBoxLayout(page)
        column.setSpacing(12)
        column.addStretch(2)
        self.title = QLabel("How far can this network be trusted?", self)
        font = self.title.font()
        font.setPointSizeF(font.pointSizeF() * 1.6)
        self.title.setFont(font)
        self.text = QLabel(self)
        self.text.setProperty("role", "muted")
        for label in (self.title, self.text):
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
            label.setWordWrap(True)
            column.addWidget(label)
        self.start = QPushButton(self)
        self.start.setMinimumWidth(280)
        column.addWidget(self.start, 0, Qt.AlignmentFlag.AlignCenter)
        self.open = QPushButton("Open files…", self)
        self.open.setFlat(True)
        self.open.setAccessibleName("Open files")
        self.open.setToolTip("Choose networks, properties or inputs (Ctrl+O)")
        self.open.setAccessibleDescription("Choose networks, properties or inputs to work with")
        self.open.clicked.connect(self.open_chosen)
        column.addWidget(self.open, 0, Qt.AlignmentFlag.AlignCenter)
        self._told = tuple(example.description for example in examples)
        self.cards = tuple(self._card(example) for example in examples)
        self._examples = self._grid()
        middle = QHBoxLayout()
        middle.addStretch(1)
        middle.addWidget(self._examples, 20)
        middle.addStretch(1)
        column.addLayout(middle)
        column.addStretch(3)
        self._ready = False
        self._example = examples[0] if examples else None
        self.start.clicked.connect(self._start)
        themes.notifier.changed.connect(self._restyle)
        self._restyle()
        self.show_first_steps()

    def _card(self, example: Example) -> QPushButton:
        """A button that fills the form with the example."""
        card = QPushButton(example.title, self)
        card.setAccessibleName(f"Example: {example.title}")
        outcome = EXPECTED.get(example.expected, f"ends with {example.expected.value}")
        tip = f"{example.network.name} with method {example.method.value}: {outcome}."
        card.setAccessibleDescription(f"{example.description} {tip}")
        card.setToolTip(tip)
        card.clicked.connect(lambda: self.example_chosen.emit(example))
        return card

    def _grid(self) -> QWidget:
        holder = QWidget(self)
        grid = QGridLayout(holder)
        grid.setContentsMargins(12, 18, 12, 12)
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(4)
        heading = QLabel("Examples that come with Boundscope", holder)
        heading.setProperty("role", "muted")
        grid.addWidget(heading, 0, 0, 1, COLUMNS)
        for place, card in enumerate(self.cards):
            row, column = 1 + 2 * (place // COLUMNS), place % COLUMNS
            about = QLabel(self._told[place], holder, wordWrap=True, alignment=Qt.AlignmentFlag.AlignTop)
            about.setProperty("role", "muted")
            about.setContentsMargins(2, 0, 2, 10)
            grid.addWidget(card, row, column)
            grid.addWidget(about, row + 1, column)
        for column in range(COLUMNS):
            grid.setColumnStretch(column, 1)
        holder.setMaximumWidth(PAGE_WIDTH_EM * self.fontMetrics().horizontalAdvance("m"))
        holder.setVisible(bool(self.cards))
        return holder

    def _restyle(self) -> None:
        self.start.setStyleSheet(primary_style())

    def show_first_steps(self) -> None:
        """Nothing is chosen yet."""
        self.text.setText(
            "Drop a network (ONNX) and a property (VNN-LIB) anywhere in this window, or try an example."
        )
        self._ready = False
        self._examples.setVisible(bool(self.cards))
        self.start.setVisible(self._example is not None)
        if self._example is not None:
            self._name_start(f"Try an example: {self._example.title}", self._example.description)

    def show_ready(self, title: str) -> None:
        """The form is filled; the next step is to run it."""
        self._ready = True
        self._examples.hide()
        self.text.setText(f"{title}: look at what was read of it in the run form, then run it.")
        self._name_start("Run", "Run what the form says (Ctrl+R)")
        self.start.show()

    def _name_start(self, text: str, tip: str) -> None:
        self.start.setText(text)
        self.start.setAccessibleName(text)
        self.start.setToolTip(tip)

    def show_choose(self) -> None:
        """There are runs below, and none is selected."""
        self.show_first_steps()
        self.text.setText("Choose a run in the table below to see it here, or drop a network and a property.")

    def _start(self) -> None:
        if self._ready:
            self.run_chosen.emit()
        elif self._example is not None:
            self.example_chosen.emit(self._example)
