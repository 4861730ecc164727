"""Who gets in, and what those hear who do not."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from boundscope.client import Client, connection_path, ensure_local_daemon, read_connection_file
from boundscope.daemon.endpoint import KeyPair
from boundscope.errors import DaemonError
from boundscope.protocol import (
    BLOB_CHUNK_BYTES,
    BlobGet,
    ConnectionFile,
    Hello,
    Ping,
    Request,
    Shutdown,
    Welcome,
)
from daemon.support import LIMIT_S, environment, leftovers, upload_bytes, wait_for

LIMIT_MS = round(1000 * LIMIT_S)


def raw_dealer(
    context: zmq.Context, connection: ConnectionFile | None, address: str, waiting: int = 1000
) -> zmq.Socket:
    """`waiting`: messages that it takes from the wire before they are read."""
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.setsockopt(zmq.RCVHWM, waiting)
    if connection is not None:
        dealer.curve_serverkey = connection.server_public_key.encode()
        dealer.curve_publickey = connection.client_public_key.encode()
        dealer.curve_secretkey = connection.client_secret_key.encode()
    dealer.connect(address)
    return dealer


def with_key(connection: ConnectionFile, keys: KeyPair) -> ConnectionFile:
    return msgspec.structs.replace(connection, client_public_key=keys.public, client_secret_key=keys.secret)


def test_home_and_connection_file_are_private(serve):
    home = serve().home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(connection_path(home).stat().st_mode) == 0o600


def test_connection_file_names_the_process_and_a_loopback_port(serve):
    daemon = serve()
    connection = read_connection_file(connection_path(daemon.home))
    assert connection.pid == daemon.pid
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", connection.address)


def test_unknown_key_is_refused(serve):
    """It is told so, instead of being left without an answer for as long as it would wait for one."""
    connection = read_connection_file(connection_path(serve().home))
    with pytest.raises(DaemonError, match="the daemon refused this key"):
        Client.connect(with_key(connection, KeyPair.new()), timeout_s=LIMIT_S)


def test_wrong_server_key_is_told_apart(serve):
    connection = read_connection_file(connection_path(serve().home))
    wrong = msgspec.structs.replace(connection, server_public_key=KeyPair.new().public)
    with pytest.raises(DaemonError, match="does not have the key"):
        Client.connect(wrong)


def test_client_without_curve_gets_no_answer(serve):
    connection = read_connection_file(connection_path(serve().home))
    context = zmq.Context()
    dealer = raw_dealer(context, None, connection.address)
    refused = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED)
    dealer.send(msgspec.json.encode(Hello()))
    try:
        assert refused.poll(LIMIT_MS), "the refusal must be seen"
        assert dealer.poll(200) == 0
    finally:
        dealer.disable_monitor()
        refused.close()
        dealer.close()
        context.term()


@pytest.mark.parametrize(("low", "high", "older"), [(7, 9, "update the daemon"), (0, 0, "update the client")])
def test_protocol_mismatch_is_a_sentence(serve, low, high, older):
    connection = read_connection_file(connection_path(serve().home))
    context = zmq.Context()
    dealer = raw_dealer(context, connection, connection.address)
    dealer.send(msgspec.json.encode(Hello(protocol_min=low, protocol_max=high, version="9.9")))
    try:
        assert dealer.poll(LIMIT_MS)
        welcome = msgspec.json.decode(dealer.recv(), type=Welcome)
    finally:
        dealer.close()
        context.term()
    assert welcome.boundscope == "refused"
    assert f"speaks protocol {low} to {high}" in welcome.reason
    assert older in welcome.reason


def test_client_refuses_a_daemon_of_another_protocol_before_connecting(serve):
    connection = read_connection_file(connection_path(serve().home))
    newer = msgspec.structs.replace(connection, protocol_min=5, protocol_max=6, version="9.9")
    with pytest.raises(
        DaemonError, match=r"the daemon \(boundscope 9.9\) speaks protocol 5 to 6.*update this program"
    ):
        Client.connect(newer)


def test_a_request_before_the_hello_is_answered_with_a_refusal(serve):
    connection = read_connection_file(connection_path(serve().home))
    context = zmq.Context()
    dealer = raw_dealer(context, connection, connection.address)
    dealer.send(msgspec.msgpack.encode(Request(id=1, body=Ping())))
    try:
        assert dealer.poll(LIMIT_MS)
        assert msgspec.json.decode(dealer.recv(), type=Welcome).boundscope == "refused"
    finally:
        dealer.close()
        context.term()


def test_nonsense_does_not_stop_the_daemon(serve):
    daemon = serve()
    connection = read_connection_file(connection_path(daemon.home))
    context = zmq.Context()
    dealer = raw_dealer(context, connection, connection.address)
    dealer.send(msgspec.json.encode(Hello()))
    for nonsense in (b"", b"\xff" * 100, b"{", b"\x81\xa4type\xa3huh"):
        dealer.send(nonsense)
    dealer.close()
    context.term()
    assert daemon.client().ping().jobs_running == 0


def test_daemon_that_has_gone_is_named(serve):
    daemon = serve()
    connection = read_connection_file(connection_path(daemon.home))
    client = daemon.client()
    daemon.kill()
    with pytest.raises(DaemonError, match="went away"):
        wait_for(client.ping)
    with pytest.raises(DaemonError, match=f"nothing listens.*process {daemon.pid}"):
        Client.connect(connection)


def test_a_stale_connection_file_is_replaced(serve):
    daemon = serve()
    daemon.kill()
    assert connection_path(daemon.home).exists()
    daemon.start()
    connection = read_connection_file(connection_path(daemon.home))
    assert connection.pid == daemon.pid
    daemon.client().ping()


def test_one_daemon_a_home(serve):
    daemon = serve()
    command = [sys.executable, "-P", "-m", "boundscope.daemon", "--home", str(daemon.home)]
    second = subprocess.run(
        command, env=environment(daemon.home), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert second.returncode == 3
    assert f"the daemon with process id {daemon.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    daemon.client().ping()


def test_a_fresh_daemon_is_small_and_has_no_torch(serve):
    daemon = serve()
    daemon.client().ping()
    assert psutil.Process(daemon.pid).memory_info().rss < 120 << 20
    maps = Path(f"/proc/{daemon.pid}/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    assert "libtorch" not in maps.read_text()


@pytest.mark.parametrize("module", ["boundscope.client", "boundscope.daemon.__main__", "boundscope.protocol"])
def test_client_and_daemon_import_no_torch(module, tmp_path):
    code = f"import sys, {module}; assert 'torch' not in sys.modules and 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], env=environment(tmp_path), check=True, timeout=LIMIT_S)


def test_sigterm_removes_the_connection_file(serve):
    daemon = serve()
    daemon.process.terminate()
    assert daemon.process.wait(LIMIT_S) == 0
    assert not connection_path(daemon.home).exists()


def test_shutdown_by_request(serve):
    daemon = serve()
    daemon.client().request(Shutdown())
    assert daemon.process.wait(LIMIT_S) == 0


def test_the_last_answers_reach_a_slow_client(serve, tmp_path):
    """What was answered before a shutdown is sent whole, however late the client reads it."""
    daemon = serve()
    blob = upload_bytes(daemon.client(), tmp_path, "blob", os.urandom(BLOB_CHUNK_BYTES))
    connection = read_connection_file(connection_path(daemon.home))
    with zmq.Context() as context, raw_dealer(context, connection, connection.address, waiting=1) as slow:
        slow.send(msgspec.json.encode(Hello(version="test")))
        asked = [*(BlobGet(sha256=blob.sha256) for _ in range(24)), Shutdown()]
        for number, body in enumerate(asked):
            slow.send(msgspec.msgpack.encode(Request(id=number, body=body)))
        wait_for(lambda: not connection_path(daemon.home).exists(), what="the daemon's farewell")
        time.sleep(1.5)  # longer than the daemon would wait for one that takes nothing
        received = []
        while len(received) < 1 + len(asked) and slow.poll(LIMIT_MS):
            received.append(slow.recv())
    assert len(received) == 1 + len(asked)
    assert daemon.process.wait(LIMIT_S) == 0


def test_idle_exit_waits_for_clients_to_leave(serve):
    for idle_s in (0.5, 4.0, 32.0):
        daemon = serve("light", "--idle-exit", str(idle_s))
        with contextlib.suppress(DaemonError):  # a busy machine may let it go before anybody comes
            client = daemon.client()
            break
    for _ in range(4):
        assert client.poll(0.8 * idle_s) == []
    assert daemon.process.poll() is None
    client.close()
    assert daemon.process.wait(LIMIT_S) == 0


# ---------------------------------------------------------------- a home that cannot be used


def start_in(home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "boundscope.daemon", "--home", str(home)]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=LIMIT_S)


def test_home_that_is_a_file(tmp_path):
    home = tmp_path / "file"
    home.write_text("")
    ended = start_in(home)
    assert ended.returncode == 1
    assert f"the daemon's home {home} cannot be used" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_damaged_store(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "store.sqlite3").write_bytes(b"this is no database at all " * 100)
    ended = start_in(home)
    assert ended.returncode == 1
    assert "is damaged" in ended.stderr
    assert "move it away" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_home_without_permission(tmp_path):
    home = tmp_path / "closed"
    home.mkdir(mode=0o500)
    ended = start_in(home / "home")
    assert ended.returncode == 1
    assert "Permission denied" in ended.stderr


# ---------------------------------------------------------------- ensure_local_daemon


@pytest.fixture
def ensured_home(tmp_path, monkeypatch):
    """A home whose daemon, started detached, is ended afterwards."""
    home = tmp_path / "ensured"
    monkeypatch.setenv("PYTHONPATH", environment(home)["PYTHONPATH"])
    yield home
    for process in leftovers(home):
        process.terminate()
    wait_for(lambda: not leftovers(home), what="the end of the daemon")


def test_two_starters_get_one_daemon(ensured_home):
    found: list[ConnectionFile] = []
    starters = [
        threading.Thread(target=lambda: found.append(ensure_local_daemon(ensured_home))) for _ in range(4)
    ]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(LIMIT_S)
    assert len(found) == 4
    assert len({connection.pid for connection in found}) == 1
    assert len(leftovers(ensured_home)) == 1


def test_the_running_daemon_is_used(serve):
    daemon = serve()
    assert ensure_local_daemon(daemon.home).pid == daemon.pid


def test_a_daemon_that_cannot_start_shows_its_log(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "store.sqlite3").write_bytes(b"rubbish" * 1000)
    monkeypatch.setenv("PYTHONPATH", environment(home)["PYTHONPATH"])
    with pytest.raises(DaemonError, match=r"(?s)did not start \(status 1\).*is damaged"):
        ensure_local_daemon(home)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "no daemon runs here"), (b"{]", "is not a connection file"), (b"{}", "is not a connection file")],
)
def test_bad_connection_files(tmp_path, content, sentence):
    path = tmp_path / "daemon.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DaemonError, match=sentence):
        read_connection_file(path)
