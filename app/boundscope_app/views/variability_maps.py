"""One layer of a variability run, element by element: its feature maps, and the way back to all layers."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from boundscope.records import Table
from boundscope_app import theme as themes
from boundscope_app.plots.feature_maps import INEXACT, MARKS, NONE, FeatureMaps, Spot
from boundscope_app.plots.feature_maps_widget import FeatureMapsWidget
from boundscope_app.plots.style import live_style
from boundscope_app.views.text import count

HINT = "Point at an element to read it; arrow keys choose a channel, Enter enlarges it, Backspace goes back."


class MapsPanel(QWidget):
    """`left` asks to go back to the layers, `reading` has something to say about what is pointed at or chosen."""

    left = Signal()
    reading = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.back = QPushButton("‹ All layers")
        self.back.setAccessibleName("Back to all layers")
        self.back.setAccessibleDescription("Show the heatmap of all layers again")
        self.back.setToolTip("Show the heatmap of all layers again (Backspace)")
        self.back.setAutoDefault(False)
        self.back.clicked.connect(self.left)
        self.title = QLabel(wordWrap=True)
        self.title.setAccessibleName("Layer whose feature maps are shown")
        self.widget = FeatureMapsWidget(live_style(themes.current()))
        self.widget.picked.connect(lambda _tile: self._read(None))
        self.widget.hovered.connect(self._read)
        self.widget.left.connect(self.left)
        head = QHBoxLayout()
        head.setContentsMargins(8, 2, 8, 2)
        head.addWidget(self.back)
        head.addWidget(self.title, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addLayout(head)
        column.addWidget(self.widget, 1)

    @property
    def maps(self) -> FeatureMaps | None:
        return self.widget.maps

    def show_maps(self, maps: FeatureMaps) -> None:
        self.widget.show_maps(maps)
        self.title.setText(maps_title(maps))
        self._read(None)

    def restyle(self) -> None:
        self.widget.set_style(live_style(themes.current()))

    def enter(self) -> None:
        """Put the keyboard focus where the channels are chosen."""
        self.widget.setFocus(Qt.FocusReason.OtherFocusReason)

    def _read(self, spot: Spot | None) -> None:
        maps = self.maps
        if maps is None:
            return
        if spot is not None:
            place = maps.place(spot) if maps.vector else f"{maps.name(spot.tile)}, {maps.place(spot)}"
            self.reading.emit(f"{place}: {maps.value(spot)}")
            return
        mean = maps.means[self.widget.current]
        said = "no element is inexact" if mean is None else f"{mean:.2f} bits on average"
        self.reading.emit(f"{maps.name(self.widget.current)}: {said}  ·  {HINT}")


def maps_title(maps: FeatureMaps) -> str:
    """The layer, its size, and what of it is not shown."""
    told = maps.told
    if maps.vector:
        text = f"{told.layer}: {count(told.width * told.block)} elements"
        text = text if told.block == 1 else f"{told.layer}: in groups of {told.block} elements"
    else:
        channels = f"{count(told.of_channels)} channel{'' if told.of_channels == 1 else 's'}"
        text = f"{told.layer}: {channels} of {told.height} × {told.width}"
        text += "" if told.block == 1 else f" cells, each of {told.block} × {told.block} elements"
    if len(told.channels) < told.of_channels:
        text += f"; the {len(told.channels)} with the fewest bits are shown"
    return text


def maps_table(maps: FeatureMaps) -> Table:
    """The cells that are shown, one row each."""
    rows = []
    for tile, channel in enumerate(maps.told.channels):
        for row in range(maps.bits.shape[1]):
            for column in range(maps.bits.shape[2]):
                kind = int(maps.kinds[tile, row, column])
                if kind != NONE:
                    bits = float(maps.bits[tile, row, column]) if kind == INEXACT else None
                    rows.append((maps.told.layer, channel, row, column, bits, MARKS.get(kind, "")))
    columns = ("layer", "channel", "row", "column", "mean [bits]", "mark")
    return Table("feature_maps", columns, tuple(rows))
