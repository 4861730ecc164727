"""What is drawn in steps is what is drawn at once, at any shape and scale, but for the rounding of smoothed edges."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer
from pytestqt.qtbot import QtBot

from app.streaming import small_record
from boundscope.errors import BoundscopeError
from boundscope_app import theme as themes
from boundscope_app.drawing import Drawing, done
from boundscope_app.views import BoundGapView, GraphView, LayersView, MemoryView
from boundscope_app.views.base import View
from boundscope_app.views.page import Page, page_image
from boundscope_app.window import apply_theme

WIDTH_PX = 800


def pixels(image: QImage) -> np.ndarray:
    """[height, width, 4], 0 to 255."""
    made = image.convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(made.constBits(), np.uint8).reshape(made.height(), made.width(), 4).astype(int)


def shown(qtbot: QtBot, kind: type[View]) -> View:
    apply_theme("light")
    view = kind()
    qtbot.addWidget(view)
    view.set_run(None, small_record(3000, 150))
    view.refresh()
    return view


def page_of(view: View) -> Page:
    return view.page(WIDTH_PX, None, themes.current(), 1.0)


@pytest.mark.parametrize("scale", [1.0, 1.5])
@pytest.mark.parametrize(
    "kind", [BoundGapView, MemoryView, LayersView, GraphView], ids=lambda kind: kind.view_id
)
def test_steps_draw_what_one_stroke_draws(qtbot: QtBot, kind: type[View], scale: float) -> None:
    view = shown(qtbot, kind)
    steps = Drawing(lambda: page_of(view), "").image(scale)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            image: QImage = end.value
            break
        pauses += 1
    whole = page_image(page_of(view), scale)
    assert (image.size(), image.dotsPerMeterX()) == (whole.size(), whole.dotsPerMeterX())
    difference = np.abs(pixels(image) - pixels(whole)).max(axis=2)
    assert pauses >= 3
    assert difference.max() <= 8, "more than the rounding of smoothed edges"
    assert len(np.unique(pixels(whole))) > 8


def test_an_svg_of_what_was_recorded_shows_the_same(qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(qtbot, GraphView)
    done(Drawing(lambda: page_of(view), "").svg(tmp_path / "steps.svg"))
    view.export_svg(tmp_path / "once.svg", width_px=WIDTH_PX)
    images = []
    for name in ("steps", "once"):
        renderer = QSvgRenderer(str(tmp_path / f"{name}.svg"))
        image = QImage(renderer.defaultSize(), QImage.Format.Format_RGB32)
        image.fill(QColor("white"))
        painter = QPainter(image)
        renderer.render(painter)
        painter.end()
        images.append(pixels(image))
    assert (images[0] == images[1]).all()
    assert len(np.unique(images[0])) > 8


def test_a_page_is_laid_out_and_recorded_once_for_all_its_files(qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(qtbot, MemoryView)
    made = []

    def make() -> Page:
        made.append(page_of(view))
        return made[-1]

    drawing = Drawing(make, "")
    done(drawing.image(1.0))
    done(drawing.svg(tmp_path / "it.svg"))
    done(drawing.image(0.5))
    assert len(made) == 1


@pytest.mark.parametrize("kind", [GraphView, MemoryView], ids=lambda kind: kind.view_id)
def test_a_drawing_can_be_left_at_any_step(qtbot: QtBot, qtlog: Any, kind: type[View]) -> None:
    """As when an export is cancelled: Qt has nothing to complain of, and the next file finds all it needs."""
    view, count = shown(qtbot, kind), 0
    while True:
        drawing = Drawing(lambda: page_of(view), "")
        steps = drawing.image(1.0)
        left = sum(1 for _ in itertools.islice(steps, count))
        steps.close()
        assert done(drawing.image(1.0)).width() == WIDTH_PX
        if left < count:
            break
        count += 1
    assert count > 3
    assert [record.message for record in qtlog.records] == []


def test_too_large_a_picture_is_refused_in_words(qtbot: QtBot) -> None:
    view = shown(qtbot, MemoryView)
    with pytest.raises(BoundscopeError, match="cannot be made"):
        done(Drawing(lambda: page_of(view), "").image(60.0))
