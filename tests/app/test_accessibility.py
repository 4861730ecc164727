"""Everything by keyboard and by screen reader: names, descriptions, the way of Tab, colours that all tell apart."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QDockWidget,
    QLineEdit,
    QPlainTextEdit,
    QTabBar,
    QTextBrowser,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.test_actions import made_by_qt
from app.views.test_theme import VISION, contrast, linear, oklab
from app.window_support import APP_PATHS, LIMIT_S
from boundscope_app import theme
from boundscope_app.actions import ACTIONS
from boundscope_app.plots.heatmap import DIVERGING, shades
from boundscope_app.theme import Theme
from boundscope_app.window import MainWindow

CONTROLS = (
    QAbstractButton,
    QLineEdit,
    QComboBox,
    QAbstractSpinBox,
    QAbstractItemView,
    QTextBrowser,
    QPlainTextEdit,
)
BOTH = pytest.mark.parametrize("colors", [theme.LIGHT, theme.DARK], ids=lambda each: each.name)


def controls(parent: QWidget) -> list[QWidget]:
    """Every control that people use inside a widget; parts that Qt makes inside its own are Qt's to describe."""
    found = {child: None for kind in CONTROLS for child in parent.findChildren(kind) if not made_by_qt(child)}
    return list(found)


def told(widget: QWidget) -> str:
    """How a failure names it."""
    return f"{type(widget).__name__} {widget.accessibleName() or getattr(widget, 'text', str)()!r} in " + (
        type(widget.parentWidget()).__name__
    )


def test_every_action_says_what_it_does(lone_window: MainWindow) -> None:
    for row in ACTIONS:
        action = lone_window.actions_by_id[row.id]
        assert action.text()
        assert action.statusTip(), row.id
        assert action.toolTip() != action.text(), row.id


def test_every_control_has_a_name_and_says_more_where_it_is_pointed_at(lone_window: MainWindow) -> None:
    """A name for screen readers; and, beyond what the name says, a description, tool tip, placeholder or status tip."""
    nameless, silent = [], []
    for control in controls(lone_window):
        if not (control.accessibleName() or getattr(control, "text", str)()):
            nameless.append(told(control))
        more = (control.accessibleDescription(), control.toolTip(), control.statusTip())
        if not any(more) and not getattr(control, "placeholderText", str)():
            silent.append(told(control))
    assert nameless == []
    assert silent == []


def test_every_dock_view_and_dialog_has_a_name(lone_window: MainWindow) -> None:
    for dock in lone_window.findChildren(QDockWidget):
        assert dock.windowTitle()
        assert dock.accessibleName() or dock.windowTitle()
    for view in lone_window.tabs.views:
        assert view.accessibleName()
    for dialog in (lone_window.remote_dialog, lone_window.help_dialog, lone_window.palette_dialog):
        assert dialog.windowTitle() or dialog.accessibleName()


def reached(window: QWidget) -> set[QWidget]:
    """All that the focus comes to, going by Tab from where it is until it comes round."""
    found: set[QWidget] = set()
    first = QApplication.focusWidget()
    for _ in range(400):
        focus = QApplication.focusWidget()
        if focus is not None:
            found.update((focus, *ancestors(focus)))
        window.focusNextChild()
        if QApplication.focusWidget() is first and len(found) > 3:
            break
    return found


def ancestors(widget: QWidget) -> list[QWidget]:
    """A field inside a spin box takes the focus for it."""
    parent, found = widget.parentWidget(), []
    while parent is not None:
        found.append(parent)
        parent = parent.parentWidget()
    return found


def usable(control: QWidget) -> bool:
    return control.isVisible() and control.isEnabled() and control.window().isVisible()


@pytest.mark.parametrize("job", ["as_proof", "as_measurement", "as_benchmark"])
def test_tab_reaches_every_control_that_can_be_used(lone_window: MainWindow, qtbot: QtBot, job: str) -> None:
    """In each form of the run form. Buttons of one choice are one stop, whose arrows lead on; menus have Alt."""
    getattr(lone_window.form, job).setChecked(True)
    lone_window.form.network.line.setFocus()
    lone_window.activateWindow()
    qtbot.waitUntil(lambda: QApplication.focusWidget() is not None)
    found = reached(lone_window)
    missed = [
        told(control)
        for control in controls(lone_window)
        if usable(control)
        and control.window() is lone_window
        and control not in found
        and not (isinstance(control, QAbstractButton) and control.autoExclusive())
        and not (isinstance(control, QAbstractButton) and control.group() is not None)
        and not isinstance(control.parentWidget(), QTabBar)
    ]
    assert missed == []


def test_tab_goes_round_in_the_dialog_of_hosts(lone_window: MainWindow, qtbot: QtBot) -> None:
    lone_window.actions_by_id["file.connect"].trigger()
    dialog = lone_window.remote_dialog
    dialog.add_button.click()
    dialog.activateWindow()
    qtbot.waitUntil(lambda: dialog.isActiveWindow() and QApplication.focusWidget() is not None)
    found = reached(dialog)
    assert [told(each) for each in controls(dialog) if usable(each) and each not in found] == []
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


@BOTH
def test_text_of_the_palette_can_be_read_on_its_ground(colors: Theme) -> None:
    """4.5 : 1 (WCAG 2.2, 1.4.3) for every pair that Qt draws; what is disabled is exempt there, and has 3 : 1 here."""
    palette, role = theme.palette(colors), QPalette.ColorRole
    pairs = [
        (role.WindowText, role.Window),
        (role.Text, role.Base),
        (role.Text, role.AlternateBase),
        (role.PlaceholderText, role.Base),
        (role.ButtonText, role.Button),
        (role.HighlightedText, role.Highlight),
        (role.ToolTipText, role.ToolTipBase),
        (role.Link, role.Base),
        (role.Link, role.Window),
    ]
    for text, ground in pairs:
        for group in (QPalette.ColorGroup.Active, QPalette.ColorGroup.Inactive):
            names = [palette.color(group, each).name() for each in (text, ground)]
            assert contrast(*names) >= 4.5, (text, ground, names)
    for text, ground in ((role.Text, role.Base), (role.WindowText, role.Window)):
        disabled = [palette.color(QPalette.ColorGroup.Disabled, each).name() for each in (text, ground)]
        assert contrast(*disabled) >= 2.8, disabled


def seen_lightness(colors: Sequence[tuple[int, int, int]], matrix: np.ndarray) -> list[float]:
    """OKLab lightness of each, to a kind of vision."""
    names = [QColor(*color).name() for color in colors]
    return [float(oklab(np.clip(matrix @ linear(name), 0, 1))[0]) for name in names]


@pytest.mark.parametrize("vision", ["all colours", *VISION])
def test_colour_maps_rise_evenly_for_every_kind_of_vision(vision: str) -> None:
    """Lightness rises all along the map, so that order is seen without hue; the ends of differences differ."""
    matrix = VISION.get(vision, np.eye(3))
    lightness = seen_lightness(shades()[::8], matrix)
    assert all(after > before for before, after in itertools.pairwise(lightness))
    assert lightness[-1] - lightness[0] > 0.4
    fewer, _, middle, _, more = (color for _, color in DIVERGING)
    for end in (fewer, more):
        low, high = seen_lightness((end, middle), matrix)
        assert high - low > 0.3
    sides = [oklab(np.clip(matrix @ linear(QColor(*each).name()), 0, 1)) for each in (fewer, more)]
    assert np.linalg.norm(sides[0] - sides[1]) > 0.11


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_the_window_starts_at_every_scale(scale: int) -> None:
    """100 to 300 %: shown, and no label of the form or the toolbar is narrower than its text."""
    code = (
        "import sys; from pathlib import Path; from PySide6.QtWidgets import QApplication, QAbstractButton\n"
        "app = QApplication([])\n"
        "from boundscope_app.window import MainWindow, apply_theme\n"
        "from boundscope_app.link import Link; from boundscope_app.settings import Settings\n"
        "apply_theme('light'); window = MainWindow(Link(Path('nowhere')), Settings()); window.show()\n"
        "app.processEvents()\n"
        "cut = [b.text() for b in window.findChildren(QAbstractButton) if b.isVisible() and b.text()\n"
        "       and b.width() < b.fontMetrics().horizontalAdvance(b.text().replace('&', ''))]\n"
        "print(app.primaryScreen().devicePixelRatio(), cut); window.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": APP_PATHS, "QT_SCALE_FACTOR": str(scale)}
    environment["QT_QPA_PLATFORM"] = "offscreen"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout.strip() == f"{scale}.0 []", done.stderr
