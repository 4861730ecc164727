"""One file of a job: typed, browsed for, or kept by the daemon from an earlier run."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from boundscope.protocol import FileRef
from boundscope_app import files
from boundscope_app import theme as themes
from boundscope_app.draft import Source

PLACEHOLDER = "Drop a file or choose one"


class SourceField(QWidget):
    """Shows a path or the name of a kept file; `changed` when another one was chosen."""

    changed = Signal()

    def __init__(
        self, kind: files.Kind, name: str, description: str, file_filter: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._kind = kind
        self._filter = file_filter
        self._source: Source | None = None
        self.folder = ""
        self.line = QLineEdit(self)
        self.line.setPlaceholderText(PLACEHOLDER)
        self.line.setAccessibleName(name)
        self.line.setAccessibleDescription(description)
        self.line.setToolTip(description)
        self.line.setStatusTip(description)
        self.line.setClearButtonEnabled(True)
        self.browse = QPushButton("…", self)
        self.browse.setAccessibleName(f"Choose {name.lower()}")
        self.browse.setToolTip(f"Choose {name.lower()}")
        self.browse.setFixedWidth(self.browse.fontMetrics().horizontalAdvance("…") + 24)
        self._problem = QLabel(self)
        self._problem.setWordWrap(True)
        self._problem.hide()
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.line, 1)
        row.addWidget(self.browse)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addLayout(row)
        column.addWidget(self._problem)
        self.setFocusProxy(self.line)
        self.line.editingFinished.connect(self._typed)
        self.line.textChanged.connect(self._cleared)
        self.browse.clicked.connect(self._browse)
        themes.notifier.changed.connect(self._restyle)
        self._restyle()

    @property
    def source(self) -> Source | None:
        return self._source

    @property
    def problem(self) -> str:
        return self._problem.text()

    def set_source(self, source: Source | None) -> None:
        """Show this file; a path is checked first, and what is wrong with it stands below."""
        problem = self._check(source) if isinstance(source, Path) else None
        before = self._source, self._problem.text()
        self._problem.setText(problem or "")
        self._problem.setVisible(bool(problem))
        self._fit_problem()
        self._show(source)
        self._source = None if problem else source
        if before != (self._source, self._problem.text()):
            self.changed.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_problem()

    def _fit_problem(self) -> None:
        """Ask for all the lines of what is wrong: a form gives a text that wraps the height of one."""
        wanted = self._problem.heightForWidth(max(1, self.width())) if self._problem.text() else 0
        self._problem.setMinimumHeight(max(0, wanted))

    def _check(self, path: Path) -> str | None:
        found = files.problem_with(path)
        if found is None and files.kind_of(path) is not self._kind:
            found = f"{path.name} is not a {self._kind} file."
        return found

    def _show(self, source: Source | None) -> None:
        text = "" if source is None else str(source) if isinstance(source, Path) else source.name
        self.line.blockSignals(True)
        self.line.setText(text)
        self.line.blockSignals(False)
        self.line.setCursorPosition(len(text))
        kept = isinstance(source, FileRef)
        self.line.setToolTip(
            f"{text} (kept by the daemon)" if kept else text or self.line.accessibleDescription()
        )

    def _typed(self) -> None:
        text = self.line.text().strip()
        shown = "" if self._source is None else self._source
        if isinstance(shown, FileRef):
            shown = shown.name
        if text != str(shown) or self._problem.text():
            self.set_source(Path(text).expanduser() if text else None)

    def _cleared(self, text: str) -> None:
        if not text:
            self.set_source(None)

    def _browse(self) -> None:
        start = str(self._source.parent) if isinstance(self._source, Path) else self.folder
        path, _ = QFileDialog.getOpenFileName(self, self.browse.toolTip(), start, self._filter)
        if path:
            self.set_source(Path(path))

    def _restyle(self) -> None:
        self._problem.setStyleSheet(f"color: {themes.current().bad}")
