"""A result as one JSON object, as CSV files and as a few lines for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from boundscope.cli.output import number_text, seconds_text, size_text
from boundscope.errors import BoundscopeError
from boundscope.protocol import (
    Counterexample,
    InstanceResult,
    InstancesResult,
    Margin,
    RankMemory,
    Seconds,
    VariabilityResult,
    Verdict,
    VerifyResult,
)
from boundscope.records import GROUP, JobRecord, Table, above_zero, search_words

_COLOURS = {Verdict.VERIFIED: "bold green", Verdict.VIOLATED: "bold red", Verdict.ERROR: "bold red"}
_SHOWN_VALUES = 8
NO_SECONDS = Seconds(load=0.0, parse=0.0, solve=0.0)


# ---------------------------------------------------------------- for programs


def document(result: VerifyResult | VariabilityResult) -> dict[str, Any]:
    """What `--json` writes: the fields of the result, without the tag of the wire."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    del fields["type"]
    return fields


def benchmark_document(result: InstancesResult, rows: Iterable[InstanceResult]) -> dict[str, Any]:
    """What `--json` writes of a benchmark: the fields of its end, and its rows."""
    fields: dict[str, Any] = {**msgspec.to_builtins(result), "instances": msgspec.to_builtins(list(rows))}
    for each in (fields, *fields["instances"]):
        del each["type"]
    return fields


def write_json(result: VerifyResult | VariabilityResult, target: str) -> None:
    """Write to a file, or to standard output for "-"."""
    write_document(document(result), target)


def write_document(fields: dict[str, Any], target: str) -> None:
    """The same, for a document that is made already."""
    text = msgspec.json.format(msgspec.json.encode(fields), indent=2).decode() + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BoundscopeError(f"--json {target} cannot be written: {error.strerror}") from None


def write_csv(tables: Iterable[Table], folder: Path) -> tuple[Path, ...]:
    """One file a table, byte for byte what the window exports."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for table in tables:
            path = folder / f"{table.name}.csv"
            path.write_text(table.to_csv(), encoding="utf-8", newline="")
            paths.append(path)
    except OSError as error:
        raise BoundscopeError(f"{folder} cannot be written: {error.strerror}") from None
    return tuple(paths)


# ---------------------------------------------------------------- for people


def print_summary(result: VerifyResult, record: JobRecord) -> None:
    """Lines of `name  value` on standard output; the verdict has a colour on a terminal."""
    lines = summary_lines(result, record)
    if not sys.stdout.isatty():
        print("\n".join(f"{name:<16}{value}" for name, value in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for name, value in lines:
        style = _COLOURS.get(result.verdict, "bold yellow") if name == "verdict" else ""
        console.print(Text.assemble((f"{name:<16}", "dim"), (value, style)), soft_wrap=True)


def summary_lines(result: VerifyResult, record: JobRecord) -> list[tuple[str, str]]:
    """Name and value of every line, in the order in which people want to know them."""
    lines = [
        ("verdict", result.verdict.value),
        ("arithmetic", result.arithmetic),
        ("reason", result.reason),
    ]
    if record.property is not None:
        lines += [("property", words) for words in record.property.words[:6]]
    lines += _margin_lines(result.margin)
    if result.search is not None:
        lines.append(("search", search_words(result.search).replace(GROUP, " ")))
    if result.counterexample is not None:
        lines += _counterexample_lines(result.counterexample, result.reason)
    seconds = result.seconds
    lines.append(
        (
            "time",
            f"load {seconds_text(seconds.load)}, parse {seconds_text(seconds.parse)}, "
            f"solve {seconds_text(seconds.solve)}",
        )
    )
    lines += [("memory", _memory_text(memory)) for memory in result.peak_bytes]
    lines.append(("reproduce", result.command))
    return [(name, value) for name, value in lines if value]


def _margin_lines(margin: Margin) -> list[tuple[str, str]]:
    if margin.smallest is None and not margin.per_clause:
        return []
    excluded = sum(clause.excluded for clause in margin.per_clause)
    reached = [clause.upper for clause in margin.per_clause if clause.upper is not None]
    text = f"at least {number_text(margin.smallest)}" if margin.smallest is not None else "no bound"
    text = "above 0" if above_zero(margin) else text
    if reached:
        text += f", at most {number_text(min(reached))} (reached by an input)"
    return [("margin", text), ("clauses", f"{excluded} of {len(margin.per_clause)} excluded")]


def _counterexample_lines(found: Counterexample, reason: str) -> list[tuple[str, str]]:
    replay = found.replay
    note = "" if replay.note in reason else f" ({replay.note})"
    agreed = replay.inside_box and replay.violates and replay.violates_unoptimized
    said = "ONNX Runtime agrees: inside the box, and it violates" if agreed else "ONNX Runtime does not agree"
    return [
        ("counterexample", f"case {found.case}, clause {found.clause}: {found.clause_text}"),
        ("  inputs", _values_text(found.inputs)),
        ("  outputs", _values_text([f"{value:.6g}" for value in found.outputs])),
        ("  replay", said + note),
    ]


def _values_text(values: Iterable[str]) -> str:
    values = list(values)
    shown = ", ".join(values[:_SHOWN_VALUES])
    return shown if len(values) <= _SHOWN_VALUES else f"{shown}, … ({len(values)} in all)"


def _memory_text(memory: RankMemory) -> str:
    largest = sorted(memory.by_category.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {size_text(count)}" for name, count in largest[:3] if count)
    return (
        f"rank {memory.rank}: {size_text(memory.ledger_peak_bytes)} counted{f' ({parts})' if parts else ''}, "
        f"{size_text(memory.resident_peak_bytes)} resident"
    )
