"""The window's shortcuts, where a text field has the focus."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QAbstractSpinBox, QLineEdit, QWidget

OF_TEXT = ("edit.undo", "edit.redo")  # a field takes back its own letters first


class TextKeys(QObject):
    """Fields of text claim some of the window's keys for editing of their own: on X11, Ctrl+E goes to the end of the
    line. Here the window's meaning wins, besides undo and redo.
    """

    def __init__(self, window: QWidget, actions: Iterable[QAction]) -> None:
        super().__init__(window)
        self._taken = {
            action.shortcut().toString() for action in actions if action.objectName() not in OF_TEXT
        }
        for kind in (QLineEdit, QAbstractSpinBox):
            for field in window.findChildren(kind):
                field.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.ShortcutOverride
            and QKeySequence(event.keyCombination()).toString() in self._taken
        ):
            event.ignore()
            return True
        return super().eventFilter(watched, event)
