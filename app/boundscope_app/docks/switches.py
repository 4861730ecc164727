"""Rows of buttons of which one is pressed, each explained."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QRadioButton


def switch(parent: QObject, choices: Iterable[tuple[int, QRadioButton, str]]) -> QButtonGroup:
    """A group of numbered buttons with their hints; the first is pressed."""
    group = QButtonGroup(parent)
    for number, button, hint in choices:
        button.setToolTip(hint)
        button.setStatusTip(hint)
        button.setAccessibleDescription(hint)
        group.addButton(button, number)
    group.buttons()[0].setChecked(True)
    return group


def in_a_row(group: QButtonGroup) -> QHBoxLayout:
    row = QHBoxLayout()
    for button in group.buttons():
        row.addWidget(button)
    row.addStretch(1)
    return row
