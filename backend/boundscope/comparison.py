"""Two to eight runs side by side: what was asked of each, what came of it, and where they differ.

The window and `boundscope compare` read from here. Imports neither torch nor Qt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from boundscope.comparison_facts import Fact, Run, counted, facts, network_of, peaks, run_names
from boundscope.errors import UsageError
from boundscope.layers import DIGITS_PER_BIT, LayerRow, noise_now
from boundscope.protocol import InstancesJob, JobInfo, VariabilityJob, VerifyJob
from boundscope.records import Table

LEAST_RUNS, MOST_RUNS = 2, 8
LETTERS = "ABCDEFGH"
MINUS = "\u2212"

__all__ = [
    "LEAST_RUNS",
    "LETTERS",
    "MOST_RUNS",
    "DecisionRow",
    "Fact",
    "NoiseRow",
    "Run",
    "WidthRow",
    "checked",
    "decision_rows",
    "decisions_table",
    "facts",
    "facts_table",
    "heads",
    "loses_most",
    "measured",
    "noise_comparison_table",
    "noise_rows",
    "noise_sentences",
    "notes",
    "peaks",
    "run_names",
    "tables",
    "width_rows",
    "widths_table",
]


@dataclass(frozen=True)
class WidthRow:
    """Greatest proven width of one layer of one case in each run, and its ratio to the first run's."""

    case: int | None
    node: str
    op: str
    widths: tuple[float | None, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Of the second run on; None where one of the two has no width, or the first one's is 0."""
        first = self.widths[0]
        return tuple(None if each is None or not first else each / first for each in self.widths[1:])


@dataclass(frozen=True)
class NoiseRow:
    """Mean significant bits of one layer in each run, and how many more or fewer than in the first."""

    layer: str
    op: str
    bits: tuple[float | None, ...]

    @property
    def digits(self) -> tuple[float | None, ...]:
        """Mean significant decimal digits."""
        return tuple(None if each is None else each * DIGITS_PER_BIT for each in self.bits)

    @property
    def differences(self) -> tuple[float | None, ...]:
        """Decimal digits of the second run on, minus those of the first."""
        first, *others = self.digits
        return tuple(None if each is None or first is None else each - first for each in others)


@dataclass(frozen=True)
class DecisionRow:
    """Decisions of one output that flip in at least one sample, of so many, in each run."""

    layer: str
    flipped: tuple[int | None, ...]
    decisions: tuple[int | None, ...]


def checked(infos: Sequence[JobInfo]) -> None:
    """UsageError where these are too few, too many, or the same job twice."""
    if not LEAST_RUNS <= len(infos) <= MOST_RUNS:
        raise UsageError(
            f"{len(infos)} {'job' if len(infos) == 1 else 'jobs'} given; "
            f"from {LEAST_RUNS} to {MOST_RUNS} can be compared"
        )
    ids = [info.id for info in infos]
    if twice := next((each for each in ids if ids.count(each) > 1), None):
        raise UsageError(f"job {twice} is named twice; name different jobs")


# ---------------------------------------------------------------- layers, noise, decisions


def width_rows(runs: Sequence[Run]) -> tuple[WidthRow, ...]:
    """One row a case and layer that two runs at least have a width of, in the order of the first that has it.

    A run that measures tells widths over all cases: these are case 0's where there is no other.
    """
    single = not any(case for run in runs for case, _ in run.record.layers)
    of_run: list[dict[tuple[int | None, str], LayerRow]] = [
        {
            (0 if single else row.case, row.node): row
            for row in run.record.layer_rows()
            if row.width is not None
        }
        for run in runs
    ]
    keys = dict.fromkeys(key for rows in of_run for key in rows)
    found = []
    for case, node in keys:
        rows = [rows.get((case, node)) for rows in of_run]
        if sum(row is not None for row in rows) >= LEAST_RUNS:
            op = next(row.op for row in rows if row is not None)
            widths = tuple(None if row is None else row.width for row in rows)
            found.append(WidthRow(case, node, op, widths))
    return tuple(found)


def noise_rows(runs: Sequence[Run]) -> tuple[NoiseRow, ...]:
    """One row a layer that some run has measured."""
    of_run = [
        {each.layer: each for each in noise_now(run.record.noise, run.record.variability)} for run in runs
    ]
    ops = {name: each.op for layers in reversed(of_run) for name, each in layers.items()}
    names = dict.fromkeys(name for layers in of_run for name in layers)
    return tuple(
        NoiseRow(
            name,
            ops[name],
            tuple(layers[name].mean_bits if name in layers else None for layers in of_run),
        )
        for name in names
    )


def loses_most(rows: Iterable[NoiseRow], run: int) -> NoiseRow | None:
    """The layer of which this run (counted from 1) keeps the fewest digits, against the first; None where it keeps
    all of every layer."""
    lost = [row for row in rows if (difference := row.differences[run - 1]) is not None and difference < 0]
    return min(lost, key=lambda row: row.differences[run - 1] or 0.0, default=None)


def decision_rows(runs: Sequence[Run]) -> tuple[DecisionRow, ...]:
    """One row an output that some run tells the decisions of."""
    of_run = [
        {} if run.record.variability is None else {one.layer: one for one in run.record.variability.decisions}
        for run in runs
    ]
    names = dict.fromkeys(name for found in of_run for name in found)
    return tuple(
        DecisionRow(
            name,
            tuple(found[name].flipped if name in found else None for found in of_run),
            tuple(found[name].decisions if name in found else None for found in of_run),
        )
        for name in names
    )


def measured(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Those that measure noise."""
    return tuple(run for run in runs if isinstance(run.info.job, VariabilityJob))


# ---------------------------------------------------------------- words


def notes(runs: Sequence[Run]) -> tuple[str, ...]:
    """One sentence for each thing that cannot be compared, or only with care."""
    letters = dict(zip((run.info.id for run in runs), LETTERS, strict=False))
    found: list[str] = []
    noisy = [letters[run.info.id] for run in measured(runs)]
    many = [letters[run.info.id] for run in runs if isinstance(run.info.job, InstancesJob)]
    proofs = [run for run in runs if isinstance(run.info.job, VerifyJob)]
    if noisy and len(noisy) < len(runs):
        found.append(
            f"{_those(noisy)} noise and {'proves' if len(noisy) == 1 else 'prove'} no margin: time, resident memory "
            f"and the widths of layers are compared, where there are any; margins and significant digits are not."
        )
    if many and len(many) < len(runs):
        found.append(
            f"{' and '.join(many)} {'is a benchmark' if len(many) == 1 else 'are benchmarks'} of many properties: "
            f"options, time and memory are compared, margins and layers are not."
        )
    if len({network_of(run) for run in runs if network_of(run)}) > 1:
        found.append("The networks differ: layers are matched by the names of their ONNX nodes alone.")
    jobs = [run.info.job for run in proofs]
    if len({job.property for job in jobs if isinstance(job, VerifyJob)}) > 1:
        found.append("The properties differ: clauses and layers of one number are not the same question.")
    if len({job.arithmetic for job in jobs if isinstance(job, VerifyJob)}) > 1:
        found.append("The arithmetics differ: a margin holds for the arithmetic of its own run.")
    points = {
        (job.inputs, job.property, job.draw)
        for run in measured(runs)
        if isinstance(job := run.info.job, VariabilityJob)
    }
    if len(points) > 1:
        found.append("The points differ: so does the noise, whatever the rounding.")
    return tuple(found)


def _those(letters: Sequence[str]) -> str:
    return f"{' and '.join(letters)} {'measures' if len(letters) == 1 else 'measure'}"


def noise_sentences(runs: Sequence[Run]) -> tuple[str, ...]:
    """Of each measuring run after the first: where it loses most digits against the first, or that it loses none."""
    noisy = measured(runs)
    if len(noisy) < LEAST_RUNS:
        return ()
    letters = dict(zip((run.info.id for run in runs), LETTERS, strict=False))
    names = dict(zip((run.info.id for run in noisy), run_names(noisy), strict=True))
    rows = noise_rows(noisy)
    first = noisy[0].info.id
    found = []
    for place, run in enumerate(noisy[1:], start=1):
        who = f"{letters[run.info.id]} ({names[run.info.id]}) against {letters[first]} ({names[first]})"
        both = [row.differences[place - 1] for row in rows if row.differences[place - 1] is not None]
        if not both:
            found.append(f"{who}: no layer has significant digits in both.")
            continue
        mean = math.fsum(each for each in both if each is not None) / len(both)
        average = f"{mean:+.2f}".replace("-", MINUS)
        text = f"{who}: {average} decimal digits on average over {counted(len(both), 'layer')}"
        row = loses_most(rows, place)
        if row is None:
            found.append(f"{text}; no layer loses any.")
        else:
            difference = row.differences[place - 1] or 0.0
            found.append(f"{text}; {row.layer} loses most, {-difference:.2f} digits.")
    return tuple(found)


# ---------------------------------------------------------------- tables


def heads(runs: Sequence[Run]) -> tuple[str, ...]:
    """The runs as they head columns: "A rows, 2 ranks"."""
    return tuple(f"{LETTERS[place]} {name}" for place, name in enumerate(run_names(runs)))


def facts_table(runs: Sequence[Run], *, only_different: bool = False) -> Table:
    """One row a fact, one column a run; an option that differs says so."""
    rows = tuple(
        (fact.label, "yes" if fact.differs else "no", *fact.values)
        for fact in (Fact("job", tuple(run.info.id for run in runs), asked=False), *facts(runs))
        if fact.differs or not only_different
    )
    return Table("compare", ("fact", "differs", *heads(runs)), rows)


def widths_table(runs: Sequence[Run]) -> Table:
    """Greatest proven widths, and from the second run on their ratio to the first's."""
    names = heads(runs)
    columns = (
        "case",
        "node",
        "operator",
        *(f"greatest width, {name}" for name in names),
        *(f"ratio of {name} to the first" for name in names[1:]),
    )
    rows = tuple((row.case, row.node, row.op, *row.widths, *row.ratios) for row in width_rows(runs))
    return Table("compare_layers", columns, rows)


def noise_comparison_table(runs: Sequence[Run]) -> Table:
    """Mean significant bits and digits of every layer, and from the second run on how many digits more than the first.

    Of the runs that measure alone.
    """
    letters = dict(zip((run.info.id for run in runs), LETTERS, strict=False))
    noisy = measured(runs)
    names = (
        [f"{letters[run.info.id]} {name}" for run, name in zip(noisy, run_names(noisy), strict=True)]
        if noisy
        else []
    )
    columns = (
        "layer",
        "operator",
        *(f"mean [bits], {name}" for name in names),
        *(f"mean [decimal digits], {name}" for name in names),
        *(f"{name} minus the first [decimal digits]" for name in names[1:]),
    )
    rows = (
        tuple((row.layer, row.op, *row.bits, *row.digits, *row.differences) for row in noise_rows(noisy))
        if len(noisy) >= LEAST_RUNS
        else ()
    )
    return Table("compare_noise", columns, rows)


def decisions_table(runs: Sequence[Run]) -> Table:
    """Decisions flipped, and how many there were."""
    names = heads(runs)
    columns = (
        "output",
        *(f"flipped, {name}" for name in names),
        *(f"decisions, {name}" for name in names),
    )
    rows = tuple((row.layer, *row.flipped, *row.decisions) for row in decision_rows(runs))
    return Table("compare_decisions", columns, rows)


def tables(runs: Sequence[Run]) -> tuple[Table, ...]:
    """The table of differences, then of layers, noise and decisions those that have rows."""
    more = (widths_table(runs), noise_comparison_table(runs), decisions_table(runs))
    return (facts_table(runs), *(table for table in more if table.rows))
