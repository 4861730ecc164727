"""What the plots over time share: the linked cursor, pins, the reading below, and the way back from a zoom."""

from __future__ import annotations

from abc import abstractmethod

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from boundscope.records import JobRecord
from boundscope_app.plots.cursor import TimeCursor
from boundscope_app.plots.figure import Figure
from boundscope_app.views.base import View

HINT = "Point to read, click to pin, drag to move, scroll to zoom."
KEYS = "With keys: ← and → move the reading, Space pins it, Home shows all."


class TimeView(View):
    """A view whose x axis is the time since the run's start."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.time_cursor = TimeCursor(self)
        self._figure: Figure | None = None
        self._stale = True
        self._reading = QLabel()
        self._reading.setTextFormat(self._reading.textFormat().PlainText)
        self._reading.setContentsMargins(8, 2, 8, 4)
        self._reading.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._pinned = QLabel()
        self._pinned.setTextFormat(self._pinned.textFormat().PlainText)
        self._pinned.setContentsMargins(8, 2, 8, 0)
        self._pinned.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._pinned.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._pinned.setVisible(False)
        self._reading.setAccessibleName(f"Reading of {self.title}")
        self._connect_cursor()

    @abstractmethod
    def reading_at(self, time_s: float) -> str:
        """One line: what the plot says at this time."""

    @abstractmethod
    def cursor_moved(self) -> None:
        """The cursor stands elsewhere."""

    def add_time_controls(self, figure: Figure) -> None:
        """Put "Show all" and "Clear pins" into the bar and listen to the figure's pointer."""
        self._figure = figure
        self.show_all_button = QToolButton()
        self.show_all_button.setText("Show all")
        self.show_all_button.setToolTip("Undo the zoom")
        self.show_all_button.clicked.connect(figure.show_all)
        self.clear_pins_button = QToolButton()
        self.clear_pins_button.setText("Clear pins")
        self.clear_pins_button.clicked.connect(lambda: self.time_cursor.clear_pins())
        self.controls.addWidget(self.show_all_button)
        self.controls.addWidget(self.clear_pins_button)
        self.controls.addStretch(1)
        figure.zoom_changed.connect(self._zoom_changed)
        figure.hovered.connect(lambda _panel, time_s: self.time_cursor.move(time_s))
        figure.clicked.connect(lambda _panel, time_s, near_s: self.time_cursor.toggle_pin(time_s, near_s))
        self._zoom_changed()

    def with_reading(self, content: QWidget) -> QWidget:
        """The content with the line of readings below it."""
        whole = QWidget()
        layout = QVBoxLayout(whole)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(content, 1)
        layout.addWidget(self._pinned)
        layout.addWidget(self._reading)
        return whole

    # ------------------------------------------------------------ cursor

    def set_time_cursor(self, cursor: TimeCursor) -> None:
        self.time_cursor.moved.disconnect(self._moved)
        self.time_cursor.pins_changed.disconnect(self._moved)
        self.time_cursor = cursor
        self._connect_cursor()
        self._moved()

    def _connect_cursor(self) -> None:
        self.time_cursor.moved.connect(self._moved)
        self.time_cursor.pins_changed.connect(self._moved)

    @property
    def pins(self) -> tuple[float, ...]:
        return tuple(self.time_cursor.pins)

    def reset_time(self) -> None:
        """Another run: no zoom, no pins."""
        self._stale = True
        self.time_cursor.move(None)
        self.time_cursor.clear_pins()
        if self._figure is not None:
            self._figure.show_all()

    def _moved(self, *_: object) -> None:
        if self._figure is None:
            return
        self._figure.set_marks(self.time_cursor.time_s, self.pins)
        self.clear_pins_button.setVisible(bool(self.pins))
        if self.isVisible():
            self.cursor_moved()
            self.show_reading()

    def _zoom_changed(self) -> None:
        assert self._figure is not None
        self.show_all_button.setVisible(self._figure.zoomed)
        self.clear_pins_button.setVisible(bool(self.pins))

    def show_reading(self) -> None:
        """Say what the plot reads at the cursor and at the pins."""
        if self.record is None or not self.has_data(self.record):
            return
        pinned = "\n".join(f"Pinned {self.reading_at(pin)}" for pin in self.pins)
        self._pinned.setText(pinned)
        self._pinned.setVisible(bool(pinned))
        time_s = self.time_cursor.time_s
        text = HINT if time_s is None else self.reading_at(time_s)
        self._reading.setText(text)
        self._reading.setToolTip(f"{text}\n{KEYS}")

    @abstractmethod
    def take_new(self, record: JobRecord) -> bool:
        """Take what is new in the record into the model; whether there was anything."""

    @abstractmethod
    def plot_all(self) -> None:
        """Draw the model."""

    def take(self) -> None:
        """Bring the model up to date, whoever asks, so that the next drawing knows whether it must draw."""
        assert self.record is not None
        self._stale = self.take_new(self.record) or self._stale

    def draw(self) -> None:
        self.take()
        if self._stale:
            self._stale = False
            self.plot_all()
            self.show_reading()

    def theme_changed(self) -> None:
        self._stale = True

    def redraw(self) -> None:
        """Draw again because a choice of the view changed."""
        self._stale = True
        self.mark_dirty()
        if self.isVisible():
            self.refresh()

    def copy_zoom(self, source: Figure, target: Figure) -> None:
        """Make an exported figure show what the screen shows."""
        for mine, other in zip(source.panels, target.panels, strict=False):
            if mine.zoomed:
                other.show_range(mine.box.viewRange())
            else:
                other.show_all()
