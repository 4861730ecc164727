"""`boundscope compare`: jobs of the daemon side by side, from what its store holds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boundscope import comparison
from boundscope.cli import results
from boundscope.cli.execution import connect
from boundscope.cli.jobs import find_job, read_history
from boundscope.cli.output import complain, number_text, seconds_text, size_text
from boundscope.comparison import Fact, Run
from boundscope.errors import BoundscopeError
from boundscope.records import Cell, Table

NAME_WIDTH, MOST_COLUMN = 34, 30
MOST_LAYERS = 60


def run(arguments: argparse.Namespace) -> int:
    """Print the table of differences, or write it."""
    client = connect(arguments.home)
    try:
        known = client.jobs()
        infos = [find_job(known, name) for name in arguments.jobs]
        comparison.checked(infos)
        runs = [Run(info, read_history(client, info)) for info in infos]
    finally:
        client.close()
    if arguments.json is not None:
        results.write_document(document(runs), arguments.json)
    elif arguments.csv is not None:
        for path in write_tables(comparison.tables(runs), arguments.csv):
            print(path)
    else:
        print("\n".join(lines(runs)))
        for note in comparison.notes(runs):
            complain(note)
    return 0


def write_tables(tables: Sequence[Table], target: str) -> tuple[Path, ...]:
    """The first table at `target`, the others beside it, byte for byte as the window; "-": the first one, on standard
    output."""
    if target == "-":
        sys.stdout.write(tables[0].to_csv())
        return ()
    first = Path(target)
    written = []
    for place, table in enumerate(tables):
        path = first if place == 0 else first.with_name(f"{first.stem}_{table.name}{first.suffix}")
        try:
            path.write_text(table.to_csv(), encoding="utf-8", newline="")
        except OSError as error:
            raise BoundscopeError(f"--csv {path} cannot be written: {error.strerror}") from None
        written.append(path)
    return tuple(written)


def document(runs: Sequence[Run]) -> dict[str, Any]:
    """What `--json` writes: the runs, every fact with its values, and the rows of the other tables by column."""
    facts = [
        {
            "name": fact.name,
            "unit": fact.unit,
            "asked": fact.asked,
            "differs": fact.differs,
            "values": list(fact.values),
        }
        for fact in comparison.facts(runs)
    ]
    names = comparison.run_names(runs)
    more = {
        table.name.removeprefix("compare_"): [
            dict(zip(table.columns, row, strict=True)) for row in table.rows
        ]
        for table in comparison.tables(runs)[1:]
    }
    return {
        "runs": [
            {"id": each.info.id, "name": name, "title": each.info.title}
            for each, name in zip(runs, names, strict=True)
        ],
        "facts": facts,
        "notes": list(comparison.notes(runs)),
        **more,
    }


# ---------------------------------------------------------------- for people


def lines(runs: Sequence[Run]) -> list[str]:
    """One column a run, `≠` before each option that differs; then layers, and what the noise says."""
    names = comparison.heads(runs)
    facts = comparison.facts(runs)
    shown = [[shown_value(fact, value) for value in fact.values] for fact in facts]
    columns = list(zip(names, (run.info.id for run in runs), *shown, strict=True))
    widths = [min(MOST_COLUMN, max(len(text) for text in column)) for column in columns]

    def line(mark: str, name: str, cells: Sequence[str]) -> str:
        fitted = (f"{_cut(cell, width):<{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"{mark} {_cut(name, NAME_WIDTH):<{NAME_WIDTH}}  {'  '.join(fitted)}".rstrip()

    found = [line(" ", "", names), line(" ", "job", [run.info.id for run in runs])]
    for fact, cells in zip(facts, shown, strict=True):
        found.append(line("≠" if fact.asked and fact.differs else " ", fact.name, cells))
    found += _width_lines(runs, widths)
    found += ["", *comparison.noise_sentences(runs)] if comparison.noise_sentences(runs) else []
    return found


def _width_lines(runs: Sequence[Run], widths: Sequence[int]) -> list[str]:
    rows = comparison.width_rows(runs)
    if not rows:
        return []
    found = ["", "  greatest width of each layer, and its ratio to the first run's"]
    for row in rows[:MOST_LAYERS]:
        texts = [
            number_text(width) + ("" if ratio is None else f"  ×{ratio:.3g}")
            for width, ratio in zip(row.widths, (None, *row.ratios), strict=True)
        ]
        name = row.node if not row.case else f"{row.node} (case {row.case})"
        fitted = (f"{_cut(text, width):<{width}}" for text, width in zip(texts, widths, strict=True))
        found.append(f"  {_cut(name, NAME_WIDTH):<{NAME_WIDTH}}  {'  '.join(fitted)}".rstrip())
    if len(rows) > MOST_LAYERS:
        found.append(f"  … {len(rows) - MOST_LAYERS} more; --csv and --json hold them all")
    return found


def shown_value(fact: Fact, value: Cell) -> str:
    """A value with its unit as people read it."""
    if value is None:
        return "–"
    if fact.unit == "B":
        return size_text(float(value))
    if fact.unit == "s":
        return seconds_text(float(value))
    text = number_text(value) if isinstance(value, float) else str(value)
    return f"{text} {fact.unit}" if fact.unit else text


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
