"""The command line and a daemon: start, status, verify there, list, export the same bytes, stop."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from boundscope import client
from boundscope.daemon.spare import LEAST_AVAILABLE_BYTES
from boundscope.examples import Example
from boundscope.records import JobRecord
from cli.conftest import Command
from daemon.support import wait_for


@pytest.fixture
def home(boundscope: Command, tmp_path: Path) -> Iterator[Path]:
    """A daemon of this test's own, started and stopped by the command."""
    started = boundscope("daemon", "start")
    assert started.returncode == 0, started.stderr
    yield tmp_path / "home"
    stopped = boundscope("daemon", "stop", "--force")
    assert stopped.returncode == 0, stopped.stderr


def record_of(home: Path) -> JobRecord:
    """The newest job's record, read as the window reads it."""
    talker = client.Client.connect(client.read_connection_file(client.connection_path(home)))
    try:
        info = max(talker.jobs(), key=lambda info: info.created_s)
        record = JobRecord()
        while new := talker.events(info.id, after=record.last_number):
            record.apply_all(new)
    finally:
        talker.close()
    return record


def test_start_status_stop(boundscope: Command, tmp_path: Path) -> None:
    """Starting twice gives one daemon; stopping ends its process; status says which it is by its exit status."""
    home = tmp_path / "home"
    assert boundscope("daemon", "status").returncode == 1
    first, second = boundscope("daemon", "start"), boundscope("daemon", "start")
    assert first.stdout == second.stdout
    pid = client.read_connection_file(client.connection_path(home)).pid
    assert f"pid {pid}" in first.stdout
    status = boundscope("daemon", "status")
    assert status.returncode == 0
    assert "0 of 0 jobs running" in status.stdout
    assert boundscope("daemon", "stop").returncode == 0
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert boundscope("daemon", "status").returncode == 1
    assert boundscope("daemon", "stop").returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="there are spare processes on Linux only")
def test_a_daemon_keeps_a_spare_process_unless_told_not_to(
    boundscope: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    """--no-spare reaches the daemon, which without it starts the process that stands by."""
    if psutil.virtual_memory().available < 2 * LEAST_AVAILABLE_BYTES:
        pytest.skip("memory is short here, and then none is kept")
    del environment["BOUNDSCOPE_NO_SPARE"]
    for option, kept in (("--no-spare", False), (None, True)):
        assert boundscope("daemon", "start", *filter(None, [option])).returncode == 0
        daemon = psutil.Process(client.read_connection_file(client.connection_path(tmp_path / "home")).pid)
        assert ("--no-spare" in daemon.cmdline()) is not kept
        if kept:
            wait_for(daemon.children, what="the spare process")
        spare = daemon.children()
        assert bool(spare) is kept
        assert boundscope("daemon", "stop").returncode == 0
        assert not any(process.is_running() for process in spare)


def test_verify_on_the_daemon_and_export(
    boundscope: Command, home: Path, robust: Example, tmp_path: Path
) -> None:
    """The daemon's verdict has the same status and keys; export writes exactly the record's tables."""
    done = boundscope("verify", robust.network, robust.property, "--json", "-", "--daemon")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "verified"
    assert str(robust.network) in result["command"]

    (job,) = json.loads(boundscope("jobs", "--json").stdout)
    assert (job["state"], job["verdict"]) == ("finished", "verified")
    assert job["id"] in boundscope("jobs").stdout

    folder = tmp_path / "tables"
    exported = boundscope("export", job["id"], "--csv", folder)
    assert exported.returncode == 0, exported.stderr
    record = record_of(home)
    assert record.layers
    assert record.memory
    for table in record.tables():
        assert (folder / f"{table.name}.csv").read_bytes() == table.to_csv().encode()

    again = json.loads(boundscope("export", "last", "--json", "-").stdout)
    assert again["margin"] == result["margin"]
    everything = boundscope("export", "last", "--all", tmp_path / "all")
    assert everything.returncode == 0
    assert everything.stdout.splitlines()[0] == str(tmp_path / "all" / "report.html")
    assert boundscope("export", "no-such-job", "--csv", folder).returncode == 2
