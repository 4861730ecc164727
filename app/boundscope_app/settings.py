"""What the window keeps between two starts, in one JSON file that is written in one piece. No Qt."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

import msgspec
import platformdirs

from boundscope.client import RemoteHost

CONFIG_VARIABLE = "BOUNDSCOPE_CONFIG"
FILE_NAME = "workbench.json"
RECENT_LIMIT = 20
LIBRARY_LIMIT = 500
ThemeChoice = Literal["light", "dark", "system"]


class Settings(msgspec.Struct, kw_only=True):
    """`geometry` and `layout` are Qt's own bytes; `recent` has the newest first."""

    theme: ThemeChoice = "system"
    geometry: bytes = b""
    layout: bytes = b""
    view: str = ""
    recent: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    selected_job: str = ""
    selected_layer: str = ""  # of that job, by the name of its ONNX node
    compared: tuple[str, ...] = ()  # jobs, the first is what ratios are to
    last_folder: str = ""
    hosts: tuple[RemoteHost, ...] = ()  # that the window may connect to
    host: str = ""  # the one it was connected to, "" for this computer

    @property
    def last_host(self) -> RemoteHost | None:
        """The host that the window was connected to last, where it is still known."""
        return next((each for each in self.hosts if each.name == self.host), None)

    def known(self, host: RemoteHost) -> RemoteHost:
        """The host as it was written down in the window, with its command, in the folder that is asked for now."""
        kept = next((each for each in self.hosts if each.name == host.name), None)
        return host if kept is None else msgspec.structs.replace(kept, home=host.home or kept.home)

    def remember(self, path: Path) -> None:
        """Put a path first among the recent ones."""
        text = str(path.absolute())
        self.recent = (text, *(old for old in self.recent if old != text))[:RECENT_LIMIT]
        self.last_folder = str(path.absolute().parent)


def config_folder() -> Path:
    """`$BOUNDSCOPE_CONFIG`, or the user's configuration folder of the platform."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_config_path("boundscope")


def settings_path() -> Path:
    return config_folder() / FILE_NAME


def load(path: Path | None = None) -> tuple[Settings, str]:
    """The kept settings, and a note for the user or "". An unreadable file is set aside, never deleted."""
    path = path or settings_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings), ""
    except FileNotFoundError:
        return Settings(), ""
    except OSError as error:
        return Settings(), f"The settings in {path} cannot be opened ({error.strerror}); defaults are in use."
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Settings(), set_aside(path, error, "The settings", "defaults are in use")


def set_aside(path: Path, error: Exception, what: str, instead: str) -> str:
    """Give an unreadable file another name; the sentence that says so."""
    aside = path.with_name(f"{path.stem}.unreadable-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    try:
        path.replace(aside)
    except OSError as failed:
        return f"{what}, in {path}, cannot be read ({error}) nor set aside ({failed.strerror})."
    return f"{what} could not be read ({error}); it is set aside as {aside}, and {instead}."


def save(settings: Settings, path: Path | None = None) -> str:
    """Write in one piece; "" or a sentence that says why it could not be written."""
    path = path or settings_path()
    problem = write_whole(path, msgspec.json.format(msgspec.json.encode(settings), indent=1))
    return f"The settings cannot be written to {path}: {problem}" if problem else ""


def write_whole(path: Path, data: bytes) -> str:
    """Replace the file in one piece, so that it is whole whenever this process ends; "" or why that is not possible."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""
