"""The centre while no run is selected: one clear next step."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from boundscope_app import theme as themes
from boundscope_app.examples import Example
from boundscope_app.widgets.primary import primary_style


class Welcome(QWidget):
    """Says what to do first, and offers the first example; `example_chosen`, `open_chosen`, `run_chosen`."""

    example_chosen = Signal(object)  # Example
    open_chosen = Signal()
    run_chosen = Signal()

    def __init__(self, examples: Sequence[Example], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Start page")
        column = QVBoxLayout(self)
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
        self.open.clicked.connect(self.open_chosen)
        column.addWidget(self.open, 0, Qt.AlignmentFlag.AlignCenter)
        column.addStretch(3)
        self._ready = False
        self._example = examples[0] if examples else None
        self.start.clicked.connect(self._start)
        themes.notifier.changed.connect(self._restyle)
        self._restyle()
        self.show_first_steps()

    def _restyle(self) -> None:
        self.start.setStyleSheet(primary_style())

    def show_first_steps(self) -> None:
        """Nothing is chosen yet."""
        self.text.setText(
            "Drop a network (ONNX) and a property (VNN-LIB) anywhere in this window, or try an example."
        )
        self._ready = False
        self.start.setVisible(self._example is not None)
        if self._example is not None:
            self._name_start(f"Try an example: {self._example.title}", self._example.description)

    def show_ready(self, title: str) -> None:
        """The form is filled; the next step is to run it."""
        self._ready = True
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
