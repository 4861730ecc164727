"""Files dropped anywhere in the window find their place, and wrong ones say why, in the window itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QDockWidget, QWidget
from pytestqt.qtbot import QtBot

from app.window_support import EXAMPLES
from boundscope_app.draft import Ball
from boundscope_app.widgets.drop_overlay import DropOverlay
from boundscope_app.window import MainWindow

NET = EXAMPLES / "networks" / "digits_mlp.onnx"
PROP = EXAMPLES / "digits-robust" / "property.vnnlib"


def mime_of(paths: Sequence[Path]) -> QMimeData:
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return mime


def receiver(window: MainWindow, at: QPoint) -> QWidget:
    """The widget that Qt gives a drop at this place to: the nearest one that takes drops."""
    widget: QWidget | None = window.childAt(at) or window
    while widget is not None and not widget.acceptDrops():
        widget = widget.parentWidget()
    assert widget is not None
    return widget


def drag_over(window: MainWindow, mime: QMimeData, at: QPoint) -> QWidget:
    target = receiver(window, at)
    action, button, keys = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    event = QDragEnterEvent(target.mapFrom(window, at), action, mime, button, keys)
    QApplication.sendEvent(target, event)
    return target


def drop(window: MainWindow, paths: Sequence[Path], at: QPoint | None = None) -> None:
    mime = mime_of(paths)
    at = at or window.rect().center()
    target = drag_over(window, mime, at)
    action, button, keys = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    event = QDropEvent(QPointF(target.mapFrom(window, at)), action, mime, button, keys)
    QApplication.sendEvent(target, event)
    assert event.isAccepted()


def places(window: MainWindow) -> dict[str, QPoint]:
    def middle(widget: QWidget) -> QPoint:
        return widget.mapTo(window, widget.rect().center())

    return {
        "centre": middle(window.centralWidget()),
        "line edit": middle(window.form.network.line),
        "library": middle(window.library.tree),
        "jobs": middle(window.jobs),
        "toolbar": QPoint(window.width() // 2, 40),
    }


@pytest.mark.parametrize("place", ["centre", "line edit", "library", "jobs", "toolbar"])
def test_network_and_property_anywhere(lone_window: MainWindow, place: str) -> None:
    drop(lone_window, [NET, PROP], places(lone_window)[place])
    assert lone_window.form.draft.network == NET
    assert lone_window.form.draft.property_source == PROP
    assert lone_window.messages.texts == ()


def test_plots_leave_drops_to_the_window(lone_window: MainWindow) -> None:
    takers = [
        child
        for child in lone_window.findChildren(QWidget)
        if child.acceptDrops() and child.window() is lone_window and not isinstance(child, QDockWidget)
    ]
    assert set(takers) <= {lone_window}


def test_target_lights_up_and_goes_dark(lone_window: MainWindow) -> None:
    at = lone_window.centralWidget().geometry().center()
    target = drag_over(lone_window, mime_of([NET]), at)
    overlay = next(each for each in target.findChildren(DropOverlay) if each.isVisible())
    assert overlay.welcome
    assert "digits_mlp.onnx" in overlay.text
    QApplication.sendEvent(target, QDragLeaveEvent())
    assert not overlay.isVisible()


def test_wrong_file_is_refused_in_words(lone_window: MainWindow, tmp_path: Path) -> None:
    wrong = tmp_path / "weights.pth"
    wrong.write_bytes(b"PK")
    target = drag_over(lone_window, mime_of([wrong]), lone_window.rect().center())
    overlay = next(each for each in target.findChildren(DropOverlay) if each.isVisible())
    assert not overlay.welcome
    drop(lone_window, [wrong])
    assert lone_window.form.draft.network is None
    assert "torch.onnx.export" in lone_window.messages.texts[0]
    assert lone_window.messages.messages[0].kind == "warning"


def test_right_files_are_taken_and_wrong_ones_named(lone_window: MainWindow, tmp_path: Path) -> None:
    wrong = tmp_path / "notes.txt"
    wrong.write_text("words")
    drop(lone_window, [NET, wrong])
    assert lone_window.form.draft.network == NET
    assert "notes.txt" in lone_window.messages.texts[0]


def test_web_address_is_explained(lone_window: MainWindow) -> None:
    mime = QMimeData()
    mime.setUrls([QUrl("https://example.org/net.onnx")])
    at = lone_window.rect().center()
    target = drag_over(lone_window, mime, at)
    action, button, keys = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(target, QDropEvent(QPointF(at), action, mime, button, keys))
    assert "download" in lone_window.messages.texts[0]


def test_input_becomes_the_middle_of_a_ball(lone_window: MainWindow, tmp_path: Path) -> None:
    center = tmp_path / "x.npy"
    np.save(center, np.zeros((1, 64), dtype=np.float32))
    drop(lone_window, [center])
    chosen = lone_window.form.draft.property_source
    assert isinstance(chosen, Ball)
    assert chosen.center == center
    assert lone_window.form.ball.isVisibleTo(lone_window)


def test_folder_fills_the_library_and_leaves_a_choice(lone_window: MainWindow, qtbot: QtBot) -> None:
    drop(lone_window, [EXAMPLES])
    names = {path.name for path in lone_window.library.paths()}
    assert {"digits_mlp.onnx", "digits_cnn.onnx", "advisor.onnx", "property.vnnlib"} <= names
    assert lone_window.form.draft.network is None
    assert "in the library" in lone_window.messages.texts[0]
    before = len(lone_window.library.paths())
    drop(lone_window, [EXAMPLES])
    assert len(lone_window.library.paths()) == before
