"""How the one button that goes on looks."""

from __future__ import annotations

from boundscope_app import theme as themes


def primary_style() -> str:
    """Style sheet of a QPushButton in the accent colour, with a visible focus; for the current theme."""
    theme = themes.current()
    return (
        f"QPushButton {{ color: {theme.accent_text}; background: {theme.accent}; font-weight: bold;"
        f" border: 1px solid {theme.accent}; border-radius: 4px; padding: 5px 16px; }}"
        f"QPushButton:focus {{ border: 2px solid {theme.text}; padding: 4px 15px; }}"
        f"QPushButton:pressed {{ background: {theme.neutral}; }}"
        f"QPushButton:disabled {{ color: {theme.disabled}; background: {theme.button};"
        f" border-color: {theme.border}; }}"
    )
