"""A real window on a real daemon: runs, cancelling, reconnecting, and going away without harm."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.window_support import close, example_draft, wait_connected
from boundscope.client import Client, connection_path, read_connection_file
from boundscope.protocol import EventRecord, JobState, StateChanged, Verdict
from boundscope_app import settings as settings_store
from boundscope_app.draft import draft_of
from boundscope_app.window import MainWindow

Opens = Callable[..., MainWindow]


def run_example(qtbot: QtBot, window: MainWindow, name: str = "digits-robust") -> str:
    """Fill the form, press Ctrl+R, and give the id of the run that comes of it."""
    before = set(window.runs.ids)
    window.form.set_draft(example_draft(name))
    with qtbot.waitSignal(window.session.run_accepted):
        qtbot.keyClick(window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    (new,) = set(window.runs.ids) - before
    assert window.runs.selected_id == new
    return new


def state(window: MainWindow, job_id: str) -> JobState | None:
    info = window.runs.info(job_id)
    return None if info is None else info.state


def has_ended(records: list[EventRecord]) -> bool:
    return any(isinstance(each.event, StateChanged) and each.event.state.ended for each in records)


def wait_ended(qtbot: QtBot, window: MainWindow, job_id: str) -> None:
    qtbot.waitUntil(lambda: (known := state(window, job_id)) is not None and known.ended)
    info = window.runs.info(job_id)
    assert info is not None
    qtbot.waitUntil(
        lambda: window.runs.record(job_id).last_number >= window.runs.info(job_id).last_number  # type: ignore[union-attr]
    )


def test_run_reaches_its_verdict_and_every_view(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    job_id = run_example(qtbot, window)
    wait_ended(qtbot, window, job_id)
    info = window.runs.info(job_id)
    assert info is not None
    assert info.cause == ""
    assert info.verdict is Verdict.VERIFIED
    record = window.runs.record(job_id)
    assert record.result is not None
    assert record.gaps
    assert record.layers
    window.commands.export_to(tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"verdict.png", "bound_gap.csv", "layers.csv", "log.csv"} <= written
    csv = (tmp_path / "out" / "bound_gap.csv").read_text()
    assert csv == record.gap_table().to_csv()


def test_use_again_fills_the_form_from_the_job(window: MainWindow, qtbot: QtBot) -> None:
    job_id = run_example(qtbot, window, "advisor-far")
    window.session.cancel(job_id)
    wait_ended(qtbot, window, job_id)
    job = window.runs.info(job_id).job  # type: ignore[union-attr]
    window.form.set_draft(example_draft())
    window.actions_by_id["run.again"].trigger()
    assert window.form.draft == draft_of(job)  # type: ignore[arg-type]
    with qtbot.waitSignal(window.session.run_accepted):
        window.run()
    again = window.runs.selected_id
    assert again != job_id
    assert window.runs.info(again).job == job  # type: ignore[union-attr]
    window.session.cancel(again)
    wait_ended(qtbot, window, again)


def test_escape_asks_then_kills(window: MainWindow, qtbot: QtBot) -> None:
    job_id = run_example(qtbot, window)
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: "asked to stop" in " ".join(window.messages.texts))
    qtbot.waitUntil(lambda: state(window, job_id) is JobState.CANCELLING or state(window, job_id).ended)  # type: ignore[union-attr]
    if state(window, job_id) is JobState.CANCELLING:
        qtbot.keyClick(window, Qt.Key.Key_Escape)
    wait_ended(qtbot, window, job_id)
    assert state(window, job_id) is JobState.CANCELLED


def test_delete_asks_first_and_then_forgets(window: MainWindow, qtbot: QtBot) -> None:
    job_id = run_example(qtbot, window)
    window.session.cancel(job_id)
    wait_ended(qtbot, window, job_id)
    window.actions_by_id["run.delete"].trigger()
    assert job_id in window.runs.ids
    question = window.messages.messages[-1]
    question.buttons[0].click()
    qtbot.waitUntil(lambda: job_id not in window.runs.ids)
    assert window.runs.selected_id != job_id


def test_refused_run_says_why_and_can_be_tried_again(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    gone = tmp_path / "net.onnx"
    gone.write_bytes(Path(str(example_draft().network)).read_bytes())
    window.form.set_draft(example_draft())
    window.form.set_network(gone)
    gone.unlink()
    with qtbot.waitSignal(window.session.run_refused):
        window.run()
    assert "net.onnx" in window.messages.texts[-1]
    assert window.form.run_button.text() == "Run"


def test_closing_detaches_and_the_next_start_has_the_whole_history(
    qtbot: QtBot, own_home: Path, open_on: Opens
) -> None:
    first = open_on(own_home)
    job_id = run_example(qtbot, first)
    close(first)
    kept, _ = settings_store.load()
    assert kept.selected_job == job_id
    with Client.connect(read_connection_file(connection_path(own_home))) as client:
        qtbot.waitUntil(lambda: has_ended(client.events(job_id)))
        stored = client.events(job_id)
    second = open_on(own_home, kept)
    qtbot.waitUntil(lambda: second.runs.selected_id == job_id)
    wait_ended(qtbot, second, job_id)
    record = second.runs.record(job_id)
    assert record.last_number == stored[-1].number
    assert record.state.ended
    assert len(record.log) == sum(1 for each in stored if type(each.event).__name__ == "LogLine")
    assert second.tabs.isVisible()
    close(second)


def test_daemon_that_is_killed_comes_back_with_what_it_had(
    qtbot: QtBot, own_home: Path, open_on: Opens
) -> None:
    window = open_on(own_home)
    job_id = run_example(qtbot, window, "digits-conv")
    qtbot.waitUntil(lambda: window.runs.record(job_id).state in (JobState.STARTING, JobState.RUNNING))
    seen = window.runs.record(job_id).last_number
    pid = read_connection_file(connection_path(own_home)).pid
    with qtbot.waitSignal(
        window.link.state_changed, check_params_cb=lambda state: state.phase == "reconnecting"
    ):
        os.kill(pid, signal.SIGKILL)
    wait_connected(qtbot, window)
    assert read_connection_file(connection_path(own_home)).pid != pid
    qtbot.waitUntil(lambda: state(window, job_id) is JobState.INTERRUPTED)
    qtbot.waitUntil(lambda: any("again" in text for text in window.messages.texts))
    assert not any("No connection" in text for text in window.messages.texts)
    qtbot.waitUntil(lambda: window.runs.record(job_id).state is JobState.INTERRUPTED)
    assert window.runs.record(job_id).last_number > seen
    close(window)


def test_pill_names_place_and_round_trip(window: MainWindow, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: "ms" in window.pill.text())
    assert window.pill.text().startswith("local · ")


def test_closing_while_a_run_goes_on_leaves_no_thread(qtbot: QtBot, own_home: Path, open_on: Opens) -> None:
    window = open_on(own_home)
    job_id = run_example(qtbot, window)
    close(window)
    assert window.link.isFinished()
    with Client.connect(read_connection_file(connection_path(own_home))) as client:
        assert [info.id for info in client.jobs()] == [job_id]
        assert client.jobs()[0].state is not JobState.CANCELLED
        client.cancel(job_id, force=True)
        qtbot.waitUntil(lambda: client.jobs()[0].state.ended)


def test_finished_run_notifies_when_the_window_is_not_in_front(window: MainWindow, qtbot: QtBot) -> None:
    job_id = run_example(qtbot, window)
    window.session.cancel(job_id)
    window.hide()
    wait_ended(qtbot, window, job_id)
    assert window.notifier.told == [job_id]
    window.show()


@pytest.mark.parametrize("key", ["server_public_key", "client_secret_key"])
def test_wrong_keys_are_said(qtbot: QtBot, shared_home: Path, tmp_path: Path, key: str) -> None:
    import msgspec
    import zmq

    from boundscope_app.main import build_window, parser
    from boundscope_app.settings import Settings

    public, secret = (part.decode() for part in zmq.curve_keypair())
    connection = read_connection_file(connection_path(shared_home))
    changes = {"server_public_key": public}
    if key == "client_secret_key":
        changes = {"client_public_key": public, "client_secret_key": secret}
    path = tmp_path / "daemon.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(connection, **changes)))
    window = build_window(parser().parse_args(["--connection", str(path)]), Settings())
    window.show()
    window.begin()
    qtbot.waitUntil(lambda: bool(window.session.state.reason))
    assert window.session.state.phase in ("refused", "reconnecting")
    assert "key" in window.session.state.reason
    assert window.messages.texts
    close(window)


def test_daemon_is_light(window: MainWindow, shared_home: Path) -> None:
    pid = read_connection_file(connection_path(shared_home)).pid
    assert psutil.Process(pid).memory_info().rss < 120 * 1024**2
