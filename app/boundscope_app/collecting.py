"""Python's cyclic garbage collector, kept to the window's thread.

It runs in whichever thread happens to allocate, the network's too, and frees there what it finds. Qt's objects must not
be freed outside of the thread that they live in: a text document, a timer or an item of a plot would take the window
down with it, now and then.
"""

from __future__ import annotations

import gc
import time
from typing import ClassVar

from PySide6.QtCore import QObject, QTimer

LOOK_EVERY_MS = 50
FULL_SHARE = 0.01  # of the time at most goes into looking through all objects
OLDEST = 2


class Collector(QObject):
    """From `begin` to `end`, collections happen in the thread of this object only. Several may overlap."""

    _begun: ClassVar[int] = 0

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._timer = QTimer(self, interval=LOOK_EVERY_MS)
        self._timer.timeout.connect(self.look)
        self._next_full_s = 0.0

    def begin(self) -> None:
        if not self._timer.isActive():
            gc.disable()
            Collector._begun += 1
            self._timer.start()

    def end(self) -> None:
        if self._timer.isActive():
            self._timer.stop()
            Collector._begun -= 1
            if not Collector._begun:
                gc.enable()

    def look(self) -> None:
        """Collect the oldest generation whose turn it is, by Python's own thresholds."""
        due = [number > most > 0 for number, most in zip(gc.get_count(), gc.get_threshold(), strict=True)]
        start_s = time.monotonic()
        if due[OLDEST] and start_s >= self._next_full_s:
            gc.collect(OLDEST)
            end_s = time.monotonic()
            self._next_full_s = end_s + (end_s - start_s) / FULL_SHARE
        elif due[1]:
            gc.collect(1)
        elif due[0]:
            gc.collect(0)
