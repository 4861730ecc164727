"""What people edit can be taken back, and a window that dies takes nothing along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.window_support import APP_PATHS, EXAMPLES, LIMIT_S, end_daemon, example_draft, prepare_environment
from boundscope.protocol import Method
from boundscope_app import form_history
from boundscope_app import settings as settings_store
from boundscope_app.window import MainWindow


@pytest.fixture(autouse=True)
def steps_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests change things faster than people do."""
    monkeypatch.setattr(form_history, "TOGETHER_S", -1.0)


def undo(qtbot: QtBot, window: MainWindow, times: int = 1) -> None:
    window.form.run_button.setFocus()
    for _ in range(times):
        qtbot.keyClick(window, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)


def redo(qtbot: QtBot, window: MainWindow) -> None:
    both = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    qtbot.keyClick(window, Qt.Key.Key_Z, both)


def test_every_change_of_the_form_is_taken_back_in_order(lone_window: MainWindow, qtbot: QtBot) -> None:
    form, start = lone_window.form, lone_window.form.draft
    assert not lone_window.actions_by_id["edit.undo"].isEnabled()
    form.set_draft(example_draft())
    filled = form.draft
    form.choices.method.setCurrentIndex(form.choices.method.findData(Method.ALPHA_CROWN))
    changed = form.draft
    assert changed != filled
    form.as_measurement.setChecked(True)
    measuring = form.draft
    undo(qtbot, lone_window)
    assert form.draft == changed
    undo(qtbot, lone_window)
    assert form.draft == filled
    redo(qtbot, lone_window)
    redo(qtbot, lone_window)
    assert form.draft == measuring
    undo(qtbot, lone_window, 50)
    assert form.draft == start
    assert not lone_window.actions_by_id["edit.undo"].isEnabled()


def test_a_new_change_ends_what_could_be_made_again(lone_window: MainWindow, qtbot: QtBot) -> None:
    form = lone_window.form
    form.set_draft(example_draft())
    undo(qtbot, lone_window)
    assert lone_window.actions_by_id["edit.redo"].isEnabled()
    form.set_draft(example_draft("digits-fooled"))
    assert not lone_window.actions_by_id["edit.redo"].isEnabled()


def test_what_follows_fast_is_one_step(
    lone_window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, start = lone_window.form, lone_window.form.draft
    monkeypatch.setattr(form_history, "TOGETHER_S", 60.0)
    for seed in range(1, 6):
        form.choices.seed.setValue(seed)
    assert form.draft != start
    undo(qtbot, lone_window)
    assert form.draft == start
    assert not lone_window.history.can_undo


def test_a_field_with_the_focus_undoes_its_own_letters(lone_window: MainWindow, qtbot: QtBot) -> None:
    line = lone_window.library.findChild(type(lone_window.form.network.line))
    assert line is not None
    lone_window.form.set_draft(example_draft())
    filled = lone_window.form.draft
    line.setFocus()
    qtbot.keyClicks(line, "abc")
    qtbot.keyClick(line, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert line.text() == ""
    assert lone_window.form.draft == filled


def test_reset_layout_undoes_an_arrangement(lone_window: MainWindow, qtbot: QtBot) -> None:
    before = bytes(lone_window.saveState(1).data())
    lone_window.jobs.hide()
    lone_window.library.setFloating(True)
    lone_window.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, lone_window.form)
    lone_window.actions_by_id["view.reset_layout"].trigger()
    qtbot.waitUntil(lambda: not lone_window.library.isFloating())
    assert lone_window.jobs.isVisible()
    assert bytes(lone_window.saveState(1).data()) == before


def test_a_window_that_is_killed_loses_nothing(tmp_path: Path, config: Path) -> None:
    """kill -9 in the middle of a run: the run goes on, and what was opened and chosen is there at the next start."""
    home = tmp_path / "home"
    prepare_environment(home)
    net, source = EXAMPLES / "networks" / "digits_mlp.onnx", EXAMPLES / "digits-robust" / "property.vnnlib"
    process = subprocess.Popen(
        [sys.executable, "-m", "boundscope_app", "--home", home, "--run", "--theme", "dark", net, source],
        env={**os.environ, "PYTHONPATH": APP_PATHS, "BOUNDSCOPE_CONFIG": str(config)},
    )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not settings_store.load()[0].selected_job:
            assert process.poll() is None
            assert time.monotonic() < deadline, "the window did not run it"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
        kept, note = settings_store.load()
        assert note == ""
        assert [Path(text).name for text in kept.recent] == ["property.vnnlib", "digits_mlp.onnx"]
        jobs = subprocess.run(
            [sys.executable, "-m", "boundscope", "jobs", "--home", home],
            env={**os.environ, "PYTHONPATH": APP_PATHS},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        assert kept.selected_job in jobs.stdout
        assert "cancelled" not in jobs.stdout
    finally:
        process.kill()
        end_daemon(home)
