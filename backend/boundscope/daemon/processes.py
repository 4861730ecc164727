"""Processes: how to start a child, how to know it again, how to end it with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

PARENT_VARIABLE = "BOUNDSCOPE_PARENT_PID"


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours; -P keeps the working directory off the import path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(**extra: str) -> dict[str, str]:
    """This environment, with PYTHONPATH made absolute and our pid, by which the child knows its parent."""
    environment = {**os.environ, PARENT_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1", **extra}
    if paths := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep))
    return environment


@dataclass(frozen=True)
class ProcessMark:
    """A process that is not mistaken for a later one with the same pid: `birth` is when it started."""

    pid: int
    birth: str

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """The mark of the process that has this pid now; None where there is none (a zombie counts as gone)."""
        birth = _birth(pid)
        return None if birth is None else cls(pid, birth)

    @property
    def alive(self) -> bool:
        return _birth(self.pid) == self.birth

    def send(self, number: signal.Signals) -> bool:
        """Signal it if it is still this process; whether it was."""
        if not self.alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


def _birth(pid: int) -> str | None:
    if sys.platform == "linux":
        fields = _stat_fields(pid)
        if fields is None or fields[0] in ("Z", "X"):
            return None
        return f"{_boot_id()}:{fields[19]}"
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return repr(process.create_time())
    return None


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on; the second may hold blanks and parentheses."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal (SIGSTOP) or a debugger."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def is_runnable(pid: int) -> bool:
    """Whether the process's first thread computes, would if a processor were free, or waits for a disk.

    Where no /proc tells: False.
    """
    fields = _stat_fields(pid)
    return fields is not None and fields[0] in ("R", "D")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time that these processes and their descendants have used."""
    total = 0.0
    for process in _with_descendants(pids):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _with_descendants(pids: Iterable[int]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                found[each.pid] = each
    return list(found.values())


def signal_trees(marks: Iterable[ProcessMark], number: signal.Signals) -> int:
    """Signal these processes, all their descendants and the groups that they lead; how many were signalled.

    torchrun gives every rank its own session, so that signalling one process group would not reach them.
    """
    roots = [mark.pid for mark in marks if mark.alive]
    count = 0
    for process in _with_descendants(roots):
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            count += 1
    return count


def oom_kills() -> int | None:
    """How often the kernel's out-of-memory killer struck in this process's control group; None if unknown."""
    try:
        group = Path("/proc/self/cgroup").read_text(encoding="ascii").strip().rpartition("::")[2]
        text = Path(f"/sys/fs/cgroup{group}/memory.events").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    counts = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
