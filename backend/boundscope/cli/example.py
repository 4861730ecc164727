"""`boundscope example`: run one in the terminal, and leave its report in a folder that is named."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

import msgspec

from boundscope.cli import inputs, results
from boundscope.cli.execution import run_here
from boundscope.cli.output import complain
from boundscope.command import command_line
from boundscope.examples import FIRST_EXAMPLE, Example, example, examples
from boundscope.protocol import PropertyFile, VerifyJob
from boundscope.worker.files import JobFiles


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 where the verdict is the one that the example promises, else that of the verdict."""
    if arguments.list:
        for found in examples():
            print(f"{found.id:<16}{found.title} ({found.expected})")
        return 0
    chosen = example(arguments.name or FIRST_EXAMPLE)
    return run_example(chosen, arguments.report or Path("boundscope-report") / chosen.id)


def run_example(chosen: Example, folder: Path) -> int:
    from boundscope.report import make_report

    print(f"{chosen.title}\n{textwrap.fill(chosen.description, 88)}\n", flush=True)
    files = JobFiles(network=chosen.network, property=chosen.property)
    job = VerifyJob(
        network=inputs.describe(chosen.network, "NET"),
        property=PropertyFile(file=inputs.describe(chosen.property, "PROPERTY")),
        method=chosen.method,
    )
    outcome = run_here(job, files)
    command = command_line(job, files.network, files.property)
    result = msgspec.structs.replace(outcome.result, command=command)
    outcome.record.result = result
    results.print_summary(result, outcome.record)
    report = make_report(outcome.record, outcome.info, folder)
    print(f"{'report':<16}{report.paths[0].absolute()}")
    if report.left_out:
        complain(report.left_out)
    if result.verdict is chosen.expected:
        return 0
    complain(f"this example was expected to be {chosen.expected}")
    return result.verdict.exit_code or 1
