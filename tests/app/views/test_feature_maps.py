"""From the heatmap into a layer's feature maps and back, by pointer and by keys; what is shown is what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.views import sample_maps, sample_noise
from app.views import sample_records as samples
from app.views.sample_maps import CHANNELS, CONV, HEIGHT, VECTOR, WIDTH
from boundscope.records import JobRecord
from boundscope_app import theme
from boundscope_app.plots.feature_maps import FeatureMaps, FeatureMapsDrawing, Spot
from boundscope_app.plots.feature_maps_widget import MARGIN_PX
from boundscope_app.plots.heatmap import color_of
from boundscope_app.plots.style import live_style
from boundscope_app.selection import LayerSelection
from boundscope_app.views import VariabilityView

Key = Qt.Key


def finished() -> JobRecord:
    return samples.record_of(sample_maps.finished_events())


@pytest.fixture
def view(qtbot: QtBot) -> VariabilityView:
    made = VariabilityView()
    qtbot.addWidget(made)
    made.resize(1300, 700)
    made.set_run(sample_noise.job_info(), finished())
    made.show()
    qtbot.waitExposed(made)
    made.refresh()
    return made


def row_of(view: VariabilityView, layer: str) -> int:
    return [row.name for row in view.heatmap.heat.rows].index(layer)


def open_by_keys(qtbot: QtBot, view: VariabilityView) -> None:
    view.heatmap.setFocus()
    qtbot.keyClick(view.heatmap, Key.Key_Down)
    qtbot.keyClick(view.heatmap, Key.Key_Return)


def test_by_pointer_into_a_layer_enlarged_and_back(qtbot: QtBot, view: VariabilityView) -> None:
    at = QPoint(*view.heatmap.row_center(row_of(view, CONV)))
    qtbot.mouseDClick(view.heatmap.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert view.open_layer == CONV
    assert view.selection.layer == CONV
    widget = view.maps.widget
    qtbot.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, pos=widget.tile_center(2))
    assert widget.current == 2
    assert view.reading.text().startswith("channel 2: 22.00 bits on average")
    qtbot.mouseDClick(widget.viewport(), Qt.MouseButton.LeftButton, pos=widget.tile_center(2))
    assert widget.enlarged
    qtbot.mouseClick(view.maps.back, Qt.MouseButton.LeftButton)
    assert view.open_layer == ""
    assert view.heatmap.current == row_of(view, CONV), "the layer stays chosen"


def test_by_keys_into_a_layer_enlarged_and_back(qtbot: QtBot, view: VariabilityView) -> None:
    open_by_keys(qtbot, view)
    assert view.open_layer == CONV
    widget = view.maps.widget
    assert view.focusWidget() is widget
    across = widget.drawing.columns
    assert 1 < across < CHANNELS
    for key, place in (
        (Key.Key_Right, 1),
        (Key.Key_Down, 1 + across),
        (Key.Key_Left, across),
        (Key.Key_Up, 0),
        (Key.Key_Left, 0),
        (Key.Key_End, CHANNELS - 1),
        (Key.Key_Down, CHANNELS - 1),
        (Key.Key_Home, 0),
    ):
        qtbot.keyClick(widget, key)
        assert widget.current == place, key
    qtbot.keyClick(widget, Key.Key_Return)
    assert widget.enlarged
    qtbot.keyClick(widget, Key.Key_Down)
    assert (widget.current, widget.drawing.tiles) == (1, (1,)), "the next channel takes its place"
    qtbot.keyClick(widget, Key.Key_Backspace)
    assert (widget.enlarged, view.open_layer) == (False, CONV)
    qtbot.keyClick(widget, Key.Key_Backspace)
    assert view.open_layer == ""
    assert view.focusWidget() is view.heatmap


def test_the_button_and_the_table_lead_there_too_where_there_are_maps(
    qtbot: QtBot, view: VariabilityView
) -> None:
    assert not view.maps_button.isEnabled(), "no layer is chosen"
    view.selection.pick(sample_noise.EXACT)
    assert not view.maps_button.isEnabled()
    assert "once the run has ended" in view.maps_button.toolTip()
    view.open_maps(sample_noise.EXACT)
    assert view.open_layer == "", "nothing is shown where nothing was told"
    view.selection.pick(VECTOR)
    view.maps_button.click()
    assert view.open_layer == VECTOR
    assert not view.maps_button.isEnabled()
    view.close_maps()
    view.layers.setFocus()
    qtbot.keyClick(view.layers, Key.Key_Return)
    assert view.open_layer == VECTOR


def test_maps_follow_the_layer_that_is_picked_elsewhere(qtbot: QtBot, view: VariabilityView) -> None:
    """Layers and Graph share the selection; a layer without maps leads back to the heatmap."""
    shared = LayerSelection()
    view.set_selection(shared)
    shared.pick(CONV)
    view.open_maps(CONV)
    shared.pick(VECTOR)
    assert view.open_layer == VECTOR
    assert view.maps.title.text() == f"{VECTOR}: 40 elements"
    shared.pick(sample_noise.EXACT)
    assert view.open_layer == ""
    assert view.heatmap.current == row_of(view, sample_noise.EXACT)


def test_pointing_at_an_element_reads_its_place_and_its_bits(qtbot: QtBot, view: VariabilityView) -> None:
    view.open_maps(CONV)
    drawing, widget = view.maps.widget.drawing, view.maps.widget
    for tile, row, column, said in (
        (1, 5, 4, "channel 1, row 5, column 4: 23.50 bits"),
        (3, 0, 0, "channel 3, row 0, column 0: exact"),
        (3, 0, 1, "channel 3, row 0, column 1: NaN"),
        (4, 2, 2, "channel 4, row 2, column 2: Inf"),
    ):
        rect, cell = drawing.tile_rect(tile), drawing.cell_px
        x, y = rect.left() + (column + 0.5) * cell, rect.top() + (row + 0.5) * cell
        assert drawing.spot_at(x, y) == Spot(tile, row, column)
        widget.hovered.emit(drawing.spot_at(x, y))
        assert view.reading.text() == said
    assert drawing.spot_at(drawing.tile_rect(0).right() + 4, drawing.tile_rect(0).top() + 4) is None


@pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_pixels_have_the_colour_of_their_bits_in_both_palettes(
    qtbot: QtBot, view: VariabilityView, palette: theme.Theme
) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    theme.apply(app, palette)
    view.open_maps(CONV)
    widget = view.maps.widget
    picture = widget.viewport().grab().toImage()
    ratio = picture.devicePixelRatio()

    def shown(tile: int, row: int, column: int) -> QColor:
        rect, cell = widget.drawing.tile_rect(tile), widget.drawing.cell_px
        x, y = rect.left() + (column + 0.5) * cell, rect.top() + (row + 0.5) * cell
        return picture.pixelColor(round((MARGIN_PX + x) * ratio), round((MARGIN_PX + y) * ratio))

    bits = sample_maps.conv_bits()
    for tile, row, column in ((1, 1, 1), (5, 5, 4)):
        assert shown(tile, row, column) == color_of(float(bits[tile, row, column]), 24)
    assert shown(3, 0, 1) == QColor(palette.bad)
    assert shown(3, 0, 0) == QColor(palette.neutral_fill)


def test_every_channel_can_be_reached_where_there_are_more_than_fit(
    qtbot: QtBot, view: VariabilityView
) -> None:
    view.resize(700, 420)
    view.open_maps(CONV)
    widget = view.maps.widget
    for tile in range(CHANNELS):
        widget.choose(tile)
        center = widget.tile_center(tile)
        assert widget.viewport().rect().contains(center)
        assert center.y() <= MARGIN_PX + widget.drawing.room_px(widget.viewport().height() - 2 * MARGIN_PX)


def test_a_vector_is_wrapped_and_the_rest_of_its_last_row_is_nothing(qtbot: QtBot) -> None:
    maps = FeatureMaps(sample_maps.maps()[1], 24)
    assert maps.bits.shape == (1, 2, 32)
    assert maps.place(Spot(0, 1, 7)) == "element 39"
    drawing = FeatureMapsDrawing(maps, live_style(theme.LIGHT), 640)
    rect, cell = drawing.tile_rect(0), drawing.cell_px
    assert drawing.spot_at(rect.left() + 7.5 * cell, rect.top() + 1.5 * cell) == Spot(0, 1, 7)
    assert drawing.spot_at(rect.left() + 8.5 * cell, rect.top() + 1.5 * cell) is None


def test_csv_and_picture_hold_what_is_shown(qtbot: QtBot, view: VariabilityView, tmp_path) -> None:
    names = [table.name for table in view.tables()]
    view.open_maps(CONV)
    *others, shown = view.tables()
    assert [table.name for table in others] == names
    assert len(shown.rows) == CHANNELS * HEIGHT * WIDTH
    assert shown.columns == ("layer", "channel", "row", "column", "mean [bits]", "mark")
    cells = {row[1:4]: row[4:] for row in shown.rows}
    assert cells[(3, 0, 1)] == (None, "NaN")
    assert cells[(1, 5, 4)] == (pytest.approx(23.5), "")
    view.export_png(tmp_path / "maps.png")
    view.export_svg(tmp_path / "maps.svg")
    assert (tmp_path / "maps.png").stat().st_size > 10_000
    assert "channel 11" in (tmp_path / "maps.svg").read_text()


def test_another_run_starts_at_its_heatmap(qtbot: QtBot, view: VariabilityView) -> None:
    view.open_maps(CONV)
    view.set_run(sample_noise.job_info(), samples.record_of(sample_noise.finished_events()))
    view.refresh()
    assert view.open_layer == ""
    assert not view.maps_button.isEnabled()


def test_means_leave_out_what_has_no_bits() -> None:
    maps = FeatureMaps(sample_maps.maps()[0], 24)
    bits = sample_maps.conv_bits()[3].ravel()
    assert maps.means[3] == pytest.approx(float(np.delete(bits, [0, 1]).mean()), abs=1e-5)
