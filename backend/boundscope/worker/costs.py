"""What a network's nodes cost, counted on the network as it is bounded; boundscope.costs makes predictions of it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from boundscope.bounds.context import LEAST_ELEMENTS
from boundscope.bounds.operators.base import Rule, rule_of
from boundscope.errors import UnsupportedOperatorError
from boundscope.network import load_network
from boundscope.network.graph import Network, Node
from boundscope.network.lowering import lowered
from boundscope.network.operators.linear import Conv, Gemm, MatMul
from boundscope.properties import read_property
from boundscope.protocol import ConstantCosts, MachineCosts, NetworkCosts, NodeCosts, TensorCosts
from boundscope.sharding.weights import LARGE_ELEMENTS
from boundscope.threads import core_count

_PRODUCTS = (Conv, Gemm, MatMul)
CALIBRATION_S = 0.02  # for each dtype
CALIBRATION_SIDE, GPU_CALIBRATION_SIDE = 256, 4096


@dataclass(frozen=True)
class Asked:
    """A network's costs, and what a property asks of it: the most inequalities of a case, and its cases."""

    costs: NetworkCosts
    constraints: int
    cases: int


def look_at(network_path: Path, property_path: Path | None) -> Asked:
    """Read a network and a property; without one, as if each output had one inequality.

    Raises:
        NetworkError, PropertyError: a file that cannot be read, or a property that does not fit the network.
        UnsupportedOperatorError: as `network_costs`.
    """
    network = load_network(network_path)
    constraints, cases = network.output_count, 1
    if property_path is not None:
        prop = read_property(
            property_path, input_count=network.input_count, output_count=network.output_count
        )
        counts = [sum(len(clause.constraints) for clause in case.clauses) for case in prop.cases]
        constraints, cases = max(counts, default=1), max(1, len(prop.cases))
    return Asked(network_costs(network), constraints, cases)


def network_costs(network: Network) -> NetworkCosts:
    """Counts of a loaded network; nothing is computed.

    Raises:
        UnsupportedOperatorError: a node has no bound rule, so that nothing can be said of its cost.
    """
    network = lowered(network)
    quality = dict.fromkeys((info.name for info in network.inputs), "independent")
    nodes = []
    for node in network.nodes:
        rule = _rule(network, node)
        read = tuple(dict.fromkeys(n for n in node.inputs if n and n not in network.constants))
        known = [quality[name] for name in read if name in quality]
        for name in node.outputs:
            quality[name] = _quality(rule, known)
        nodes.append(_node(network, node, rule, read, quality))
    producers = network.node_by_output or {name: node for node in network.nodes for name in node.outputs}
    return NetworkCosts(
        tensors=tuple(
            TensorCosts(name=name, elements=info.size, drops=_drops(network, producers.get(name), info.shape))
            for name, info in network.tensors.items()
            if name not in network.constants
        ),
        nodes=tuple(nodes),
        inputs=tuple(info.name for info in network.inputs),
        outputs=tuple(info.name for info in network.outputs),
        constants=tuple(_constant(network, name, None) for name in network.constants),
        single=all(a.dtype.kind != "f" or a.dtype.itemsize <= 4 for a in network.constants.values()),
    )


def _rule(network: Network, node: Node) -> Rule[Any]:
    rule = rule_of(node.op)
    if rule is None:
        raise UnsupportedOperatorError(
            f"operator {node.op.onnx_type} of node '{node.name}' has no bound rule; its cost is not known"
        )
    return rule.use([bool(name) and name not in network.constants for name in node.inputs])


def _quality(rule: Rule[Any], inputs: list[str]) -> str:
    """As `bounds.context` has it: only what intervals leave loose is bounded again by rows."""
    if len(inputs) != 1 or "loose" in inputs:
        return "loose"
    if not rule.mixing:
        return inputs[0]
    return "exact" if inputs[0] == "independent" else "loose"


def _node(
    network: Network, node: Node, rule: Rule[Any], read: tuple[str, ...], quality: dict[str, str]
) -> NodeCosts:
    linear = isinstance(node.op, _PRODUCTS) and not rule.relaxed
    inner, multiply_adds = _product(network, node, read) if isinstance(node.op, _PRODUCTS) else (0, 0)
    return NodeCosts(
        name=node.name,
        inputs=read,
        outputs=tuple(name for name in node.outputs if name),
        multiply_adds=multiply_adds or sum(network.tensors[name].size for name in read),
        constants=tuple(
            _constant(network, name, (rule, index))
            for index, name in enumerate(node.inputs)
            if name in network.constants
        ),
        inner=inner if isinstance(node.op, Gemm) and linear else 0,
        mixes=linear,
        relaxed=rule.relaxed,
        refined=tuple(name for name in read if rule.relaxed and quality.get(name) == "loose"),
        free_slopes=rule.slope_free,
    )


def _constant(network: Network, name: str, where: tuple[Rule[Any], int] | None) -> ConstantCosts:
    array = network.constants[name]
    large = array.ndim == 2 and array.size >= LARGE_ELEMENTS and array.dtype.kind == "f"
    return ConstantCosts(
        name=name,
        elements=int(array.size),
        item_bytes=array.dtype.itemsize,
        floating=array.dtype.kind == "f",
        tiled=large and where is not None and where[1] in where[0].as_tiles,
        as_stored=where is not None and where[1] in where[0].as_stored,
    )


def _product(network: Network, node: Node, read: tuple[str, ...]) -> tuple[int, int]:
    """Output elements of a product's sums that go back, and its products."""
    out = network.tensors[node.outputs[0]]
    weight = next((name for name in node.inputs[:2] if name in network.constants), None)
    if weight is None:  # of two perturbed operands
        left = network.tensors[node.inputs[0]].shape
        return 0, out.size * (left[-1] if left else 1)
    array = network.constants[weight]
    if isinstance(node.op, Conv):
        return 0, out.size * max(1, int(array.size) // max(1, array.shape[0]))
    width = out.shape[-1] if out.shape else 1
    per_row = max(1, out.size // max(1, width))
    return width, int(array.size) * (per_row if array.ndim <= 2 else 1)


def _drops(network: Network, producer: Node | None, shape: tuple[int, ...]) -> bool:
    """Whether rows at this tensor may leave out neurons that are fixed, as `bounds.context` decides."""
    if producer is None or len(shape) != 2 or shape[0] != 1 or math.prod(shape) < LEAST_ELEMENTS:
        return False
    rule = _rule(network, producer)
    return rule.relaxed and rule.elementwise


def machine_costs() -> MachineCosts:
    """This machine, measured for about 50 ms."""
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        (free, total), name = torch.cuda.mem_get_info(), torch.cuda.get_device_name(device)
    else:
        memory = psutil.virtual_memory()
        device, free, total, name = torch.device("cpu"), int(memory.available), int(memory.total), ""
    return MachineCosts(
        single_flops=_speed(torch.float32, device),
        double_flops=_speed(torch.float64, device),
        free_bytes=free,
        total_bytes=total,
        cores=core_count(),
        gpu=name,
    )


def _speed(dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second of the best product of two matrices in CALIBRATION_S.

    On CPUs one thread is measured, by its processor time, and counted for each core: others may compute meanwhile.
    """
    threads = torch.get_num_threads()
    cpu = device.type == "cpu"
    clock = time.thread_time if cpu else time.perf_counter
    side = CALIBRATION_SIDE if cpu else GPU_CALIBRATION_SIDE
    matrix = torch.full((side, side), 0.5, dtype=dtype, device=device)
    try:
        if cpu:
            torch.set_num_threads(1)
        best_s, end_s = math.inf, math.inf
        while best_s == math.inf or clock() < end_s:
            start_s = clock()
            product = matrix @ matrix
            if not cpu:
                torch.cuda.synchronize(device)
            now_s = clock()
            if end_s == math.inf:  # the first product also sets things up
                end_s = now_s + CALIBRATION_S
            elif now_s > start_s:
                best_s = min(best_s, now_s - start_s)
            del product
    finally:
        torch.set_num_threads(threads)
    return 2.0 * side**3 * (core_count() if cpu else 1) / best_s
