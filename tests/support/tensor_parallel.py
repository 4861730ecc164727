"""What each rank of a test of split layers does; in a module of its own, for ranks import it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.alpha import AlphaSettings, _parameters_of, _pass_with
from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.context import BoxContext
from boundscope.errors import BoundscopeError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.network.loader import load
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Arithmetic, Event, LayerBounds, Method, Precision, Sharding
from boundscope.sharding.place import place
from boundscope.sharding.ranks import RankGroup

TP, EXACT = Sharding.TP, Sharding.TP_EXACT


class Found(NamedTuple):
    """Lower bounds of Y_i − Y_0, the layers that were reported, and bytes of weights that the rank held at most."""

    lower: Tensor
    layers: list[LayerBounds]
    weights_bytes: int


class Case(NamedTuple):
    network: str
    sharding: Sharding
    method: Method = Method.CROWN
    arithmetic: Arithmetic = Arithmetic.REAL
    radius: float = 0.05


def engine_of(
    network: Network, sharding: Sharding, ranks: RankGroup, arithmetic: Arithmetic, monitor: Monitor
) -> BoundEngine:
    ledger = MemoryLedger()
    placed = place(network, sharding, ledger, torch.device("cpu"), ranks)
    return BoundEngine(
        placed.network,
        placed.weights,
        ledger,
        arithmetic=arithmetic,
        ranks=placed.ranks,
        monitor=monitor,
        alpha=AlphaSettings(steps=5),
        precision=Precision.FLOAT64,
        whole=placed.whole,
        exact_zones=sharding is EXACT,
    )


def box_of(network: Network, radius: float) -> Box:
    point = np.random.default_rng(1).random(network.input_count)
    return Box((), (), point - radius, point + radius)


def constraints_of(network: Network) -> list[LinearConstraint]:
    """Y_i − Y_0 > 0 for every i > 0."""
    return [
        LinearConstraint(np.array([0, i]), np.array([-1.0, 1.0]), Fraction(0))
        for i in range(1, network.output_count)
    ]


def bounds_of(ranks: RankGroup, case: Case) -> Found:
    network = load(Path(case.network))
    layers: list[LayerBounds] = []

    def listen(event: Event) -> None:
        if isinstance(event, LayerBounds):
            layers.append(event)

    engine = engine_of(network, case.sharding, ranks, case.arithmetic, Monitor(listen))
    context = engine.context(box_of(network, case.radius), case.method)
    lower = engine.margins(context, constraints_of(network), case.method)
    peaks = engine.ledger.peaks(ranks.rank)
    return Found(lower, layers, peaks.by_category["weights"])


def all_bounds(ranks: RankGroup, cases: list[Case]) -> list[Found]:
    return [bounds_of(ranks, case) for case in cases]


def gradients_of(ranks: RankGroup, network: str, sharding: Sharding) -> tuple[Tensor, dict[str, Tensor]]:
    """The bounds of a search pass, and their gradient by each node's free parameters, all elements of it."""
    loaded = load(Path(network))
    engine = engine_of(loaded, sharding, ranks, Arithmetic.REAL, Monitor())
    context: BoxContext = engine.context(box_of(loaded, 0.15), Method.CROWN)
    rows = torch.eye(loaded.output_count, dtype=torch.float64).reshape(-1, *loaded.outputs[0].shape)
    name = loaded.outputs[0].name
    first = BackwardPass(context)
    first.lower({name: rows}, len(rows))
    parameters = _parameters_of(context, first.relaxed_nodes, len(rows))
    values = {node: one.values.detach().requires_grad_() for node, one in parameters.items()}
    with torch.enable_grad():
        lower = _pass_with(context, parameters, values, search=True).lower({name: rows}, len(rows))
        torch.autograd.backward(lower, torch.ones_like(lower))
    found = {}
    for node in engine.network.nodes:
        if not context.rule(node).kinked:
            continue
        size = engine.network.tensors[node.outputs[0]].size
        gradient = torch.zeros(len(rows), size)
        if node.name in parameters:
            assert values[node.name].grad is not None
            gradient[:, parameters[node.name].matters] = values[node.name].grad
        found[node.name] = gradient
    return lower.detach(), found


def failing(ranks: RankGroup, network: str) -> str:
    loaded = load(Path(network))
    engine = engine_of(loaded, TP, ranks, Arithmetic.REAL, Monitor())
    if ranks.rank == 1:  # a weight of this rank alone that no bound survives
        store = engine.weights
        name = next(one for one in engine.network.constants if "W1" in one)
        store._stored[name].fill_(torch.inf)  # type: ignore[attr-defined]
    try:
        engine.context(box_of(loaded, 0.1), Method.CROWN)
    except BoundscopeError as error:
        return f"{type(error).__name__}: {error}"
    return ""
