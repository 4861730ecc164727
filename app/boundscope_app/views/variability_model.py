"""What the heatmap of significant bits shows, as numbers and marks. No Qt."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from boundscope.layers import DIGITS_PER_BIT, noise_now
from boundscope.protocol import JobInfo, LayerNoise, NoiseSource, VariabilityJob
from boundscope.records import JobRecord
from boundscope_app.plots.heat import Column, Heat, HeatCell, HeatRow

FLOAT32_BITS, FLOAT64_BITS = 24, 53
MOST_TELLINGS = 16
DISTRIBUTION = ("least", "5 %", "median", "95 %", "mean")


def layers_now(record: JobRecord) -> tuple[LayerNoise, ...]:
    """Each layer as told last: by the result, else by the rank that has most samples of it; in network order."""
    return noise_now(record.noise, record.variability)


def mark_of(noise: LayerNoise) -> str:
    """Why a layer has no number of bits; "" where it has one."""
    if noise.mean_bits is not None:
        return ""
    if noise.nan or noise.infinite:
        return "NaN" if noise.nan >= noise.infinite else "Inf"
    if not noise.elements:
        return "empty"
    return "exact" if noise.exact == noise.elements else "mean 0"


def flag_of(noise: LayerNoise) -> str:
    """NaN, infinities and elements without a significant bit, counted; "" where there are none."""
    counts = ((noise.nan, "NaN"), (noise.infinite, "Inf"), (noise.without, "noise ≥ value"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def full_bits(info: JobInfo | None, layers: Iterable[LayerNoise]) -> int:
    """Significand bits of what was measured: as the job says, else float32's or, where there are more, float64's."""
    job = None if info is None else info.job
    if isinstance(job, VariabilityJob) and job.precision is not None:
        return job.precision
    most = max((layer.mean_bits for layer in layers if layer.mean_bits is not None), default=0.0)
    return FLOAT64_BITS if most > FLOAT32_BITS + 2 else FLOAT32_BITS


def by_distribution(info: JobInfo | None, record: JobRecord) -> Heat:
    """Layer × how its bits are distributed over its elements."""
    layers = layers_now(record)
    rows = []
    for layer in layers:
        values = (layer.least_bits, layer.q05_bits, layer.median_bits, layer.q95_bits, layer.mean_bits)
        rows.append(HeatRow(layer.layer, tuple(_cell(bits, layer) for bits in values), flag_of(layer)))
    columns = tuple(Column(name) for name in DISTRIBUTION)
    return Heat(
        columns, tuple(rows), full_bits(info, layers), "Significant bits over the elements of a layer"
    )


def by_samples(info: JobInfo | None, record: JobRecord) -> Heat:
    """Layer × samples taken so far, mean bits: the tellings of each rank, and last those of all ranks together."""
    layers = layers_now(record)
    result = record.variability
    columns: list[Column] = []
    told: list[dict[str, LayerNoise]] = []
    final = {} if result is None else {layer.layer: layer for layer in result.layers}
    for rank in sorted({rank for rank, _ in record.noise}):
        of_rank = {name: all_told for (of, name), all_told in record.noise.items() if of == rank}
        for samples in thinned(_counts(next(iter(of_rank.values())), final)):
            columns.append(Column(str(samples), f"rank {rank}"))
            found = ((name, _after(all_told, samples)) for name, all_told in of_rank.items())
            told.append({name: each for name, each in found if each is not None})
    if final and result is not None:
        columns.append(Column(str(result.samples), "all"))
        told.append(final)
    rows = tuple(
        HeatRow(layer.layer, tuple(_mean_cell(each.get(layer.layer)) for each in told), flag_of(layer))
        for layer in layers
    )
    return Heat(
        tuple(columns), rows, full_bits(info, layers), "Mean significant bits after so many samples of a rank"
    )


def _counts(told: Sequence[LayerNoise], final: Mapping[str, LayerNoise]) -> list[int]:
    """After how many of its samples a rank told of a layer; the whole run's numbers are not its own."""
    return list(dict.fromkeys(each.samples for each in told if each != final.get(each.layer)))


def _after(told: Sequence[LayerNoise], samples: int) -> LayerNoise | None:
    """What was told of a layer after so many samples, which ascend."""
    place = bisect.bisect_left(told, samples, key=lambda each: each.samples)
    return told[place] if place < len(told) and told[place].samples == samples else None


def _cell(bits: float | None, noise: LayerNoise) -> HeatCell:
    mark = "" if bits is not None else mark_of(noise)
    return HeatCell(bits, mark, wrong=mark in ("NaN", "Inf"))


def _mean_cell(noise: LayerNoise | None) -> HeatCell:
    return HeatCell() if noise is None else _cell(noise.mean_bits, noise)


def thinned(counts: Sequence[int], most: int = MOST_TELLINGS) -> list[int]:
    """At most `most` of them, spread evenly, the first and the last kept."""
    if len(counts) <= most:
        return list(counts)
    return [counts[round(i * (len(counts) - 1) / (most - 1))] for i in range(most)]


def digits(bits: float | None) -> float | None:
    """Decimal digits that so many significant bits are worth."""
    return None if bits is None else bits * DIGITS_PER_BIT


def sources_by_layer(record: JobRecord) -> dict[str, NoiseSource]:
    """Sources that are one layer, by its name."""
    result = record.variability
    return {} if result is None else {each.layer: each for each in result.sources}
