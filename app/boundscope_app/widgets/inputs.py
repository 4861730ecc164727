"""Fields that can be told from the ground they stand on, in the dark too.

Fusion draws the outline of a field as a darker shade of the window, which nobody sees on a dark window; there a
lighter field is what shows.
"""

from __future__ import annotations

from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QAbstractSpinBox, QLineEdit, QRadioButton, QWidget

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
