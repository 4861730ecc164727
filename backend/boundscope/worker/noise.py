"""What the moments of a variability job say: as live events while it runs, as its result, and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.protocol import (
    CoverageSummary,
    DecisionNoise,
    LayerMap,
    LayerNoise,
    NoiseSource,
    OperatorCoverage,
    Progress,
)
from boundscope.variability.digits import LEAST_SAMPLES, Digits, digits, summarise
from boundscope.variability.inputs import Inputs
from boundscope.variability.maps import bits_map
from boundscope.variability.moments import Moments
from boundscope.variability.moments_file import RunMoments
from boundscope.variability.sampling import Layer, Sampler
from boundscope.variability.sampling_folder import MOMENTS
from boundscope.variability.source import Source
from boundscope.variability.tables import channel_table, decision_table, element_columns, layer_table
from boundscope.variability.tables_files import write_columns, write_table

if TYPE_CHECKING:
    from boundscope.variability.sampling import Coverage

TELL_S = 0.5  # between two looks at the layers
TELL_SHARE = 0.1  # of a run's time that may go into them
# A CSV of more rows takes longer to write than most runs.
CSV_ELEMENTS = 2_000_000
# Cells of the pictures of one layer, and of all: 5 bytes each in the job's history.
MAP_CELLS, ALL_MAP_CELLS = 1 << 15, 1 << 20


@dataclass
class Measured:
    """What rank 0 knows of the result so far."""

    layers: tuple[LayerNoise, ...] = ()
    decisions: tuple[DecisionNoise, ...] = ()
    coverage: CoverageSummary | None = None
    files: tuple[str, ...] = ()

    def cover(self, coverage: Coverage) -> None:
        self.coverage = CoverageSummary(
            share_inside=coverage.share_inside,
            sentence=coverage.sentence(),
            operators=tuple(
                OperatorCoverage(
                    operator=row.operator,
                    calls=row.calls,
                    inside=row.inside,
                    at_output=row.at_output,
                    untouched=row.untouched,
                )
                for row in coverage.rows()
            ),
        )


@dataclass
class LiveNoise:
    """Tells, after a sample, how far a rank is and what its samples say, as often as that costs little."""

    sampler: Sampler
    run: RunMoments
    monitor: Monitor
    total: int
    each_s: float  # what a sample takes, before one was taken
    leads: bool
    _done: int = 0
    _told_s: float = 0.0
    _cost_s: float = 0.0

    def __post_init__(self) -> None:
        self._started_s = self.monitor.now_s
        self._progress(self.each_s)

    def _progress(self, each_s: float) -> None:
        if self.leads:
            eta_s = each_s * (self.total - self._done)
            self.monitor.emit(Progress(stage="samples", done=self._done, total=self.total, eta_s=eta_s))

    def tell(self) -> None:
        now = self.monitor.now_s
        self._done += 1
        self._progress((now - self._started_s) / self._done)
        due = self._told_s + max(TELL_S, self._cost_s / TELL_SHARE)
        if len(self.run.numbers) < LEAST_SAMPLES or now < due:
            return
        for layer in self.sampler.layers:
            self.monitor.emit(layer_noise(layer, self.run.layers[layer.name], self.monitor.elapsed_s))
        self._told_s = self.monitor.now_s
        self._cost_s = self._told_s - now


def layer_noise(layer: Layer, moments: Moments, elapsed_s: float) -> LayerNoise:
    """The digits of one layer in short."""
    return _in_short(layer, digits(moments), elapsed_s)


def layer_map(layer: Layer, found: Digits, most_cells: int) -> LayerMap | None:
    """The digits of one layer as pictures; None where it has no axes."""
    pictures = bits_map(found, most_cells)
    if pictures is None:
        return None
    return LayerMap(
        layer=layer.name,
        channels=pictures.channels,
        of_channels=pictures.of_channels,
        height=pictures.bits.shape[1],
        width=pictures.bits.shape[2],
        block=pictures.block,
        bits=pictures.bits.astype("<f4").tobytes(),
        kinds=pictures.kinds.tobytes(),
    )


def _in_short(layer: Layer, found: Digits, elapsed_s: float) -> LayerNoise:
    summary = summarise(found)
    bits = summary.deviation_bits
    return LayerNoise(
        elapsed_s=elapsed_s,
        layer=layer.name,
        op=layer.op,
        samples=summary.samples,
        elements=summary.elements,
        exact=summary.exact,
        zero_mean=summary.zero_mean,
        nan=summary.nan,
        infinite=summary.infinite,
        without=summary.without,
        mean_bits=None if bits is None else bits.mean,
        least_bits=None if bits is None else bits.least,
        q05_bits=None if bits is None else bits.q05,
        median_bits=None if bits is None else bits.median,
        q95_bits=None if bits is None else bits.q95,
    )


def measure(measured: Measured, sampler: Sampler, run: RunMoments, monitor: Monitor) -> None:
    """Layers and decisions of the whole run, the layers also as events, in numbers and as pictures."""
    layers, total = [], len(sampler.layers)
    most_cells = min(MAP_CELLS, ALL_MAP_CELLS // max(1, total))
    for done, layer in enumerate(sampler.layers):
        monitor.emit(Progress(stage="bits of every layer", done=done, total=total))
        found = digits(run.layers[layer.name])
        layers.append(_in_short(layer, found, monitor.elapsed_s))
        monitor.emit(layers[-1])
        pictures = layer_map(layer, found, most_cells)
        if pictures is not None:
            monitor.emit(pictures)
    measured.layers = tuple(layers)
    decided = []
    for name, decisions in run.decisions.items():
        summary = decisions.totals().summary()
        decided.append(
            DecisionNoise(
                layer=name,
                samples=summary.samples,
                decisions=summary.decisions,
                flipped=summary.flipped,
                flips=summary.flips,
                undecided=summary.undecided,
                least_noise_margin=summary.least_noise_margin,
                median_noise_margin=summary.median_noise_margin,
                sentence=summary.sentence(),
            )
        )
    measured.decisions = tuple(decided)


def told_sources(
    found: Sequence[Source], layers: Sequence[Layer], noise: Sequence[LayerNoise]
) -> tuple[tuple[NoiseSource, ...], str]:
    """Sources beside the noise that their last layers show, and how far their shares are from all of it."""
    shown = {layer.layer: layer.mean_bits for layer in noise}
    operators = {layer.node: layer.op for layer in layers}
    rows = tuple(
        NoiseSource(
            layer=source.nodes[0] if len(source.nodes) == 1 else f"{source.nodes[0]} … {source.nodes[-1]}",
            op=operators.get(source.nodes[-1], ""),
            layers=len(source.nodes),
            deviation=source.caused.deviation,
            share=source.share,
            caused_bits=source.caused.bits,
            shown_bits=shown.get(source.nodes[-1]),
        )
        for source in found
    )
    shares = [source.share for source in found if source.share is not None]
    if not shares:
        return rows, "the outputs have no noise, so no layer causes any"
    return rows, f"together {100 * sum(shares):.0f} % of the outputs' variance"


def write_tables(folder: Path, run: RunMoments, ending: str, monitor: Monitor) -> tuple[str, ...]:
    """The tables of layers, channels, elements and decisions in the run's folder; the names of all its files.

    Raises:
        UsageError: Parquet is asked for and pyarrow is missing.
        VariabilityError: a file cannot be written.
    """
    found = {name: digits(moments) for name, moments in run.layers.items()}
    tables = [layer_table(found), channel_table(found)]
    if run.decisions:
        tables.append(decision_table({name: each.totals() for name, each in run.decisions.items()}))
    elements = sum(one.kind.size for one in found.values())
    too_many = ending == "csv" and elements > CSV_ELEMENTS
    rows = sum(len(table.rows) for table in tables)
    names, done, total = [MOMENTS], 0, rows + (0 if too_many else elements)
    for table in tables:
        monitor.emit(Progress(stage="writing tables, in rows", done=done, total=total))
        names.append(f"{table.name}.{ending}")
        write_table(table, folder / names[-1])
        done += len(table.rows)
    if too_many:
        monitor.log(
            f"the table of {elements} elements is left out: as CSV it would take too long; --format parquet writes it",
            "warning",
        )
        return tuple(names)
    monitor.emit(Progress(stage="writing tables, in rows", done=done, total=total))
    names.append(f"variability_elements.{ending}")
    write_columns(element_columns(run.layers), folder / names[-1])
    return tuple(names)


def flat_range(network: Network, inputs: Inputs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the greatest value of each input element over all points, as properties count them."""
    values = [inputs.values[info.name].reshape(inputs.count, -1) for info in network.inputs]
    flat = np.concatenate([one.astype(np.float64) for one in values], axis=1)
    return flat.min(axis=0), flat.max(axis=0)
