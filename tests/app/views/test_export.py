"""Pictures have exactly the size asked for, vectors hold every point, and failures are sentences."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer
from pytestqt.qtbot import QtBot

from app.views import sample_instances, sample_noise
from app.views import sample_records as samples
from boundscope.errors import BoundscopeError
from boundscope.protocol import GapPoint, Verdict
from boundscope.records import JobRecord
from boundscope_app import theme
from boundscope_app.views import (
    VIEWS,
    BoundGapView,
    InstancesView,
    MemoryView,
    VariabilityView,
    VerdictView,
    View,
)

ALL_VIEWS = pytest.mark.parametrize("view_type", VIEWS, ids=lambda v: v.view_id)


def own_record(view_type: type[View], verdict: Verdict = Verdict.VERIFIED) -> JobRecord:
    """A finished run that this view shows."""
    if view_type is InstancesView:
        return samples.record_of((0, event) for event in sample_instances.ended_events())
    noise = view_type is VariabilityView
    return samples.record_of(sample_noise.finished_events() if noise else samples.finished_events(verdict))


def shown(qtbot: QtBot, view_type: type[View], record: JobRecord) -> View:
    view = view_type()
    qtbot.addWidget(view)
    view.resize(1000, 640)
    view.set_run(samples.job_info(ranks=4), record)
    view.show()
    view.refresh()
    return view


def inked(image: QImage) -> float:
    """Mean distance from white, 0 to 1."""
    grey = image.convertToFormat(QImage.Format.Format_Grayscale8)
    rows = np.frombuffer(grey.constBits(), dtype=np.uint8).reshape(grey.height(), grey.bytesPerLine())
    return float(1 - rows[:, : grey.width()].mean() / 255)


def svg_points(path: Path, color: str) -> np.ndarray:
    """All corners of the polylines and paths of this stroke colour, as [points, 2]."""
    text = path.read_text(encoding="utf-8")
    groups = re.findall(rf'<g [^>]*stroke="{color}"[^>]*>(.*?)</g>', text, flags=re.DOTALL)
    numbers: list[float] = []
    for group in groups:
        for data in re.findall(r'<(?:path|polyline)[^>]*(?:\bd|points)="([^"]*)"', group):
            numbers += [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", data)]
    return np.array(numbers).reshape(-1, 2)


@ALL_VIEWS
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_png_of_a_plot_has_exactly_the_pixels_asked_for(
    qtbot: QtBot, tmp_path: Path, view_type: type[View], scale: float
) -> None:
    view = shown(qtbot, view_type, own_record(view_type))
    path = tmp_path / "picture.png"
    view.export_png(path, width_px=1200, height_px=700, scale=scale)
    image = QImage(str(path))
    assert image.width() == round(1200 * scale)
    if view_type in (BoundGapView, MemoryView):
        assert image.height() == round(700 * scale)
    else:
        assert image.height() >= round(700 * scale)
    assert inked(image) > 0.002


@ALL_VIEWS
def test_svg_opens_and_draws_what_the_png_shows(qtbot: QtBot, tmp_path: Path, view_type: type[View]) -> None:
    view = shown(qtbot, view_type, own_record(view_type, Verdict.VIOLATED))
    view.export_svg(tmp_path / "picture.svg", width_px=1200)
    view.export_png(tmp_path / "picture.png", width_px=1200)
    renderer = QSvgRenderer(str(tmp_path / "picture.svg"))
    assert renderer.isValid()
    png = QImage(str(tmp_path / "picture.png"))
    assert renderer.viewBox().width() == 1200
    assert renderer.viewBox().height() == png.height()
    drawn = QImage(png.size(), QImage.Format.Format_RGB32)
    drawn.fill(QColor(theme.LIGHT.base))
    painter = QPainter(drawn)
    renderer.render(painter, QRectF(drawn.rect()))
    painter.end()
    assert inked(drawn) == pytest.approx(inked(png), rel=0.25)


def test_svg_holds_every_point_of_a_curve(qtbot: QtBot, tmp_path: Path) -> None:
    record = samples.record_of(samples.long_gap_events(5000, 1))
    view = shown(qtbot, BoundGapView, record)
    path = tmp_path / "gap.svg"
    view.export_svg(path)
    points = svg_points(path, theme.LIGHT.series[0])
    # A staircase has two corners for each entry; lower and upper share the colour.
    assert len(points) >= 2 * 2 * 5000


@pytest.mark.parametrize("linear", [True, False])
def test_svg_tells_large_values_apart_to_a_hundredth_of_a_pixel(
    qtbot: QtBot, tmp_path: Path, linear: bool
) -> None:
    values = [1e12 * (1 + 0.001 * i) for i in range(200)]
    record = samples.record_of(
        (0, GapPoint(elapsed_s=float(i), case=0, clause=0, lower=v, upper=None, step="crown"))
        for i, v in enumerate(values)
    )
    view = shown(qtbot, BoundGapView, record)
    assert isinstance(view, BoundGapView)
    view.scale.setCurrentIndex(1 if linear else 0)
    view.refresh()
    path = tmp_path / "gap.svg"
    view.export_svg(path)
    points = svg_points(path, theme.LIGHT.series[0])
    curve = points[points[:, 0] > 40]
    heights = np.unique(np.round(curve[:, 1], 2))
    assert len(heights) >= 185
    if linear:
        steps = np.diff(heights)
        assert steps.max() - steps.min() < 0.05


def test_a_zoomed_svg_holds_nothing_outside_the_axes(qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(qtbot, BoundGapView, samples.record_of(samples.gap_events()))
    assert isinstance(view, BoundGapView)
    view.plot.panel.show_range(((0.5, 1.2), (-1.0, 1.5)))
    path = tmp_path / "gap.svg"
    view.export_svg(path)
    assert view._paper is not None
    box = view._paper.panel.box.rect()
    for color in theme.LIGHT.series[:3]:
        points = svg_points(path, color)
        assert len(points) > 3
        assert points.min() >= -0.01
        assert points[:, 0].max() <= box.width() + 0.01
        assert points[:, 1].max() <= box.height() + 0.01


def test_lines_are_as_wide_at_double_scale_relative_to_the_page(qtbot: QtBot, tmp_path: Path) -> None:
    record = samples.record_of(samples.gap_events(3))
    view = shown(qtbot, BoundGapView, record)
    shares = []
    for scale in (1.0, 2.0, 3.0):
        path = tmp_path / f"gap{scale}.png"
        view.export_png(path, scale=scale)
        shares.append(inked(QImage(str(path))))
    assert shares[1] == pytest.approx(shares[0], rel=0.06)
    assert shares[2] == pytest.approx(shares[0], rel=0.06)


def test_export_is_in_the_theme_asked_for(qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(qtbot, BoundGapView, samples.record_of(samples.gap_events()))
    view.export_png(tmp_path / "dark.png", theme=theme.DARK)
    view.export_png(tmp_path / "light.png")
    assert QImage(str(tmp_path / "dark.png")).pixelColor(2, 2).name() == theme.DARK.base
    assert QImage(str(tmp_path / "light.png")).pixelColor(2, 2).name() == theme.LIGHT.base


@ALL_VIEWS
def test_csv_holds_exactly_the_tables_and_copy_puts_them_on_the_clipboard(
    qtbot: QtBot, tmp_path: Path, view_type: type[View]
) -> None:
    view = shown(qtbot, view_type, own_record(view_type, Verdict.VIOLATED))
    written = view.export_csv(tmp_path / "data.csv")
    assert [path.read_text(encoding="utf-8") for path in written] == [
        table.to_csv() for table in view.tables()
    ]
    view.copy_data()
    copied = QGuiApplication.clipboard().text()
    first = view.tables()[0]
    assert copied.startswith("\t".join(first.columns) + "\n")
    assert copied.count("\n") == sum(len(table.rows) + 1 for table in view.tables()) + len(view.tables()) - 1
    view.copy_image()
    assert QGuiApplication.clipboard().image().width() == 1600


@ALL_VIEWS
def test_a_place_that_cannot_be_written_is_a_sentence(
    qtbot: QtBot, tmp_path: Path, view_type: type[View]
) -> None:
    view = shown(qtbot, view_type, own_record(view_type))
    missing = tmp_path / "nowhere" / "picture"
    for export in (view.export_png, view.export_svg, view.export_csv):
        with pytest.raises(BoundscopeError, match=r"cannot write .*nowhere"):
            export(missing)
    with pytest.raises(BoundscopeError, match="pixels cannot be made"):
        view.export_png(tmp_path / "huge.png", width_px=10_000, scale=8.0)


@ALL_VIEWS
def test_an_empty_view_says_what_to_do_and_has_nothing_to_export(qtbot: QtBot, view_type: type[View]) -> None:
    view = view_type()
    qtbot.addWidget(view)
    view.set_run(None, None)
    view.refresh()
    assert len(view.empty_text) > 40
    assert view.tables() == () or all(not table.rows for table in view.tables())
    assert not view.png_action.isEnabled()
    view.set_run(samples.job_info(), own_record(view_type))
    view.refresh()
    assert view.png_action.isEnabled()


def test_a_verdict_page_grows_with_what_it_holds(qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(qtbot, VerdictView, samples.record_of(samples.finished_events(Verdict.VIOLATED)))
    view.export_png(tmp_path / "narrow.png", width_px=600, height_px=400)
    view.export_png(tmp_path / "wide.png", width_px=1600, height_px=400)
    assert QImage(str(tmp_path / "narrow.png")).height() > QImage(str(tmp_path / "wide.png")).height() > 400
