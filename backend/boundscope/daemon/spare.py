"""A process that stands by with everything imported and forks one for each job, whose start then costs nearly nothing.

It runs `boundscope.worker.spare`, and only on Linux. Where none is ready, a job is launched anew. The jobs are its
children, so they end if it is killed; it dies with the daemon.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

import boundscope
from boundscope.daemon.jobspec import LOG_NAME, Kind
from boundscope.daemon.launch import Launched, launch_anew
from boundscope.daemon.processes import PARENT_VARIABLE, ProcessMark, child_environment, python_command
from boundscope.protocol import Struct
from boundscope.threads import thread_variables

MODULE = "boundscope.worker.spare"
TICKET_NAME = "ticket"
LEAST_AVAILABLE_BYTES = 2 << 30  # with less memory left, none is kept
LOOK_S = 5.0  # how often that is looked at, and how soon one that died is replaced
ANSWER_S = 2.0
TAKEN_S = 5.0  # for one that has taken a job to say so
LOST_S = 10.0  # for one that lives to say how a job of it ended
ATTEMPTS = 3

log = logging.getLogger("boundscope.daemon")


class Start(Struct, frozen=True, tag="start"):
    """Fork, and call `module.main(folder)` there. Only who can remove the file `ticket` has the job.

    `variables` are added to the environment, which is that of the daemon as it is.
    """

    number: int
    module: str
    folder: str
    ticket: str
    log: str
    variables: dict[str, str]


class Ready(Struct, frozen=True, tag="ready"):
    """Everything is imported."""


class Started(Struct, frozen=True, tag="started"):
    number: int
    pid: int


class Ended(Struct, frozen=True, tag="ended"):
    pid: int
    status: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Ready | Started | Ended).decode


class _Process:
    """One spare process, as seen from here."""

    def __init__(self, home: Path) -> None:
        self.stamp = code_stamp()
        self.ready = False
        self._numbers = 0
        self._started: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._jobs: set[int] = set()
        self._buffer = b""
        self._process = subprocess.Popen(
            python_command(MODULE, str(home)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=child_environment(**thread_variables(1)),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self.mark = ProcessMark.of(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    @property
    def busy(self) -> bool:
        """Whether jobs of it run."""
        return bool(self._jobs)

    def read(self, timeout_s: float = 0.0) -> None:
        """Take what it has said."""
        while not self._answers.closed and select.select([self._answers], [], [], timeout_s)[0]:
            data = os.read(self._answers.fileno(), 65536)
            if not data:
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._hear(_decode(line))
            timeout_s = 0.0

    def _hear(self, message: Ready | Started | Ended) -> None:
        match message:
            case Ready():
                self.ready = True
            case Started(number=number, pid=pid):
                self._started[number] = pid
                self._jobs.add(pid)
                self._ended.pop(pid, None)
            case Ended(pid=pid, status=status):
                self._jobs.discard(pid)
                self._ended[pid] = status

    def start(self, module: str, folder: Path, variables: Mapping[str, str]) -> int | None:
        """The pid of the process that has the job; None where this one did not take it.

        OSError: it was taken by one that then fell silent.
        """
        ticket = folder / TICKET_NAME
        ticket.touch(mode=0o600)
        self._numbers += 1
        request = Start(
            self._numbers,
            module,
            str(folder),
            str(ticket),
            str(folder / LOG_NAME),
            {**variables, PARENT_VARIABLE: str(self.pid)},
        )
        with suppress(BrokenPipeError):
            self._requests.write(_encode(request) + b"\n")
            self._requests.flush()
        pid = self._answer_to(self._numbers, ANSWER_S)
        if pid is None:
            try:
                ticket.unlink()
            except FileNotFoundError:
                pid = self._answer_to(self._numbers, TAKEN_S)
                if pid is None:
                    raise OSError("a spare process took it and fell silent") from None
        return pid

    def _answer_to(self, number: int, timeout_s: float) -> int | None:
        deadline = time.monotonic() + timeout_s
        while number not in self._started:
            left_s = deadline - time.monotonic()
            if left_s < 0 or self.gone:
                return None
            self.read(min(left_s, 0.1))
        return self._started.pop(number)

    def status_of(self, pid: int) -> int | None:
        self.read()
        return self._ended.get(pid)

    def retire(self) -> None:
        """It takes no further job, and ends after those that it has."""
        with suppress(BrokenPipeError):
            self._requests.close()

    def close(self) -> None:
        """Take the last words of one that has ended."""
        self.read()
        self._answers.close()

    def kill(self) -> None:
        """End it, and the jobs that are still its children."""
        self._process.kill()
        self._process.wait()
        self.retire()
        self.close()


class _Forked:
    """A job's process, which is the spare process's child and not ours."""

    def __init__(self, spare: _Process, pid: int) -> None:
        self.pid = pid
        self._spare = spare
        self._mark = ProcessMark.of(pid)
        self._lost_s: float | None = None
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            self._status = self._spare.status_of(self.pid)
        if self._status is None and (self._mark is None or not self._mark.alive):
            # Its parent, who knows how it ended, has not said so: killed with it, or stopped.
            now = time.monotonic()
            self._lost_s = self._lost_s or now
            if self._spare.gone or now - self._lost_s > LOST_S:
                told = self._spare.status_of(self.pid)
                self._status = -signal.SIGKILL if told is None else told
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(MODULE, timeout or 0.0)
            time.sleep(0.01)
        return status


class Spare:
    """Keeps one spare process and launches jobs through it.

    `remember(mark)` and `forget(mark)`: what a crash of the daemon may leave behind.
    """

    def __init__(
        self,
        home: Path,
        *,
        wanted: bool,
        remember: Callable[[ProcessMark], object] = lambda mark: None,
        forget: Callable[[ProcessMark], object] = lambda mark: None,
    ) -> None:
        self._home = home
        self._wanted = wanted and sys.platform == "linux"
        self._remember = remember
        self._forget = forget
        self._process: _Process | None = None
        self._retired: list[_Process] = []
        self._looked_s = -LOOK_S
        self._failed = 0

    @property
    def pid(self) -> int | None:
        """The process that stands by, ready or not."""
        return None if self._process is None else self._process.pid

    @property
    def ready(self) -> bool:
        return self._process is not None and self._process.ready and not self._process.gone

    def tick(self, now: float) -> None:
        """Start one where none is; give it up where it died or memory is short."""
        if not self._wanted:
            return
        process = self._process
        if process is not None and not process.ready:
            process.read()
            if process.ready:
                self._failed = 0
                log.info("the spare process %d stands by", process.pid)
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        self._bury()
        enough = psutil.virtual_memory().available >= LEAST_AVAILABLE_BYTES
        if self._process is None and enough and self._failed < ATTEMPTS:
            self._start()
        elif self._process is not None and not enough and not self._process.busy:
            log.info("the spare process ends: memory is short")
            self._retire()

    def _start(self) -> None:
        try:
            self._process = _Process(self._home)
        except OSError as error:
            self._failed += 1
            log.warning("no spare process could be started: %s", error)
            return
        if self._process.mark is not None:
            self._remember(self._process.mark)

    def _bury(self) -> None:
        """Take leave of those that have ended."""
        process = self._process
        if process is not None and process.gone:
            if not process.ready:
                self._failed += 1
                log.warning("the spare process %d ended before it was ready", process.pid)
            self._retire()
        for retired in [each for each in self._retired if each.gone]:
            retired.close()
            self._retired.remove(retired)
            if retired.mark is not None:
                self._forget(retired.mark)

    def _retire(self) -> None:
        if self._process is not None:
            self._process.retire()
            self._retired.append(self._process)
            self._process = None

    def launch(self, kind: Kind, folder: Path, variables: Mapping[str, str]) -> Launched:
        """A `Launch`: through the spare process where it is ready and of the code that is installed, else anew."""
        process = self._process
        if process is None or not kind.warm:
            return launch_anew(kind, folder, variables)
        process.read()
        if process.ready and process.stamp != code_stamp():
            log.info("the spare process is of other code than is installed, and is replaced")
            self._retire()
        elif process.ready and not process.gone:
            try:
                pid = process.start(kind.module, folder, variables)
            except OSError:
                self._give_up(process)
                raise
            if pid is not None:
                return _Forked(process, pid)
            self._give_up(process)
        return launch_anew(kind, folder, variables)

    def _give_up(self, process: _Process) -> None:
        """One that does not answer ends, at once where no job goes with it."""
        log.warning("the spare process %d did not answer", process.pid)
        if not process.busy:
            process.kill()
        self._retire()

    def close(self) -> None:
        """End all of them, with whatever runs of them."""
        self._wanted = False
        for process in [*self._retired, *([] if self._process is None else [self._process])]:
            process.kill()
            if process.mark is not None:
                self._forget(process.mark)
        self._process, self._retired = None, []


def code_stamp() -> tuple[int, int]:
    """Changes when the code that a process would import now does: number of our modules, and the newest change."""
    paths = list(Path(boundscope.__file__).parent.rglob("*.py"))
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        paths.append(Path(spec.origin))
    changes = [0]
    for path in paths:
        with suppress(FileNotFoundError):  # an installation under way
            changes.append(path.stat().st_mtime_ns)
    return len(paths), max(changes)
