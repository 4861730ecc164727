"""Ranks as forks of the launcher, so that none of them has to import anything again.

They are forked before torchrun's agent is there and wait for it to start them: the agent has threads, and a fork, which
has only the thread that called it, would find every lock that another one held locked for ever.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from boundscope.worker import process

HOOK = "get_subprocess_handler"  # by which torchrun's agent starts a rank


class ForkedRank:
    """A rank that waits for its environment, then works. What of subprocess.Popen torchrun needs."""

    def __init__(self, work: Callable[[], NoReturn], others: list[ForkedRank]) -> None:
        read, self._write = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            for each in (self, *others):
                os.close(each._write)
            process.run_to_the_end(lambda: _wait_and_work(read, work))
        os.close(read)

    def start(self, environment: Mapping[str, str]) -> None:
        with os.fdopen(self._write, "wb") as pipe:
            pipe.write(json.dumps(dict(environment)).encode())

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("rank", timeout or 0.0)
            time.sleep(0.01)
        return code


def _wait_and_work(read: int, work: Callable[[], NoReturn]) -> None:
    process.begin()
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    if told:
        os.environ.clear()
        os.environ.update(json.loads(told))
        work()


def can_fork() -> bool:
    """Whether ranks can be forks of this process: one thread, no GPU (CUDA does not outlive a fork), on Linux."""
    import torch
    from torch.distributed.elastic.multiprocessing import api

    return (
        sys.platform == "linux"
        and not torch.cuda.is_available()
        and process.thread_count() == 1
        and hasattr(api, HOOK)
    )


def fork_ranks(count: int, work: Callable[[], NoReturn]) -> None:
    """Fork so many ranks, which torchrun's agent will find where it would start processes."""
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    waiting: list[ForkedRank] = []
    for _ in range(count):
        waiting.append(ForkedRank(work, list(waiting)))

    class Handler(SubprocessHandler):
        def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Any:
            rank = waiting.pop(0)
            rank.start(env)
            return rank

    setattr(api, HOOK, lambda **given: Handler(**given))
