"""What the instances of a benchmark are in words: cells, filters, one of them in full, and the page for paper."""

from __future__ import annotations

from collections.abc import Sequence

from boundscope.command import command_line
from boundscope.protocol import (
    InstanceResult,
    InstancesJob,
    InstancesResult,
    JobInfo,
    PropertyFile,
    Tally,
    Verdict,
)
from boundscope.records import Cell, JobRecord, Table, one_line
from boundscope.vnncomp import counterexample_text
from boundscope_app.views.html import Html
from boundscope_app.views.text import aligned, capital, number, seconds

COLUMNS = ("No.", "Network", "Property", "Verdict", "Time", "Margin ≥", "Margin ≤", "Reason")
NUMBER, NETWORK, PROPERTY, VERDICT, TIME, MARGIN, REACHED, REASON = range(len(COLUMNS))
WORDS = frozenset({NETWORK, PROPERTY, VERDICT, REASON})
TIPS = (
    "The place in the instances file, counted from 1",
    "The ONNX file",
    "The VNN-LIB file",
    "What was found",
    "From the start of the instance to its end, reading included",
    "The smallest margin that is proven: above 0 where the property holds",
    "The least margin that an input was seen to have: at most 0 where the property is violated",
    "Why it has this verdict",
)
RUNNING, WAITING = "running", "waiting"
SHOWN = {verdict.value.replace("_", " "): verdict.value for verdict in Verdict}
KEYS = {**SHOWN, RUNNING: RUNNING, WAITING: WAITING}  # words of the verdict column: what the theme calls them
SOLVED = frozenset({Verdict.VERIFIED.value, Verdict.VIOLATED.value})
ALL, ONLY_SOLVED, UNSOLVED, NOT_ENDED = "All verdicts", "Solved", "Not solved", "Not ended yet"
FILTERS = (ALL, ONLY_SOLVED, UNSOLVED, *(word.capitalize() for word in SHOWN), NOT_ENDED)
MOST_LINES = 5000
MOST_ROWS = 400
MOST_UNSOLVED = 40
Row = tuple[Cell, ...]


def rows(info: JobInfo | None, record: JobRecord) -> tuple[Row, ...]:
    """A row of every instance of the job, also of those that wait; where there is no job, of those told of."""
    if info is None or not isinstance(info.job, InstancesJob):
        return tuple(_ended(row) for _, row in sorted(record.instances.items()))
    job = info.job
    over = info.state.ended
    made = []
    for place, instance in enumerate(job.instances):
        row = record.instances.get(place)
        if row is not None:
            made.append(_ended(row))
            continue
        word = RUNNING if place == record.instance_now and not over else WAITING
        names = job.networks[instance.network].name, job.properties[instance.property].name
        made.append((place + 1, *names, word, None, None, None, ""))
    return tuple(made)


def _ended(row: InstanceResult) -> Row:
    word = row.verdict.value.replace("_", " ")
    return (
        row.number + 1,
        row.network,
        row.property,
        word,
        row.seconds,
        row.margin,
        row.reached,
        one_line(row.reason),
    )


def cell_text(column: int, value: Cell) -> str:
    """A cell as people read it."""
    if value is None:
        return "–"
    if column == TIME and isinstance(value, float):
        return seconds(value, padded=True)
    return aligned(value, 5) if isinstance(value, float) else str(value)


def fits(row: Row, wanted: str) -> bool:
    """Whether a row is of the kind that the filter `wanted` (of FILTERS) lets through."""
    word = str(row[VERDICT])
    match wanted:
        case "All verdicts":
            return True
        case "Solved":
            return word in SOLVED
        case "Not solved":
            return word in SHOWN and word not in SOLVED
        case "Not ended yet":
            return word not in SHOWN
    return word == wanted.lower()


def holds(row: Row, needle: str) -> bool:
    """Whether the text (in lower case) is in a row's network, property or reason."""
    return not needle or any(needle in str(row[column]).casefold() for column in (NETWORK, PROPERTY, REASON))


def count_text(all_rows: Sequence[Row], shown: int) -> str:
    """How many there are, are shown, and are solved."""
    solved = sum(row[VERDICT] in SOLVED for row in all_rows)
    text = f"{solved} of {len(all_rows)} solved"
    return text if shown == len(all_rows) else f"{shown} of {len(all_rows)} shown · {text}"


def detail(info: JobInfo | None, record: JobRecord, place: int) -> str:
    """All that is known of one instance, its counterexample in VNN-COMP's format."""
    row = record.instances.get(place)
    job = info.job if info is not None and isinstance(info.job, InstancesJob) else None
    parts = []
    if row is None:
        shown = rows(info, record)[place]
        parts.append(f"{place + 1}: {shown[NETWORK]} · {shown[PROPERTY]}: {shown[VERDICT]}")
    else:
        word = row.verdict.value.replace("_", " ")
        limit = "" if job is None else f" of {seconds(job.instances[place].timeout_s)}"
        parts.append(
            f"{place + 1}: {row.network} · {row.property}: {word} after {seconds(row.seconds)}{limit}"
        )
        parts.append(capital(row.reason))
        proven = "no bound is proven" if row.margin is None else f"at least {number(row.margin)}, proven"
        reached = "" if row.reached is None else f"; at most {number(row.reached)}, reached by an input"
        parts.append(f"Margin: {proven}{reached}")
        if row.counterexample is not None:
            lines = counterexample_text(row.counterexample).splitlines()
            more = [f"… and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
            parts.append("\n".join(("Counterexample:", *lines[:MOST_LINES], *more)))
    if job is not None:
        alone = job.verify_job(place)
        assert isinstance(alone.property, PropertyFile)
        parts.append(f"Alone: {command_line(alone, alone.network.name, alone.property.file.name)}")
    return "\n\n".join(part for part in parts if part)


def heading_words(result: InstancesResult) -> tuple[str, str]:
    """The word and the sentence that the end of a benchmark stands under."""
    tally = result.tally
    sentences = {
        None: "Every instance was verified or violated.",
        Verdict.ERROR: "Some instances could not be run.",
    }
    sentence = sentences.get(result.verdict, "Some instances were neither verified nor violated.")
    return f"{tally.solved} of {tally.total} solved", sentence


def result_markup(h: Html, record: JobRecord) -> str:
    """The instances that were not solved, each with its reason."""
    left = [row for _, row in sorted(record.instances.items()) if row.verdict.value not in SOLVED]
    if not left:
        return ""
    cells = [[cell_text(column, value) for column, value in enumerate(_ended(row))] for row in left]
    for row_cells in cells:
        row_cells[PROPERTY] = short_name(row_cells[PROPERTY])
    columns = (NUMBER, NETWORK, PROPERTY, VERDICT, TIME, REASON)
    grid = h.grid(
        [COLUMNS[column] for column in columns],
        [[row[column] for column in columns] for row in cells[:MOST_UNSOLVED]],
        frozenset({1, 2, 3, 5}),
        wide=True,
    )
    more = len(left) - MOST_UNSOLVED
    return (
        h.heading("Not solved") + grid + (h.paragraph(f"… and {more} more.", muted=True) if more > 0 else "")
    )


def short_name(path: str) -> str:
    """A property where there is little room: its folder where the file is only called "property"."""
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2] if folder and name.startswith("property.") else path


def tiles(h: Html, tally: Tally) -> str:
    """Instances by verdict, and their time together."""
    counts = [(word.replace("_", " ").capitalize(), str(count)) for word, count in tally.counts.items()]
    return h.tiles((*counts, ("Time", seconds(tally.seconds))))


def run_rows(job: InstancesJob) -> list[tuple[str, str]]:
    """What was run, and how."""
    how = job.verify
    return [
        ("Benchmark", job.name),
        ("Instances", str(len(job.instances))),
        ("Networks, properties", f"{len(job.networks)}, {len(job.properties)}"),
        ("Method", how.method.label),
        ("Engine", how.engine.value),
        ("Arithmetic", how.arithmetic.label),
        ("Ranks", f"{how.ranks}, sharding {how.sharding.value}"),
        ("Time limit", f"{seconds(job.timeout_s)} at most for one"),
        ("Seed", str(how.seed)),
    ]


def page_markup(h: Html, caption: str, record: JobRecord, table: Table) -> str:
    """How many were solved, and the rows of the table."""
    tally = Tally()
    for row in record.instances.values():
        tally = tally.plus(row)
    text = h.heading(tally.sentence) + h.paragraph(caption, muted=True)
    text += tiles(h, tally)
    made = [_ended(record.instances[int(str(row[0])) - 1]) for row in table.rows[:MOST_ROWS]]
    cells = [[cell_text(column, value) for column, value in enumerate(row)] for row in made]
    text += h.heading("Instances") + h.grid(COLUMNS, cells, WORDS, wide=True)
    if len(table.rows) > MOST_ROWS:
        text += h.paragraph(
            f"The first {MOST_ROWS} of {len(table.rows)} instances; the CSV holds them all.", muted=True
        )
    return text
