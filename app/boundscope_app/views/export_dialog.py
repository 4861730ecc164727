"""Asks for the size, the scale, the colours and the place of an exported picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSpinBox,
    QWidget,
)

from boundscope_app import theme as themes
from boundscope_app.theme import Theme


@dataclass(frozen=True)
class ExportChoice:
    """What was chosen; `theme` None means the colours on the screen."""

    path: Path
    width_px: int
    scale: float
    theme: Theme | None


class ExportDialog(QDialog):
    """Size, scale (PNG only), colours and path of one picture."""

    def __init__(self, kind: str, stem: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._kind = kind
        self.setWindowTitle(f"Export {kind.upper()}")
        self._path = QLineEdit(str(Path.cwd() / f"{stem}.{kind}"))
        self._path.setMinimumWidth(420)
        browse = QPushButton("Browse…")
        browse.clicked.connect(self._browse)
        self._width = QSpinBox(minimum=320, maximum=10_000, value=1600, singleStep=100, suffix=" px")
        self._scale = QDoubleSpinBox(
            minimum=0.5, maximum=4.0, value=2.0, singleStep=0.5, decimals=1, prefix="× "
        )
        self._result = QLabel()
        self._colours = QComboBox()
        self._colours.addItem("As on the screen", None)
        for theme in themes.THEMES.values():
            self._colours.addItem(theme.name.capitalize(), theme)
        self._lay_out(browse)
        self._width.valueChanged.connect(self._say_result)
        self._scale.valueChanged.connect(self._say_result)
        self._say_result()

    def _lay_out(self, browse: QPushButton) -> None:
        row = QHBoxLayout()
        row.addWidget(self._path, 1)
        row.addWidget(browse)
        form = QFormLayout(self)
        label = QLabel("&File")
        label.setBuddy(self._path)
        form.addRow(label, row)
        form.addRow("&Width", self._width)
        if self._kind == "png":
            form.addRow("&Scale", self._scale)
            form.addRow("", self._result)
        form.addRow("&Colours", self._colours)
        buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Save | QDialogButtonBox.StandardButton.Cancel
        )
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        form.addRow(buttons)

    def _say_result(self) -> None:
        self._result.setText(f"{round(self._width.value() * self._scale.value())} pixels wide")

    def _browse(self) -> None:
        filters = f"{self._kind.upper()} (*.{self._kind})"
        path, _ = QFileDialog.getSaveFileName(self, self.windowTitle(), self._path.text(), filters)
        if path:
            self._path.setText(path)

    def choice(self) -> ExportChoice:
        """What the fields hold now."""
        path = Path(self._path.text()).expanduser()
        if not path.suffix:
            path = path.with_suffix(f".{self._kind}")
        return ExportChoice(path, self._width.value(), self._scale.value(), self._colours.currentData())
