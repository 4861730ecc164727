"""`boundscope pause`, `continue` and `cancel`: what is asked of a job that the daemon runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from boundscope.cli.execution import connect
from boundscope.cli.jobs import find_job
from boundscope.cli.output import complain
from boundscope.protocol import JobState

if TYPE_CHECKING:
    from boundscope.client import Client

PATIENCE_S = 20.0


def run_pause(arguments: argparse.Namespace) -> int:
    """Have a job stand still; comes back when it does."""

    def ask(client: Client, job_id: str) -> None:
        client.pause(job_id)

    return _change(arguments, ask, lambda state: state is JobState.PAUSED or state.ended)


def run_continue(arguments: argparse.Namespace) -> int:
    """End a pause."""

    def ask(client: Client, job_id: str) -> None:
        client.go_on(job_id)

    return _change(arguments, ask, lambda state: not state.held)


def run_cancel(arguments: argparse.Namespace) -> int:
    """Stop a job; comes back when it has ended."""

    def ask(client: Client, job_id: str) -> None:
        client.cancel(job_id, force=arguments.force)

    return _change(arguments, ask, lambda state: state.ended)


def _change(
    arguments: argparse.Namespace, ask: Callable[[Client, str], None], done: Callable[[JobState], bool]
) -> int:
    """Ask, and say what state comes of it; 1 where that takes too long."""
    client = connect(arguments.home)
    try:
        info = find_job(client.jobs(), arguments.job)
        ask(client, info.id)
        end_s = time.monotonic() + PATIENCE_S
        info = find_job(client.jobs(), info.id)
        while not done(info.state) and time.monotonic() < end_s:
            time.sleep(0.05)
            info = find_job(client.jobs(), info.id)
    finally:
        client.close()
    if not done(info.state):
        complain(f"job {info.id} is still {info.state.value}: some rank is inside a long step")
        return 1
    print(f"job {info.id} is {info.state.value}")
    return 0
