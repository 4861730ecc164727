"""The spare process: `python -m boundscope.worker.spare HOME` imports all that jobs need, then forks one for each job.

It has one thread and no files but its two pipes, so that a fork is whole and holds nothing of another job. It asks for
nothing and computes nothing; it ends with its daemon, or when the daemon closes the pipe and its jobs have ended.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from boundscope.daemon.spare import Ended, Ready, Start, Started
from boundscope.worker import process

# ONNX Runtime is not among them: it starts a thread.
MODULES = (
    "torch",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.distributed.launcher.api",
    "boundscope.worker.inspect",
    "boundscope.worker.instances",
    "boundscope.worker.launch",
    "boundscope.worker.rank",
    "boundscope.worker.rendezvous",
    "boundscope.worker.summary",
    "boundscope.worker.variability",
    "boundscope.worker.verify",
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Start).decode


def main() -> NoReturn:
    process.begin()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)  # what some import prints is no answer
    for module in MODULES:
        importlib.import_module(module)
    if (count := process.thread_count()) != 1:
        sys.exit(f"the spare process has {count} threads, and cannot be forked")
    # What is there now stays, so the collector need not touch (and thereby copy) it in every fork.
    gc.collect()
    gc.freeze()
    _serve(answers)
    process.end(0)


def _serve(answers: int) -> None:
    """Fork for every request, and say how each fork ended; until the pipe is closed and all have."""
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _say(answers, Ready())
    buffer, listening, children = b"", True, 0
    while listening or children:
        ready = select.select([wake_read, 0] if listening else [wake_read], [], [])[0]
        if wake_read in ready:
            os.read(wake_read, 4096)
        children -= _report_ended(answers)
        if 0 in ready:
            data = os.read(0, 65536)
            listening = bool(data)
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                children += 1
                if os.fork() == 0:
                    process.run_to_the_end(partial(_become, _decode(line), answers, (wake_read, wake_write)))


def _report_ended(answers: int) -> int:
    """Say of every child that has ended how it did; their number."""
    count = 0
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return count
        if pid == 0:
            return count
        count += 1
        _say(answers, Ended(pid, os.waitstatus_to_exitcode(status)))


def _say(answers: int, message: Ready | Started | Ended) -> None:
    """One write, so that lines of several processes do not mix."""
    os.write(answers, _encode(message) + b"\n")


def _become(request: Start, answers: int, others: tuple[int, ...]) -> None:
    """In the fork: become the job's process, as if it had been started anew."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    try:
        os.unlink(request.ticket)
    except FileNotFoundError:
        return  # the daemon has waited long enough
    _say(answers, Started(request.number, os.getpid()))
    for end in (answers, *others):
        os.close(end)
    _redirect(request.log)
    os.environ.update(request.variables)
    importlib.import_module(request.module).main(Path(request.folder))


def _redirect(log: str) -> None:
    """Standard input from nowhere, output and errors into the job's log."""
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, file), (2, file)):
        os.dup2(source, target)
    os.close(null)
    os.close(file)


if __name__ == "__main__":
    main()
