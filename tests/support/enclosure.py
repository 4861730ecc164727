"""Whether bounds hold: every tensor of a network at many points of a box, and linear functions of its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.context import BoxContext
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Arithmetic, Method
from boundscope.sharding.weights import WholeWeights

METHODS = (Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN)
Floats = NDArray[np.float64]


def network_of(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    size: int,
    constants: Mapping[str, NDArray] | None = None,
    *,
    opset: int = 13,
    output_dtype: int = TensorProto.FLOAT,
) -> Network:
    """A network with input "x" [1, size] and output "y" of any shape."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, size])],
        [helper.make_tensor_value_info("y", output_dtype, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = folder / "network.onnx"
    onnx.save(model, path)
    return load_network(path)


def engine_of(network: Network, arithmetic: Arithmetic = Arithmetic.REAL, **options: object) -> BoundEngine:
    ledger = MemoryLedger()
    weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
    return BoundEngine(network, weights, ledger, arithmetic=arithmetic, **options)  # type: ignore[arg-type]


def box_of(lower: Sequence[float] | Floats, upper: Sequence[float] | Floats) -> Box:
    low, high = np.array(lower, dtype=float), np.array(upper, dtype=float)
    return Box(tuple(map(repr, low.tolist())), tuple(map(repr, high.tolist())), low, high)


def box_around(centre: Floats, radius: Floats | float) -> Box:
    return box_of(centre - radius, centre + radius)


def corners_and_points(box: Box, count: int, dtype: torch.dtype, seed: int = 0) -> Iterator[Floats]:
    """Random points of the box, every other one a corner; representable in `dtype` where the box has such points."""
    random = np.random.default_rng(seed)
    for trial in range(count):
        share = random.random(len(box.lower))
        point = box.lower + (share.round() if trial % 2 else share) * (box.upper - box.lower)
        if dtype == torch.float32:
            point = np.clip(point.astype(np.float32), box.lower, box.upper)
        yield point


def points_of(box: Box, count: int, seed: int, dtype: type[np.floating]) -> Iterator[Floats]:
    """Corners, inner points, and points whose elements are equal where the box lets them."""
    random = np.random.default_rng(seed)
    for trial in range(count):
        share = random.random(len(box.lower))
        point = box.lower + (share.round() if trial % 3 == 0 else share) * (box.upper - box.lower)
        if trial % 3 == 1:
            point = np.full(len(box.lower), random.choice(point))
        point = np.clip(point.astype(dtype).astype(np.float64), box.lower, box.upper)
        if np.array_equal(point, point.astype(dtype)):
            yield point


def values_at(network: Network, point: Floats, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Every tensor that a node computes, by name."""
    seen: dict[str, torch.Tensor] = {}
    constants = {}
    for name, array in network.constants.items():
        tensor = torch.from_numpy(np.array(array))
        constants[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    (info,) = network.inputs
    network.evaluate(
        {info.name: torch.from_numpy(point).reshape(info.shape).to(dtype)},
        constants=constants,
        visit=lambda node, outputs: seen.update(zip(node.outputs, outputs, strict=False)),
    )
    return seen


def assert_contains(
    network: Network, box: Box, method: Method, arithmetic: Arithmetic, seed: int = 0, **options: object
) -> BoxContext:
    """Every tensor lies in its interval at corners and random points of the box; the context that says so."""
    context = engine_of(network, arithmetic=arithmetic, **options).context(box, method)
    dtype = torch.float64 if arithmetic is Arithmetic.REAL else torch.float32
    for point in corners_and_points(box, 40, dtype, seed):
        for name, value in values_at(network, point, dtype).items():
            interval = context.intervals[name]
            inside = (interval.lower <= value.double()) & (value.double() <= interval.upper)
            assert bool(inside.all()), f"{name} leaves its {method} interval"
    return context


def assert_holds(
    network: Network,
    lower: Floats,
    upper: Floats,
    method: Method,
    arithmetic: Arithmetic = Arithmetic.REAL,
    *,
    seed: int = 0,
    count: int = 24,
) -> None:
    """Every tensor lies in its interval, and random linear functions of the outputs above their bounds."""
    box = box_of(lower, upper)
    engine = engine_of(network, arithmetic)
    context = engine.context(box, method)
    random = np.random.default_rng(seed)
    rows = [
        LinearConstraint(
            np.arange(network.output_count), random.standard_normal(network.output_count), bound=Fraction(0)
        )
        for _ in range(3)
    ]
    bounds = engine.margins(context, rows, method).numpy()
    assert np.isfinite(bounds).all()
    deployed = arithmetic is not Arithmetic.REAL
    kinds = (np.float32, torch.float32) if deployed else (np.float64, torch.float64)
    for point in points_of(box, count, seed, kinds[0]):
        values = values_at(network, point, kinds[1])
        for name, value in values.items():
            if name:
                interval = context.intervals[name]
                inside = (interval.lower <= value.double()) & (value.double() <= interval.upper)
                assert bool(inside.all()), f"{name} leaves its {method} interval"
        outputs = np.concatenate([values[info.name].double().numpy().ravel() for info in network.outputs])
        for row, bound in zip(rows, bounds, strict=True):
            terms = [
                Fraction(float(c)) * Fraction(float(y))
                for c, y in zip(row.output_coeffs, outputs, strict=True)
            ]
            slack = (
                0 if deployed else sum(abs(t) for t in terms) * Fraction(1, 2**45)
            )  # of float64 evaluation
            assert sum(terms) + slack >= Fraction(float(bound)), f"a {method} bound is wrong"
