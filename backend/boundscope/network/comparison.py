"""Our evaluation of a network against ONNX Runtime's, tensor by tensor, on the original file.

Every node is given ONNX Runtime's own values of its inputs, so that a difference is found at the node that makes
it and neither cascades nor cancels. The tolerance of an element is a few units in the last place of the sum of the
absolute values of its terms, times the number of terms: what two correct evaluations in different orders may
differ by, and no more.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from boundscope.errors import DynamicShapeError, NetworkError
from boundscope.network.arrays import as_tensor
from boundscope.network.file import read_model
from boundscope.network.graph import Network, Node
from boundscope.network.operators.base import Array, OnnxOperator
from boundscope.network.operators.movement import DynamicSlice
from boundscope.network.pieces import Pieces, in_pieces
from boundscope.network.products import WideProduct
from boundscope.network.runtime import Session

RANDOM_POINTS = 3
LARGE_ELEMENTS = 20_000_000  # constants and tensors together, above which fewer points are compared
PROTOBUF_LIMIT_BYTES = 1_900_000_000
BASE_ULP = 8


@dataclass(frozen=True)
class Comparison:
    """What was compared, and how far apart the two evaluations were.

    `max_difference` is over all nodes, each on the same inputs; `output_difference` is that of the network's
    outputs when each side runs from start to end.
    """

    max_difference: float
    worst_node: str
    output_difference: float
    tensors: int
    points: int
    nodes: tuple[str, ...]
    seconds: float


def compare_with_onnxruntime(
    network: Network,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    seed: int = 0,
    between: Callable[[], None] = lambda: None,
) -> Comparison:
    """Compare at the box's corners (lower, middle, upper) and at random points of it.

    Args:
        network: as loaded from its file.
        lower: [inputs], all input tensors flattened one after another, as properties count them.
        upper: [inputs].
        seed: of the random points.
        between: called between steps; what it raises ends the comparison.

    Raises:
        NetworkError: a node differs (the first one is named), or ONNX Runtime cannot run the file.
    """
    start = time.perf_counter()
    runtime = _exposed(network, between)
    available = set(runtime.outputs)
    worst, worst_node, output_difference, points = 0.0, "", 0.0, 0
    compared = [node for node in network.nodes if any(name in available for name in node.outputs)]
    for point in _points(network, lower, upper, seed):
        points += 1
        between()
        feeds = _feeds(network, point)
        values = dict(feeds)
        waiting = compared
        for found in runtime.run(feeds):
            between()
            values.update(found)
            _check_constants(network, found)
            later = []
            for node in waiting:
                if not _has_values(network, node, values, available):
                    later.append(node)
                    continue
                between()
                difference = _compare_node(network, node, values)
                if difference > worst:
                    worst, worst_node = difference, node.name
            waiting = later
        output_difference = max(output_difference, _compare_outputs(network, feeds, values))
    return Comparison(
        max_difference=worst,
        worst_node=worst_node,
        output_difference=output_difference,
        tensors=sum(1 for node in compared for name in node.outputs if name in available),
        points=points,
        nodes=tuple(node.name for node in compared),
        seconds=time.perf_counter() - start,
    )


class _Whole:
    """A session on the whole file."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.outputs = tuple(session.outputs)

    def run(self, feeds: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        yield dict(zip(self.outputs, self._session.run(feeds), strict=True))


def _exposed(network: Network, between: Callable[[], None]) -> _Whole | Pieces:
    """The file with every intermediate tensor as an output, without graph optimisation."""
    threads = torch.get_num_threads()
    pieces = in_pieces(network.source, _wanted(network), network.name, threads)
    return pieces if pieces is not None else _Whole(_whole_session(network, between))


def _whole_session(network: Network, between: Callable[[], None]) -> Session:
    threads = torch.get_num_threads()
    wanted = _wanted(network)
    model = read_model(network.source)
    between()
    present = {value.name for value in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name in wanted and name not in present:
                present.add(name)
                model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    # Not the model's ByteSize, which fails above the limit.
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) < PROTOBUF_LIMIT_BYTES:
        return Session(model.SerializeToString(), network.name, optimized=False, threads=threads)
    with tempfile.TemporaryDirectory(prefix="boundscope-") as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(model, str(path), save_as_external_data=True, location="weights")
        return Session(str(path), network.name, optimized=False, threads=threads)


def _wanted(network: Network) -> set[str]:
    return {name for node in network.nodes for name in node.outputs if name} | set(network.constants)


def _has_values(network: Network, node: Node, values: Mapping[str, Array], available: set[str]) -> bool:
    """Whether all values are there that the node is compared by."""
    inputs = all(not name or name in network.constants or name in values for name in node.inputs)
    return inputs and all(name in values for name in node.outputs if name in available)


def _points(
    network: Network, lower: NDArray[np.float64], upper: NDArray[np.float64], seed: int
) -> Iterator[NDArray[np.float64]]:
    if lower.shape != (network.input_count,) or upper.shape != (network.input_count,):
        raise NetworkError(
            f"network '{network.name}' has {network.input_count} inputs; the box has {lower.size} and {upper.size}"
        )
    largest = np.finfo(network.inputs[0].dtype).max / 4
    low, high = np.clip(lower, -largest, largest), np.clip(upper, -largest, largest)
    yield low
    elements = sum(value.size for value in network.constants.values()) + sum(
        t.size for t in network.tensors.values()
    )
    if elements < LARGE_ELEMENTS:
        yield high
        yield low + (high - low) / 2
    generator = np.random.default_rng(seed)
    for _ in range(RANDOM_POINTS if elements < LARGE_ELEMENTS else 1):
        yield low + (high - low) * generator.random(low.shape)


def _feeds(network: Network, point: NDArray[np.float64]) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    position = 0
    for info in network.inputs:
        feeds[info.name] = point[position : position + info.size].astype(info.dtype).reshape(info.shape)
        position += info.size
    return feeds


def _check_constants(network: Network, values: Mapping[str, Array]) -> None:
    """Folded constants against what ONNX Runtime computes for them."""
    for name, ours in network.constants.items():
        theirs = values.get(name)
        if theirs is None:
            continue
        if theirs.shape != ours.shape:
            raise _shape_error(network, f"constant '{name}'", ours.shape, theirs.shape)
        rounding = network.rounded_constants.get(name, 0.0)
        if ours.dtype.kind == "f" and rounding:
            ok = np.allclose(ours, theirs, rtol=0, atol=BASE_ULP * rounding)
        else:
            ok = np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
        if not ok:
            raise NetworkError(
                f"{network.source}: constant '{name}' is folded to another value than ONNX Runtime's"
            )


def _compare_node(network: Network, node: Node, values: dict[str, Array]) -> float:
    """Largest difference of a node's outputs, computed from ONNX Runtime's values of its inputs."""
    wide = WideProduct.of(network, node)
    inputs = [
        None if wide is not None and index == 1 else _tensor(network, name, values)
        for index, name in enumerate(node.inputs)
    ]
    with torch.no_grad():
        results = node.op.evaluate(inputs) if wide is None else (wide.evaluate(inputs),)
    worst = 0.0
    for name, result in zip(node.outputs, results, strict=False):
        if name not in values:
            continue
        ours, theirs = result.numpy(), values[name]
        if ours.shape != theirs.shape:
            raise _shape_error(network, f"'{name}' of node '{node.name}'", ours.shape, theirs.shape)
        difference = _difference(ours, theirs)
        if not difference.any():
            continue
        allowed = _tolerance(node, wide, inputs, result)
        excess = np.nan_to_num(difference, nan=np.inf, posinf=np.inf) > allowed
        if excess.any():
            where = tuple(int(i) for i in np.argwhere(excess)[0])
            raise NetworkError(
                f"{network.source}: node '{node.name}' ({node.op.onnx_type}) differs from ONNX Runtime: element "
                f"{list(where)} of '{name}' is {ours[where]!r} here and {theirs[where]!r} there, from the same inputs "
                f"({int(excess.sum())} of {excess.size} elements differ). Please report this network"
            )
        worst = max(worst, float(np.nanmax(difference)))
    return worst


def _tensor(network: Network, name: str, values: dict[str, Array]) -> torch.Tensor | None:
    if not name:
        return None
    return as_tensor(network.constants[name] if name in network.constants else values[name])


def _difference(ours: Array, theirs: Array) -> NDArray[np.float64]:
    """|ours − theirs| in float64; 0 where both are the same infinity or both NaN; NaN where one alone is NaN."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.abs(a - b))


def _tolerance(
    node: Node, wide: WideProduct | None, inputs: list[torch.Tensor | None], output: torch.Tensor
) -> NDArray[np.float64]:
    """How far apart two correct evaluations of each element may be."""
    if not output.is_floating_point() or not isinstance(node.op, OnnxOperator) or not node.op.rounds:
        return np.zeros(output.shape)
    limits = torch.finfo(output.dtype)
    with torch.no_grad():
        magnitude = node.op.term_magnitude(inputs, output) if wide is None else wide.term_magnitude(inputs)
    terms = node.op.term_count(inputs)
    ulp = (BASE_ULP + terms) * limits.eps
    return np.broadcast_to(magnitude.to(torch.float64).numpy() * ulp + 4 * limits.tiny, output.shape)


def _compare_outputs(network: Network, feeds: dict[str, Array], values: dict[str, Array]) -> float:
    """Difference of the outputs when each side runs the whole network."""
    with torch.no_grad():
        outputs = network.evaluate(
            {name: torch.from_numpy(value) for name, value in feeds.items()}, lean=True
        )
    worst = 0.0
    for info in network.outputs:
        difference = _difference(outputs[info.name].numpy(), values[info.name])
        worst = max(worst, float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)))
    return worst


def _shape_error(network: Network, what: str, ours: tuple[int, ...], theirs: tuple[int, ...]) -> NetworkError:
    moving = next((node for node in network.nodes if isinstance(node.op, DynamicSlice)), None)
    if moving is not None:
        return DynamicShapeError(
            f"what node '{moving.name}' (Slice) takes depends on the input's values, and so do shapes: {what} has "
            f"shape {list(ours)} at zero and {list(theirs)} at a point of the box"
        )
    return NetworkError(
        f"{network.source}: {what} has shape {list(ours)} here and {list(theirs)} in ONNX Runtime. "
        "Please report this network"
    )
