"""The daemon of another host: the system's ssh starts it there, reads one JSON line, and carries the connection.

So ~/.ssh/config, agents, keys and ProxyJump work as people have them, and nothing listens to the outside: ssh leads
from a socket in a folder that only this user can enter to the daemon's own loopback port.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from boundscope.client.link import Client
from boundscope.errors import DaemonError
from boundscope.protocol import ConnectionFile

COMMAND_VARIABLE = "BOUNDSCOPE_REMOTE_COMMAND"
SSH_VARIABLE = "BOUNDSCOPE_SSH"  # the ssh to use, with options, as `ssh -F FILE`
START_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 15
_ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
_POLL_S = 0.02
_NO_PROGRAM, _SSH_FAILED = 127, 255


def _nothing() -> None:
    return None


class RemoteHost(msgspec.Struct, frozen=True, kw_only=True):
    """`name` as `ssh NAME` takes it (alias, host, user@host); `command` starts boundscope there; `home` "": its own."""

    name: str
    command: str = ""
    home: str = ""

    @property
    def problem(self) -> str:
        """Why ssh could not be asked for this host; "" where it could."""
        if not self.name:
            return "Name the host, as you would write it after ssh."
        if self.name.startswith("-") or any(letter.isspace() for letter in self.name):
            return f"{self.name!r} is no host: write an alias of ~/.ssh/config, a host's name, or USER@HOST."
        return ""

    @property
    def text(self) -> str:
        """As `read_host` takes it; the command is not part of it."""
        return f"{self.name}:{self.home}" if self.home else self.name

    @property
    def start_line(self) -> str:
        """What the shell of that host is given."""
        program = self.command or os.environ.get(COMMAND_VARIABLE) or "boundscope"
        home = f" --home {shlex.quote(self.home)}" if self.home else ""
        return f"{program} daemon start --connection{home}"


def read_host(text: str) -> RemoteHost:
    """HOST or HOST:DIR, DIR being the daemon's folder there; DaemonError for what can be no host."""
    name, _, home = text.partition(":")
    host = RemoteHost(name=name, home=home)
    if host.problem:
        raise DaemonError(host.problem)
    return host


class Tunnel:
    """A daemon on another host, reachable through `connection` until `close`."""

    def __init__(
        self, host: RemoteHost, connection: ConnectionFile, process: subprocess.Popen[bytes], folder: str
    ):
        """Use `open_tunnel`."""
        self.host = host
        self.connection = connection
        self._process = process
        self._folder = folder

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Hang up; the daemon and its jobs go on."""
        if self.alive:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_tunnel(
    host: RemoteHost, *, timeout_s: float = START_TIMEOUT_S, check: Callable[[], None] = _nothing
) -> Tunnel:
    """Start the daemon there where none runs, and a way to it. `check` is called while waiting; what it raises ends it.

    DaemonError says what ssh or the other host said.
    """
    if host.problem:
        raise DaemonError(host.problem)
    deadline = time.monotonic() + timeout_s
    connection = _start_daemon(host, deadline, check)
    port = connection.address.rpartition(":")[2]
    if not port.isdigit():
        raise DaemonError(
            f"the daemon on {host.name} listens at {connection.address}, which ssh cannot lead to"
        )
    folder = tempfile.mkdtemp(prefix="boundscope-ssh-")  # mode 0700
    socket = Path(folder) / "daemon"
    try:
        process = _ssh(
            host,
            "-N",
            *("-o", "ExitOnForwardFailure=yes"),
            *("-o", "StreamLocalBindMask=0177"),
            *("-L", f"{socket}:127.0.0.1:{port}"),
        )
        said = _Said(process)
        try:
            while not socket.exists():
                _check_process(host, process, said, deadline, check)
        except BaseException:
            process.kill()
            process.wait()
            raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    led = msgspec.structs.replace(connection, address=f"ipc://{socket}", host=host.name)
    return Tunnel(host, led, process, folder)


def connect_remote(host: RemoteHost, *, check: Callable[[], None] = _nothing) -> Client:
    """A client of the daemon there; closing it ends the tunnel."""
    tunnel = open_tunnel(host, check=check)
    try:
        client = Client.connect(tunnel.connection, timeout_s=CONNECT_TIMEOUT_S)
    except BaseException:
        tunnel.close()
        raise
    client.when_closed(tunnel.close)
    return client


def _ssh(host: RemoteHost, *words: str) -> subprocess.Popen[bytes]:
    """ssh that never asks: whoever started it may have no terminal."""
    program = shlex.split(os.environ.get(SSH_VARIABLE, "ssh"))
    options = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}", *_ALIVE)
    name = ("--", host.name)
    before, after = (words, ()) if words and words[0].startswith("-") else ((), words)
    try:
        return subprocess.Popen(
            [*program, *options, *before, *name, *after],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl+C in the terminal is ours to answer
        )
    except OSError as error:
        raise DaemonError(
            f"{program[0]} cannot be started: {error.strerror}; install an ssh client"
        ) from error


class _Said:
    """What a process has said so far, gathered while it runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.out, self.err = bytearray(), bytearray()
        self._threads = []
        for stream, kept in ((process.stdout, self.out), (process.stderr, self.err)):
            thread = threading.Thread(target=self._gather, args=(stream, kept), daemon=True)
            thread.start()
            self._threads.append(thread)

    @staticmethod
    def _gather(stream: object, kept: bytearray) -> None:
        with stream:  # type: ignore[attr-defined]
            while piece := stream.read1(65536):  # type: ignore[attr-defined]
                kept.extend(piece)

    def finish(self) -> tuple[str, str]:
        """Both texts; what a child of the process keeps open is not waited for."""
        for thread in self._threads:
            thread.join(2.0)
        return self.out.decode(errors="replace"), self.err.decode(errors="replace")


def _start_daemon(host: RemoteHost, deadline: float, check: Callable[[], None]) -> ConnectionFile:
    process = _ssh(host, host.start_line)
    said = _Said(process)
    try:
        while process.poll() is None:
            _check_process(host, process, said, deadline, check)
    except BaseException:
        process.kill()
        process.wait()
        raise
    out, err = said.finish()
    if process.returncode:
        raise DaemonError(_why(host, process.returncode, err or out))
    for line in reversed(out.splitlines()):  # a login shell may have greeted before
        if line.startswith("{"):
            try:
                return msgspec.json.decode(line, type=ConnectionFile)
            except msgspec.DecodeError:
                continue
    raise DaemonError(
        f"{host.name} did not say how to reach its daemon: `{host.start_line}` must print one line of JSON. "
        "Is its boundscope as new as this one?"
    )


def _check_process(
    host: RemoteHost,
    process: subprocess.Popen[bytes],
    said: _Said,
    deadline: float,
    check: Callable[[], None],
) -> None:
    """Wait a little; DaemonError where the process has failed or takes too long."""
    check()
    try:
        status = process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        if time.monotonic() > deadline:
            raise DaemonError(
                f"{host.name} did not answer in time. Try it in a terminal: ssh {host.name}"
            ) from None
        return
    if status:
        raise DaemonError(_why(host, status, said.finish()[1]))


def _why(host: RemoteHost, status: int, text: str) -> str:
    """What went wrong there, and what to do about it."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Warning: ")]
    last = lines[-1].removesuffix(".") if lines else f"status {status}"
    if status == _NO_PROGRAM:
        return (
            f"{host.name} has no program {host.start_line.split()[0]!r} where its shell looks ({last}). Install "
            f"Boundscope there, or give its whole path (the host's Command, or ${COMMAND_VARIABLE})"
        )
    if status != _SSH_FAILED:
        return f"the daemon on {host.name} did not start: {last}"
    if "Permission denied" in last:
        return (
            f"{host.name} does not let you in ({last}). ssh must work without a password: put your key there "
            f"(ssh-copy-id {host.name}) or into an agent (ssh-add)"
        )
    if "Host key verification failed" in last:
        return (
            f"the key of {host.name} is not known, or another than before. Connect once in a terminal and look at it: "
            f"ssh {host.name}"
        )
    return f"ssh cannot reach {host.name}: {last}. Try it in a terminal: ssh {host.name}"
