"""Ctrl+P pauses the selected run and lets it go on; table, page and clock show that it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app.test_jobs_table import info, text
from boundscope.protocol import JobState, Progress
from boundscope_app import theme as themes
from boundscope_app.docks import jobs_model as columns
from boundscope_app.docks.jobs_model import JobsModel
from boundscope_app.draft import Draft
from boundscope_app.runs import RunModel
from boundscope_app.window import MainWindow
from daemon.small_files import write_property, write_wide_network


def state(window: MainWindow, job_id: str) -> JobState:
    known = window.runs.info(job_id)
    assert known is not None
    return known.state


def test_a_real_run_pauses_and_goes_on(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    network = write_wide_network(tmp_path / "net.onnx", 1500, 6)
    window.form.set_draft(Draft(network, write_property(tmp_path / "p.vnnlib")))
    action = window.actions_by_id["run.pause"]
    with qtbot.waitSignal(window.session.run_accepted):
        window.run()
    job_id = window.runs.selected_id
    record = window.runs.record(job_id)
    qtbot.waitUntil(lambda: record.progress is not None and bool(record.layers))

    def press() -> None:
        qtbot.keyClick(window, Qt.Key.Key_P, Qt.KeyboardModifier.ControlModifier)

    assert (action.isEnabled(), action.text()) == (True, "Pause run")
    press()
    qtbot.waitUntil(lambda: state(window, job_id) is JobState.PAUSED)
    assert action.text() == "Continue run"
    row = window.jobs.model.row_of(job_id)
    qtbot.waitUntil(lambda: record.state is JobState.PAUSED)
    window.tabs.tick()
    verdict = window.tabs.views[0]
    assert "Paused" in verdict.browser.toPlainText()
    assert verdict._stage.text().startswith("Paused: ")
    assert verdict._eta.text() == ""
    shown = text(window.jobs.model, row, columns.DURATION), record.progress
    qtbot.wait(600)
    assert (text(window.jobs.model, row, columns.DURATION), record.progress) == shown
    assert text(window.jobs.model, row, columns.PROGRESS).startswith("paused · ")
    press()
    qtbot.waitUntil(lambda: state(window, job_id) is JobState.RUNNING)
    assert action.text() == "Pause run"
    qtbot.waitUntil(lambda: record.progress != shown[1])
    press()
    qtbot.waitUntil(lambda: state(window, job_id) is JobState.PAUSED)
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: state(window, job_id) is JobState.CANCELLED)
    assert not action.isEnabled()
    assert action.text() == "Pause run"


def test_a_paused_run_in_the_table(qtbot: QtBot) -> None:
    runs = RunModel()
    model = JobsModel(runs)
    progress = Progress(stage="crown", done=1, total=4, eta_s=3.0)
    runs.set_jobs([info("1", JobState.PAUSED, progress=progress, paused_s=100.0, paused_since_s=1112.5)])
    assert text(model, 0, columns.STATE) == "paused"
    assert text(model, 0, columns.PROGRESS) == "paused · 1/4 · crown"
    assert text(model, 0, columns.DURATION) == "12.5 s", "pauses do not count, and the clock stands"
    color = model.data(model.index(0, columns.STATE), Qt.ItemDataRole.ForegroundRole)
    assert color == QColor(themes.current().warn)


@pytest.mark.parametrize(
    ("known", "enabled", "words"),
    [
        (JobState.QUEUED, False, "Pause run"),
        (JobState.RUNNING, True, "Pause run"),
        (JobState.PAUSING, True, "Continue run"),
        (JobState.PAUSED, True, "Continue run"),
        (JobState.CANCELLING, False, "Pause run"),
        (JobState.FINISHED, False, "Pause run"),
    ],
)
def test_the_action_says_what_it_would_do(
    lone_window: MainWindow, known: JobState, enabled: bool, words: str
) -> None:
    action = lone_window.actions_by_id["run.pause"]
    assert not action.isEnabled(), "there is no run"
    lone_window.runs.set_jobs([info("1")])
    lone_window.runs.select("1")
    before = action.icon().cacheKey()
    lone_window.runs.put(info("1", known))
    assert (action.isEnabled(), action.text()) == (enabled, words)
    assert (action.icon().cacheKey() != before) is known.held
