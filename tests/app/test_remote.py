"""The window and the daemon of another host, over a real ssh and a real ssh server on loopback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.test_session import run_example, wait_ended
from app.window_support import APP_PATHS, LIMIT_S, close, end_daemon, example_draft, wait_connected
from boundscope.client import RemoteHost, connect_remote, connection_path, read_host
from boundscope_app import settings as settings_store
from boundscope_app.link_types import LinkState, Phase
from boundscope_app.settings import Settings
from boundscope_app.widgets.pill import pill_text
from boundscope_app.widgets.remote_dialog import HERE
from boundscope_app.window import MainWindow
from support.sshd import HOST, SshServer, missing, ssh_server

needs_ssh = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
Opens = Callable[..., MainWindow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as started:
        yield started


@pytest.fixture
def elsewhere(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteHost]:
    """A host with a home of its own. A test names it before the window, which would start the daemon there anew."""
    monkeypatch.setenv("BOUNDSCOPE_SSH", server.ssh)
    words = ["env", f"PYTHONPATH={APP_PATHS}", "BOUNDSCOPE_NO_SPARE=1", "OMP_NUM_THREADS=1"]
    words += [sys.executable, "-m", "boundscope"]
    home = tmp_path / "there"
    yield RemoteHost(name=HOST, command=shlex.join(words), home=str(home))
    end_daemon(home)


def write(field: object, text: str) -> None:
    """Replace what a line edit holds, by keys."""
    field.setFocus()  # type: ignore[attr-defined]
    QTest.keyClick(field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)  # type: ignore[call-overload]
    QTest.keyClicks(field, text)  # type: ignore[call-overload]


@needs_ssh
def test_a_host_is_written_down_tested_and_worked_with(
    elsewhere: RemoteHost, window: MainWindow, qtbot: QtBot, config: Path
) -> None:
    """From the pill to a run on the other host and back: runs of one are never shown as those of the other."""
    here = run_example(qtbot, window)
    window.session.cancel(here)
    wait_ended(qtbot, window, here)
    window.pill.click()
    dialog = window.remote_dialog
    qtbot.waitUntil(dialog.isVisible)
    assert not dialog.test_button.isEnabled(), "this computer needs no test"
    dialog.add_button.click()
    for field, text in (
        (dialog.name, HOST),
        (dialog.command, elsewhere.command),
        (dialog.home, elsewhere.home),
    ):
        write(field, text)
    assert settings_store.load()[0].hosts == (elsewhere,)
    dialog.test_button.click()
    qtbot.waitUntil(lambda: "answers" in dialog.said.text())
    assert window.link.host is None, "a test changes nothing"
    dialog.connect_button.click()
    qtbot.waitUntil(lambda: not dialog.isVisible())
    wait_connected(qtbot, window)
    qtbot.waitUntil(lambda: window.pill.text().startswith(f"{HOST} · "))
    assert window.runs.ids == ()
    assert window.runs.selected_id == ""
    there = run_example(qtbot, window)
    wait_ended(qtbot, window, there)
    assert window.runs.ids == (there,)
    assert settings_store.load()[0].last_host == elsewhere
    window.connect_to(None)
    wait_connected(qtbot, window)
    qtbot.waitUntil(lambda: here in window.runs.ids)
    assert there not in window.runs.ids
    qtbot.waitUntil(lambda: window.pill.text().startswith("local"))


@needs_ssh
def test_a_connection_that_breaks_comes_back_and_so_does_the_next_start(
    qtbot: QtBot, elsewhere: RemoteHost, server: SshServer, open_on: Opens, own_home: Path
) -> None:
    window = open_on(own_home)
    window.connect_to(elsewhere)
    qtbot.waitUntil(lambda: window.session.state.host == HOST and window.session.listed)
    job_id = run_example(qtbot, window)
    wait_ended(qtbot, window, job_id)
    server.cut()
    qtbot.waitUntil(lambda: window.session.state.phase is Phase.RECONNECTING)
    assert window.pill.text() == f"{HOST} · reconnecting…"
    server.start()
    qtbot.waitUntil(lambda: window.session.state.phase is Phase.CONNECTED)
    assert window.runs.selected_id == job_id
    close(window)


@needs_ssh
def test_an_error_stays_in_the_dialog_where_it_can_be_mended(
    elsewhere: RemoteHost, window: MainWindow, qtbot: QtBot
) -> None:
    window.actions_by_id["file.connect"].trigger()
    dialog = window.remote_dialog
    dialog.add_button.click()
    dialog.connect_button.click()
    assert "Name the host" in dialog.said.text()
    write(dialog.name, HOST)
    write(dialog.command, "/nowhere/boundscope")
    dialog.connect_button.click()
    qtbot.waitUntil(lambda: "has no program '/nowhere/boundscope'" in dialog.said.text())
    assert dialog.isVisible()
    write(dialog.command, elsewhere.command)
    write(dialog.home, elsewhere.home)
    dialog.connect_button.click()
    qtbot.waitUntil(lambda: not dialog.isVisible())
    assert window.link.host == elsewhere
    dialog.choose(elsewhere)
    dialog.remove_button.click()
    assert dialog.hosts == ()


@needs_ssh
@pytest.mark.usefixtures("screen")
def test_the_command_line_opens_the_window_on_the_daemon_of_a_host(
    elsewhere: RemoteHost, config: Path, own_home: Path
) -> None:
    """`boundscope open NET PROPERTY --host HOST:FOLDER --run`: the run is made there, not here; closing leaves it."""
    draft = example_draft()
    place = RemoteHost(name=HOST, home=elsewhere.home).text
    assert read_host(place).home == elsewhere.home
    words = ["open", str(draft.network), str(draft.property_source), "--host", place, "--run"]
    environment = {
        **os.environ,
        "BOUNDSCOPE_REMOTE_COMMAND": elsewhere.command,
        "BOUNDSCOPE_HOME": str(own_home),
    }
    window = subprocess.Popen([sys.executable, "-m", "boundscope", *words], env=environment)
    try:
        deadline = time.monotonic() + LIMIT_S
        with connect_remote(elsewhere) as client:
            while not any(info.kind == "verify" and info.state.ended for info in client.jobs()):
                assert window.poll() is None, "the window has gone"
                assert time.monotonic() < deadline, "no run has ended there"
                client.poll(0.1)
        window.terminate()
        assert window.wait(LIMIT_S) == 0
    finally:
        if window.poll() is None:
            window.kill()
            window.wait()
    assert not connection_path(own_home).exists(), "no daemon was started here"


def test_a_host_from_the_command_line_is_the_one_that_was_written_down(lone_window: MainWindow) -> None:
    """By its name, with the command that stands there; a folder that is given goes before the one that was kept."""
    kept = RemoteHost(name="gpu1", command="/opt/boundscope", home="/data")
    settings = Settings(hosts=(kept,))
    assert settings.known(read_host("gpu1")) == kept
    assert settings.known(read_host("gpu1:/tmp/b")) == RemoteHost(
        name="gpu1", command="/opt/boundscope", home="/tmp/b"
    )
    assert settings.known(read_host("gpu2")) == RemoteHost(name="gpu2")
    dialog = lone_window.remote_dialog
    dialog.choose(read_host("gpu2"))
    assert dialog.list.currentItem().text() == "gpu2", "it is shown, and can be written down"


def test_what_the_daemon_that_was_left_said_last_is_not_told(lone_window: MainWindow, qtbot: QtBot) -> None:
    """It may be on its way from the network's thread when another host is chosen: neither its troubles, which would
    be taken for those of the new one, nor its runs are shown any more."""
    link, told = lone_window.link, []
    link.state_changed.connect(told.append)
    link.jobs_listed.connect(told.append)

    def say(reason: str) -> None:
        link._report_loss(reason, 0)
        link._tell("jobs_listed", ())

    def from_its_thread(reason: str) -> None:
        thread = threading.Thread(target=say, args=(reason,))
        thread.start()
        thread.join()

    from_its_thread("old")
    link.switch(RemoteHost(name="gpu1"))
    link._serving = link._place[0]
    from_its_thread("new")
    qtbot.waitUntil(lambda: () in told)
    assert [getattr(each, "reason", each) for each in told] == ["new", ()]


def test_this_computer_is_always_there_and_cannot_be_removed(lone_window: MainWindow) -> None:
    dialog = lone_window.remote_dialog
    dialog.choose(None)
    assert dialog.list.currentItem().text() == HERE
    assert not dialog.remove_button.isEnabled()
    assert not dialog.name.isEnabled()


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (LinkState(Phase.STARTING), "starting the daemon…"),
        (LinkState(Phase.STARTING, "gpu1", local=False), "connecting to gpu1…"),
        (LinkState(Phase.CONNECTED, "gpu1", local=False, round_trip_s=0.0123), "gpu1 · 12.3 ms"),
        (LinkState(Phase.RECONNECTING, "gpu1", local=False), "gpu1 · reconnecting…"),
    ],
)
def test_the_pill_names_the_host(state: LinkState, text: str) -> None:
    assert pill_text(state) == text


def test_hosts_are_kept_between_starts(config: Path) -> None:
    hosts = (RemoteHost(name="gpu1", command="x"), RemoteHost(name="me@gpu2", home="/data"))
    assert settings_store.save(Settings(hosts=hosts, host="me@gpu2")) == ""
    kept, _ = settings_store.load()
    assert (kept.hosts, kept.last_host) == (hosts, hosts[1])
    assert Settings(hosts=hosts, host="gone").last_host is None
