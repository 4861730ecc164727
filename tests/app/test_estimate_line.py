"""The line that says what a run will need."""

from __future__ import annotations

import threading

import pytest
import shiboken6
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from boundscope_app.draft import Draft
from boundscope_app.estimate import Estimate, Question
from boundscope_app.widgets import estimate_line
from boundscope_app.widgets.estimate_line import EstimateLine


def test_it_may_go_while_it_thinks(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window is closed in the middle of a reckoning: nobody is told, and nothing is raised in the thread."""
    thinks, ended = threading.Event(), threading.Event()

    def answer(question: Question) -> Estimate:
        thinks.set()
        gone.wait(0.5)
        ended.set()
        return Estimate("much")

    gone = threading.Event()
    monkeypatch.setattr(estimate_line, "answer", answer)
    window = QWidget()
    line = EstimateLine(window)
    line.destroyed.connect(gone.set)
    line.ask(Question(Draft()))
    qtbot.waitUntil(thinks.is_set)
    window.deleteLater()
    qtbot.waitUntil(lambda: not shiboken6.isValid(line))
    qtbot.waitUntil(ended.is_set)
    qtbot.wait(50)  # what the thread raised would come now, and fails the test
