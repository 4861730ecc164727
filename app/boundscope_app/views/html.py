"""Small pieces of the rich text that Qt understands, in the colours of a theme."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtGui import QFont, QTextBlock, QTextCursor, QTextDocument, QTextFormat
from PySide6.QtWidgets import QApplication

from boundscope_app.theme import Theme

BODY_PX = 14
MOST_WHOLE = 12  # letters of a text that is not broken in a table; of a single word twice as many


def escape(text: object) -> str:
    # Qt's reader of HTML takes a narrow no-break space for any space, and breaks numbers there.
    return html.escape(str(text)).replace("\u202f", "&nbsp;")


@dataclass(frozen=True)
class Html:
    """Builders of rich text for one theme; texts are escaped unless the argument's name says `markup`."""

    theme: Theme

    def heading(self, text: str) -> str:
        return (
            f'<h2 style="font-size:16px; font-weight:600; margin-top:22px; margin-bottom:6px; '
            f'color:{self.theme.text}">{escape(text)}</h2>'
        )

    def paragraph(self, text: str, *, muted: bool = False) -> str:
        color = self.theme.muted if muted else self.theme.text
        return f'<p style="margin-top:2px; margin-bottom:6px; color:{color}">{escape(text)}</p>'

    def code(self, text: str) -> str:
        return (
            f'<table width="100%" cellspacing="0" cellpadding="8" bgcolor="{self.theme.alternate}"><tr><td>'
            f"<span style=\"font-family:'DejaVu Sans Mono',monospace; font-size:13px\">{escape(text)}</span>"
            f"</td></tr></table>"
        )

    def box(self, markup: str, fill: str) -> str:
        cell = f"<tr><td>{markup}</td></tr>"
        return f'<table width="100%" cellspacing="0" cellpadding="16" bgcolor="{fill}">{cell}</table>'

    def pairs(self, rows: Sequence[tuple[str, str]]) -> str:
        """Names in the muted colour beside their values."""
        name_style = f"color:{self.theme.muted}; padding:3px 24px 3px 0; white-space:nowrap"
        cells = "".join(
            f'<tr><td style="{name_style}">{escape(name)}</td>'
            f'<td style="padding:3px 0">{escape(value)}</td></tr>'
            for name, value in rows
        )
        return f'<table cellspacing="0" cellpadding="0">{cells}</table>'

    def tiles(self, tiles: Sequence[tuple[str, str]]) -> str:
        """A row of figures, each with its name above."""
        part = f' width="{99 // max(1, len(tiles))}%"'
        # Qt rounds widths up: the last tile takes what is left, so that the page is not wider than its window.
        widths = [*[part] * (len(tiles) - 1), ""]
        name_style = f"color:{self.theme.muted}; font-size:12px"
        value_style = "font-size:19px; font-weight:600"
        cells = "".join(
            f'<td{width} style="padding:10px 14px">'
            f'<span style="{name_style}">{escape(name)}</span><br>'
            f'<span style="{value_style}">{escape(value)}</span></td>'
            for (name, value), width in zip(tiles, widths, strict=True)
        )
        return (
            f'<table width="100%" cellspacing="0" bgcolor="{self.theme.alternate}"><tr>{cells}</tr></table>'
        )

    def columns(self, left_markup: str, right_markup: str) -> str:
        """Two columns of equal width."""
        return (
            '<p style="margin:0; font-size:8px">&nbsp;</p>'
            '<table width="100%" cellspacing="0" cellpadding="0"><tr>'
            f'<td width="54%" style="padding-right:28px">{left_markup}</td><td width="46%">{right_markup}</td>'
            "</tr></table>"
        )

    def grid(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        left: frozenset[int] = frozenset(),
        *,
        wide: bool = False,
    ) -> str:
        """A table; columns whose index is in `left` hold words, all others numbers; `wide` fills the page."""

        def line(cells: Sequence[str], style: str) -> str:
            return "".join(
                f'<td align="{"left" if i in left else "right"}" '
                f'style="{style}{_whole(cell)}; padding-left:{12 if i else 0}px">{escape(cell)}</td>'
                for i, cell in enumerate(cells)
            )

        head = f"border-bottom:1px solid {self.theme.border}; padding:4px 12px; color:{self.theme.muted}"
        body = f"border-bottom:1px solid {self.theme.grid}; padding:4px 12px"
        lines = "".join(f"<tr>{line(row, body)}</tr>" for row in rows)
        width = " width='100%'" if wide else ""
        # Printed again on every page that the table goes on to.
        top = f"<thead><tr>{line(columns, head)}</tr></thead>"
        return f"<table{width} cellspacing='0' cellpadding='0'>{top}{lines}</table>"


def _whole(cell: str) -> str:
    """The style that keeps a short text whole: Qt breaks words anywhere where a column is narrow."""
    most = MOST_WHOLE if " " in cell else 2 * MOST_WHOLE
    return "; white-space:nowrap" if len(cell) <= most else ""


def document(markup: str, theme: Theme) -> QTextDocument:
    """A document of this markup in the application's font, body text BODY_PX high."""
    result = QTextDocument()
    result.setUndoRedoEnabled(False)
    fill_document(result, markup, theme)
    return result


def fill_document(target: QTextDocument, markup: str, theme: Theme) -> None:
    """Replace what a document holds."""
    font = QFont(QApplication.font())
    font.setPixelSize(BODY_PX)
    target.setDefaultFont(font)
    target.setHtml(f'<body style="color:{theme.text}">{markup}</body>')
    block = target.begin()
    while block.isValid():
        if block.blockFormat().headingLevel():
            _as_written(block)
        block = block.next()


def _as_written(heading: QTextBlock) -> None:
    """Qt makes headings larger than they are written; their size is that of the markup."""
    cursor = QTextCursor(heading)
    cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
    style = cursor.charFormat()
    style.clearProperty(QTextFormat.Property.FontSizeAdjustment)
    cursor.setCharFormat(style)
    cursor.setBlockCharFormat(style)
