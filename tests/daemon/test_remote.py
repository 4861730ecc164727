"""The daemon of another host: a real ssh and a real ssh server on loopback carry everything."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from boundscope.client import RemoteHost, connect_remote, connection_path, read_connection_file, read_host
from boundscope.client.remote import open_tunnel
from boundscope.errors import DaemonError
from boundscope.protocol import Shutdown
from daemon.support import BACKEND, LIMIT_S, wait_for
from support.sshd import HOST, SshServer, missing, ssh_server

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as started:
        yield started


@pytest.fixture
def elsewhere(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteHost]:
    """A host whose daemon does not run yet."""
    monkeypatch.setenv("BOUNDSCOPE_SSH", server.ssh)
    words = ["env", f"PYTHONPATH={BACKEND}", "BOUNDSCOPE_NO_SPARE=1", sys.executable, "-m", "boundscope"]
    home = tmp_path / "home there"
    yield RemoteHost(name=HOST, command=shlex.join(words), home=str(home))
    if connection_path(home).exists():
        process = psutil.Process(read_connection_file(connection_path(home)).pid)
        process.terminate()
        process.wait(LIMIT_S)


def test_a_daemon_is_started_there_and_answers_through_ssh(elsewhere: RemoteHost, server: SshServer) -> None:
    """The way leads through a socket that only this user can reach, and ends with the client."""
    with connect_remote(elsewhere) as client:
        assert client.jobs() == []
        address = client.connection.address
        assert address.startswith("ipc://")
        socket = Path(address.removeprefix("ipc://"))
        assert stat.S_IMODE(socket.stat().st_mode) & 0o077 == 0
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert client.connection.host == HOST
        pid = client.ping() and client.connection.pid
    assert not socket.parent.exists()
    assert psutil.pid_exists(pid), "the daemon goes on without us"
    with connect_remote(elsewhere) as client:
        assert client.connection.pid == pid, "one daemon serves all"
    wait_for(lambda: not server.connections(), what="the end of the ssh connections")


def test_two_ways_at_once_do_not_meet(elsewhere: RemoteHost) -> None:
    with connect_remote(elsewhere) as first, connect_remote(elsewhere) as second:
        assert first.connection.address != second.connection.address
        first.close()
        assert second.jobs() == []


def test_a_way_that_breaks_is_said_at_once(elsewhere: RemoteHost) -> None:
    with open_tunnel(elsewhere) as tunnel:
        from boundscope.client import Client

        with Client.connect(tunnel.connection) as client:
            tunnel._process.kill()
            with pytest.raises(DaemonError, match=r"gone|went away"):
                wait_for(lambda: client.ping() is None)


def test_an_unknown_program_says_what_to_install(elsewhere: RemoteHost) -> None:
    host = RemoteHost(name=HOST, command="/nowhere/boundscope")
    with pytest.raises(DaemonError, match=r"has no program '/nowhere/boundscope'.*whole path"):
        open_tunnel(host)


def test_a_program_that_says_something_else_is_named(elsewhere: RemoteHost) -> None:
    with pytest.raises(DaemonError, match="one line of JSON"):
        open_tunnel(RemoteHost(name=HOST, command="echo"))


def test_a_host_that_ssh_does_not_reach(elsewhere: RemoteHost, server: SshServer) -> None:
    with pytest.raises(DaemonError, match=r"ssh cannot reach no\.such\.host\.invalid"):
        open_tunnel(RemoteHost(name="no.such.host.invalid"))
    keys = server.folder / "authorized_keys"
    kept = keys.read_text()
    keys.write_text("")
    try:
        with pytest.raises(DaemonError, match=r"Permission denied.*ssh-copy-id elsewhere"):
            open_tunnel(elsewhere)
    finally:
        keys.write_text(kept)
    known = server.folder / "known_hosts"
    kept = known.read_text()
    known.write_text("")
    try:
        with pytest.raises(DaemonError, match=r"key of elsewhere is not known"):
            open_tunnel(elsewhere)
    finally:
        known.write_text(kept)


def test_waiting_can_be_ended(elsewhere: RemoteHost) -> None:
    """What `check` raises comes out, and no ssh is left."""

    class EnoughError(Exception):
        pass

    def enough() -> None:
        raise EnoughError

    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(EnoughError):
        open_tunnel(RemoteHost(name=HOST, command="sleep 60;"), check=enough)
    assert {child.pid for child in psutil.Process().children()} <= before
    wait_for(lambda: threading.active_count() < 8)


@pytest.mark.parametrize("text", ["-oProxyCommand=touch /tmp/x", "a b", "", ":home"])
def test_what_can_be_no_host_is_refused(text: str) -> None:
    with pytest.raises(DaemonError):
        read_host(text)


def test_a_host_and_its_folder() -> None:
    assert read_host("me@gpu1:/data/jobs") == RemoteHost(name="me@gpu1", home="/data/jobs")
    assert read_host("gpu1").start_line == "boundscope daemon start --connection"
    line = RemoteHost(name="h", home="a b; rm c").start_line
    assert shlex.split(line)[-1] == "a b; rm c"


def test_the_command_line_uses_the_daemon_of_the_host(
    elsewhere: RemoteHost, robust_files: tuple[Path, Path], tmp_path: Path
) -> None:
    """verify, jobs, export with --host: run there, and known there."""
    environment = {**os.environ, "PYTHONPATH": str(BACKEND), "BOUNDSCOPE_REMOTE_COMMAND": elsewhere.command}
    environment["OMP_NUM_THREADS"] = "1"

    def boundscope(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "boundscope", *map(str, words)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    place = f"{HOST}:{elsewhere.home}"
    done = boundscope("verify", *robust_files, "--method", "ibp", "--host", place)
    assert done.returncode in (0, 20), done.stderr
    listed = boundscope("jobs", "--host", place)
    assert "digits_mlp.onnx" in listed.stdout, listed.stderr
    exported = boundscope("export", "last", "--csv", tmp_path / "out", "--host", place)
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "out" / "layers.csv").exists()
    refused = boundscope("jobs", "--host", "-oProxyCommand=true")
    assert refused.returncode == 2
    with connect_remote(elsewhere) as client:
        client.request(Shutdown(force=True))


@pytest.fixture
def robust_files() -> tuple[Path, Path]:
    examples = Path(__file__).resolve().parents[2] / "resources" / "examples"
    return examples / "networks" / "digits_mlp.onnx", examples / "digits-robust" / "property.vnnlib"
