"""Ctrl+G goes on, in a new run, with the search of a run that was cut short; nothing else can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.test_jobs_table import info
from boundscope.protocol import JobState, Verdict, VerifyResult
from boundscope_app.window import MainWindow
from daemon import behaviours
from daemon.support import job_for, serve, wait_until_ended

__all__ = ["job_for", "serve"]


def test_a_search_goes_on_in_a_new_run(
    serve: Callable, job_for: Callable, open_on: Callable[[Path], MainWindow], qtbot: QtBot
) -> None:
    daemon = serve()
    client = daemon.client()
    old = client.submit(replace(job_for(client, behaviours.COUNTS), timeout_s=0.5))
    wait_until_ended(client, old.id)
    window = open_on(daemon.home)
    window.runs.select(old.id)
    action = window.actions_by_id["run.resume"]
    qtbot.waitUntil(action.isEnabled)
    with qtbot.waitSignal(window.session.run_accepted):
        qtbot.keyClick(window, Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    new = window.runs.selected_info
    assert new is not None
    assert new.resumes == old.id
    qtbot.waitUntil(lambda: window.runs.selected_info.state.ended)
    record = window.runs.record(new.id)
    qtbot.waitUntil(lambda: isinstance(record.result, VerifyResult))
    assert record.result.reason.endswith("in 2 runs")
    window.runs.select(old.id)
    assert not action.isEnabled(), "the new run has its search now"


@pytest.mark.parametrize(
    ("state", "more", "enabled"),
    [
        (JobState.RUNNING, {}, False),
        (JobState.FINISHED, {"verdict": Verdict.UNKNOWN}, False),
        (JobState.FINISHED, {"verdict": Verdict.TIMEOUT, "resumable": True}, True),
        (JobState.CANCELLED, {"resumable": True}, True),
        (JobState.INTERRUPTED, {"resumable": True}, True),
    ],
)
def test_only_a_search_that_was_cut_short_can_go_on(
    lone_window: MainWindow, state: JobState, more: dict[str, object], enabled: bool
) -> None:
    action = lone_window.actions_by_id["run.resume"]
    assert not action.isEnabled(), "there is no run"
    lone_window.runs.set_jobs([info("1", state, **more)])
    lone_window.runs.select("1")
    assert action.isEnabled() is enabled
