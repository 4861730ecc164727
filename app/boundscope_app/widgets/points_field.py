"""The points of a run that measures noise: one file, a folder of images, or files that the daemon kept."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from boundscope_app import files
from boundscope_app import theme as themes
from boundscope_app.noise_draft import Points, points_problem

HINT = "The points to run: a .npy or .npz file with points along the first axis, a PNG, or a folder of PNG images."


class PointsField(QWidget):
    """`changed` when other points were chosen."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._points: Points | None = None
        self.line = QLineEdit(self)
        self.line.setPlaceholderText("Drop a file or a folder, or choose one")
        self.line.setClearButtonEnabled(True)
        self.line.setAccessibleName("Points")
        self.line.setAccessibleDescription(HINT)
        self.line.setToolTip(HINT)
        self.line.setStatusTip(HINT)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.line, 1)
        for text, name, slot in (
            ("…", "Choose a file of points", self._browse),
            ("Folder…", "Choose a folder of images", self._browse_folder),
        ):
            button = QPushButton(text, self)
            button.setAccessibleName(name)
            button.setToolTip(name)
            button.setFixedWidth(button.fontMetrics().horizontalAdvance(text) + 24)
            button.clicked.connect(slot)
            row.addWidget(button)
        self._problem = QLabel(self)
        self._problem.setWordWrap(True)
        self._problem.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addLayout(row)
        column.addWidget(self._problem)
        self.setFocusProxy(self.line)
        self.line.editingFinished.connect(self._typed)
        self.line.textChanged.connect(self._cleared)
        themes.notifier.changed.connect(self._restyle)
        self._restyle()

    @property
    def points(self) -> Points | None:
        return self._points

    @property
    def problem(self) -> str:
        return self._problem.text()

    def set_points(self, points: Points | None) -> None:
        """Show these; what is wrong with them stands below."""
        before = self._points, self.problem
        problem = None if points is None else points_problem(points)
        self._problem.setText(problem or "")
        self._problem.setVisible(bool(problem))
        self._points = None if problem else points
        self.line.blockSignals(True)
        self.line.setText(shown_text(points))
        self.line.blockSignals(False)
        self.line.setToolTip(shown_text(points) or HINT)
        if before != (self._points, self.problem):
            self.changed.emit()

    def _typed(self) -> None:
        text = self.line.text().strip()
        if text != shown_text(self._points) or self.problem:
            self.set_points(Path(text).expanduser() if text else None)

    def _cleared(self, text: str) -> None:
        if not text:
            self.set_points(None)

    def _start(self) -> str:
        return str(self._points.parent) if isinstance(self._points, Path) else ""

    def _browse(self) -> None:
        path, _ = QFileDialog.getOpenFileName(
            self, "Choose a file of points", self._start(), files.POINTS_FILTER
        )
        if path:
            self.set_points(Path(path))

    def _browse_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(self, "Choose a folder of images", self._start())
        if path:
            self.set_points(Path(path))

    def _restyle(self) -> None:
        self._problem.setStyleSheet(f"color: {themes.current().bad}")


def shown_text(points: Points | None) -> str:
    """Path or name, or how many there are."""
    if isinstance(points, tuple):
        return points[0].name if len(points) == 1 else f"{len(points)} files kept by the daemon"
    return "" if points is None else str(points)
