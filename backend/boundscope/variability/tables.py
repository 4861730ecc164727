"""Results as tables, one a level: layers, channels, elements; and decisions, and two runs compared.

Small tables are `boundscope.records.Table`, as the window and the terminal show them. A table of elements can have
millions of rows, so it comes as a stream of some rows of columns. `tables_files` writes both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope.records import Cell, Table
from boundscope.variability.compare import Comparison
from boundscope.variability.decisions import NO_DECISION, DecisionTotals
from boundscope.variability.digits import (
    Confidence,
    Digits,
    Kind,
    Spread,
    Summary,
    decimal,
    digits,
    summarise,
    summarise_channels,
)
from boundscope.variability.moments import Float64, Moments, Totals
from boundscope.variability.tables_files import Columns

# Rows written at once; more only costs memory.
_ROWS = 1 << 16

_KIND_NAMES = {
    Kind.RELATIVE: "inexact",
    Kind.EXACT: "exact",
    Kind.ZERO_MEAN: "zero mean",
    Kind.NAN: "NaN",
    Kind.INFINITE: "Inf",
}

_ESTIMATES = ("deviation", "CNH", "general")
_SPREAD = (
    "mean",
    "least",
    "5 % quantile",
    "25 % quantile",
    "median",
    "75 % quantile",
    "95 % quantile",
    "greatest",
)
_SUMMARY_COLUMNS = (
    "samples",
    "elements",
    "exact",
    "zero mean",
    "NaN",
    "Inf",
    "exact [share]",
    "zero mean [share]",
    "NaN [share]",
    "Inf [share]",
    "without a significant bit",
    *(f"{estimate}: {statistic} [bits]" for estimate in _ESTIMATES for statistic in _SPREAD),
    *(
        f"{estimate}: {statistic} [decimal digits]"
        for estimate in _ESTIMATES
        for statistic in ("mean", "least", "median")
    ),
    "probability of the general estimate",
)


def layer_table(layers: Mapping[str, Digits]) -> Table:
    """One row a layer: counts and shares of each kind of element, and the spread of bits over the inexact ones."""
    rows = tuple(
        (name, _shape(found.kind.shape), *_summary_cells(summarise(found))) for name, found in layers.items()
    )
    return Table("variability_layers", ("layer", "shape", *_SUMMARY_COLUMNS), rows)


def channel_table(layers: Mapping[str, Digits], axes: Mapping[str, int] | None = None) -> Table:
    """One row a channel of a layer. `axes` names the channel axis of layers that have it elsewhere than usual (see
    `summarise_channels`). Raises UsageError for an axis that a layer does not have."""
    chosen = axes or {}
    rows = tuple(
        (name, channel, *_summary_cells(summary))
        for name, found in layers.items()
        for channel, summary in enumerate(summarise_channels(found, chosen.get(name)))
    )
    return Table("variability_channels", ("layer", "channel", *_SUMMARY_COLUMNS), rows)


def decision_table(outputs: Mapping[str, DecisionTotals]) -> Table:
    """One row a decision: what the baseline decides, in how many samples it flips, and the margin against its noise."""
    rows: list[tuple[Cell, ...]] = []
    for name, totals in outputs.items():
        noise = totals.noise_margin
        for index in np.ndindex(totals.baseline.shape):
            baseline = int(totals.baseline[index])
            rows.append(
                (
                    name,
                    _index(index),
                    None if baseline == NO_DECISION else baseline,
                    totals.samples,
                    int(totals.flips[index]),
                    int(totals.undecided[index]),
                    _cell(float(totals.margin_baseline[index])),
                    _cell(float(totals.margin_mean[index])),
                    _cell(float(totals.margin_std[index])),
                    _cell(float(noise[index])),
                )
            )
    columns = (
        "output",
        "input",
        "decision of the baseline",
        "samples",
        "flips",
        "undecided (NaN)",
        "margin of the baseline",
        "mean margin",
        "standard deviation of the margin",
        "mean margin [standard deviations]",
    )
    return Table("variability_decisions", columns, tuple(rows))


def comparison_table(comparison: Comparison) -> Table:
    """One row a layer of either run; those of one run only have no difference, and say which run has them."""
    first, second = comparison.first, comparison.second
    rows: list[tuple[Cell, ...]] = [
        (
            layer.layer,
            "both",
            layer.samples_first,
            layer.samples_second,
            layer.elements_first,
            layer.elements_second,
            layer.first_bits,
            layer.second_bits,
            layer.difference_bits,
            layer.paired,
            layer.exact_first,
            layer.exact_second,
            layer.not_finite_first,
            layer.not_finite_second,
        )
        for layer in comparison.layers
    ]
    for run, only in ((first, comparison.only_first), (second, comparison.only_second)):
        rows.extend((name, run, *(None,) * 12) for name in only)
    columns = (
        "layer",
        "in",
        f"samples, {first}",
        f"samples, {second}",
        f"elements, {first}",
        f"elements, {second}",
        f"mean, {first} [bits]",
        f"mean, {second} [bits]",
        f"{second} minus {first} [bits]",
        "elements compared in pairs",
        f"exact, {first}",
        f"exact, {second}",
        f"NaN or Inf, {first}",
        f"NaN or Inf, {second}",
    )
    return Table("variability_comparison", columns, tuple(rows))


# ------------------------------------------------------------ elements


def element_columns(
    layers: Mapping[str, Moments], confidence: Confidence = Confidence()
) -> Iterator[Columns]:
    """The table of elements, some rows at a time: index, kind, moments in the layer's unit, bits by each estimate.

    Raises VariabilityError for a layer with fewer than two samples.
    """
    for name, moments in layers.items():
        found, totals = digits(moments, confidence), moments.totals()
        std = totals.std(ddof=1)
        # A layer without elements has no rows, and yet its columns.
        for start in range(0, max(found.kind.size, 1), _ROWS):
            yield _elements(name, found, totals, std, slice(start, start + _ROWS))


def _elements(name: str, found: Digits, totals: Totals, std: Float64, rows: slice) -> Columns:
    kinds = found.kind.reshape(-1)[rows]
    moments = {
        "mean": totals.mean,
        "standard deviation": std,
        "least": totals.least,
        "greatest": totals.greatest,
        "samples equal to the baseline": totals.equal,
        "samples NaN": totals.nan,
        "samples +Inf": totals.positive_infinite,
        "samples -Inf": totals.negative_infinite,
    }
    bits = {"deviation": found.deviation_bits, "CNH": found.cnh_bits, "general": found.general_bits}
    return Columns(
        {
            "layer": np.full(len(kinds), name),
            "index": np.array(_indices(found.kind.shape, rows), dtype=np.str_),
            "kind": np.array([_KIND_NAMES[kind] for kind in Kind])[kinds],
            "samples": np.full(len(kinds), totals.samples),
            **{column: _flat(array, rows) for column, array in moments.items()},
            **{f"{estimate} [bits]": _flat(array, rows) for estimate, array in bits.items()},
            **{
                f"{estimate} [decimal digits]": decimal(_flat(array, rows))
                for estimate, array in bits.items()
            },
        }
    )


def _indices(shape: tuple[int, ...], rows: slice) -> list[str]:
    if not shape:
        return [""]
    places = np.unravel_index(np.arange(math.prod(shape))[rows], shape)
    return [_index(index) for index in zip(*(place.tolist() for place in places), strict=True)]


def _flat(array: NDArray[Any], rows: slice) -> NDArray[Any]:
    """Some elements in order; smaller floats as float64, which holds them exactly."""
    part = array.reshape(-1)[rows]
    return part.astype(np.float64) if part.dtype.kind == "f" else part


# ------------------------------------------------------------ cells


def _summary_cells(summary: Summary) -> tuple[Cell, ...]:
    spreads = (summary.deviation_bits, summary.cnh_bits, summary.general_bits)
    counts = (summary.exact, summary.zero_mean, summary.nan, summary.infinite)
    return (
        summary.samples,
        summary.elements,
        *counts,
        *(summary.share(count) for count in counts),
        summary.without,
        *(cell for spread in spreads for cell in _spread_cells(spread)),
        *(cell for spread in spreads for cell in _decimal_cells(spread)),
        summary.general_probability,
    )


def _spread_cells(spread: Spread | None) -> tuple[Cell, ...]:
    if spread is None:
        return (None,) * len(_SPREAD)
    return (
        spread.mean,
        spread.least,
        spread.q05,
        spread.q25,
        spread.median,
        spread.q75,
        spread.q95,
        spread.greatest,
    )


def _decimal_cells(spread: Spread | None) -> tuple[Cell, ...]:
    if spread is None:
        return (None, None, None)
    digits_of = spread.decimal()
    return (digits_of.mean, digits_of.least, digits_of.median)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(length) for length in shape)


def _index(index: tuple[int, ...]) -> str:
    return ",".join(str(position) for position in index)


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else value
