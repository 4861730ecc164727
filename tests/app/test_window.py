"""The window comes back as it was left, and tells things in itself instead of stopping work."""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

from app.window_support import close, show_in_front
from boundscope_app import settings as settings_store
from boundscope_app import theme as themes
from boundscope_app.link import Link
from boundscope_app.main import _Reporter
from boundscope_app.settings import Settings
from boundscope_app.window import MainWindow


def make(qtbot: QtBot, kept: Settings, note: str = "") -> MainWindow:
    window = MainWindow(Link(), kept, note)
    show_in_front(qtbot, window)
    return window


def test_layout_theme_and_view_come_back(qtbot: QtBot, config: Path) -> None:
    first = make(qtbot, Settings())
    first.library.hide()
    first.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, first.form)
    first.set_theme("dark")
    first.tabs.show_view("memory")
    close(first)
    kept, note = settings_store.load()
    assert note == ""
    assert kept.theme == "dark"
    second = make(qtbot, kept)
    assert second.library.isHidden()
    assert second.dockWidgetArea(second.form) is Qt.DockWidgetArea.LeftDockWidgetArea
    assert second.tabs.current_view_id == "memory"
    second.reset_layout()
    assert not second.library.isHidden()
    assert second.dockWidgetArea(second.form) is Qt.DockWidgetArea.RightDockWidgetArea
    second.set_theme("light")
    close(second)


def test_layout_that_is_no_layout_is_ignored(qtbot: QtBot) -> None:
    window = make(qtbot, Settings(geometry=b"nonsense", layout=b"nonsense", view="no such view"))
    assert not window.form.isHidden()
    close(window)


def test_note_about_settings_is_shown(qtbot: QtBot) -> None:
    window = make(qtbot, Settings(), "The settings could not be read.")
    assert window.messages.texts == ("The settings could not be read.",)
    close(window)


def test_messages_do_not_pile_up(lone_window: MainWindow) -> None:
    for number in range(6):
        lone_window.tell("warning", f"message {number % 4}")
    assert lone_window.messages.texts == ("message 3", "message 0", "message 1")
    lone_window.messages.clear()
    assert not lone_window.messages.isVisible()


def test_message_text_is_not_markup(lone_window: MainWindow) -> None:
    lone_window.tell("error", "<img src=x> & more")
    label = lone_window.messages.messages[0].findChild(QLabel)
    assert "&lt;img" in label.text()


def test_delete_asks_in_the_window(lone_window: MainWindow, qtbot: QtBot) -> None:
    lone_window.messages.show_message("warning", "Delete it?", ("Delete", lambda: done.append(1)))
    done: list[int] = []
    button = lone_window.messages.messages[0].findChild(QPushButton)
    button.setFocus()
    qtbot.keyClick(button, Qt.Key.Key_Space)
    assert done == [1]
    assert lone_window.messages.texts == ()


def test_fault_of_ours_is_told_and_kept(lone_window: MainWindow, config: Path) -> None:
    report = _Reporter(lone_window)
    try:
        raise KeyError("gone")
    except KeyError:
        report(*sys.exc_info())  # type: ignore[arg-type]
    assert "fault of Boundscope" in lone_window.messages.texts[0]
    assert "Traceback" not in lone_window.messages.texts[0]
    assert "KeyError" in (config / "workbench-errors.log").read_text()


def test_theme_changes_reach_what_has_colours_of_its_own(lone_window: MainWindow) -> None:
    lone_window.tell("error", "wrong")
    light = lone_window.pill.styleSheet(), lone_window.messages.messages[0].styleSheet()
    lone_window.set_theme("dark")
    dark = lone_window.pill.styleSheet(), lone_window.messages.messages[0].styleSheet()
    assert themes.current() is themes.DARK
    assert all(a != b for a, b in zip(light, dark, strict=True))
    lone_window.set_theme("light")


def test_nothing_is_cut_off_at_the_size_of_a_small_screen(lone_window: MainWindow, qtbot: QtBot) -> None:
    lone_window.resize(1280, 800)
    qtbot.waitUntil(lambda: lone_window.width() <= 1280)
    assert lone_window.minimumSizeHint().width() <= 1280
    assert lone_window.minimumSizeHint().height() <= 800
    scroll = lone_window.form._scroll
    assert scroll.widget().width() <= scroll.viewport().width()
    assert lone_window.form.run_button.isVisible()
    assert lone_window.form.run_button.width() >= lone_window.form.run_button.sizeHint().width()


def test_views_are_reached_by_keyboard(lone_window: MainWindow, qtbot: QtBot) -> None:
    lone_window.tabs.setCurrentIndex(0)
    qtbot.keyClick(lone_window, Qt.Key.Key_PageUp, Qt.KeyboardModifier.ControlModifier)
    assert lone_window.tabs.currentIndex() == lone_window.tabs.count() - 1
    qtbot.keyClick(lone_window, Qt.Key.Key_PageDown, Qt.KeyboardModifier.ControlModifier)
    assert lone_window.tabs.currentIndex() == 0


def test_f1_opens_help_beside_the_work(lone_window: MainWindow, qtbot: QtBot) -> None:
    qtbot.keyClick(lone_window, Qt.Key.Key_F1)
    assert lone_window.help_dialog.isVisible()
    assert not lone_window.help_dialog.isModal()
    qtbot.keyClick(lone_window.help_dialog, Qt.Key.Key_Escape)
    assert not lone_window.help_dialog.isVisible()
