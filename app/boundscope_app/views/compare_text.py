"""The comparison as grids of texts: differences, widths of layers, significant digits. No widgets."""

from __future__ import annotations

from collections.abc import Sequence

from boundscope import comparison
from boundscope.comparison import LETTERS, Fact, Run
from boundscope.records import Cell
from boundscope_app.theme import Theme
from boundscope_app.views.compare import run_style
from boundscope_app.views.compare_table import Grid
from boundscope_app.views.text import aligned, byte_size, capital, count, number, seconds, step_name

DIFFERENT = "≠ "


def fact_text(fact: Fact, value: Cell) -> str:
    """A value with its unit, as people read it."""
    if value is None:
        return "–"
    if fact.unit == "B":
        return byte_size(float(value))
    if fact.unit == "s":
        return seconds(float(value))
    if isinstance(value, float):
        return number(value)
    text = count(value) if isinstance(value, int) else str(value)
    if fact.name == "method":
        return step_name(text)
    if fact.name == "verdict":
        return text.replace("_", " ")
    return f"{text} {fact.unit}" if fact.unit else text


def facts_grid(runs: Sequence[Run], heads: Sequence[str], theme: Theme, *, only_different: bool) -> Grid:
    """One row a fact; options that differ are marked."""
    facts = [fact for fact in comparison.facts(runs) if fact.differs or not only_different]
    marked = frozenset(place for place, fact in enumerate(facts) if fact.asked and fact.differs)
    texts = tuple(
        (
            (DIFFERENT if place in marked else "") + capital(fact.name).replace("'", "\u2019"),
            *(fact_text(fact, value) for value in fact.values),
        )
        for place, fact in enumerate(facts)
    )
    values = tuple((fact.name, *fact.values) for fact in facts)
    columns = range(1, len(heads) + 1)
    swatches = tuple((column, *run_style(theme, column - 1)) for column in columns)
    return Grid(("", *heads), texts, values, marked, frozenset(range(len(heads) + 1)), swatches)


def widths_grid(runs: Sequence[Run], heads: Sequence[str], theme: Theme) -> Grid:
    """One row a layer: each run's greatest proven width, and from the second on its ratio to the first's."""
    rows = comparison.width_rows(runs)
    several = any(row.case for row in rows)
    columns = ["Layer", "Operator", *(["Case"] if several else [])]
    fixed = len(columns)
    swatches = []
    for place in range(len(heads)):
        swatches.append((len(columns), *run_style(theme, place)))
        columns.append(f"{LETTERS[place]} width")
        if place:
            columns.append(f"{LETTERS[place]} : {LETTERS[0]}")
    texts, values = [], []
    for row in rows:
        case = [row.case] if several else []
        pairs: list[tuple[str, Cell]] = []
        for place, width in enumerate(row.widths):
            pairs.append((aligned(width, 5), width))
            if place:
                ratio = row.ratios[place - 1]
                pairs.append(("–" if ratio is None else f"×{number(ratio, 3)}", ratio))
        texts.append((row.node, row.op, *map(str, case), *(text for text, _ in pairs)))
        values.append((row.node, row.op, *case, *(value for _, value in pairs)))
    words = frozenset(range(fixed))
    return Grid(tuple(columns), tuple(texts), tuple(values), frozenset(), words, tuple(swatches))


def noise_grid(runs: Sequence[Run], heads: Sequence[str], theme: Theme) -> Grid:
    """One row a layer: each measuring run's decimal digits, and from the second on their difference to the first's.

    The layers that lose most are marked.
    """
    places = [place for place, run in enumerate(runs) if run in comparison.measured(runs)]
    noisy = [runs[place] for place in places]
    rows = comparison.noise_rows(noisy) if len(noisy) >= comparison.LEAST_RUNS else ()
    if not rows:
        return Grid()
    columns, swatches = ["Layer", "Operator"], []
    for index, place in enumerate(places):
        swatches.append((len(columns), *run_style(theme, place)))
        columns.append(f"{LETTERS[place]} decimal digits")
        if index:
            columns.append(f"{LETTERS[place]} − {LETTERS[places[0]]}")
    worst = [comparison.loses_most(rows, index) for index in range(1, len(noisy))]
    marked = frozenset(place for place, row in enumerate(rows) if row in worst)
    texts, values = [], []
    for at, row in enumerate(rows):
        pairs: list[tuple[str, Cell]] = []
        for index, digits in enumerate(row.digits):
            pairs.append(("–" if digits is None else f"{digits:.2f}", digits))
            if index:
                difference = row.differences[index - 1]
                pairs.append((signed(difference), difference))
        name = f"{row.layer}  (loses most)" if at in marked else row.layer
        texts.append((name, row.op, *(text for text, _ in pairs)))
        values.append((row.layer, row.op, *(value for _, value in pairs)))
    return Grid(tuple(columns), tuple(texts), tuple(values), marked, frozenset({0, 1}), tuple(swatches))


def decisions_grid(runs: Sequence[Run], heads: Sequence[str], theme: Theme) -> Grid:
    """One row an output: how many of its decisions flip in at least one sample."""
    rows = comparison.decision_rows(runs)
    if not rows:
        return Grid()
    texts = tuple(
        (
            row.layer,
            *(
                "–" if flipped is None else f"{flipped} of {decisions} flipped"
                for flipped, decisions in zip(row.flipped, row.decisions, strict=True)
            ),
        )
        for row in rows
    )
    values = tuple((row.layer, *row.flipped) for row in rows)
    swatches = tuple((place + 1, *run_style(theme, place)) for place in range(len(heads)))
    return Grid(("Output", *heads), texts, values, frozenset(), frozenset({0}), swatches)


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign; "–" where there is none."""
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "\u2212")
