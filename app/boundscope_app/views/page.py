"""A page is a drawing of a view at a given size, and can be written as PNG or SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QRect, QRectF, QSize
from PySide6.QtGui import QColor, QImage, QPainter, QTextDocument
from PySide6.QtSvg import QSvgGenerator

from boundscope.errors import BoundscopeError

MAX_PIXELS = 32_000


@dataclass(frozen=True)
class Page:
    """Width and height in units of 1/96 inch; `paint` draws into a painter whose unit that is.

    Where that takes long, `steps` does the same with pauses in which a window can live.
    """

    width: int
    height: int
    background: str
    paint: Callable[[QPainter], None]
    steps: Callable[[QPainter], Iterator[None]] | None = None

    def paint_steps(self, painter: QPainter) -> Iterator[None]:
        """Paint, with pauses where the page has some."""
        if self.steps is None:
            self.paint(painter)
        else:
            yield from self.steps(painter)


def blank_image(page: Page, scale: float) -> QImage:
    """An image of exactly round(width·scale) × round(height·scale) pixels for the page, with nothing in it yet.

    Raises BoundscopeError where the image would be too large to make.
    """
    width, height = round(page.width * scale), round(page.height * scale)
    image = QImage(width, height, QImage.Format.Format_RGB32)
    if not 0 < width <= MAX_PIXELS or not 0 < height <= MAX_PIXELS or image.isNull():
        raise BoundscopeError(
            f"a picture of {width} × {height} pixels cannot be made; choose at most {MAX_PIXELS} on a side"
        )
    image.setDotsPerMeterX(round(96 * scale / 0.0254))
    image.setDotsPerMeterY(round(96 * scale / 0.0254))
    return image


def page_image(page: Page, scale: float) -> QImage:
    """The page with exactly round(width·scale) × round(height·scale) pixels.

    Raises BoundscopeError where the image would be too large to make.
    """
    image = blank_image(page, scale)
    resolution = image.dotsPerMeterX()
    image.setDotsPerMeterX(round(96 / 0.0254))
    image.setDotsPerMeterY(round(96 / 0.0254))
    image.fill(QColor(page.background))
    painter = QPainter(image)
    painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing)
    painter.scale(image.width() / page.width, image.height() / page.height)
    page.paint(painter)
    painter.end()
    image.setDotsPerMeterX(resolution)
    image.setDotsPerMeterY(resolution)
    return image


def write_png(page: Page, path: Path, scale: float) -> None:
    """Write the page as PNG; raises BoundscopeError naming the path where that fails."""
    save_image(page_image(page, scale), path)


def save_image(image: QImage, path: Path) -> None:
    """Write an image in the format that the path's ending names; raises BoundscopeError where that fails."""
    if not image.save(str(path)):
        raise BoundscopeError(f"cannot write {path}: check that the folder exists and can be written")


def write_svg(page: Page, path: Path, title: str) -> None:
    """Write the page as SVG; raises BoundscopeError naming the path where that fails."""
    if not path.parent.is_dir():
        raise BoundscopeError(f"cannot write {path}: there is no folder {path.parent}")
    generator = QSvgGenerator(QSvgGenerator.SvgVersion.Svg11)
    generator.setFileName(str(path))
    generator.setSize(QSize(page.width, page.height))
    generator.setViewBox(QRect(0, 0, page.width, page.height))
    generator.setResolution(96)
    generator.setTitle(title)
    painter = QPainter()
    if not painter.begin(generator):
        raise BoundscopeError(f"cannot write {path}: check that the file can be written")
    painter.fillRect(QRect(0, 0, page.width, page.height), QColor(page.background))
    page.paint(painter)
    painter.end()


def document_page(
    document: QTextDocument, width: int, min_height: int, background: str, margin: int = 36
) -> Page:
    """A page that holds a whole document: as wide as asked, and as high as the text needs."""
    document.setDocumentMargin(0)
    document.setTextWidth(width - 2 * margin)
    height = max(min_height, round(document.size().height()) + 2 * margin)

    def paint(painter: QPainter) -> None:
        painter.save()
        painter.translate(margin, margin)
        document.drawContents(painter, QRectF(0, 0, width, height))
        painter.restore()

    return Page(width, height, background, paint)
