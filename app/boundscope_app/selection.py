"""The layer that is picked, for all views: what is chosen in one is marked in the others. No widgets."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal


class LayerSelection(QObject):
    """The picked layer of the shown run by the name of its ONNX node; "" where none is picked.

    Each run keeps its own. A run that is shown for the first time takes over the layer of the one before where both
    are of the same network, so that two runs are compared at one place.
    """

    changed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.layer = ""
        self._run, self._network = "", ""
        self._of_run: dict[str, str] = {}

    def pick(self, layer: str) -> None:
        """Mark this layer everywhere; "" marks none."""
        if self._run:
            self._of_run[self._run] = layer
        if layer != self.layer:
            self.layer = layer
            self.changed.emit(layer)

    def show_run(self, run: str, network: str) -> None:
        """Another run is shown; `network` tells whether two runs are of the same one ("" where that is unknown)."""
        if run == self._run:
            return
        inherited = self.layer if network and network == self._network else ""
        self._run, self._network = run, network
        self.pick(self._of_run.get(run, inherited))

    def remember(self, run: str, layer: str) -> None:
        """Mark this layer as soon as the run is shown, as it was at the last time."""
        self._of_run[run] = layer
        if run == self._run:
            self.pick(layer)
