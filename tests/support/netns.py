"""Two machines in one: network namespaces joined by a veth pair, an ssh server in each, reached as people reach hosts.

Nothing of this machine's own ssh settings is read or changed: the keys, the servers' and ours, and the configuration
lie in the test's folder.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SSHD_CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding no
"""
CLIENT_CONFIG = """
Host {name}
  HostName {address}
  Port {port}
  HostKeyAlias {name}
"""
CLIENT_DEFAULTS = """
Host *
  User root
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


@dataclass(frozen=True)
class Ssh:
    """Hosts that `shell` reaches."""

    shell: str
    folder: Path
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]


def require_sshd() -> str:
    """The server's path; the test is skipped where it cannot be started."""
    sshd = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
    if sshd is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh server here: apt-get install openssh-server")
    if os.geteuid() != 0:
        pytest.skip("an ssh server of one's own needs root")
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    return sshd


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def _write_keys(folder: Path) -> None:
    for name in ("host_key", "user_key"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=folder))


@contextmanager
def _server(sshd: str, folder: Path, address: str, port: int, inside: tuple[str, ...] = ()) -> Iterator[None]:
    words = [*inside, sshd, "-D", "-e", "-f", str(folder / "sshd_config"), "-p", str(port), "-o"]
    with (folder / "sshd.log").open("ab") as log:
        server = subprocess.Popen([*words, f"ListenAddress={address}"], stderr=log, stdin=subprocess.DEVNULL)
    try:
        _await(address, port, folder)
        yield
    finally:
        server.terminate()
        server.wait(10)


def _await(address: str, port: int, folder: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"sshd did not start: {(folder / 'sshd.log').read_text()}")


def _client(folder: Path, hosts: dict[str, tuple[str, int]]) -> str:
    """The configuration and the known hosts; the words that run ssh with them."""
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    parts = [CLIENT_CONFIG.format(name=name, address=a, port=p) for name, (a, p) in hosts.items()]
    (folder / "ssh_config").write_text("".join(parts) + CLIENT_DEFAULTS.format(folder=folder))
    (folder / "known_hosts").write_text("".join(f"{name} {key}\n" for name in hosts))
    return f"ssh -F {folder}/ssh_config"


@contextmanager
def loopback_ssh(folder: Path) -> Iterator[Ssh]:
    """One ssh server on loopback, which two names lead to."""
    sshd = require_sshd()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _write_keys(folder)
    hosts = dict.fromkeys(("here-a", "here-b"), ("127.0.0.1", port))
    shell = _client(folder, hosts)
    with _server(sshd, folder, "127.0.0.1", port):
        yield Ssh(shell, folder, tuple(hosts), ("127.0.0.1", "127.0.0.1"))


@contextmanager
def two_namespaces(folder: Path) -> Iterator[Ssh]:
    """Two namespaces that reach each other and this one through a bridge, each with an ssh server.

    In each of them the machine's own name is 127.0.1.1, as Debian installs it.
    """
    sshd = require_sshd()
    if shutil.which("ip") is None:
        pytest.skip("no `ip` here: apt-get install iproute2")
    mark = f"bs{os.getpid() % 100000:x}"
    net = f"10.{211 + os.getpid() % 30}.{os.getpid() % 251}"
    _write_keys(folder)
    hosts = {"node-a": (f"{net}.1", 22), "node-b": (f"{net}.2", 22)}
    with ExitStack() as stack:
        try:
            _bridge(stack, mark, net)
            for number in (1, 2):
                _namespace(stack, mark, net, number)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        shell = _client(folder, hosts)
        for number, (address, port) in enumerate(hosts.values(), 1):
            inside = ("ip", "netns", "exec", f"{mark}{number}")
            stack.enter_context(_server(sshd, folder, address, port, inside))
        yield Ssh(shell, folder, tuple(hosts), tuple(address for address, _ in hosts.values()))


def _bridge(stack: ExitStack, mark: str, net: str) -> None:
    _run("ip", "link", "add", f"{mark}br", "type", "bridge")
    stack.callback(_run, "ip", "link", "del", f"{mark}br")
    _run("ip", "addr", "add", f"{net}.254/24", "dev", f"{mark}br")
    _run("ip", "link", "set", f"{mark}br", "up")


def _namespace(stack: ExitStack, mark: str, net: str, number: int) -> None:
    space, outer = f"{mark}{number}", f"{mark}v{number}"
    own = Path("/etc/netns") / space  # where `ip netns exec` takes /etc/hosts from
    own.mkdir(parents=True)
    stack.callback(shutil.rmtree, own)
    (own / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
    _run("ip", "netns", "add", space)
    stack.callback(_run, "ip", "netns", "del", space)
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
    _run("ip", "link", "set", outer, "master", f"{mark}br", "up")
    _run("ip", "-n", space, "addr", "add", f"{net}.{number}/24", "dev", "eth0")
    _run("ip", "-n", space, "link", "set", "eth0", "up")
    _run("ip", "-n", space, "link", "set", "lo", "up")
