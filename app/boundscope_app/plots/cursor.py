"""One time cursor for all time plots of the window."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal


class TimeCursor(QObject):
    """Where the pointer is on the time axis, in seconds from the start (None: nowhere), and what is pinned."""

    moved = Signal(object)
    pins_changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.time_s: float | None = None
        self.pins: list[float] = []

    def move(self, time_s: float | None) -> None:
        if time_s != self.time_s:
            self.time_s = time_s
            self.moved.emit(time_s)

    def toggle_pin(self, time_s: float, near_s: float = 0.0) -> None:
        """Pin this time; a pin within `near_s` of it is taken away instead."""
        close = [pin for pin in self.pins if abs(pin - time_s) <= near_s]
        if close:
            self.pins.remove(min(close, key=lambda pin: abs(pin - time_s)))
        else:
            self.pins.append(time_s)
            self.pins.sort()
        self.pins_changed.emit()

    def clear_pins(self) -> None:
        if self.pins:
            self.pins.clear()
            self.pins_changed.emit()
