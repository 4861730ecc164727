"""A benchmark for people: a line an instance while it runs, and at its end what was solved, and what not and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from boundscope.cli.output import number_text, seconds_text
from boundscope.protocol import InstanceResult, InstancesJob, InstancesResult, Verdict
from boundscope.records import one_line

if TYPE_CHECKING:
    from boundscope.cli.instances_results import ResultsFile

STYLES = {Verdict.VERIFIED: "green", Verdict.VIOLATED: "red", Verdict.ERROR: "bold red"}
UNSOLVED_STYLE = "yellow"
_SOLVED = (Verdict.VERIFIED, Verdict.VIOLATED)


def style_of(verdict: Verdict) -> str:
    """How rich writes a verdict."""
    return STYLES.get(verdict, UNSOLVED_STYLE)


def row_text(row: InstanceResult, done: int, total: int, counterexample: Path | None) -> str:
    """ " 3/15  verified       0.420 s  net.onnx · p.vnnlib  margin at least 0.012"."""
    width = len(str(total))
    text = (
        f"{done:>{width}}/{total}  {row.verdict.value.replace('_', ' '):<13}  {seconds_text(row.seconds):>12}  "
        f"{row.network} · {row.property}"
    )
    if row.verdict is Verdict.VERIFIED:
        # Of a search that split, the margin that is known is the root's, which proves nothing by itself.
        proven = row.margin is not None and row.margin > 0
        return f"{text}  margin at least {number_text(row.margin)}" if proven else text
    if row.verdict is Verdict.VIOLATED:
        return text if counterexample is None else f"{text}  {counterexample}"
    return f"{text}  {one_line(row.reason)}"


def print_summary(result: InstancesResult, file: ResultsFile, job: InstancesJob) -> None:
    """Counts by verdict with their time, then every instance that is not solved."""
    rows = [row for _, row in sorted(file.done.items())]
    lines = [("benchmark", f"{job.name}: {result.reason}")]
    for verdict in Verdict:
        own = [row.seconds for row in rows if row.verdict is verdict]
        if own:
            name = verdict.value.replace("_", " ")
            mean = seconds_text(sum(own) / len(own))
            lines.append(
                (name, f"{len(own):>5}   {seconds_text(sum(own)):>12} in all   {mean:>12} on average")
            )
    lines.append(("time", seconds_text(result.tally.seconds)))
    unsolved = [row for row in rows if row.verdict not in _SOLVED]
    for number, row in enumerate(unsolved):
        word = row.verdict.value.replace("_", " ")
        text = f"{row.number + 1}: {row.network} · {row.property}: {word}: {one_line(row.reason)}"
        lines.append(("" if number else "unsolved", text))
    lines += [("results", str(file.path)), ("reproduce", result.command)]
    _print([(name, value) for name, value in lines if value])


def _print(lines: list[tuple[str, str]]) -> None:
    if not sys.stdout.isatty():
        print("\n".join(f"{name:<16}{value}" for name, value in lines))
        return
    from rich.console import Console
    from rich.text import Text

    styles = {verdict.value.replace("_", " "): style_of(verdict) for verdict in Verdict}
    console = Console(highlight=False)
    for name, value in lines:
        console.print(Text.assemble((f"{name:<16}", styles.get(name, "dim")), value), soft_wrap=True)
