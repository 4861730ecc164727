"""The library on the left: examples, networks, properties, inputs, and what was used lately."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import (
    QDockWidget,
    QLabel,
    QLineEdit,
    QMenu,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from boundscope_app import files
from boundscope_app import theme as themes
from boundscope_app.draft import source_name
from boundscope_app.examples import Example
from boundscope_app.widgets.inputs import tint_inputs

PAYLOAD = Qt.ItemDataRole.UserRole
GROUPS = ("Examples", "Networks", "Properties", "Inputs", "Benchmarks", "Recent")
GROUP_OF = {
    files.Kind.NETWORK: "Networks",
    files.Kind.PROPERTY: "Properties",
    files.Kind.CENTER: "Inputs",
    files.Kind.POINTS: "Inputs",
    files.Kind.INSTANCES: "Benchmarks",
}
HINTS = {
    "Examples": "Networks with a property, ready to run",
    "Networks": "Drop ONNX files or a folder on the window to add them",
    "Properties": "Drop VNN-LIB files or a folder on the window to add them",
    "Inputs": "Drop .npy or .png files on the window to use them for an ε-ball",
    "Benchmarks": "Drop an instances.csv on the window to run all that it names",
    "Recent": "What was used lately, newest first",
}
RECENT_SHOWN = 10


class LibraryDock(QDockWidget):
    """`file_chosen` and `example_chosen` when an entry is activated (double click or Enter)."""

    file_chosen = Signal(object)  # Path
    example_chosen = Signal(object)  # Example

    def __init__(self, examples: Iterable[Example], parent: QWidget) -> None:
        super().__init__("Library", parent)
        self.setObjectName("library")
        self.filter = QLineEdit(self)
        self.filter.setPlaceholderText("Filter")
        self.filter.setAccessibleName("Filter the library")
        self.filter.setToolTip("Show only entries whose name or folder has these letters")
        self.filter.setClearButtonEnabled(True)
        self.tree = QTreeWidget(self)
        self.tree.setHeaderHidden(True)
        self.tree.setAccessibleName("Library")
        self.tree.setAccessibleDescription("Enter or a double click puts an entry into the run form")
        self.tree.setRootIsDecorated(True)
        self.tree.setIndentation(14)
        self.tree.setUniformRowHeights(True)
        self.tree.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        hint = QLabel("Double click or Enter: use it", self)
        hint.setProperty("role", "muted")
        hint.setWordWrap(True)
        body = QWidget(self)
        column = QVBoxLayout(body)
        column.setContentsMargins(8, 8, 8, 8)
        column.setSpacing(6)
        column.addWidget(self.filter)
        column.addWidget(self.tree, 1)
        column.addWidget(hint)
        self.setWidget(body)
        self._groups = {name: self._group(name) for name in GROUPS}
        for example in examples:
            item = self._entry("Examples", example.title, f"{example.title}: {example.description}", example)
            item.setData(0, Qt.ItemDataRole.AccessibleDescriptionRole, example.description)
        self.filter.textChanged.connect(self._apply_filter)
        self.tree.itemActivated.connect(self._activate)
        self.tree.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.tree.customContextMenuRequested.connect(self._show_menu)
        self._refresh_groups()
        themes.notifier.changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        tint_inputs(self)

    def add(self, paths: Iterable[Path]) -> int:
        """Add files to their groups, each once; the count of new ones."""
        known = set(self.paths())
        new = 0
        for path in paths:
            kind = files.kind_of(path)
            if kind is not None and path not in known:
                known.add(path)
                self._entry(GROUP_OF[kind], source_name(path), str(path), path)
                new += 1
        self._refresh_groups()
        return new

    def set_recent(self, paths: Iterable[str]) -> None:
        group = self._groups["Recent"]
        group.takeChildren()
        for text in [text for text in paths if Path(text).exists()][:RECENT_SHOWN]:
            self._entry("Recent", source_name(Path(text)), text, Path(text))
        self._refresh_groups()

    def paths(self) -> tuple[Path, ...]:
        """All files added, apart from the recent ones."""
        return tuple(
            item.data(0, PAYLOAD)
            for name in dict.fromkeys(GROUP_OF.values())
            for item in _children(self._groups[name])
        )

    def _group(self, name: str) -> QTreeWidgetItem:
        item = QTreeWidgetItem(self.tree, [name])
        item.setToolTip(0, HINTS[name])
        item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable)
        item.setExpanded(True)
        font = item.font(0)
        font.setBold(True)
        item.setFont(0, font)
        return item

    def _entry(self, group: str, name: str, tip: str, payload: Path | Example) -> QTreeWidgetItem:
        item = QTreeWidgetItem(self._groups[group], [name])
        item.setToolTip(0, tip)
        item.setData(0, PAYLOAD, payload)
        return item

    def _refresh_groups(self) -> None:
        for name, group in self._groups.items():
            count = group.childCount()
            group.setText(0, f"{name} ({count})" if count else name)
            group.setHidden(count == 0)
        self._apply_filter(self.filter.text())

    def _apply_filter(self, text: str) -> None:
        wanted = text.casefold()
        for group in self._groups.values():
            shown = 0
            for child in _children(group):
                fits = wanted in f"{child.text(0)} {child.toolTip(0)}".casefold()
                child.setHidden(not fits)
                shown += fits
            group.setHidden(shown == 0)

    def _activate(self, item: QTreeWidgetItem, _column: int = 0) -> None:
        payload = item.data(0, PAYLOAD)
        if isinstance(payload, Example):
            self.example_chosen.emit(payload)
        elif isinstance(payload, Path):
            self.file_chosen.emit(payload)

    def _show_menu(self, at: QPoint) -> None:
        item = self.tree.itemAt(at)
        if item is None or item.data(0, PAYLOAD) is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("Use in the run form", lambda: self._activate(item))
        if isinstance(item.data(0, PAYLOAD), Path):
            menu.addAction("Remove from the library", lambda: self._remove(item))
        menu.popup(self.tree.viewport().mapToGlobal(at))

    def _remove(self, item: QTreeWidgetItem) -> None:
        parent = item.parent()
        if parent is not None:
            parent.removeChild(item)
            self._refresh_groups()


def _children(item: QTreeWidgetItem) -> list[QTreeWidgetItem]:
    children = (item.child(index) for index in range(item.childCount()))
    return [child for child in children if child is not None]
