"""How far the daemon is with reading files, below the fields that name them; only where it takes a while."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QWidget

from boundscope.protocol import Progress
from boundscope_app.format import to_go

SHOW_AFTER_MS = 1000
EVERY_MS = 500
BAR_WIDTH_EM = 8


class ReadingLine(QWidget):
    """A bar and how long it still takes, or has taken where nobody knows; hidden until a second has passed."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Progress of reading")
        self._progress: Progress | None = None
        self._heard_s = self._began_s = 0.0
        self.bar = QProgressBar(self, textVisible=False)
        self.bar.setFixedWidth(BAR_WIDTH_EM * self.fontMetrics().horizontalAdvance("m"))
        self.bar.setMaximumHeight(self.fontMetrics().height() // 2)
        self.bar.setAccessibleName("Progress of reading")
        self.text = QLabel(self, wordWrap=True)
        self.text.setAccessibleName("Progress of reading")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.bar)
        row.addWidget(self.text, 1)
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._show)
        self.hide()

    def begin(self) -> None:
        """Something is being read from now on."""
        self._progress, self._began_s = None, time.monotonic()
        self.hide()
        self._timer.start(SHOW_AFTER_MS)

    def end(self) -> None:
        """Nothing is being read."""
        self._timer.stop()
        self.hide()

    def show_progress(self, progress: Progress) -> None:
        """How far it is; nothing where it has ended."""
        self._progress, self._heard_s = progress, time.monotonic()
        if self.isVisible():
            self._show()

    def _show(self) -> None:
        if self._timer.interval() != EVERY_MS:
            self._timer.start(EVERY_MS)
        progress, now_s = self._progress, time.monotonic()
        stage = "handing it to the daemon" if progress is None else progress.stage
        if progress is not None and progress.eta_s is not None:
            rest = to_go(max(0.0, progress.eta_s - (now_s - self._heard_s)))
        else:
            rest = f"{now_s - self._began_s:.0f} s so far"
        total = 0 if progress is None else progress.total
        self.bar.setVisible(total > 0)  # one that moves to and fro looks full where it is so thin
        self.bar.setRange(0, total)
        if progress is not None and total:
            self.bar.setValue(progress.done)
        self.text.setText(f"{stage[0].upper()}{stage[1:]}, {rest}")
        self.text.setAccessibleDescription(self.text.text())
        self.show()
