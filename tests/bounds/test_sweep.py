"""Sweeps enclose every value on every box, in both arithmetics, and say nothing where they cannot tell."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import Tensor

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.affine_forms import Forms, Swept
from boundscope.bounds.constraints import Constraints
from boundscope.bounds.links import links, rows_of_links
from boundscope.bounds.sweep import Sweeper, sweepable
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Arithmetic
from boundscope.sharding.weights import WholeWeights
from support.models import mlp, save


def engine_of(path: Path, arithmetic: Arithmetic = Arithmetic.REAL) -> BoundEngine:
    network, ledger = load_network(path), MemoryLedger()
    weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
    return BoundEngine(network, weights, ledger, arithmetic=arithmetic)


def box_of(lower: Tensor, upper: Tensor) -> Box:
    texts = tuple("0" for _ in range(lower.shape[1]))
    return Box(texts, texts, lower.amin(0).numpy(), upper.amax(0).numpy())


def boxes(count: int, inputs: int, width: float, seed: int, *, fixed: int = 0) -> tuple[Tensor, Tensor]:
    """Boxes of which each has the first `fixed` inputs at one value."""
    random = torch.Generator().manual_seed(seed)
    lower = torch.rand(count, inputs, generator=random, dtype=torch.float64) * 2 - 1
    size = torch.rand(count, inputs, generator=random, dtype=torch.float64) * width
    size[:, :fixed] = 0.0
    return lower, lower + size


def swept(engine: BoundEngine, lower: Tensor, upper: Tensor, free: Tensor | None = None) -> Swept:
    if free is None:
        free = torch.arange(lower.shape[1]).expand(len(lower), -1)
    with torch.no_grad():
        return Sweeper(engine.inputs_of(box_of(lower, upper))).sweep(lower, upper, free)


def values(network: Network, points: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    (info,) = network.inputs
    found = []
    for point in points:
        inputs = {info.name: point.to(dtype).reshape(info.shape)}
        found.append(network.evaluate(inputs)[network.outputs[0].name].flatten().double())
    return torch.stack(found)


def lattice(path: Path, seed: int) -> Path:
    """Products in a row, then max(a, b) out of Relus, some of whose matrices are nearly all zero."""
    random = np.random.default_rng(seed)
    few = np.zeros((160, 160), np.float32)
    few[random.integers(0, 160, 320), np.arange(320) % 160] = random.standard_normal(320)
    constants = {
        "A": random.standard_normal((2, 160)).astype(np.float32),
        "a": random.standard_normal(160).astype(np.float32),
        "B": few,
        "b": random.standard_normal((1, 160)).astype(np.float32),
        "C": few.T.copy(),
        "D": random.standard_normal((160, 3)).astype(np.float32),
        "d": random.standard_normal(3).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["1"], "p1"),
        helper.make_node("Add", ["1", "a"], ["2"], "s1"),
        helper.make_node("MatMul", ["2", "B"], ["3"], "p2"),
        helper.make_node("Sub", ["3", "b"], ["4"], "s2"),
        helper.make_node("Relu", ["4"], ["5"], "r1"),
        helper.make_node("MatMul", ["5", "C"], ["6"], "p3"),
        helper.make_node("Relu", ["6"], ["7"], "r2"),
        helper.make_node("MatMul", ["7", "D"], ["8"], "p4"),
        helper.make_node("Add", ["d", "8"], ["y"], "s4"),
    ]
    return save(path, nodes, constants, [1, 2], [1, 3])


def masked_mean(path: Path) -> Path:
    """The mean of two masked sigmoids, squared; x are two values and a mask of two."""
    nodes = [
        helper.make_node("Split", ["x", "halves"], ["v", "m"], "split", axis=1),
        helper.make_node("Gemm", ["v", "W", "c"], ["z"], "fc", transB=1),
        helper.make_node("Sigmoid", ["z"], ["s"], "sigmoid"),
        helper.make_node("Mul", ["s", "m"], ["p"], "mask"),
        helper.make_node("ReduceSum", ["p", "axis"], ["t"], "sum", keepdims=1),
        helper.make_node("ReduceSum", ["m", "axis"], ["n"], "count", keepdims=1),
        helper.make_node("Div", ["t", "n"], ["q"], "mean"),
        helper.make_node("Mul", ["q", "q"], ["y"], "square"),
    ]
    constants = {
        "halves": np.array([2, 2]),
        "axis": np.array([1]),
        "W": np.array([[2, -1], [0.5, 3]], np.float32),
        "c": np.array([0.1, -0.2], np.float32),
    }
    return save(path, nodes, constants, [1, 4], [1, 1])


NETWORKS = {
    "gemm": lambda path: mlp(path, [3, 24, 24, 2], 1),
    "products in a row": lambda path: lattice(path, 2),
}


@pytest.mark.parametrize("width", [1e-9, 0.05, 1.5])
@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("name", list(NETWORKS))
def test_forms_and_margins_hold_at_every_point(
    name: str, arithmetic: Arithmetic, width: float, tmp_path: Path
) -> None:
    engine = engine_of(NETWORKS[name](tmp_path / "n.onnx"), arithmetic)
    lower, upper = boxes(20, engine.network.input_count, width, 3, fixed=1)
    found = swept(engine, lower, upper)
    assert bool(found.finite.all())
    constraint = LinearConstraint(np.array([0, 1]), np.array([1.0, -2.0]), Fraction(1, 3), False)
    rows = Constraints.of(engine.inputs_of(box_of(lower, upper)), [constraint])
    margins = found.margins(rows, torch.zeros(20, 1, dtype=torch.int64))
    form = found.forms[engine.network.outputs[0].name]
    dtype = torch.float32 if arithmetic is Arithmetic.FLOAT32 else torch.float64
    random = torch.Generator().manual_seed(5)
    for corner in (False, False, True):
        share = torch.rand(lower.shape, generator=random, dtype=torch.float64)
        points = lower + (share.round() if corner else share) * (upper - lower)
        points = torch.minimum(torch.maximum(points.to(dtype).double(), lower), upper)
        if dtype is torch.float32:
            inside = (points.to(dtype).double() == points).all(1)
        else:
            inside = torch.ones(20, dtype=torch.bool)
        y = values(engine.network, points, dtype)
        low, high = form.ends.lower.flatten(1), form.ends.upper.flatten(1)
        # What the evaluation itself rounds in float64.
        slack = 1e-13 * (1.0 + y.abs())
        assert bool(((low - slack <= y) & (y <= high + slack))[inside].all())
        margin = y[:, 0] - 2 * y[:, 1] - 1 / 3
        slope = margins.slope[:, 0]
        away = torch.where(slope > 0, points - lower, upper - points)
        least = margins.least[:, 0] + (slope.abs() * away).sum(1)
        assert bool((least <= margin + 1e-12 * (1 + margin.abs()))[inside].all())


def test_without_an_unstable_neuron_a_sweep_is_exact_but_for_rounding(tmp_path: Path) -> None:
    engine = engine_of(lattice(tmp_path / "n.onnx", 4))
    lower, upper = boxes(5, 2, 1e-7, 8)
    form = swept(engine, lower, upper).forms["y"]
    assert float(form.loose.max()) < 1e-8 * float((form.ends.upper - form.ends.lower).max()) + 1e-11


def test_products_in_a_row_are_one(tmp_path: Path) -> None:
    """|A₂·A₁| is not |A₂|·|A₁|: x − x through two matrices is known to be 0."""
    nodes = [
        helper.make_node("Relu", ["x"], ["0"], "r"),
        helper.make_node("MatMul", ["0", "A"], ["1"], "p1"),
        helper.make_node("MatMul", ["1", "B"], ["y"], "p2"),
    ]
    constants = {"A": np.array([[1, 1]], np.float32), "B": np.array([[1], [-1]], np.float32)}
    engine = engine_of(save(tmp_path / "n.onnx", nodes, constants, [1, 1], [1, 1]))
    found = rows_of_links(engine.network, links(engine.network))
    assert [[link.node.name for link in row] for row in found] == [["p1", "p2"]]
    form = swept(engine, torch.tensor([[-1.0]]).double(), torch.tensor([[1.0]]).double()).forms["y"]
    assert float(form.loose.max()) < 1e-12
    assert float(form.ends.upper.max()) < 1e-12


def test_masks_that_are_numbers_on_a_box_cost_nothing_there(tmp_path: Path) -> None:
    """Whatever other boxes are: of some the mask's other half is free, and of one its sum may be zero."""
    engine = engine_of(masked_mean(tmp_path / "n.onnx"))
    lower = torch.tensor([[0.1, -0.2, 1, 0], [0.1, -0.2, 1, 1], [0.3, 0.3, 0.5, 0.2], [0, 0, -1, 0]]).double()
    upper = torch.tensor([[0.2, -0.2, 1, 0], [0.1, 0.3, 1, 1], [0.3, 0.4, 0.7, 0.2], [0, 1, 1, 0]]).double()
    free = torch.tensor([[0, 1], [1, 0], [1, 2], [1, 2]])
    found = swept(engine, lower, upper, free)
    assert found.finite.tolist() == [True, True, True, False]
    form = found.forms["y"]
    random = torch.Generator().manual_seed(1)
    for _ in range(50):
        share = torch.rand(lower.shape, generator=random, dtype=torch.float64)
        y = values(engine.network, lower + share * (upper - lower))[:3]
        low, high = form.ends.lower.flatten(1)[:3], form.ends.upper.flatten(1)[:3]
        assert bool(((low - 1e-12 <= y) & (y <= high + 1e-12)).all())
    assert float((form.ends.upper - form.ends.lower)[0].max()) < 0.08  # y moves by 0.05 there
    rows = Constraints.of(
        engine.inputs_of(box_of(lower, upper)),
        [LinearConstraint(np.array([0]), np.array([1.0]), Fraction(-10), False)],
    )
    least = found.margins(rows, torch.zeros(4, 1, dtype=torch.int64)).least[:, 0]
    assert bool((least[:3] > 0).all())
    assert float(least[3]) == -np.inf  # nothing is proven where the divisor may be zero


def test_inputs_that_are_not_among_the_free_ones_are_loose(tmp_path: Path) -> None:
    engine = engine_of(mlp(tmp_path / "n.onnx", [3, 16, 2], 7))
    lower, upper = boxes(6, 3, 0.5, 2)
    form: Forms = swept(engine, lower, upper, torch.zeros(6, 1, dtype=torch.int64)).forms["y"]
    random = torch.Generator().manual_seed(1)
    for _ in range(20):
        share = torch.rand(lower.shape, generator=random, dtype=torch.float64).round()
        y = values(engine.network, lower + share * (upper - lower))
        assert bool((form.ends.lower.flatten(1) <= y + 1e-12).all())
        assert bool((y <= form.ends.upper.flatten(1) + 1e-12).all())


def test_a_network_beyond_sweeps_is_known_before(tmp_path: Path) -> None:
    nodes: list[onnx.NodeProto] = [helper.make_node("Softmax", ["x"], ["y"], "softmax", axis=1)]
    assert not sweepable(load_network(save(tmp_path / "s.onnx", nodes, {}, [1, 3], [1, 3])))
    assert sweepable(load_network(mlp(tmp_path / "n.onnx", [2, 8, 1], 0)))
