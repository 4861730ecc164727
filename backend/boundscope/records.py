"""A job's events, gathered into what people look at: series for plots and tables for CSV.

The window, the terminal report and `boundscope export` all read from here, so that a CSV holds exactly what a
plot shows. Imports neither torch nor Qt.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field

from boundscope import layers
from boundscope.layers import LayerRow
from boundscope.protocol import (
    MEMORY_CATEGORIES,
    EventRecord,
    Failure,
    GapPoint,
    InstanceResult,
    InstancesResult,
    InstanceStarted,
    JobState,
    LayerBounds,
    LayerMap,
    LayerNoise,
    LogLine,
    Margin,
    MemorySample,
    NetworkSummary,
    Progress,
    PropertySummary,
    SearchPoint,
    SearchSummary,
    StateChanged,
    VariabilityResult,
    VerifyResult,
)

Cell = str | int | float | None
GROUP = "\u202f"  # between groups of three digits


@dataclass(frozen=True)
class Table:
    """Columns with their units, and rows; `name` is the file's stem."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_csv(self) -> str:
        """CSV text, RFC 4180 with \\n line ends; floats with 17 significant digits at most, None as empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow(
                ["" if cell is None else repr(cell) if isinstance(cell, float) else cell for cell in row]
            )
        return buffer.getvalue()


@dataclass
class GapSeries:
    """Bounds on the margin of one clause over time: three lists of one length."""

    elapsed_s: list[float] = field(default_factory=list)
    lower: list[float | None] = field(default_factory=list)
    upper: list[float | None] = field(default_factory=list)
    step: list[str] = field(default_factory=list)


@dataclass
class MemorySeries:
    """Memory of one rank over time; each list has one entry a sample, in bytes."""

    elapsed_s: list[float] = field(default_factory=list)
    by_category: dict[str, list[int]] = field(
        default_factory=lambda: {category: [] for category in MEMORY_CATEGORIES}
    )
    resident_bytes: list[int] = field(default_factory=list)
    limit_bytes: int | None = None

    @property
    def total_bytes(self) -> list[int]:
        return [sum(values) for values in zip(*self.by_category.values(), strict=True)]


@dataclass
class JobRecord:
    """Everything one job has said so far. `apply` takes its records in order; repeated numbers are ignored."""

    last_number: int = 0
    state: JobState = JobState.QUEUED
    state_reason: str = ""
    progress: Progress | None = None
    gaps: dict[tuple[int, int], GapSeries] = field(default_factory=dict)
    search: list[SearchPoint] = field(default_factory=list)  # of branch and bound, in order of time
    memory: dict[int, MemorySeries] = field(default_factory=dict)
    layers: dict[tuple[int, str], LayerBounds] = field(default_factory=dict)
    log: list[tuple[float, int, LogLine]] = field(default_factory=list)
    network: NetworkSummary | None = None
    property: PropertySummary | None = None
    result: VerifyResult | None = None
    # Of each rank and layer, in the order in which it was told; and what a variability job found.
    noise: dict[tuple[int, str], list[LayerNoise]] = field(default_factory=dict)
    variability: VariabilityResult | None = None
    maps: dict[str, LayerMap] = field(default_factory=dict)  # of each layer, at the end
    # Of a benchmark: its rows by number, the instance under way, and its end.
    instances: dict[int, InstanceResult] = field(default_factory=dict)
    instance_now: int | None = None
    benchmark: InstancesResult | None = None
    failures: list[Failure] = field(default_factory=list)

    def apply(self, record: EventRecord) -> bool:
        """Take one record; False when it was seen before."""
        if record.number <= self.last_number:
            return False
        self.last_number = record.number
        event = record.event
        match event:
            case StateChanged():
                self.state, self.state_reason = event.state, event.reason
            case Progress():
                self.progress = event
            case GapPoint():
                series = self.gaps.setdefault((event.case, event.clause), GapSeries())
                series.elapsed_s.append(event.elapsed_s)
                series.lower.append(event.lower)
                series.upper.append(event.upper)
                series.step.append(event.step)
            case SearchPoint():
                self.search.append(event)
            case MemorySample():
                self._apply_memory(record.rank, event)
            case LayerBounds():
                self.layers[(event.case, event.node)] = event
            case LogLine():
                self.log.append((record.time_s, record.rank, event))
            case NetworkSummary():
                self.network = event
            case PropertySummary():
                self.property = event
            case VerifyResult():
                self.result = event
            case LayerNoise():
                self.noise.setdefault((record.rank, event.layer), []).append(event)
            case LayerMap():
                self.maps[event.layer] = event
            case VariabilityResult():
                self.variability = event
            case InstanceStarted():
                self.instance_now = event.number
            case InstanceResult():
                self.instances[event.number] = event
                self.instance_now = None
            case InstancesResult():
                self.benchmark = event
            case Failure():
                self.failures.append(event)
        return True

    def _apply_memory(self, rank: int, sample: MemorySample) -> None:
        series = self.memory.setdefault(rank, MemorySeries())
        series.elapsed_s.append(sample.elapsed_s)
        for category, values in series.by_category.items():
            values.append(sample.by_category.get(category, 0))
        series.resident_bytes.append(sample.resident_bytes)
        series.limit_bytes = sample.limit_bytes

    def apply_all(self, records: Iterable[EventRecord]) -> int:
        """Take many records; the count of new ones."""
        return sum(self.apply(record) for record in records)

    # ------------------------------------------------------------ tables

    def tables(self) -> tuple[Table, ...]:
        """All tables, in a fixed order: gap, memory, layers, margins, log; search, counterexample,
        cross-check where there are.

        Of a variability job: noise of the layers, decisions, coverage, sources, proof and measurement, layers,
        graph, memory, log.
        Of a benchmark: its instances, memory, log.
        """
        if self.instances or self.benchmark is not None:
            return (self.instance_table(), self.memory_table(), self.log_table())
        if self.variability is not None:
            return (
                *variability_tables(self.variability),
                self.layer_table(),
                self.graph_table(),
                self.memory_table(),
                self.log_table(),
            )
        checked = self.result is not None and self.result.cross_check is not None
        return (
            self.gap_table(),
            self.memory_table(),
            self.layer_table(),
            self.graph_table(),
            self.margin_table(),
            self.log_table(),
            *((self.search_table(),) if self.search else ()),
            *self.counterexample_tables(),
            *((self.cross_check_table(),) if checked else ()),
        )

    def gap_table(self) -> Table:
        rows: list[tuple[Cell, ...]] = [
            (case, clause, *values)
            for (case, clause), series in sorted(self.gaps.items())
            for values in zip(series.elapsed_s, series.lower, series.upper, series.step, strict=True)
        ]
        columns = ("case", "clause", "elapsed [s]", "margin lower bound", "margin upper bound", "step")
        return Table("bound_gap", columns, tuple(rows))

    def search_table(self) -> Table:
        """How branch and bound stood, one row a moment."""
        rows = tuple(
            (
                point.elapsed_s,
                point.branching.value,
                point.done,
                point.open,
                point.depth,
                point.clauses_open,
                point.worst,
                point.best,
            )
            for point in self.search
        )
        columns = (
            "elapsed [s]",
            "splitting",
            "domains bounded",
            "domains open",
            "deepest [splits]",
            "clauses open",
            "least margin lower bound of an open clause",
            "greatest margin lower bound of an open clause",
        )
        return Table("search", columns, rows)

    def memory_table(self) -> Table:
        rows: list[tuple[Cell, ...]] = []
        for rank, series in sorted(self.memory.items()):
            categories = [series.by_category[category] for category in MEMORY_CATEGORIES]
            rows.extend(
                (rank, *values, series.limit_bytes)
                for values in zip(series.elapsed_s, *categories, series.resident_bytes, strict=True)
            )
        columns = (
            "rank",
            "elapsed [s]",
            *(f"{category} [B]" for category in MEMORY_CATEGORIES),
            "resident [B]",
            "limit [B]",
        )
        return Table("memory", columns, tuple(rows))

    def layer_rows(self) -> tuple[LayerRow, ...]:
        """What is proven and measured of each layer, so far."""
        return layers.layer_rows(self.layers, self.noise, self.variability)

    def layer_table(self) -> Table:
        """Bounds of each layer; of a run that measures also its proven rounding and observed noise."""
        rows = self.layer_rows()
        columns = layers.BOUND_COLUMNS
        if not (self.noise or self.variability):
            return Table("layers", columns, tuple(map(layers.bound_cells, rows)))
        cells = tuple((*layers.bound_cells(row), *layers.noise_cells(row)) for row in rows)
        return Table("layers", (*columns, *layers.NOISE_COLUMNS), cells)

    def graph_table(self) -> Table:
        """One row a node of the network: what feeds it, and the worst that is known of it."""
        rows = () if self.network is None else layers.node_cells(self.network, self.layer_rows())
        return Table("graph", layers.NODE_COLUMNS, rows)

    def margin_table(self) -> Table:
        margins = () if self.result is None else self.result.margin.per_clause
        rows = tuple((m.case, m.clause, m.lower, m.upper, _yes(m.excluded), m.text) for m in margins)
        return Table(
            "margins",
            ("case", "clause", "lower bound", "upper bound", "excluded", "violated where"),
            rows,
        )

    def counterexample_tables(self) -> tuple[Table, ...]:
        """Its inputs, and its outputs as both computed them; none where none was found."""
        found = None if self.result is None else self.result.counterexample
        if found is None:
            return ()
        inputs = tuple((f"X_{i}", value) for i, value in enumerate(found.inputs))
        replayed = (*found.replay.outputs, *([None] * len(found.outputs)))
        outputs = tuple((f"Y_{i}", y, replayed[i]) for i, y in enumerate(found.outputs))
        return (
            Table("counterexample_inputs", ("input", "value"), inputs),
            Table("counterexample_outputs", ("output", "solver", "ONNX Runtime"), outputs),
        )

    def cross_check_table(self) -> Table:
        check = None if self.result is None else self.result.cross_check
        rows = () if check is None else check.layers
        return Table(
            "cross_check",
            ("case", "tensor", "elements", "largest difference of a bound", "elements without common values"),
            tuple((one.case, one.tensor, one.elements, one.difference, one.unlike) for one in rows),
        )

    def instance_table(self) -> Table:
        """One row an instance that has ended, by number."""
        return instance_table(row for _, row in sorted(self.instances.items()))

    def log_table(self) -> Table:
        rows = tuple((time_s, rank, line.level, line.text) for time_s, rank, line in self.log)
        return Table("log", ("time [s since epoch]", "rank", "level", "text"), rows)


def one_line(text: str) -> str:
    """A reason without its line breaks, for a cell of a table."""
    return "; ".join(part.strip() for part in text.splitlines() if part.strip())


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def above_zero(margin: Margin) -> bool:
    """Whether all that is known of the smallest margin is that it is above 0: a search proved that, part by part."""
    return margin.smallest == 0 and all(clause.excluded for clause in margin.per_clause)


def search_words(search: SearchSummary) -> str:
    """ "12 345 domains, deepest 17 splits, splitting inputs", and how many of them were left open, if any."""
    parts = [_counted(search.domains, "domain"), f"deepest {_counted(search.depth, 'split')}"]
    parts.append(f"splitting {search.branching.value}s")
    if search.open:
        parts.append(f"{_counted(search.open, 'domain')} left open")
    return ", ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", GROUP)


def instance_table(results: Iterable[InstanceResult]) -> Table:
    """What became of instances, in the order given; they are counted from 1, as people count."""
    columns = (
        "instance",
        "network",
        "property",
        "verdict",
        "time [s]",
        "margin lower bound",
        "margin upper bound",
        "reason",
    )
    rows = tuple(
        (
            one.number + 1,
            one.network,
            one.property,
            one.verdict.value,
            one.seconds,
            one.margin,
            one.reached,
            one_line(one.reason),
        )
        for one in results
    )
    return Table("instances", columns, rows)


def variability_tables(result: VariabilityResult) -> tuple[Table, ...]:
    """What the result of a variability job holds, one row a layer, output or operator; empty tables left out."""
    tables = (
        noise_table(result.layers),
        Table(
            "decisions",
            (
                "output",
                "samples",
                "decisions",
                "flipped",
                "flips",
                "undecided (NaN)",
                "least margin [deviations of its noise]",
                "median margin [deviations of its noise]",
            ),
            tuple(
                (
                    one.layer,
                    one.samples,
                    one.decisions,
                    one.flipped,
                    one.flips,
                    one.undecided,
                    one.least_noise_margin,
                    one.median_noise_margin,
                )
                for one in result.decisions
            ),
        ),
        Table(
            "coverage",
            ("operator", "calls", "operations inside", "operations at the output", "operations untouched"),
            tuple(
                (one.operator, one.calls, one.inside, one.at_output, one.untouched)
                for one in (() if result.coverage is None else result.coverage.operators)
            ),
        ),
        Table(
            "sources",
            (
                "layer",
                "operator",
                "layers",
                "deviation caused at the outputs",
                "share of the noise",
                "outputs with it alone [bits]",
                "layer itself [bits]",
            ),
            tuple(
                (
                    one.layer,
                    one.op,
                    one.layers,
                    one.deviation,
                    one.share,
                    one.caused_bits,
                    one.shown_bits,
                )
                for one in result.sources
            ),
        ),
        Table(
            "deployed",
            (
                "layer",
                "operator",
                "elements",
                "proven width",
                "proven rounding",
                "observed deviation",
                "observed of proven [greatest share]",
                "violation",
            ),
            tuple(
                (
                    one.layer,
                    one.op,
                    one.elements,
                    one.width,
                    one.rounding,
                    one.observed,
                    one.used,
                    one.violation,
                )
                for one in result.deployed
            ),
        ),
    )
    return tuple(table for table in tables if table.rows)


def noise_table(layers: Iterable[LayerNoise]) -> Table:
    """One row a layer: what its elements are, and how many bits of them are significant."""
    return Table("noise", _NOISE_COLUMNS, tuple(_noise_row(layer) for layer in layers))


_NOISE_COLUMNS = (
    "layer",
    "operator",
    "samples",
    "elements",
    "exact",
    "zero mean",
    "NaN",
    "Inf",
    "without a significant bit",
    "mean [bits]",
    "least [bits]",
    "5 % quantile [bits]",
    "median [bits]",
    "95 % quantile [bits]",
)


def _noise_row(layer: LayerNoise) -> tuple[Cell, ...]:
    return (
        layer.layer,
        layer.op,
        layer.samples,
        layer.elements,
        layer.exact,
        layer.zero_mean,
        layer.nan,
        layer.infinite,
        layer.without,
        layer.mean_bits,
        layer.least_bits,
        layer.q05_bits,
        layer.median_bits,
        layer.q95_bits,
    )
