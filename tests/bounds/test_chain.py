"""The search along a chain is the search by PyTorch's gradients, step by step, with less to remember."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from torch import Tensor

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.alpha import _GraphSearch, _Parameters, _parameters_of
from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.chain import Chain
from boundscope.bounds.context import BoxContext
from boundscope.errors import OutOfMemoryError
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box
from boundscope.protocol import Method
from boundscope.sharding.weights import WholeWeights
from support.models import convnet, mlp, save


def engine_of(network: Network) -> BoundEngine:
    ledger = MemoryLedger()
    return BoundEngine(
        network, WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64), ledger
    )


def box_of(network: Network, radius: float, fixed: int = 0) -> Box:
    """Around a random point; `fixed` of its inputs do not vary."""
    centre = np.random.default_rng(3).standard_normal(network.input_count)
    radii = np.where(np.arange(len(centre)) < fixed, 0.0, radius)
    low, high = centre - radii, centre + radii
    return Box(tuple(map(repr, low.tolist())), tuple(map(repr, high.tolist())), low, high)


def flattened(path: Path) -> Path:
    """(1, 1, 6, 8) → Flatten → Gemm, Relu, Gemm (scaled by 0.5), Relu, Reshape, Gemm."""
    random = np.random.default_rng(5)
    constants = {
        name: random.standard_normal(shape).astype(np.float32) * 0.3
        for name, shape in {"A": (48, 64), "B": (40, 64), "C": (40, 3), "a": (64,), "b": (40,)}.items()
    }
    constants["shape"] = np.array([1, 40], dtype=np.int64)
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"], "Flatten0"),
        helper.make_node("Gemm", ["f", "A", "a"], ["g"], "Gemm1"),
        helper.make_node("Relu", ["g"], ["r"], "Relu2"),
        helper.make_node("Gemm", ["r", "B", "b"], ["h"], "Gemm3", transB=1, alpha=0.5),
        helper.make_node("Relu", ["h"], ["s"], "Relu4"),
        helper.make_node("Reshape", ["s", "shape"], ["t"], "Reshape5"),
        helper.make_node("Gemm", ["t", "C"], ["y"], "Gemm6"),
    ]
    return save(path, nodes, constants, (1, 1, 6, 8), (1, 3))


def element_rows(context: BoxContext, name: str) -> tuple[int, object]:
    size = context.intervals[name].lower.numel()
    elements = torch.arange(size).repeat_interleave(2)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(size)
    return 2 * size, lambda one: one.lower_elements(name, elements, signs)


def output_rows(context: BoxContext) -> tuple[int, object]:
    (info,) = context.network.outputs
    rows = torch.from_numpy(np.random.default_rng(7).standard_normal((16, *info.shape)))
    return 16, lambda one: one.lower({info.name: rows}, 16)


def searched(
    search: object, parameters: dict[str, _Parameters], steps: int = 6
) -> tuple[list[Tensor], dict[str, Tensor]]:
    seen = []
    for step in range(1, steps + 1):
        seen.append(search.forward())  # type: ignore[attr-defined]
        search.ascend(step, 0.2)  # type: ignore[attr-defined]
    return seen, {name: one.values for name, one in parameters.items()}


@pytest.mark.parametrize("kind", ["mlp", "fixed inputs", "flattened"])
@pytest.mark.parametrize("where", ["hidden", "outputs"])
def test_steps_are_those_of_pytorchs_gradients(tmp_path: Path, kind: str, where: str) -> None:
    path = tmp_path / "n.onnx"
    made = flattened(path) if kind == "flattened" else mlp(path, [40, 64, 64, 48, 3], 1)
    network = load_network(made)
    box = box_of(network, 0.3, fixed=20 if kind == "fixed inputs" else 0)
    engine = engine_of(network)
    context = engine.context(box, Method.CROWN)
    gemms = [node for node in context.network.nodes if node.op.onnx_type == "Gemm"]
    count, bound = output_rows(context) if where == "outputs" else element_rows(context, gemms[-2].outputs[0])
    chain = Chain.of(context, bound)
    assert chain is not None
    done = BackwardPass(context)
    bound(done)
    assert {node.name for node in chain.relaxed_nodes} == {node.name for node in done.relaxed_nodes}
    mine, theirs = (_parameters_of(context, done.relaxed_nodes, count) for _ in range(2))
    assert mine
    bounds, slopes = searched(chain.search(mine), mine)
    expected, expected_slopes = searched(_GraphSearch(context, bound, theirs), theirs)
    for ours, other in zip(bounds, expected, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)
    assert not torch.equal(bounds[0], bounds[-1])
    # Adam divides by the gradient's size: where that is next to nothing, its sign is a matter of rounding.
    for name, values in slopes.items():
        apart = (values - expected_slopes[name]).abs() > 1e-3
        assert float(apart.double().mean()) < 0.02, name


@pytest.mark.parametrize("where", ["hidden", "outputs"])
def test_what_is_no_chain_is_left_to_pytorch(tmp_path: Path, where: str) -> None:
    network = load_network(convnet(tmp_path / "n.onnx", 1))
    context = engine_of(network).context(box_of(network, 0.1), Method.CROWN)
    relus = [node for node in context.network.nodes if node.op.onnx_type == "Relu"]
    _, bound = output_rows(context) if where == "outputs" else element_rows(context, relus[-1].inputs[0])
    assert Chain.of(context, bound) is None


@pytest.mark.parametrize("kind", ["chain", "graph"])
def test_all_that_a_search_remembers_is_counted(tmp_path: Path, kind: str) -> None:
    """A budget without room for what meets the rectifiers is refused, and not passed."""
    network = load_network(mlp(tmp_path / "n.onnx", [20, 256, 256, 256, 2], 1))
    engine = engine_of(network)
    context = engine.context(box_of(network, 0.3), Method.CROWN)
    count, bound = element_rows(context, list(context.network.nodes)[-3].outputs[0])
    done = BackwardPass(context)
    bound(done)
    parameters = _parameters_of(context, done.relaxed_nodes, count)
    chain = Chain.of(context, bound)
    assert chain is not None
    search = chain.search(parameters) if kind == "chain" else _GraphSearch(context, bound, parameters)
    engine.ledger.limit_bytes = engine.ledger.total_bytes + count * 256 * 4
    with pytest.raises(OutOfMemoryError, match="rows"):
        searched(search, parameters, steps=1)
