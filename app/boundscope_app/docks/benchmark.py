"""The part of the run form that a whole benchmark has of its own: its instances.csv, and what that names."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from boundscope.errors import UsageError
from boundscope.instances import files_of, read_instances
from boundscope.protocol import InstancesJob
from boundscope_app import files
from boundscope_app import theme as themes
from boundscope_app.draft import Source
from boundscope_app.format import count, duration
from boundscope_app.widgets.source_field import SourceField

HINT = "VNN-COMP's instances.csv: a line names a network, a property and a time limit in seconds."
CHOOSE = "Choose a benchmark's instances.csv."


class BenchmarkForm(QWidget):
    """`changed` when another file was chosen. `kept` are the instances of an earlier run, where it stands for those."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = SourceField(files.Kind.INSTANCES, "Instances", HINT, files.INSTANCES_FILTER)
        self._kept: InstancesJob | None = None
        self._wrong = ""
        self._words = QLabel(wordWrap=True)
        self._words.setAccessibleName("What the instances are")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.field)
        column.addWidget(self._words)
        self.setFocusProxy(self.field)
        self.field.changed.connect(self._read)
        themes.notifier.changed.connect(self._restyle)
        self._read()

    @property
    def source(self) -> Source | None:
        return self.field.source

    @property
    def kept(self) -> InstancesJob | None:
        return None if self.source is None or isinstance(self.source, Path) else self._kept

    @property
    def problem(self) -> str:
        """Why there is no benchmark to run; "" where there is one."""
        if self.source is None:
            return self.field.problem or CHOOSE
        return self._wrong

    @property
    def words(self) -> str:
        """What stands below the field."""
        return self._words.text()

    def set_benchmark(self, source: Source | None, kept: InstancesJob | None = None) -> None:
        self._kept = kept
        self.field.set_source(source)
        self._read()

    def _read(self) -> None:
        self._wrong, text = "", ""
        kept = self.kept
        if kept is not None:
            sizes = len(kept.instances), len(kept.networks), len(kept.properties)
            text = _summary(*sizes, sum(each.timeout_s for each in kept.instances))
        elif isinstance(self.source, Path):
            try:
                lines = read_instances(self.source)
            except UsageError as error:
                self._wrong = str(error)
            else:
                networks, properties = files_of(lines)
                limit_s = sum(line.timeout_s for line in lines)
                text = _summary(len(lines), len(networks), len(properties), limit_s)
        self._words.setText(text)
        self._words.setVisible(bool(text))
        self._restyle()
        self.changed.emit()

    def _restyle(self) -> None:
        self._words.setStyleSheet(f"color: {themes.current().muted}")


def _summary(instances: int, networks: int, properties: int, limit_s: float) -> str:
    return (
        f"{count(instances, 'instance')} of {count(networks, 'network')} and "
        f"{count(properties, 'property', 'properties')}, one after the other; each has the time limit of its line, "
        f"{duration(limit_s)} at most in all."
    )
