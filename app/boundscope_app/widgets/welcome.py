"""The centre while no run is selected: one clear next step."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from boundscope_app.examples import Example

TEXT_WIDTH_PX = 440


class Welcome(QWidget):
    """Says what to do first, and offers the first example; `example_chosen`, `open_chosen`."""

    example_chosen = Signal(object)  # Example
    open_chosen = Signal()

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
        self._example = examples[0] if examples else None
        self.start.clicked.connect(self._start)
        self.show_first_steps()

    def show_first_steps(self) -> None:
        """Nothing is chosen yet."""
        self.text.setText(
            "Drop a network (ONNX) and a property (VNN-LIB) anywhere in this window, or try an example."
        )
        if self._example is not None:
            self.start.setText(f"Try an example: {self._example.title}")
            self.start.setToolTip(self._example.description)
        self.start.setAccessibleName(self.start.text())
        self.start.setVisible(self._example is not None)

    def show_ready(self, title: str) -> None:
        """The form is filled; the next step is to run it."""
        self.text.setText(
            f"{title} is in the run form. Look at what was read there, then press Run (Ctrl+R)."
        )
        self.start.hide()

    def show_choose(self) -> None:
        """There are runs below, and none is selected."""
        self.show_first_steps()
        self.text.setText("Choose a run in the table below to see it here, or drop a network and a property.")

    def _start(self) -> None:
        if self._example is not None:
            self.example_chosen.emit(self._example)
