"""The report of a run: one HTML page that stands alone, a CSV of every table, a picture of every view."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from boundscope.errors import BoundscopeError
from boundscope.protocol import JobInfo, to_json
from boundscope.records import JobRecord
from boundscope.report.page import page
from boundscope.report.pictures import draw


@dataclass(frozen=True)
class Report:
    """Files written, the page first; `left_out` says what could not be made and the remedy, or is empty."""

    paths: tuple[Path, ...]
    left_out: str = ""


def write_report(record: JobRecord, info: JobInfo, folder: Path) -> tuple[Path, ...]:
    """Write `report.html`, `result.json`, a CSV a table and a PNG a view; the paths, the page first."""
    return make_report(record, info, folder).paths


def make_report(record: JobRecord, info: JobInfo, folder: Path) -> Report:
    """As `write_report`. Without Qt the pictures are left out, which the page and `left_out` say.

    Raises BoundscopeError where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for table in record.tables():
            path = folder / f"{table.name}.csv"
            path.write_text(table.to_csv(), encoding="utf-8", newline="")
            written.append(path)
        result = record.result or record.variability or record.benchmark
        if result is not None:
            path = folder / "result.json"
            path.write_text(to_json(result) + "\n", encoding="utf-8")
            written.append(path)
        pictures = draw(record, info, folder)
        written += pictures.paths
        html = folder / "report.html"
        html.write_text(page(record, info, pictures), encoding="utf-8")
    except OSError as error:
        raise BoundscopeError(f"the report cannot be written to {folder}: {error.strerror}") from None
    return Report((html, *written), pictures.left_out)
