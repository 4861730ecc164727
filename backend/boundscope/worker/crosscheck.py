"""Our engine and auto_LiRPA on the same cases: how far apart they are, and whether both can be right.

Two sound engines may differ as much as they like; what they may not do is prove bounds that exclude each other, or
bounds that a concrete input breaks. float32 is given room for its rounding; what still looks like a contradiction
is computed again by auto_LiRPA in float64, and counts only if it stays one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.errors import BoundscopeError, CancelledError, DeadlineError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network, Node
from boundscope.properties.types import Case, LinearConstraint, NormBall, Property
from boundscope.protocol import Counterexample, CrossCheck, LayerDifference, Method, Norm
from boundscope.reference.engine import Ends, ReferenceBounds, ReferenceEngine
from boundscope.sharding.weights import WholeWeights

SAMPLES = 12
# Room for rounding, of the largest value of a tensor or a margin: for float32, and for float64.
ROOM = {torch.float32: 1e-4, torch.float64: 1e-9}
LEAST_ROOM = 1e-30
SHOWN = 3


class _Silent(Monitor):
    """Stops when the job does, and says nothing: the case has been reported already."""

    def __init__(self, job: Monitor) -> None:
        super().__init__()
        self._job = job

    def check(self) -> None:
        self._job.check()


@dataclass(frozen=True)
class _Side:
    """What one engine proves of a case: margins [R] and intervals of tensors."""

    name: str
    margins: Tensor
    layers: Mapping[str, Ends]


@dataclass(frozen=True)
class _Point:
    """A concrete input of a case's box: the value of every tensor, and of every margin [R]."""

    values: Mapping[str, Tensor]
    margins: Tensor


class Checker:
    """Compares the engines on a property, on this rank, over the reals."""

    def __init__(self, network: Network, prop: Property, engine: BoundEngine, monitor: Monitor) -> None:
        """
        Raises:
            BoundscopeError: auto_LiRPA is not installed.
        """
        self._network, self._property, self._monitor = network, prop, monitor
        self._reference = ReferenceEngine(network, monitor)
        ledger = MemoryLedger()
        device = engine.device
        weights = WholeWeights(network.constants, ledger, device, torch.float64)
        self._native = BoundEngine(network, weights, ledger, monitor=_Silent(monitor), device=device)
        self._layers: list[LayerDifference] = []
        self._apart: list[float] = []
        self._apart_alike: list[float] = []
        self._wrong: list[str] = []

    def run(self, method: Method, counterexample: Counterexample | None) -> CrossCheck:
        """Compare on every case; a counterexample is one more input that no bound may exclude.

        Raises:
            CancelledError: somebody cancelled the job.
        """
        left_out = ""
        try:
            for number, case in enumerate(self._property.cases):
                found = counterexample if counterexample and counterexample.case == number else None
                self._compare(number, case, method, found)
        except CancelledError:
            raise
        except DeadlineError:
            left_out = "the time limit passed before all cases were compared"
        except BoundscopeError as error:
            left_out = str(error)
        if left_out:
            self._monitor.log(f"cross-check incomplete: {left_out}", "warning")
        return CrossCheck(
            engine=self._reference.name,
            method=method,
            layers=tuple(self._layers),
            margin_difference=max(self._apart, default=None),
            same_layers_difference=max(self._apart_alike, default=None),
            disagreements=tuple(self._wrong[:SHOWN]),
            left_out=left_out,
        )

    # ------------------------------------------------------------ one case

    def _compare(self, number: int, case: Case, method: Method, found: Counterexample | None) -> None:
        constraints = [one for clause in case.clauses for one in clause.constraints]
        context = self._native.context(case.box, method, case=number)
        ours = _Side(
            "native",
            self._native.margins(context, constraints, method),
            {name: (one.lower.cpu(), one.upper.cpu()) for name, one in context.intervals.items()},
        )
        theirs = self._side(self._reference.bounds(case.box, constraints, method))
        self._measure(number, ours, theirs)
        comparable = torch.isfinite(theirs.margins)
        if bool(comparable.any()):
            self._apart.append(float((ours.margins - theirs.margins)[comparable].abs().max()))
            if method is not Method.IBP:
                alike = self._reference.bounds(case.box, constraints, Method.CROWN, hidden=ours.layers)
                plain = self._native.margins(context, constraints, Method.CROWN)
                self._apart_alike.append(float((plain - alike.margins)[comparable].abs().max()))
        points = list(self._points(case, constraints, found))
        where = f"case {number}"
        if any(self._contradictions(where, constraints, ours, theirs, points, torch.float32)):
            precise = self._side(self._reference.precise.bounds(case.box, constraints, method))
            self._wrong += self._contradictions(where, constraints, ours, precise, points, torch.float64)
        self._report(number)

    def _side(self, found: ReferenceBounds) -> _Side:
        layers = {
            name: (lower.to(torch.float64), upper.to(torch.float64))
            for name, (lower, upper) in found.layers.items()
        }
        return _Side(self._reference.name, found.margins, layers)

    def _measure(self, number: int, ours: _Side, theirs: _Side) -> None:
        for name, (lower, upper) in theirs.layers.items():
            low, high = ours.layers[name]
            room = _room(torch.float32, low, high)
            apart = torch.maximum((lower - low).abs(), (upper - high).abs())
            unlike = (lower > high + room) | (upper < low - room)
            self._layers.append(
                LayerDifference(
                    case=number,
                    tensor=name,
                    elements=apart.numel(),
                    difference=float(apart.max()),
                    unlike=int(unlike.sum()),
                )
            )

    def _report(self, number: int) -> None:
        layers = [layer for layer in self._layers if layer.case == number]
        text = f"cross-check with {self._reference.name}, case {number}: "
        text += f"margins differ by at most {self._apart[-1]:.3g}" if self._apart else "no margin to compare"
        if self._apart_alike:
            text += f" ({self._apart_alike[-1]:.3g} with the same hidden bounds)"
        if layers:
            worst = max(layers, key=lambda layer: layer.difference)
            text += f"; bounds of {len(layers)} tensors by at most {worst.difference:.3g} ('{worst.tensor}')"
        self._monitor.log(text)

    # ------------------------------------------------------------ concrete inputs

    def _points(
        self, case: Case, constraints: Sequence[LinearConstraint], found: Counterexample | None
    ) -> Iterator[_Point]:
        """The box's centre and ends, random inputs and corners, and the counterexample; evaluated in float64."""
        lower, upper = case.box.lower, case.box.upper
        random = np.random.default_rng(0)
        weights = [np.full(lower.shape, part) for part in (0.5, 0.0, 1.0)]
        weights += [random.random(lower.shape) for _ in range(SAMPLES // 2)]
        weights += [random.integers(0, 2, lower.shape).astype(np.float64) for _ in range(SAMPLES // 2)]
        inputs = [np.clip(lower + weight * (upper - lower), lower, upper) for weight in weights]
        if case.box.ball is not None:
            inputs = [_inside(one, case.box.ball) for one in inputs]
        if found is not None:
            inputs.append(np.array([float(text) for text in found.inputs]))
        for one in inputs:
            self._monitor.check()
            yield self._evaluated(one, constraints)

    def _evaluated(self, point: NDArray[np.float64], constraints: Sequence[LinearConstraint]) -> _Point:
        inputs: dict[str, Tensor] = {}
        position = 0
        for info in self._network.inputs:
            part = torch.from_numpy(point[position : position + info.size].copy())
            inputs[info.name] = part.reshape(info.shape)
            position += info.size
        values: dict[str, Tensor] = {}

        def keep(node: Node, results: tuple[Tensor, ...]) -> None:
            values.update((name, r) for name, r in zip(node.outputs, results, strict=False) if name)

        with torch.no_grad():
            outputs = self._network.evaluate(inputs, visit=keep)
        y = torch.cat([outputs[info.name].flatten() for info in self._network.outputs]).numpy()
        margins = [
            float(one.output_coeffs @ y[one.output_indices])
            + float(one.input_coeffs @ point[one.input_indices])
            - float(one.bound)
            for one in constraints
        ]
        return _Point(values, torch.tensor(margins, dtype=torch.float64))

    # ------------------------------------------------------------ what cannot be

    def _contradictions(
        self,
        where: str,
        constraints: Sequence[LinearConstraint],
        ours: _Side,
        theirs: _Side,
        points: Sequence[_Point],
        dtype: torch.dtype,
    ) -> list[str]:
        """Sentences with both numbers, the first of each kind."""
        return [
            *_apart(where, ours, theirs, dtype),
            *_margins_not_reached(where, constraints, (ours, theirs), points, dtype),
            *_values_outside(where, (ours, theirs), points, dtype),
        ]


def _inside(point: NDArray[np.float64], ball: NormBall) -> NDArray[np.float64]:
    """The point, moved towards the ball's centre until it lies well inside; the centre itself for L0."""
    centre = ball.centre_lower + (ball.centre_upper - ball.centre_lower) / 2
    if ball.norm is Norm.L0:
        return centre
    distances = np.array([float(factor) for factor in ball.scale]) * (point - centre)
    length = float(np.linalg.norm(distances, 2 if ball.norm is Norm.L2 else 1))
    radius = 0.99 * float(ball.radius)
    return point if length <= radius else centre + (point - centre) * (radius / length)


def _room(dtype: torch.dtype, *values: Tensor) -> float:
    """What rounding in `dtype` may move a bound by."""
    return ROOM[dtype] * max(float(value.abs().max()) for value in values) + LEAST_ROOM


def _apart(where: str, ours: _Side, theirs: _Side, dtype: torch.dtype) -> Iterator[str]:
    for name, (lower, upper) in theirs.layers.items():
        low, high = ours.layers[name]
        room = _room(dtype, low, high)
        wrong = ((lower > high + room) | (upper < low - room)).flatten().nonzero()
        if len(wrong):
            index = int(wrong[0])
            yield (
                f"{where}, tensor '{name}', element {index}: native proves {_interval(low, high, index)}, "
                f"{theirs.name} {_interval(lower, upper, index)}"
            )
            return


def _margins_not_reached(
    where: str,
    constraints: Sequence[LinearConstraint],
    sides: Sequence[_Side],
    points: Sequence[_Point],
    dtype: torch.dtype,
) -> Iterator[str]:
    seen = torch.stack([point.margins for point in points]).amin(dim=0)
    for side in sides:
        for row, (proven, value) in enumerate(zip(side.margins.tolist(), seen.tolist(), strict=True)):
            if proven > value + ROOM[dtype] * max(abs(value), _scale(points)) + LEAST_ROOM:
                yield (
                    f"{where}, '{constraints[row].text}': {side.name} proves a margin of at least {proven:.9g}, and an "
                    f"input of the box gives {value:.9g}"
                )
                break


def _values_outside(
    where: str, sides: Sequence[_Side], points: Sequence[_Point], dtype: torch.dtype
) -> Iterator[str]:
    for side in sides:
        for name, (low, high) in side.layers.items():
            room = _room(dtype, low, high)
            for point in points:
                value = point.values.get(name)
                if value is None:
                    continue
                wrong = ((value < low - room) | (value > high + room)).flatten().nonzero()
                if len(wrong):
                    index = int(wrong[0])
                    yield (
                        f"{where}, tensor '{name}', element {index}: {side.name} proves {_interval(low, high, index)}, "
                        f"and an input of the box gives {value.flatten()[index].item():.9g}"
                    )
                    return


def _scale(points: Sequence[_Point]) -> float:
    """The largest output or hidden value seen: what a margin is a difference of."""
    return max(float(value.abs().max()) for point in points for value in point.values.values())


def _interval(lower: Tensor, upper: Tensor, index: int) -> str:
    return f"{lower.flatten()[index].item():.9g} … {upper.flatten()[index].item():.9g}"
