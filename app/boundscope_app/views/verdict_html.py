"""The verdict page as one HTML file that stands alone: no scripts, nothing from elsewhere, pictures inside."""

from __future__ import annotations

import base64
from html import escape

from PySide6.QtCore import QBuffer, QIODevice
from PySide6.QtGui import QImage

from boundscope.protocol import JobInfo
from boundscope.records import JobRecord
from boundscope_app.theme import Theme
from boundscope_app.views.verdict_text import TWO_COLUMNS_PX, verdict_text

STYLE = """
body {{ margin: 0 auto; max-width: 1100px; padding: 24px; color: {text}; background: {base};
  font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif; }}
table {{ border-collapse: collapse; }}
td {{ vertical-align: top; }}
img {{ image-rendering: pixelated; max-width: 100%; }}
footer {{ margin-top: 28px; color: {muted}; font-size: 12px; }}
@media print {{ body {{ padding: 0; max-width: none; }} tr, img {{ break-inside: avoid; }} }}
"""


def verdict_html(info: JobInfo | None, record: JobRecord, theme: Theme, title: str, caption: str) -> str:
    """The text of the file. What comes from a run is escaped; a picture becomes a data: URI where it stands."""
    page = verdict_text(info, record, theme, with_progress=True, width=TWO_COLUMNS_PX)
    markup = page.markup
    for name, image in page.images.items():
        markup = markup.replace(f'<img src="{name}">', f'<img alt="{escape(name)}" src="{data_uri(image)}">')
    style = STYLE.format(text=theme.text, base=theme.base, muted=theme.muted)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n{markup}\n</main>\n"
        f"<footer>{escape(caption)}</footer>\n</body>\n</html>\n"
    )


def data_uri(image: QImage) -> str:
    """The image as PNG within a URI."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]
    return f"data:image/png;base64,{base64.b64encode(bytes(buffer.data().data())).decode()}"
