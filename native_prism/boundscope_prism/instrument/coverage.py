"""What was perturbed: floating-point operations by operator and by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One operator in one layer. Floating-point operations are those that round: a fused multiply-add is two.

    `inside` operations were rounded one by one by the mode. `at_output` ones ran in torch's own arithmetic, and their
    results were perturbed once. `untouched` ones were not perturbed at all. Operators that never round (copies, views,
    comparisons, maxima, indexing, random draws) have calls and no operations.
    """

    operator: str
    layer: str
    calls: int
    inside: int
    at_output: int
    untouched: int

    @property
    def total(self) -> int:
        return self.inside + self.at_output + self.untouched


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a program the mode reached.

    Attributes:
        by_place: a row for each operator in each layer, in the order of their first calls.
        values_read: how often a floating-point number left torch (Tensor.item() and the like); what Python computes
            with it is not seen.
    """

    by_place: tuple[CoverageRow, ...]
    values_read: int = 0

    @property
    def inside(self) -> int:
        return sum(row.inside for row in self.by_place)

    @property
    def total(self) -> int:
        return sum(row.total for row in self.by_place)

    @property
    def share_inside(self) -> float:
        """The part of the floating-point operations that was rounded inside, 0 to 1; 1 where there were none."""
        return self.inside / self.total if self.total else 1.0

    @property
    def complete(self) -> bool:
        """Whether every floating-point operation was rounded inside."""
        return self.inside == self.total

    def rows(self) -> tuple[CoverageRow, ...]:
        """One row an operator, over all layers, most operations first."""
        return tuple(sorted(_merged(self.by_place, "layer"), key=lambda row: (-row.total, row.operator)))

    def layers(self) -> tuple[CoverageRow, ...]:
        """One row a layer, over all operators, in the order of execution."""
        return _merged(self.by_place, "operator")

    def at_output(self) -> tuple[str, ...]:
        """The operators that torch computed itself, and whose results were perturbed once or not at all."""
        return tuple(row.operator for row in self.rows() if row.at_output or row.untouched)

    def sentence(self) -> str:
        """The whole in words: what share was inside and which operators were not."""
        if not self.total:
            text = "No floating-point operation was seen."
        elif self.complete:
            text = f"100 % of {_amount(self.total)} floating-point operations were rounded inside."
        else:
            rows = self.rows()
            parts = [
                f"{_percent(self.share_inside)} of {_amount(self.total)} floating-point operations were rounded inside"
            ]
            for key, words in (("at_output", "at the output only"), ("untouched", "not at all")):
                names = [row.operator for row in rows if getattr(row, key)]
                if names:
                    part = sum(getattr(row, key) for row in rows) / self.total
                    parts.append(f"{_percent(part)} {words} ({', '.join(names)})")
            text = "; ".join(parts) + "."
        if self.values_read:
            times = "once" if self.values_read == 1 else f"{self.values_read} times"
            text += f" A number was read into Python {times}: what Python computed with it was not seen."
        return text


def _merged(rows: Iterable[CoverageRow], over: str) -> tuple[CoverageRow, ...]:
    merged: dict[str, CoverageRow] = {}
    for row in rows:
        key = row.operator if over == "layer" else row.layer
        so_far = merged.get(key)
        if so_far is None:
            merged[key] = replace(row, layer="") if over == "layer" else replace(row, operator="")
        else:
            merged[key] = replace(
                so_far,
                calls=so_far.calls + row.calls,
                inside=so_far.inside + row.inside,
                at_output=so_far.at_output + row.at_output,
                untouched=so_far.untouched + row.untouched,
            )
    return tuple(merged.values())


def _percent(share: float) -> str:
    """Never rounded up to 100 % nor down to 0 %."""
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{min(share * 100, 99.9 if share < 1 else 100):.3g} %"


def _amount(count: int) -> str:
    for unit, name in ((10**12, " T"), (10**9, " G"), (10**6, " M"), (10**3, " k")):
        if count >= unit:
            return f"{count / unit:.3g}{name}"
    return str(count)


class Cell:
    """The counters of one operator in one layer while it runs."""

    __slots__ = ("at_output", "calls", "inside", "untouched")

    def __init__(self) -> None:
        self.calls = 0
        self.inside = 0
        self.at_output = 0
        self.untouched = 0


class Tally:
    """Counts while a program runs; see Coverage."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Cell] = {}
        self.values_read = 0

    def cell(self, operator: str, layer: str) -> Cell:
        key = (operator, layer)
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell()
        return cell

    def coverage(self) -> Coverage:
        rows = (
            CoverageRow(operator, layer, cell.calls, cell.inside, cell.at_output, cell.untouched)
            for (operator, layer), cell in self.cells.items()
        )
        return Coverage(tuple(rows), self.values_read)
