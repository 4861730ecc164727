"""What the graph of a network shows at its nodes: the quantity that colours them, its values and marks. No Qt."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from boundscope.layers import DIGITS_PER_BIT, LayerRow, node_rows
from boundscope.protocol import JobInfo
from boundscope.records import JobRecord
from boundscope_app.graph_layout import Graph, GraphNode
from boundscope_app.plots.graph_scene import NodeCell
from boundscope_app.plots.ramp import Ramp, ramp_for
from boundscope_app.views.text import count, number, step_name
from boundscope_app.views.variability_model import full_bits, layers_now, mark_of


@dataclass(frozen=True)
class Measure:
    """One quantity of a layer: `title` names it in the list, `unit` beside the colours."""

    id: str
    title: str
    unit: str
    value: Callable[[LayerRow], float | None]
    text: Callable[[LayerRow], str]


def _unstable(row: LayerRow) -> float | None:
    share = row.unstable_share
    return None if share is None else 100 * share


def _unstable_text(row: LayerRow) -> str:
    share = _unstable(row)
    return "" if share is None else f"{share:.0f}\u00a0%"


def _rounding(row: LayerRow) -> float | None:
    return None if row.deployed is None else row.deployed.rounding


def _observed(row: LayerRow) -> float | None:
    return None if row.deployed is None else row.deployed.observed


def _digits_text(row: LayerRow) -> str:
    if row.digits is not None:
        return f"{row.digits:.1f}".replace("-", "\u2212")
    return "" if row.noise is None else mark_of(row.noise)


def _short(value: Callable[[LayerRow], float | None]) -> Callable[[LayerRow], str]:
    def text(row: LayerRow) -> str:
        found = value(row)
        return "" if found is None else number(found, 3)

    return text


def _width(row: LayerRow) -> float | None:
    return row.width


def _digits(row: LayerRow) -> float | None:
    return row.digits


MEASURES = (
    Measure("width", "Proven width", "Greatest proven width [layer’s unit]", _width, _short(_width)),
    Measure("unstable", "Unstable neurons", "Unstable neurons [% of the layer]", _unstable, _unstable_text),
    Measure("digits", "Significant digits", "Mean significant digits [decimal]", _digits, _digits_text),
    Measure("rounding", "Proven rounding", "Proven rounding [layer’s unit]", _rounding, _short(_rounding)),
    Measure(
        "observed", "Observed deviation", "Observed deviation [layer’s unit]", _observed, _short(_observed)
    ),
)
BY_ID = {measure.id: measure for measure in MEASURES}


def rows_by_node(record: JobRecord) -> dict[str, LayerRow]:
    """The row that says the least good of each node."""
    return {} if record.network is None else node_rows(record.network, record.layer_rows())


def shown_measures(rows: Mapping[str, LayerRow]) -> tuple[str, ...]:
    """The ids of measures that some node has a value of."""
    return tuple(
        each.id
        for each in MEASURES
        if any(each.value(row) is not None or each.text(row) for row in rows.values())
    )


def ramp_of(measure: Measure, rows: Mapping[str, LayerRow], info: JobInfo | None, record: JobRecord) -> Ramp:
    """The scale of colours: the whole of what is possible where that is known, else what there is."""
    if measure.id == "unstable":
        return Ramp(0.0, 100.0, unit=measure.unit)
    if measure.id == "digits":
        return Ramp(0.0, full_bits(info, layers_now(record)) * DIGITS_PER_BIT, unit=measure.unit)
    values = (measure.value(row) for row in rows.values())
    return ramp_for((value for value in values if value is not None), measure.unit)


def cells_of(
    graph: Graph, measure: Measure, rows: Mapping[str, LayerRow], ramp: Ramp
) -> tuple[NodeCell, ...]:
    """What each node of the graph shows; inputs and outputs of the network show their shape."""
    return tuple(
        NodeCell(text=shape_text(node.shape)) if node.terminal else _cell(measure, rows.get(node.name), ramp)
        for node in graph.nodes
    )


def _cell(measure: Measure, row: LayerRow | None, ramp: Ramp) -> NodeCell:
    if row is None:
        return NodeCell()
    value, text = measure.value(row), measure.text(row)
    if value is None:
        wrong = text in ("NaN", "Inf")
        return NodeCell(text=text, mark=text, wrong=wrong)
    if not math.isfinite(value):
        return NodeCell(text=text, mark="NaN" if math.isnan(value) else "Inf", wrong=True)
    return NodeCell(ramp.share(value), text)


def shape_text(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def node_lines(node: GraphNode, row: LayerRow | None) -> list[tuple[str, str]]:
    """All that is known of a node, as names and values."""
    lines = [("Operator", node.op), ("Output shape", shape_text(node.shape))]
    if node.parameters:
        lines.append(("Parameters", count(node.parameters)))
    if row is None:
        return lines
    bounds, proof, noise = row.bounds, row.deployed, row.noise
    if bounds is not None:
        lines.append(("Bounds", f"{number(bounds.lower_min, 5)} … {number(bounds.upper_max, 5)}"))
        lines.append(
            ("Width", f"mean {number(bounds.width_mean, 4)}, greatest {number(bounds.width_max, 4)}")
        )
        if bounds.unstable is not None:
            share = 100 * (row.unstable_share or 0.0)
            lines.append(
                ("Unstable", f"{count(bounds.unstable)} of {count(bounds.size)} ({share:.1f}\u00a0%)")
            )
        lines.append(("Method", step_name(bounds.method)))
    elif row.width is not None:
        lines.append(("Width", f"greatest {number(row.width, 4)}"))
    if proof is not None:
        used = f"{100 * proof.used:.3g}\u00a0% of the proven"
        lines.append(
            ("Rounding", f"proven {number(proof.rounding, 3)}, observed {number(proof.observed, 3)} ({used})")
        )
    if noise is not None:
        lines.append(("Significant digits", _noise_text(row)))
    return lines


def _noise_text(row: LayerRow) -> str:
    noise = row.noise
    assert noise is not None
    if noise.mean_bits is None or row.digits is None:
        return f"none: {mark_of(noise)}, {noise.samples} samples"
    return f"mean {row.digits:.2f} ({noise.mean_bits:.2f} bits), {noise.samples} samples"
