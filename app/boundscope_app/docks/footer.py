"""The foot of the run form, always in sight: what the run needs, why it cannot run yet, Run and Copy."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from boundscope_app import theme as themes
from boundscope_app.widgets.estimate_line import EstimateLine
from boundscope_app.widgets.primary import primary_style


class Footer(QWidget):
    """`why` and `estimate` are hidden while they have nothing to say."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.estimate = EstimateLine()
        self.why = QLabel(wordWrap=True)
        self.why.setAccessibleName("Why it cannot run yet")
        self.run_button, self.copy_button = QPushButton("Run"), QPushButton("Copy as command line")
        self.run_button.setAccessibleName("Run")
        self.run_button.setDefault(True)
        self.copy_button.setAccessibleName("Copy as command line")
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.run_button, 1)
        buttons.addWidget(self.copy_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(10, 6, 10, 10)
        column.setSpacing(6)
        column.addWidget(self.estimate)
        column.addWidget(self.why)
        column.addLayout(buttons)

    def set_problem(self, problem: str) -> None:
        self.why.setText(problem)
        self.why.setVisible(bool(problem))

    def restyle(self) -> None:
        self.why.setStyleSheet(f"color: {themes.current().warn}")
        self.run_button.setStyleSheet(primary_style())
