"""The daemon's home folder: who may enter (mode 0700), who serves it (a lock), where it can be reached."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from boundscope import __version__
from boundscope.client.connection import connection_path
from boundscope.daemon.hello import HOST
from boundscope.daemon.jobspec import write_private
from boundscope.errors import DaemonError, StoreError
from boundscope.protocol import PROTOCOL_OLDEST, PROTOCOL_VERSION, ConnectionFile


class Home:
    """Opens a home and holds its lock until `close`. DaemonError where another daemon serves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store_path = path / "store.sqlite3"
        self.blobs_path = path / "blobs"
        self.jobs_path = path / "jobs"
        try:
            self._prepare()
            self._lock = self._take_lock()
            connection_path(path).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"the daemon's home {path} cannot be used: {error.strerror}; choose another folder with --home"
            ) from error

    def _prepare(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.path.stat().st_uid != os.geteuid():
            raise StoreError(f"{self.path} belongs to another user; choose another folder with --home")
        self.path.chmod(0o700)
        for folder in (self.blobs_path, self.jobs_path):
            folder.mkdir(exist_ok=True, mode=0o700)

    def _take_lock(self) -> int:
        descriptor = os.open(self.path / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 500).decode(errors="replace").strip() or "an unknown process"
            os.close(descriptor)
            raise DaemonError(
                f"{holder} already serves {self.path}; use it, stop it first, or choose another folder with --home"
            ) from None
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(descriptor, 0)
        os.pwrite(
            descriptor, f"the daemon with process id {os.getpid()} on {HOST}, since {since},".encode(), 0
        )
        return descriptor

    def publish(
        self, address: str, server_public_key: str, client_public_key: str, client_secret_key: str
    ) -> None:
        """Write the connection file: from now on clients find this daemon."""
        connection = ConnectionFile(
            address=address,
            server_public_key=server_public_key,
            client_public_key=client_public_key,
            client_secret_key=client_secret_key,
            protocol_min=PROTOCOL_OLDEST,
            protocol_max=PROTOCOL_VERSION,
            version=__version__,
            pid=os.getpid(),
            host=HOST,
        )
        write_private(connection_path(self.path), msgspec.json.format(msgspec.json.encode(connection)))

    def close(self) -> None:
        """Take the connection file away and let go of the lock."""
        with suppress(FileNotFoundError):
            connection_path(self.path).unlink()
        os.close(self._lock)
