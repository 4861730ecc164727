"""Light and dark from one table of named colours, as a Fusion palette.

The offscreen and xcb platforms ignore setColorScheme, so the palette itself is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication

ASSETS = Path(__file__).parent / "views" / "assets"


@dataclass(frozen=True)
class Theme:
    """Named colours as "#rrggbb". Every text colour has at least 4.5:1 on `window`, `base` and `alternate`.

    `series` stay apart under protanopia, deuteranopia and tritanopia (at least 0.11 in OKLab, simulated after
    Machado et al. 2009) and have at least 3:1 on `base`; `good`, `bad` and `warn` always stand beside a word.
    """

    name: str
    dark: bool
    window: str
    base: str
    alternate: str
    button: str
    text: str
    muted: str
    disabled: str
    border: str
    accent: str
    accent_text: str
    grid: str
    good: str
    bad: str
    warn: str
    neutral: str
    good_fill: str
    bad_fill: str
    warn_fill: str
    neutral_fill: str
    series: tuple[str, ...]

    def verdict_colors(self, verdict: str) -> tuple[str, str]:
        """Text colour and fill of a verdict or job state."""
        if verdict in ("verified", "finished"):
            return self.good, self.good_fill
        if verdict in ("violated", "error", "failed", "out_of_memory"):
            return self.bad, self.bad_fill
        if verdict in ("timeout", "unknown", "interrupted", "cancelled", "cancelling", "pausing", "paused"):
            return self.warn, self.warn_fill
        return self.neutral, self.neutral_fill


LIGHT = Theme(
    name="light",
    dark=False,
    window="#f4f5f7",
    base="#ffffff",
    alternate="#f1f3f6",
    button="#e9ecf0",
    text="#1b1f24",
    muted="#545d68",
    disabled="#8b949e",
    border="#c2c9d1",
    accent="#0b5cad",
    accent_text="#ffffff",
    grid="#e2e6ea",
    good="#14692f",
    bad="#b3261e",
    warn="#835400",
    neutral="#3f5873",
    good_fill="#e3f4e7",
    bad_fill="#fdeae8",
    warn_fill="#fdf2dc",
    neutral_fill="#e8eef5",
    series=("#004ac5", "#eb3d08", "#008f5c", "#d264ab", "#371c8d", "#5f4700", "#1a96ff", "#1b221d"),
)

DARK = Theme(
    name="dark",
    dark=True,
    window="#1b1e23",
    base="#14161a",
    alternate="#1d2127",
    button="#2a2f37",
    text="#e6e8eb",
    muted="#a5adb7",
    disabled="#6b737d",
    border="#3b424c",
    accent="#6cb2ff",
    accent_text="#0b1520",
    grid="#282d35",
    good="#5fcf80",
    bad="#ff8f85",
    warn="#f0b849",
    neutral="#9fb8d3",
    good_fill="#16301f",
    bad_fill="#3b1d1b",
    warn_fill="#382b12",
    neutral_fill="#222b36",
    series=("#66a0e7", "#f76e19", "#22dd8c", "#bf7e97", "#8d63f4", "#f4f734", "#a9fdea", "#bcc4ed"),
)

THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


class Notifier(QObject):
    """Says that another theme is now current."""

    changed = Signal()


notifier = Notifier()
_current = [LIGHT]


def current() -> Theme:
    """The theme applied last; LIGHT before that."""
    return _current[0]


def apply(app: QApplication, theme: Theme) -> None:
    """Set the Fusion style, the whole palette and the small style sheet, then tell the views."""
    if app.style().objectName().lower() != "fusion":
        app.setStyle("Fusion")
    app.setPalette(palette(theme))
    sheet = style_sheet(theme)
    if app.styleSheet() != sheet:
        app.setStyleSheet(sheet)
    _current[0] = theme
    notifier.changed.emit()


def palette(theme: Theme) -> QPalette:
    """The theme as a QPalette, disabled group included."""
    role = QPalette.ColorRole
    colors = {
        role.Window: theme.window,
        role.WindowText: theme.text,
        role.Base: theme.base,
        role.AlternateBase: theme.alternate,
        role.Text: theme.text,
        role.Button: theme.button,
        role.ButtonText: theme.text,
        role.BrightText: theme.bad,
        role.ToolTipBase: theme.alternate,
        role.ToolTipText: theme.text,
        role.PlaceholderText: theme.muted,
        role.Highlight: theme.accent,
        role.HighlightedText: theme.accent_text,
        role.Accent: theme.accent,
        role.Link: theme.accent,
        role.LinkVisited: theme.accent,
        role.Light: theme.alternate if theme.dark else theme.base,
        role.Midlight: theme.button,
        role.Mid: theme.border,
        role.Dark: theme.border if theme.dark else "#9aa3ad",
        role.Shadow: "#000000" if theme.dark else "#6b737d",
    }
    result = QPalette()
    for each, name in colors.items():
        result.setColor(each, QColor(name))
    disabled = QPalette.ColorGroup.Disabled
    for each in (
        role.WindowText,
        role.Text,
        role.ButtonText,
        role.ToolTipText,
        role.PlaceholderText,
        role.Link,
    ):
        result.setColor(disabled, each, QColor(theme.disabled))
    result.setColor(disabled, role.Base, QColor(theme.window))
    result.setColor(disabled, role.Button, QColor(theme.window))
    result.setColor(disabled, role.Highlight, QColor(theme.border))
    result.setColor(disabled, role.HighlightedText, QColor(theme.text))
    result.setColor(disabled, role.Accent, QColor(theme.border))
    return result


def style_sheet(theme: Theme) -> str:
    """What the palette alone cannot say: tool tips, header cells, focus, outlines, and small pictures.

    Fusion draws outlines darker than the window, and its crosses in a dark grey, which nobody sees on a dark one:
    fields, marks and title bars get theirs here.
    """
    check, clear, close, floating = (
        (ASSETS / f"{picture}-{theme.name}.svg").as_posix()
        for picture in ("check", "clear", "close", "float")
    )
    return f"""
QToolTip {{
    color: {theme.text}; background: {theme.alternate}; border: 1px solid {theme.border}; padding: 3px;
}}
QHeaderView::section {{
    color: {theme.text}; background: {theme.button}; border: 0; padding: 4px 6px;
    border-right: 1px solid {theme.border}; border-bottom: 1px solid {theme.border};
}}
QLineEdit {{
    color: {theme.text}; background: {theme.base}; border: 1px solid {theme.border}; border-radius: 3px;
    padding: 2px 4px; selection-background-color: {theme.accent}; selection-color: {theme.accent_text};
}}
QLineEdit:focus {{ border-color: {theme.accent}; }}
QLineEdit:disabled {{ color: {theme.disabled}; background: {theme.window}; }}
QAbstractSpinBox QLineEdit, QComboBox QLineEdit {{ border: 0; padding: 0; background: transparent; }}
QCheckBox::indicator, QGroupBox::indicator, QAbstractItemView::indicator {{
    width: 10px; height: 10px; border: 1px solid {theme.muted}; border-radius: 2px; background: {theme.base};
}}
QCheckBox::indicator:checked, QGroupBox::indicator:checked, QAbstractItemView::indicator:checked {{
    background: {theme.accent}; border-color: {theme.accent}; image: url("{check}");
}}
QCheckBox::indicator:focus {{ border-color: {theme.accent}; }}
QRadioButton::indicator {{
    width: 11px; height: 11px; border: 1px solid {theme.muted}; border-radius: 6px; background: {theme.base};
}}
QRadioButton::indicator:checked {{
    border-color: {theme.accent};
    background: qradialgradient(cx: 0.5, cy: 0.5, radius: 0.5, fx: 0.5, fy: 0.5, stop: 0 {theme.accent},
        stop: 0.5 {theme.accent}, stop: 0.6 {theme.base}, stop: 1 {theme.base});
}}
QRadioButton::indicator:focus {{ border-color: {theme.accent}; }}
QRadioButton::indicator:disabled {{ border-color: {theme.border}; background: {theme.window}; }}
QLineEdit > QToolButton {{ qproperty-icon: url("{clear}"); }}
QDockWidget {{ titlebar-close-icon: url("{close}"); titlebar-normal-icon: url("{floating}"); }}
QLabel[role="muted"] {{ color: {theme.muted}; }}
QToolButton:focus {{ border: 1px solid {theme.accent}; border-radius: 3px; }}
"""
