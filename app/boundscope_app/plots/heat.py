"""What a heatmap shows, before it is drawn. No Qt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """`group` is what neighbouring columns have in common, such as the rank that took the samples."""

    name: str
    group: str = ""


@dataclass(frozen=True)
class HeatCell:
    """Significant bits, or the mark that says why there are none; neither where nothing was told."""

    bits: float | None = None
    mark: str = ""
    wrong: bool = False  # whether the mark is of something that should not be, such as NaN


@dataclass(frozen=True)
class HeatRow:
    """A named row: its cells, one a column, and a note beside them on what no number of bits describes."""

    name: str
    cells: tuple[HeatCell, ...]
    flag: str = ""


@dataclass(frozen=True)
class Heat:
    """Rows from the top; colours go from 0 to `full_bits`, or, of differences, from −full_bits to full_bits."""

    columns: tuple[Column, ...] = ()
    rows: tuple[HeatRow, ...] = ()
    full_bits: int = 24
    column_title: str = ""
    diverging: bool = False
    unit: str = "significant bits"
