"""What a run says of each layer and each node of its network: bounds, rounding and noise under one ONNX name.

Imports neither torch nor Qt.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from boundscope.protocol import DeployedLayer, LayerBounds, LayerNoise, NetworkSummary, VariabilityResult

DIGITS_PER_BIT = math.log10(2)
Noises = Mapping[tuple[int, str], Sequence[LayerNoise]]  # of each rank and layer, in the order told
Value = str | int | float | None


@dataclass(frozen=True)
class LayerRow:
    """One layer (of one case where bounds are proven): what is proven of it, and what was measured."""

    node: str
    op: str
    elements: int
    case: int | None = None
    bounds: LayerBounds | None = None
    deployed: DeployedLayer | None = None
    noise: LayerNoise | None = None

    @property
    def width(self) -> float | None:
        """Proven: the widest interval over the reals, the greatest over the elements, in the layer's unit."""
        if self.bounds is not None:
            return self.bounds.width_max
        return None if self.deployed is None else self.deployed.width

    @property
    def unstable_share(self) -> float | None:
        """Unstable neurons over all of them, 0 to 1."""
        if self.bounds is None or self.bounds.unstable is None or not self.bounds.size:
            return None
        return self.bounds.unstable / self.bounds.size

    @property
    def mean_bits(self) -> float | None:
        return None if self.noise is None else self.noise.mean_bits

    @property
    def digits(self) -> float | None:
        """Mean significant decimal digits."""
        return None if self.mean_bits is None else self.mean_bits * DIGITS_PER_BIT


def noise_now(noise: Noises, result: VariabilityResult | None) -> tuple[LayerNoise, ...]:
    """Each layer as told last: by the result, else by the rank that has most samples of it; in network order."""
    if result is not None and result.layers:
        return result.layers
    best: dict[str, LayerNoise] = {}
    for (_, name), told in noise.items():
        if name not in best or told[-1].samples > best[name].samples:
            best[name] = told[-1]
    return tuple(best.values())


def layer_rows(
    bounds: Mapping[tuple[int, str], LayerBounds], noise: Noises, result: VariabilityResult | None
) -> tuple[LayerRow, ...]:
    """One row for each case and layer with bounds, then one for each other layer that was measured."""
    deployed = {} if result is None else {each.layer: each for each in result.deployed}
    measured = {each.layer: each for each in noise_now(noise, result)}
    rows = [
        LayerRow(node, each.op, each.size, case, each, deployed.get(node), measured.get(node))
        for (case, node), each in bounds.items()
    ]
    bounded = {node for _, node in bounds}
    for name, each in measured.items():
        if name not in bounded:
            rows.append(LayerRow(name, each.op, each.elements, None, None, deployed.get(name), each))
    for name, proof in deployed.items():
        if name not in bounded and name not in measured:
            rows.append(LayerRow(name, proof.op, proof.elements, None, None, proof, None))
    return tuple(rows)


BOUND_COLUMNS = (
    "case",
    "node",
    "operator",
    "elements",
    "least lower bound",
    "greatest upper bound",
    "mean width",
    "greatest width",
    "unstable neurons",
    "method",
    "unstable share",
)
NOISE_COLUMNS = (
    "proven rounding",
    "observed deviation",
    "observed of proven [greatest share]",
    "samples",
    "mean [bits]",
    "least [bits]",
    "mean [decimal digits]",
)


def bound_cells(row: LayerRow) -> tuple[Value, ...]:
    """The cells of one row in the order of BOUND_COLUMNS."""
    one = row.bounds
    if one is None:
        return (row.case, row.node, row.op, row.elements, None, None, None, row.width, None, None, None)
    return (
        row.case,
        row.node,
        row.op,
        row.elements,
        one.lower_min,
        one.upper_max,
        one.width_mean,
        one.width_max,
        one.unstable,
        one.method,
        row.unstable_share,
    )


def noise_cells(row: LayerRow) -> tuple[Value, ...]:
    """The cells of one row in the order of NOISE_COLUMNS."""
    proof, noise = row.deployed, row.noise
    return (
        *((None,) * 3 if proof is None else (proof.rounding, proof.observed, proof.used)),
        *((None,) * 3 if noise is None else (noise.samples, noise.mean_bits, noise.least_bits)),
        row.digits,
    )


# ---------------------------------------------------------------- nodes


def node_of(layer: str, nodes: Collection[str]) -> str:
    """The node that a layer belongs to; layers of a node with several outputs carry the output's number."""
    return layer if layer in nodes else layer.rpartition("#")[0]


def node_rows(network: NetworkSummary, rows: Iterable[LayerRow]) -> dict[str, LayerRow]:
    """For each node with values the row that says the least good of it.

    Of several cases or outputs that is the one with the widest bounds, or, where there are none, the fewest bits.
    """
    names = frozenset(node.name for node in network.nodes)
    worst: dict[str, LayerRow] = {}
    for row in rows:
        name = node_of(row.node, names)
        if name in names and (name not in worst or _badness(row) > _badness(worst[name])):
            worst[name] = row
    return worst


def _badness(row: LayerRow) -> tuple[float, float]:
    width = -math.inf if row.width is None else row.width
    bits = math.inf if row.mean_bits is None else row.mean_bits
    return (math.inf if math.isnan(width) else width, -bits)


NODE_COLUMNS = (
    "node",
    "operator",
    "fed by",
    "output shape",
    "parameters",
    *(name for name in BOUND_COLUMNS if name not in ("node", "operator")),
    *NOISE_COLUMNS,
)


def node_cells(network: NetworkSummary, rows: Iterable[LayerRow]) -> tuple[tuple[Value, ...], ...]:
    """One row a node in the order of NODE_COLUMNS, in the network's order; `fed by` are nodes, space-separated."""
    worst = node_rows(network, rows)
    maker = {tensor: node.name for node in network.nodes for tensor in node.outputs if tensor}
    found = []
    for node in network.nodes:
        row = worst.get(node.name)
        feeders = dict.fromkeys(maker[tensor] for tensor in node.inputs if tensor in maker)
        shape = "×".join(map(str, node.shape))
        cells: tuple[Value, ...] = (None,) * (len(BOUND_COLUMNS) - 2 + len(NOISE_COLUMNS))
        if row is not None:
            case, _, _, *rest = bound_cells(row)
            cells = (case, *rest, *noise_cells(row))
        found.append((node.name, node.op, " ".join(feeders), shape, node.parameters, *cells))
    return tuple(found)
