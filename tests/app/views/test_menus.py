"""Every view offers its ways out by context menu, wherever one clicks in it, and the dialog asks for size and place."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QMenu
from pytestqt.qtbot import QtBot

from app.views import sample_records as samples
from app.views.test_export import own_record
from boundscope_app import theme
from boundscope_app.views import VIEWS, VerdictView, View
from boundscope_app.views.export_dialog import ExportDialog


@pytest.mark.parametrize("view_type", VIEWS, ids=lambda v: v.view_id)
def test_a_right_click_anywhere_in_the_data_opens_the_view_s_menu(
    qtbot: QtBot, view_type: type[View]
) -> None:
    view = view_type()
    qtbot.addWidget(view)
    view.set_run(samples.job_info(), own_record(view_type))
    view.show()
    view.refresh()
    areas = [area for area in view.findChildren(QAbstractScrollArea) if area.isVisible()]
    assert areas
    for area in areas:
        place = QPoint(8, 8)
        where = area.viewport().mapToGlobal(place)
        QApplication.sendEvent(
            area.viewport(), QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, where)
        )
        menu = QApplication.activePopupWidget()
        assert isinstance(menu, QMenu), area
        texts = {action.text() for action in menu.actions()}
        assert {"Copy data", "Copy image", "Export PNG…", "Export SVG…", "Export CSV…"} <= texts
        menu.close()


def test_the_dialog_gives_size_scale_colours_and_path(qtbot: QtBot, tmp_path: Path) -> None:
    dialog = ExportDialog("png", "run_bound_gap")
    qtbot.addWidget(dialog)
    dialog._width.setValue(1200)
    dialog._scale.setValue(1.5)
    assert dialog._result.text() == "1800 pixels wide"
    dialog._colours.setCurrentIndex(dialog._colours.findText("Dark"))
    dialog._path.setText(str(tmp_path / "picture"))
    choice = dialog.choice()
    assert (choice.path, choice.width_px, choice.scale) == (tmp_path / "picture.png", 1200, 1.5)
    assert choice.theme == theme.DARK


def test_the_verdict_is_written_as_pdf(qtbot: QtBot, tmp_path: Path) -> None:
    view = VerdictView()
    qtbot.addWidget(view)
    view.set_run(samples.job_info(), samples.record_of(samples.finished_events()))
    view.export_pdf(tmp_path / "verdict.pdf")
    data = (tmp_path / "verdict.pdf").read_bytes()
    assert data.startswith(b"%PDF-")
    assert data.count(b"/Type /Page\n") >= 2
