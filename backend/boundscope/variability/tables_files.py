"""Tables written as CSV or Parquet, whole or not at all.

CSV is as `boundscope.records` writes it: RFC 4180, floats with 17 significant digits at most, empty where there is no
value. Parquet needs pyarrow, which Boundscope does not install by itself.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from boundscope.errors import UsageError, VariabilityError
from boundscope.records import Table
from boundscope.variability.moments_file import replaced

FORMATS = ("csv", "parquet")


@dataclass(frozen=True)
class Columns:
    """Some rows of a large table: one array a column, all of one length; NaN in a float column is no value."""

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def write_table(table: Table, path: Path) -> None:
    """Write a small table as `.csv` or `.parquet`, by the path's ending; whole or not at all.

    Raises UsageError for another ending and where pyarrow is missing, VariabilityError where it cannot be written.
    """
    if _format(path) == "csv":
        with replaced(path) as stream:
            stream.write(table.to_csv().encode())
        return
    arrow, parquet = _pyarrow()
    columns = {name: [row[position] for row in table.rows] for position, name in enumerate(table.columns)}
    # A column without any value would have no type otherwise, and could not be joined with other runs' tables.
    data = arrow.table(
        {
            name: arrow.array(
                cells, type=None if any(cell is not None for cell in cells) else arrow.float64()
            )
            for name, cells in columns.items()
        }
    )
    with replaced(path) as stream:
        parquet.write_table(data, stream)


def write_columns(chunks: Iterable[Columns], path: Path) -> int:
    """Write a large table as `.csv` or `.parquet`, by the path's ending; the number of rows.

    All chunks have the same columns. Raises as `write_table` does, and VariabilityError where there is no chunk.
    """
    write = _write_csv if _format(path) == "csv" else _write_parquet
    return write(iter(chunks), path)


def _first(chunks: Iterator[Columns], path: Path) -> Columns:
    first = next(chunks, None)
    if first is None:
        raise VariabilityError(f"{path}: there is no layer to write")
    return first


def _write_csv(chunks: Iterator[Columns], path: Path) -> int:
    first = _first(chunks, path)
    rows = 0
    with replaced(path) as stream:
        for part in chain((first,), chunks):
            buffer = io.StringIO()
            writer = csv.writer(buffer, lineterminator="\n")
            if part is first:
                writer.writerow(part.columns)
            writer.writerows(zip(*(_csv_cells(array) for array in part.columns.values()), strict=True))
            stream.write(buffer.getvalue().encode())
            rows += len(part)
    return rows


def _csv_cells(array: NDArray[Any]) -> list[Any]:
    cells: list[Any] = array.tolist()
    if array.dtype.kind == "f":
        return ["" if math.isnan(cell) else repr(cell) for cell in cells]
    return cells


def _write_parquet(chunks: Iterator[Columns], path: Path) -> int:
    arrow, parquet = _pyarrow()

    def as_arrow(part: Columns) -> Any:
        return arrow.table(
            {name: arrow.array(array, from_pandas=True) for name, array in part.columns.items()}
        )

    first = _first(chunks, path)
    rows = 0
    with replaced(path) as stream, parquet.ParquetWriter(stream, as_arrow(first).schema) as writer:
        for part in chain((first,), chunks):
            writer.write_table(as_arrow(part))
            rows += len(part)
    return rows


def _format(path: Path) -> str:
    ending = path.suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        raise UsageError(
            f"{path}: tables are written as .csv or .parquet, not as {path.suffix or 'a name without ending'}"
        )
    return ending


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            f"Parquet needs pyarrow, which cannot be imported ({error}): pip install pyarrow, or write .csv instead"
        ) from error
    return pyarrow, pyarrow.parquet
