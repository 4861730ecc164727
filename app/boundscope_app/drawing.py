"""A view's page drawn once, in short steps, for all the files that show it: nothing holds the window up for long.

Python's interpreter is locked while Qt paints, so a thread beside would hold the window up as well; steps do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QRect
from PySide6.QtGui import QColor, QImage, QPainter, QPicture

from boundscope_app.views.page import Page, blank_image, write_svg

Result = TypeVar("Result")
Steps = Generator[None, None, Result]  # yields wherever the window may live in between
HINTS = QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing
SHORT_S, LONG_S = 0.02, 0.045  # a strip that took less is followed by one twice as wide, after more by a half
FIRST_SHARE, LEAST_SHARE = 16, 32  # strips are at first, and at least, that part of the picture


def done(steps: Steps[Result]) -> Result:
    """All steps without a pause; what they result in."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


class Drawing:
    """Made of the page at the first use: the page laid out, its painting recorded."""

    def __init__(self, make: Callable[[], Page], title: str) -> None:
        self._make = make
        self._title = title
        self._made: tuple[Page, QPicture] | None = None

    def _recorded(self) -> Steps[tuple[Page, QPicture]]:
        if self._made is None:
            page = self._make()
            yield
            picture = QPicture()
            painter = QPainter(picture)
            painter.setRenderHints(HINTS)
            try:
                for _ in page.paint_steps(painter):
                    yield
            finally:  # also where the steps are left: nothing may go while it is painted on
                painter.end()
            self._made = page, picture
            yield
        return self._made

    def image(self, scale: float) -> Steps[QImage]:
        """The page as round(width·scale) × round(height·scale) pixels; BoundscopeError where that is too large."""
        page, picture = yield from self._recorded()
        image = blank_image(page, scale)
        across = image.width() < image.height()
        length = image.height() if across else image.width()
        done_px, strip_px = 0, -(-length // FIRST_SHARE)
        while done_px < length:
            begin_s = time.thread_time()
            strip_px = min(strip_px, length - done_px)
            if across:
                place = QRect(0, done_px, image.width(), strip_px)
            else:
                place = QRect(done_px, 0, strip_px, image.height())
            _draw_strip(page, picture, image, place)
            yield
            done_px += strip_px
            spent_s = time.thread_time() - begin_s
            if spent_s < SHORT_S:
                strip_px *= 2
            elif spent_s > LONG_S:
                strip_px = max(-(-length // LEAST_SHARE), strip_px // 2)
        return image

    def svg(self, path: Path) -> Steps[None]:
        """Write the page as SVG; BoundscopeError naming the path where that fails."""
        page, picture = yield from self._recorded()
        replayed = Page(
            page.width, page.height, page.background, lambda painter: painter.drawPicture(0, 0, picture)
        )
        write_svg(replayed, path, self._title)


def _draw_strip(page: Page, picture: QPicture, image: QImage, place: QRect) -> None:
    """On an image of its own, for what lies outside of an image costs little, and outside of a clip nearly all."""
    strip = QImage(place.size(), image.format())
    strip.fill(QColor(page.background))
    painter = QPainter(strip)
    painter.setRenderHints(HINTS)
    painter.translate(-place.left(), -place.top())
    painter.scale(image.width() / page.width, image.height() / page.height)
    painter.drawPicture(0, 0, picture)
    painter.end()
    painter.begin(image)
    painter.drawImage(place.topLeft(), strip)
    painter.end()
