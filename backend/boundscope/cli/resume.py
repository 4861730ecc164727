"""`boundscope resume`: a new job of the daemon that goes on with the search of one that was cut short."""

from __future__ import annotations

import argparse

from boundscope.cli import results
from boundscope.cli.execution import connect, follow, outcome_of
from boundscope.cli.interrupt import stop_on_signal
from boundscope.cli.jobs import find_job
from boundscope.cli.progress import ProgressLine
from boundscope.protocol import VerifyJob


def run(arguments: argparse.Namespace) -> int:
    """Follow the new job to its end; exit status by verdict. Ctrl+C cancels it, and it can be resumed in turn."""
    client = connect(arguments.home)
    try:
        old = find_job(client.jobs(), arguments.job)
        line = ProgressLine(
            arguments.timeout or (old.job.timeout_s if isinstance(old.job, VerifyJob) else None)
        )
        with stop_on_signal(line.say_at_once) as stop, line:
            stop.check()
            new = client.resume(old.id, arguments.timeout)
            line.say(f"goes on with the search of job {old.id}")
            outcome = outcome_of(*follow(client, new, line, stop))
    finally:
        client.close()
    if arguments.json != "-":
        results.print_summary(outcome.result, outcome.record)
    if arguments.json is not None:
        results.write_json(outcome.result, arguments.json)
    return outcome.result.verdict.exit_code
