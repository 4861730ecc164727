"""Reading files back says how far it is and how long it still takes, where it takes longer than a moment."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.window_support import example_draft
from boundscope.protocol import Progress
from boundscope_app.widgets import reading_line
from boundscope_app.widgets.reading_line import ReadingLine
from boundscope_app.window import MainWindow


def line(qtbot: QtBot) -> ReadingLine:
    made = ReadingLine()
    qtbot.addWidget(made)
    return made


def test_what_is_over_in_a_moment_needs_no_line(qtbot: QtBot) -> None:
    made = line(qtbot)
    made.begin()
    made.show_progress(Progress(stage="reading the network", done=0, total=0))
    assert not made.isVisible()
    made.end()
    qtbot.wait(reading_line.SHOW_AFTER_MS + 100)
    assert not made.isVisible()


def test_what_takes_longer_says_what_is_read_and_how_long_it_takes(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_line, "SHOW_AFTER_MS", 0)
    monkeypatch.setattr("time.monotonic", lambda: 50.0)
    made = line(qtbot)
    made.begin()
    qtbot.waitUntil(made.isVisible)
    assert made.text.text() == "Handing it to the daemon, 0 s so far"
    made.show_progress(Progress(stage="reading the network", done=0, total=0))
    assert made.text.text() == "Reading the network, 0 s so far"
    assert not made.bar.isVisible(), "nobody knows of how much"
    made.show_progress(Progress(stage="reading the network", done=3, total=15, eta_s=8.0))
    assert made.text.text() == "Reading the network, about 8 s to go"
    assert (made.bar.isVisible(), made.bar.value(), made.bar.maximum()) == (True, 3, 15)
    assert made.text.accessibleDescription() == made.text.text()
    made.end()
    assert not made.isVisible()


def test_the_form_shows_it_between_a_choice_and_what_was_read(
    window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_line, "SHOW_AFTER_MS", 0)
    shown, stages = window.form.read_back.line, []
    window.session.reading.connect(lambda progress: stages.append((progress.stage, shown.isVisible())))
    with qtbot.waitSignal(window.session.inspected):
        window.form.set_draft(example_draft())
    assert not shown.isVisible()
    assert stages[-1] == ("reckoning what bounds cost", True)
    assert not any("handing" in stage for stage, _ in stages)
