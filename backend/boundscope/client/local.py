"""The daemon of this machine: find the one that runs, or start one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boundscope.client.connection import connection_path, home_path, read_connection_file
from boundscope.client.link import Client
from boundscope.errors import DaemonError
from boundscope.protocol import ConnectionFile

LOG_NAME = "daemon.log"
LOG_LIMIT_BYTES = 4 << 20
_EXIT_HELD = 3  # another daemon was faster
_started: list[subprocess.Popen[bytes]] = []  # they outlive us on purpose; those that have ended are reaped


def ensure_local_daemon(
    home: Path | None = None, timeout_s: float = 60.0, *, spare: bool = True
) -> ConnectionFile:
    """The connection file of the daemon that serves `home`, which is started where none runs; `spare`: with a process
    that stands by for the next job, where $BOUNDSCOPE_NO_SPARE does not forbid it.

    Any number of programs may call this at once: one daemon comes of it. DaemonError, with the end of the
    daemon's log, where it does not start within `timeout_s`.
    """
    home = (home or home_path()).expanduser().absolute()
    _started[:] = [process for process in _started if process.poll() is None]
    deadline = time.monotonic() + timeout_s
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (found := running_daemon(home)) is not None:
            return found
        with _start_lock(home, deadline):
            if (found := running_daemon(home)) is not None:
                return found
            return _start(home, deadline, spare=spare)
    except OSError as error:
        raise DaemonError(
            f"the daemon's home {home} cannot be used: {error.strerror}; set BOUNDSCOPE_HOME to another folder"
        ) from error


def running_daemon(home: Path) -> ConnectionFile | None:
    """The connection file of a daemon that answers; None where there is none (a stale file counts as none)."""
    try:
        connection = read_connection_file(connection_path(home))
        with Client.connect(connection, timeout_s=5.0):
            return connection
    except DaemonError:
        return None


@contextmanager
def _start_lock(home: Path, deadline: float) -> Iterator[None]:
    """Held by the one program that starts a daemon for this home."""
    descriptor = os.open(home / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DaemonError(
                        f"another program has been starting a daemon for {home} for too long"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _start(home: Path, deadline: float, *, spare: bool) -> ConnectionFile:
    log_path = home / LOG_NAME
    if log_path.exists() and log_path.stat().st_size > LOG_LIMIT_BYTES:
        log_path.replace(home / f"{LOG_NAME}.old")
    options = [] if spare else ["--no-spare"]
    environment = dict(os.environ)
    if paths := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep))
    with log_path.open("ab") as log:
        begin = log.seek(0, 2)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "boundscope.daemon", "--home", str(home), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=home,
            env=environment,
        )
    while time.monotonic() < deadline:
        code = process.poll()
        if code is None or code == _EXIT_HELD:
            if connection_path(home).exists() and (found := running_daemon(home)) is not None:
                _started.append(process)
                return found
        else:
            raise DaemonError(f"the daemon did not start (status {code}):\n{_tail(log_path, begin)}")
        time.sleep(0.02)
    if process.poll() is None:
        process.terminate()
    raise DaemonError(f"the daemon did not start in time:\n{_tail(log_path, begin)}")


def _tail(path: Path, begin: int) -> str:
    """The last lines that this start wrote to the log."""
    with path.open("rb") as file:
        file.seek(max(begin, file.seek(0, 2) - 4000))
        text = file.read().decode(errors="replace").strip()
    return "\n".join(text.splitlines()[-15:]) or f"(nothing in {path})"
