"""One table of actions feeds menus, shortcuts, palette and help; nothing is reachable by mouse alone."""

from __future__ import annotations

from collections import Counter

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QTabBar,
    QToolBar,
    QWidget,
)
from pytestqt.qtbot import QtBot

from boundscope_app.actions import ACTIONS, MENUS, ActionSet
from boundscope_app.help import shortcut_table
from boundscope_app.widgets.command_palette import score
from boundscope_app.window import MainWindow


def test_ids_and_shortcuts_are_unique_and_every_row_is_complete() -> None:
    assert [name for name, times in Counter(row.id for row in ACTIONS).items() if times > 1] == []
    keys = Counter(QKeySequence(row.shortcut).toString() for row in ACTIONS if row.shortcut)
    assert "" not in keys
    assert [key for key, times in keys.items() if times > 1] == []
    assert all(row.text and row.tip and row.menu in MENUS for row in ACTIONS)


def test_promised_shortcuts_are_there() -> None:
    by_key = {row.shortcut: row.id for row in ACTIONS}
    for key in ("Ctrl+O", "Ctrl+R", "Esc", "Ctrl+K", "F1", "Ctrl+E"):
        assert key in by_key


def test_row_without_handler_is_refused(qtbot: QtBot) -> None:
    owner = QWidget()
    qtbot.addWidget(owner)
    with pytest.raises(ValueError, match=r"run\.start"):
        ActionSet(owner, {row.id: (lambda: None) for row in ACTIONS if row.id != "run.start"})


def test_help_lists_every_shortcut() -> None:
    page = shortcut_table()
    for row in ACTIONS:
        if row.shortcut:
            assert row.tip.replace("&", "&amp;") in page


def test_menus_hold_every_action(lone_window: MainWindow) -> None:
    in_menus = {
        action.objectName()
        for menu in lone_window.menuBar().actions()
        for action in menu.menu().actions()  # type: ignore[attr-defined]
    }
    assert {row.id for row in ACTIONS} <= in_menus


@pytest.mark.parametrize(
    ("query", "text"), [("thd", "Theme: Dark"), ("expa", "Export all…"), ("RL", "Reset layout")]
)
def test_fuzzy_letters_in_order_match(query: str, text: str) -> None:
    assert score(query, text) is not None
    assert score(query[::-1], text) is None


def test_starts_of_words_win() -> None:
    reset, other = score("rl", "Reset layout"), score("rl", "Use earlier")
    assert reset is not None
    assert other is not None
    assert reset > other


def test_palette_by_keyboard_alone(qtbot: QtBot, lone_window: MainWindow) -> None:
    qtbot.keyClick(lone_window, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    palette = lone_window.palette_dialog
    qtbot.waitUntil(palette.isVisible)
    qtbot.keyClicks(palette.field, "dark")
    assert palette.list.currentItem().text() == "Dark"
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert not palette.isVisible()
    assert lone_window.actions_by_id["theme.dark"].isChecked()
    lone_window.set_theme("light")


@pytest.mark.parametrize("place", ["network", "seed"])
def test_every_shortcut_works_while_a_text_field_has_the_focus(lone_window: MainWindow, place: str) -> None:
    """Besides undo and redo: letters come first there. (X11 gives Ctrl+E to the end of the line.)"""
    form = lone_window.form
    field = {"network": form.network.line, "seed": form.choices.seed}[place]
    claimed = set()
    for row in ACTIONS:
        if row.shortcut:
            keys = QKeySequence(row.shortcut)[0]
            event = QKeyEvent(QEvent.Type.ShortcutOverride, keys.key(), keys.keyboardModifiers())
            event.ignore()
            QApplication.sendEvent(field, event)
            if event.isAccepted():
                claimed.add(row.id)
    assert claimed == {"edit.undo", "edit.redo"}


def test_palette_moves_with_arrows_and_closes_with_escape(qtbot: QtBot, lone_window: MainWindow) -> None:
    palette = lone_window.palette_dialog
    palette.open_over(lone_window)
    qtbot.waitUntil(palette.isVisible)
    first = palette.list.currentRow()
    qtbot.keyClick(palette.field, Qt.Key.Key_Down)
    assert palette.list.currentRow() == first + 1
    qtbot.keyClicks(palette.field, "zzzz")
    assert palette.list.count() == 0
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    qtbot.keyClick(palette.field, Qt.Key.Key_Escape)
    assert not palette.isVisible()


def test_palette_does_not_run_what_is_disabled(qtbot: QtBot, lone_window: MainWindow) -> None:
    palette = lone_window.palette_dialog
    palette.open_over(lone_window)
    qtbot.keyClicks(palette.field, "delete run")
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert palette.isVisible()
    palette.hide()


def test_every_control_has_a_name_for_screen_readers(lone_window: MainWindow) -> None:
    kinds = (QAbstractButton, QLineEdit, QComboBox, QAbstractSpinBox, QAbstractItemView)
    nameless = [
        f"{child.metaObject().className()} in {type(child.parentWidget()).__name__}"
        for kind in kinds
        for child in lone_window.findChildren(kind)
        if not (child.accessibleName() or getattr(child, "text", str)()) and not made_by_qt(child)
    ]
    assert nameless == []


def made_by_qt(child: QWidget) -> bool:
    """Parts that Qt makes inside its own widgets: a table's headers, a dock's title buttons, a field's ×."""
    parent = child.parentWidget()
    inside = (
        QAbstractSpinBox,
        QComboBox,
        QLineEdit,
        QTabBar,
        QToolBar,
        QAbstractItemView,
        QAbstractScrollArea,
    )
    if child.objectName() == "qt_menubar_ext_button":
        return True
    names = ("QDockWidgetTitleButton", "QComboBoxListView", "QHeaderView")
    return child.metaObject().className() in names or isinstance(parent, inside)


def test_tab_reaches_the_run_button_from_the_first_field(qtbot: QtBot, lone_window: MainWindow) -> None:
    lone_window.form.run_button.setEnabled(True)
    lone_window.activateWindow()
    lone_window.form.network.line.setFocus()
    seen = set()
    for _ in range(60):
        focus = lone_window.focusWidget()
        if focus is lone_window.form.run_button:
            break
        seen.add(focus)
        lone_window.focusNextChild()
    assert lone_window.focusWidget() is lone_window.form.run_button
    assert lone_window.form.choices.method in seen
