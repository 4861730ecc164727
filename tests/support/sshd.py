"""A real ssh server on loopback, with keys of its own, and the ssh that reaches it as host `elsewhere`."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "elsewhere"
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def missing() -> str:
    """Why there can be no such server here; "" where there can."""
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "no ssh client is installed (openssh-client)"
    if not os.access(SSHD, os.X_OK):
        return "no ssh server is installed (openssh-server)"
    return ""


@dataclass
class SshServer:
    """`ssh`: the words that reach it, for $BOUNDSCOPE_SSH; keys and folders lie under `folder`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def ssh(self) -> str:
        return f"ssh -F {self.folder / 'ssh_config'}"

    def start(self) -> None:
        log = (self.folder / "sshd.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None, (self.folder / "sshd.log").read_text()
            assert time.monotonic() < deadline, "sshd does not listen"
            time.sleep(0.02)

    def connections(self) -> list[int]:
        """Process ids of those that serve a connection."""
        import psutil

        assert self.process is not None
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def cut(self) -> None:
        """End the server and every connection, as a network that fails."""
        import psutil

        assert self.process is not None
        children = psutil.Process(self.process.pid).children()
        self.process.kill()
        self.process.wait()
        for child in children:
            if "sshd" in child.name():
                for each in (child, *child.children()):
                    if "sshd" in each.name():
                        each.kill()


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """A running server, which ends with the context."""
    folder.mkdir(mode=0o700)
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    key = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nStrictModes no\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    (folder / "ssh_config").write_text(
        f"Host {HOST}\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile none\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # what sshd drops its privileges into
    server = SshServer(folder, port)
    server.start()
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.cut()
