"""What was entered in the form and not run is there at the next start, however the window before it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.test_session import run_example, wait_ended
from app.window_support import APP_PATHS, EXAMPLES, LIMIT_S, example_draft, show_in_front, wait_connected
from boundscope.protocol import Branching, FileRef, Method, Norm, RoundingMode, Sharding
from boundscope_app import draft_store
from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.draft import Ball, Draft, Options
from boundscope_app.link import Link
from boundscope_app.main import build_window, parser
from boundscope_app.noise_draft import NoiseDraft, NoiseOptions
from boundscope_app.settings import Settings
from boundscope_app.window import LEFT, MainWindow

NETWORK, PROPERTY = EXAMPLES / "networks" / "digits_mlp.onnx", EXAMPLES / "digits-robust" / "property.vnnlib"
KEPT = FileRef(name="old.onnx", sha256="0" * 64, size_bytes=7)
Opens = Callable[..., MainWindow]


def drafts(folder: Path) -> dict[str, object]:
    center = folder / "x.npy"
    center.write_bytes(b"\x93NUMPY")
    lines = folder / "instances.csv"
    lines.write_text(f"{NETWORK},{PROPERTY},10\n")
    options = Options(
        method=Method.COMPLETE,
        sharding=Sharding.ROWS,
        ranks=4,
        nodes=("a", "b"),
        branching=Branching.INPUT,
        seed=7,
        batch=3,
        timeout_s=12.5,
    )
    noise = NoiseOptions(mode=RoundingMode.UD, samples=3, precision=11, seed=5, layers=("a",))
    ball = Ball(center, "0.02", 3, "-1", "1", "0.1, 0.2", "0.3", Norm.L2)
    return {
        "proof": Draft(NETWORK, PROPERTY, options),
        "ball": Draft(KEPT, ball, options),
        "points": NoiseDraft(NETWORK, (KEPT, KEPT), PROPERTY, 0, "0.5", "0.25", noise),
        "drawn": NoiseDraft(NETWORK, None, PROPERTY, 17, options=noise),
        "benchmark": BenchmarkDraft(lines, replace(options, nodes=(), ranks=1, sharding=Sharding.NONE)),
    }


@pytest.mark.parametrize("name", ["proof", "ball", "points", "drawn", "benchmark"])
def test_every_kind_of_draft_comes_back_through_the_file(
    lone_window: MainWindow, tmp_path: Path, name: str
) -> None:
    form, draft = lone_window.form, drafts(tmp_path)[name]
    fresh = draft_store.gather(form)
    form.set_draft(draft)  # type: ignore[arg-type]
    entered = draft_store.gather(form)
    lone_window.drafts.write()
    draft_store.fill(form, fresh)
    assert draft_store.gather(form) == fresh
    assert form.draft != draft
    kept, note = draft_store.load()
    assert note == ""
    assert kept == entered
    draft_store.fill(form, kept)
    assert form.draft == draft
    assert draft_store.gather(form) == entered


TYPE_AND_WAIT = """
import sys
from PySide6.QtCore import QTimer
from PySide6.QtTest import QTest
from boundscope_app import main as application

build = application.build_window

def build_and_type(*arguments):
    window = build(*arguments)
    QTimer.singleShot(0, lambda: type_into(window))
    return window

def type_into(window):
    form = window.form
    QTest.keyClicks(form.network.line, sys.argv[2])  # and no Return: it is not entered yet
    form.choose_property(around_input=True)
    form.ball.epsilon.selectAll()
    QTest.keyClicks(form.ball.epsilon, "0.0173")  # around an input that is not chosen yet
    QTest.keyClicks(form.choices.method, "Comp")
    print("typed", flush=True)

application.build_window = build_and_type
sys.exit(application.main(["--home", sys.argv[1]]))
"""


def test_what_was_typed_outlives_kill_9(qtbot: QtBot, own_home: Path, config: Path, open_on: Opens) -> None:
    """A real window, keys into its fields, SIGKILL: the next window holds every letter, says so, and can let go."""
    process = subprocess.Popen(
        [sys.executable, "-c", TYPE_AND_WAIT, own_home, str(NETWORK)],
        env={**os.environ, "PYTHONPATH": APP_PATHS},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "typed\n"
        deadline = time.monotonic() + LIMIT_S
        while not (kept := draft_store.load()[0]) or kept.options.method is not Method.COMPLETE:
            assert time.monotonic() < deadline, "it was not kept in time"
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    assert process.returncode == -signal.SIGKILL

    window = open_on(own_home)
    form = window.form
    assert form.network.source == NETWORK
    assert form.around_input
    assert form.ball.epsilon.text() == "0.0173"
    assert form.draft.options.method is Method.COMPLETE  # type: ignore[union-attr]
    assert window.messages.texts == (LEFT,)
    window.messages.messages[0].buttons[0].click()
    assert form.draft == Draft()
    assert not form.around_input
    assert form.ball.epsilon.text() == "0.01"
    form.run_button.setFocus()
    qtbot.keyClick(window, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert form.draft.network == NETWORK  # type: ignore[union-attr]


def test_undo_takes_back_what_was_restored(qtbot: QtBot, own_home: Path, open_on: Opens) -> None:
    first = open_on(own_home)
    first.form.set_draft(example_draft())
    first.close()
    again = open_on(own_home)
    assert again.form.draft == example_draft()
    qtbot.waitUntil(lambda: "64 inputs" in again.form.read_back.words)
    again.form.run_button.setFocus()
    qtbot.keyClick(again, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert again.form.draft == Draft()
    again.close()
    third = open_on(own_home)
    assert third.messages.texts == ()
    assert third.form.draft == Draft()


def test_what_was_run_is_not_offered_again(qtbot: QtBot, own_home: Path, open_on: Opens) -> None:
    window = open_on(own_home)
    job_id = run_example(qtbot, window)
    window.session.cancel(job_id)
    wait_ended(qtbot, window, job_id)
    window.close()
    assert not draft_store.draft_path().exists()
    again = open_on(own_home)
    assert again.messages.texts == ()
    assert again.form.draft == Draft()


def test_a_change_after_a_run_is_kept(qtbot: QtBot, own_home: Path, open_on: Opens) -> None:
    window = open_on(own_home)
    job_id = run_example(qtbot, window)
    window.session.cancel(job_id)
    window.form.choices.seed.setValue(12)
    wait_ended(qtbot, window, job_id)
    window.close()
    again = open_on(own_home)
    assert again.form.draft.options.seed == 12  # type: ignore[union-attr]
    assert again.messages.texts == (LEFT,)


def test_files_of_the_command_line_come_first_and_undo_finds_what_was_left(
    qtbot: QtBot, own_home: Path, open_on: Opens
) -> None:
    first = open_on(own_home)
    first.form.choices.seed.setValue(99)
    first.close()
    window = build_window(parser().parse_args(["--home", str(own_home)]), Settings())
    show_in_front(qtbot, window)
    window.begin((NETWORK,))
    wait_connected(qtbot, window)
    assert window.form.draft == Draft(NETWORK)
    assert "Undo" in " ".join(window.messages.texts)
    window.history.undo()
    window.history.undo()
    assert window.form.draft.options.seed == 99  # type: ignore[union-attr]
    window.close()
    window.deleteLater()


def test_an_unreadable_draft_is_set_aside_with_a_note(
    qtbot: QtBot, own_home: Path, config: Path, open_on: Opens
) -> None:
    config.mkdir(parents=True)
    for text in ("{", '{"options": {"ranks": "many"}}', '{"kind": "guess"}'):
        draft_store.draft_path().write_text(text)
        kept, note = draft_store.load()
        assert kept is None
        assert "set aside" in note
        assert not draft_store.draft_path().exists()
    aside = list(config.glob("draft.unreadable-*.json"))
    assert aside
    assert aside[0].read_text() in ("{", '{"options": {"ranks": "many"}}', '{"kind": "guess"}')
    draft_store.draft_path().write_text("[1, 2")
    window = open_on(own_home)
    assert "set aside" in window.messages.texts[0]
    assert window.form.draft == Draft()


def test_the_file_is_written_in_one_piece_and_what_fails_is_said_once(
    qtbot: QtBot, lone_window: MainWindow, config: Path
) -> None:
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("a file where the folder should be")
    lone_window.form.set_draft(example_draft())
    lone_window.drafts.write()
    lone_window.drafts.write()
    assert sum("cannot be kept" in text for text in lone_window.messages.texts) == 1
    lone_window.messages.clear()
    lone_window.drafts.write()
    assert lone_window.messages.texts == ()
    config.unlink()
    lone_window.drafts.write()
    assert msgspec.json.decode(draft_store.draft_path().read_bytes())["kind"] == "verify"
    assert [path.name for path in config.iterdir()] == ["draft.json"]


def test_typing_is_on_disk_within_a_moment(qtbot: QtBot, tmp_path: Path, config: Path, screen: str) -> None:
    window = MainWindow(Link(tmp_path / "nowhere"), Settings(), theme="light")
    window.drafts.begin()
    show_in_front(qtbot, window)
    begin_s = time.monotonic()
    window.form.ball.epsilon.selectAll()
    qtbot.keyClicks(window.form.ball.epsilon, "0.5")
    qtbot.waitUntil(lambda: draft_store.draft_path().exists())
    assert time.monotonic() - begin_s >= draft_store.WRITE_AFTER_MS / 2000, "it is written at every letter"
    # A machine that is slow enough may have written it between two letters, and then does so again.
    qtbot.waitUntil(lambda: (kept := draft_store.load()[0]) is not None and kept.ball.epsilon == "0.5")
    window.close()
    window.deleteLater()
