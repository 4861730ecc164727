"""Long work of the window itself, in the status bar: what, how far, how long to go, and Cancel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QWidget

from boundscope_app.format import to_go

BAR_WIDTH_EM = 12
SHOWN_CHARACTERS = 48


@dataclass(frozen=True)
class Work:
    """`total` 0 where nobody knows it; `cancel` None where it cannot be cancelled."""

    doing: str
    done: int
    total: int
    eta_s: float | None
    cancel: Callable[[], object] | None


class WorkStrip(QWidget):
    """Shows the work that was heard of last, and hides once all has ended."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("work-strip")
        self.setAccessibleName("Work under way")
        self._works: dict[str, Work] = {}
        self.text = QLabel(self)
        self.text.setAccessibleName("Work under way")
        self.bar = QProgressBar(self, textVisible=False)
        self.bar.setFixedWidth(BAR_WIDTH_EM * self.fontMetrics().horizontalAdvance("m"))
        self.bar.setMaximumHeight(self.fontMetrics().height() // 2)
        self.bar.setAccessibleName("Progress of the work under way")
        self.button = QPushButton("Cancel", self)
        self.button.setFlat(True)
        self.button.setAccessibleName("Cancel the work under way")
        self.button.setToolTip("End this work; what it has done so far stays")
        self.button.clicked.connect(self._cancel)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 6, 0)
        row.addWidget(self.text)
        row.addWidget(self.bar, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.button)
        self.hide()

    @property
    def works(self) -> tuple[str, ...]:
        return tuple(self._works)

    def show_work(
        self,
        name: str,
        doing: str,
        done: int,
        total: int,
        eta_s: float | None = None,
        cancel: Callable[[], object] | None = None,
    ) -> None:
        """Tell of a work by its name, or how far it has come."""
        self._works.pop(name, None)
        self._works[name] = Work(doing, done, total, eta_s, cancel)
        self._show()

    def end_work(self, name: str) -> None:
        self._works.pop(name, None)
        self._show()

    def _show(self) -> None:
        self.setVisible(bool(self._works))
        if not self._works:
            return
        name, work = next(reversed(self._works.items()))
        text = name if not work.doing else f"{name}: {work.doing}"
        if len(text) > SHOWN_CHARACTERS:
            text = text[: SHOWN_CHARACTERS - 1] + "…"
        if work.eta_s is not None:
            text += f", {to_go(work.eta_s)}"
        self.text.setText(text)
        self.text.setAccessibleDescription(text)
        self.setToolTip(f"{name}: {work.doing}")
        self.bar.setRange(0, min(work.total, 1000))
        if work.total:
            self.bar.setValue(work.done * min(work.total, 1000) // work.total)
        self.button.setVisible(work.cancel is not None)

    def _cancel(self) -> None:
        cancels = [work.cancel for work in reversed(self._works.values()) if work.cancel is not None]
        if cancels:
            cancels[0]()
