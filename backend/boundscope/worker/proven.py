"""What the bound engine proves of a variability job's layers: widths over the property, rounding at each point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from boundscope.bounds import BoundEngine, MemoryLedger, unsupported
from boundscope.bounds.context import BoxContext
from boundscope.bounds.rounding import LEAST_NORMAL_FLOAT32, RoundingModel
from boundscope.errors import BoundError, UnsupportedOperatorError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Box, Property
from boundscope.protocol import DeployedLayer, Method, Progress, RoundingMode
from boundscope.sharding.weights import WholeWeights
from boundscope.variability.deployed import meet, unit_roundoff
from boundscope.variability.inputs import Inputs
from boundscope.variability.moments_file import RunMoments
from boundscope.variability.sampling import Layer, Sampler

FLOAT32_BITS = 24
# Proven of a tensor for one point: both ends, flat.
Ends = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Deployed:
    """The table, and a sentence that says why rows or widths are missing."""

    layers: tuple[DeployedLayer, ...] = ()
    note: str = ""

    @property
    def violations(self) -> tuple[str, ...]:
        return tuple(layer.violation for layer in self.layers if layer.violation)


class _Quiet(Monitor):
    """Stops when the job does; the bounds of single points are no news."""

    def __init__(self, job: Monitor) -> None:
        super().__init__()
        self._job = job

    def check(self) -> None:
        self._job.check()


class Prover:
    """Bounds of one network's tensors, on this rank alone."""

    def __init__(self, network: Network, monitor: Monitor) -> None:
        self._network, self._monitor = network, monitor
        self._ledger = MemoryLedger()
        self._device = torch.device("cpu")
        self.unbounded = ""
        self._weights = WholeWeights(network.constants, self._ledger, self._device, torch.float64)

    def widths(self, prop: Property, cases: Iterable[int]) -> dict[str, float]:
        """The largest width of each tensor over the boxes of some cases, over the reals, by CROWN."""
        engine = BoundEngine(
            self._network, self._weights, self._ledger, monitor=_Quiet(self._monitor), device=self._device
        )
        found: dict[str, float] = {}
        for case in cases:
            context = engine.context(prop.cases[case].box, Method.CROWN, case=case)
            for name, interval in context.intervals.items():
                width = float((interval.upper - interval.lower).max())
                found[name] = max(width, found.get(name, 0.0))
        return found

    def at_point(self, values: Mapping[str, np.ndarray], unit: float) -> dict[str, Ends]:
        """Both ends of every tensor, for one point, in any arithmetic of this unit roundoff that may flush subnormals.

        Of tensors up to the first that has no finite bound; `unbounded` then says which.
        """
        flat = np.concatenate(
            [values[info.name].astype(np.float64).reshape(-1) for info in self._network.inputs]
        )
        texts = tuple(repr(float(value)) for value in flat)
        model = RoundingModel(unit, LEAST_NORMAL_FLOAT32)
        box = Box(texts, texts, flat, flat)
        context = BoxContext.over(
            box, self._network, self._weights, self._ledger, model, self._device, self._subnormal()
        )
        for node in self._network.nodes:
            self._monitor.check()
            try:
                context.advance(node)
            except (BoundError, UnsupportedOperatorError) as error:
                self.unbounded = f"no rounding is proven from node '{node.name}' on: {error}"
                break
        return {
            name: (interval.lower.numpy().reshape(-1), interval.upper.numpy().reshape(-1))
            for name, interval in context.intervals.items()
        }

    def _subnormal(self) -> frozenset[str]:
        return frozenset(
            name
            for name, array in self._network.constants.items()
            if array.dtype.kind == "f" and bool(((array != 0) & (np.abs(array) < LEAST_NORMAL_FLOAT32)).any())
        )


def deployed(
    sampler: Sampler,
    run: RunMoments,
    prop: Property,
    mode: RoundingMode,
    monitor: Monitor,
) -> Deployed:
    """The table of a whole run, or why there is none.

    Raises:
        CancelledError, DeadlineError: from the monitor.
    """
    network = sampler.network
    reason = _refusal(network)
    if reason:
        return Deployed(note=reason)
    unit = unit_roundoff(mode, min(sampler.how.precision or FLOAT32_BITS, FLOAT32_BITS))
    prover = Prover(network, monitor)
    ends = _at_points(prover, sampler.inputs, sampler.layers, unit, monitor)
    notes = [prover.unbounded] if prover.unbounded else []
    widths: dict[str, float] = {}
    try:
        widths = prover.widths(prop, sorted(set(sampler.inputs.cases)) or range(len(prop.cases)))
    except (BoundError, UnsupportedOperatorError) as error:
        notes.append(f"no widths are proven: {error}")
    rows = []
    for layer in sampler.layers:
        if not all(layer.name in point for point in ends):
            continue
        moments = run.layers[layer.name]
        lower, upper = (
            np.stack([point[layer.name][end] for point in ends]).reshape(moments.shape) for end in (0, 1)
        )
        met = meet(moments, lower, upper, sampler.how)
        rows.append(
            DeployedLayer(
                layer=layer.name,
                op=layer.op,
                elements=layer.size,
                width=widths.get(layer.tensor),
                rounding=met.rounding,
                observed=met.observed,
                used=met.used,
                violation=met.violation,
            )
        )
    return Deployed(tuple(rows), "; ".join(notes))


def _refusal(network: Network) -> str:
    missing = unsupported(network)
    if missing:
        return f"no bound is proven: {missing[0]}"
    wide = [info.name for info in network.inputs if info.dtype != np.float32]
    return f"no bound is proven: input '{wide[0]}' is not float32" if wide else ""


def _at_points(
    prover: Prover, inputs: Inputs, layers: tuple[Layer, ...], unit: float, monitor: Monitor
) -> list[dict[str, Ends]]:
    found = []
    for point in range(inputs.count):
        monitor.emit(Progress(stage="proving the points", done=point, total=inputs.count))
        ends = prover.at_point({name: values[point] for name, values in inputs.values.items()}, unit)
        found.append({layer.name: ends[layer.tensor] for layer in layers if layer.tensor in ends})
    return found
