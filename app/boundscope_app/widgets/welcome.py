"""The centre while no run is selected: the steps to a first answer, the next one as a button, and the examples."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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
from boundscope_app.steps import RUN, Step
from boundscope_app.widgets.primary import primary_style

TITLE = "How far can a neural network be trusted?"
ABOUT = (
    "Prove that no input violates a property, or find one that does; or measure how much of the answers is rounding "
    "noise."
)
CHOOSE = "Choose a run in the table below to see it here, or begin another:"
READY = "Look at what was read of them in the run form, then run it."
COLUMNS = 2
PAGE_WIDTH_EM = 64
EXPECTED = {
    Verdict.VERIFIED: "is verified",
    Verdict.VIOLATED: "is violated, with a counterexample",
    Verdict.UNKNOWN: "stays unknown",
}


class Welcome(QWidget):
    """Says what to do next, and offers the examples; `example_chosen`, `open_chosen`, `run_chosen`."""

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
        self.title = QLabel(TITLE, self)
        font = self.title.font()
        font.setPointSizeF(font.pointSizeF() * 1.6)
        self.title.setFont(font)
        self.text = QLabel(self)
        self.text.setProperty("role", "muted")
        for label in (self.title, self.text):
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
            label.setWordWrap(True)
            column.addWidget(label)
        self.steps = QLabel(self)
        self.steps.setTextFormat(Qt.TextFormat.RichText)
        self.steps.setWordWrap(True)
        self.steps.setMaximumWidth(PAGE_WIDTH_EM * self.fontMetrics().horizontalAdvance("m"))
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.steps, 20)
        row.addStretch(1)
        column.addLayout(row)
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
        self._steps: tuple[Step, ...] = ()
        self._next = ""
        self._example = examples[0] if examples else None
        self.start.clicked.connect(self._start)
        themes.notifier.changed.connect(self._restyle)
        self._restyle()
        self.show_steps(())

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
        self._write_steps()

    def show_steps(self, steps: Sequence[Step], *, runs: bool = False) -> None:
        """How far the form is filled, and the next step as a button; `runs` says that there are some below."""
        self._steps = tuple(steps)
        waiting = [step for step in steps if not step.done]
        begun = any(step.done for step in steps)
        self._next = waiting[0].button if waiting and (begun or self._example is None) else ""
        self.text.setText(READY if self._next == RUN else CHOOSE if runs and not begun else ABOUT)
        self._examples.setVisible(bool(self.cards) and not begun)
        if self._next:
            self._name_start(self._next, waiting[0].text)
        elif self._example is not None:
            self._name_start(f"Try an example: {self._example.title}", self._example.description)
        self.start.setVisible(bool(self._next) or self._example is not None)
        self.open.setVisible(self._next in ("", RUN))
        self._write_steps()

    def _write_steps(self) -> None:
        colors = themes.current()
        waiting = next((place for place, step in enumerate(self._steps) if not step.done), len(self._steps))
        rows = []
        for place, step in enumerate(self._steps):
            color = colors.good if step.done else colors.text if place == waiting else colors.muted
            mark = "✓" if step.done else f"{place + 1}."
            rows.append(
                f'<tr><td style="color:{color}; padding:3px 10px 3px 0" align="right"><b>{mark}</b></td>'
                f'<td style="color:{colors.text if step.done else color}; padding:3px 0">{escape(step.text)}</td></tr>'
            )
        self.steps.setText(f'<table align="center" cellspacing="0">{"".join(rows)}</table>')
        said = (
            f"{place + 1}{', done' if step.done else ''}: {step.text}"
            for place, step in enumerate(self._steps)
        )
        self.steps.setAccessibleName("; ".join(said))

    def _name_start(self, text: str, tip: str) -> None:
        self.start.setText(text)
        self.start.setAccessibleName(text)
        self.start.setToolTip(tip)

    def _start(self) -> None:
        if self._next == RUN:
            self.run_chosen.emit()
        elif self._next:
            self.open_chosen.emit()
        elif self._example is not None:
            self.example_chosen.emit(self._example)
