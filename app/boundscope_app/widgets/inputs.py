"""Fields that show in the dark too, and that scrolling past them does not change.

Fusion draws the outline of a field as a darker shade of the window, which nobody sees on a dark window; there a
lighter field is what shows.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QAbstractSpinBox, QComboBox, QLineEdit, QRadioButton, QWidget

from boundscope_app import theme as themes


def tint_inputs(parent: QWidget) -> None:
    """Give all line edits, spin boxes and radio buttons inside `parent` a ground of their own."""
    theme = themes.current()
    field_ground = QColor(theme.button if theme.dark else theme.base)
    mark_ground = QColor(theme.border if theme.dark else theme.base)
    for kind, ground in (
        (QLineEdit, field_ground),
        (QAbstractSpinBox, field_ground),
        (QRadioButton, mark_ground),
    ):
        for field in parent.findChildren(kind):
            palette = QPalette()
            palette.setColor(QPalette.ColorGroup.Active, QPalette.ColorRole.Base, ground)
            palette.setColor(QPalette.ColorGroup.Inactive, QPalette.ColorRole.Base, ground)
            field.setPalette(palette)


class WheelGuard(QObject):
    """Leaves the wheel to the scroll area, unless the field has the keyboard focus."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        for kind in (QAbstractSpinBox, QComboBox):
            for field in parent.findChildren(kind):
                field.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Wheel and isinstance(watched, QWidget) and not watched.hasFocus():
            event.ignore()
            return True
        return False
