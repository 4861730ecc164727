"""Where a daemon lives on disk and how its connection file is read. No sockets here."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import platformdirs

from boundscope.errors import DaemonError
from boundscope.protocol import PROTOCOL_OLDEST, PROTOCOL_VERSION, ConnectionFile

HOME_VARIABLE = "BOUNDSCOPE_HOME"


def home_path() -> Path:
    """The daemon's home: $BOUNDSCOPE_HOME, else the user's state directory for boundscope."""
    chosen = os.environ.get(HOME_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_state_path("boundscope")


def connection_path(home: Path) -> Path:
    """The connection file of the daemon that serves `home`."""
    return home / "daemon.json"


def read_connection_file(path: Path) -> ConnectionFile:
    """Read a connection file; DaemonError where it is missing, unreadable or not one."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise DaemonError(
            f"no daemon runs here: there is no {path}. Start one with: boundscope daemon"
        ) from None
    except OSError as error:
        raise DaemonError(f"the connection file {path} cannot be read: {error.strerror}") from error
    try:
        connection = msgspec.json.decode(text, type=ConnectionFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DaemonError(
            f"{path} is not a connection file ({error}). Stop the daemon, remove the file and start the daemon again"
        ) from error
    for field in ("server_public_key", "client_public_key", "client_secret_key"):
        if len(getattr(connection, field)) != 40:
            raise DaemonError(f"{path}: {field} must be a Z85 key of 40 characters. Start the daemon again")
    return connection


def versions_meet(protocol_min: int, protocol_max: int) -> int | None:
    """The newest protocol that both this program and a peer of that range speak; None where there is none."""
    newest = min(PROTOCOL_VERSION, protocol_max)
    return newest if newest >= max(PROTOCOL_OLDEST, protocol_min) else None


def mismatch_sentence(peer: str, peer_version: str, protocol_min: int, protocol_max: int) -> str:
    """What to tell people where `versions_meet` gives None."""
    older = "this program" if protocol_min > PROTOCOL_VERSION else peer
    return (
        f"{peer} (boundscope {peer_version or 'of unknown version'}) speaks protocol "
        f"{_span(protocol_min, protocol_max)}, this program speaks "
        f"{_span(PROTOCOL_OLDEST, PROTOCOL_VERSION)}; update {older}"
    )


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
