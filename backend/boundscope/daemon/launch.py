"""The process that a job begins with, which starts its ranks: started anew here, by a spare process in `spare`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from boundscope.daemon.jobspec import LOG_NAME, Kind
from boundscope.daemon.processes import child_environment, python_command


class Launched(Protocol):
    """What of subprocess.Popen a job needs."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """The exit status once it has ended; negative, the signal that killed it."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; subprocess.TimeoutExpired where it has not ended in time."""
        ...


# The kind of the job, its folder, and variables to add to the environment; OSError where that cannot be done.
Launch = Callable[[Kind, Path, Mapping[str, str]], Launched]


def launch_anew(kind: Kind, folder: Path, variables: Mapping[str, str]) -> Launched:
    """Start `python -m MODULE FOLDER` in a session of its own; what it writes goes to the job's log."""
    with (folder / LOG_NAME).open("ab") as log:
        return subprocess.Popen(
            python_command(kind.module, str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=child_environment(**variables),
        )
