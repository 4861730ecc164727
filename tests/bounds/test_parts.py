"""What is proven of many parts of a box at once holds on each of them, for every operator and in both arithmetics."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import NodeProto, helper
from torch import Tensor

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.constraints import Constraints
from boundscope.bounds.context import BoxContext
from boundscope.bounds.domains import Domains
from boundscope.bounds.interval import Interval
from boundscope.bounds.mixtures import Mixtures, mixed_margins
from boundscope.bounds.parts import PartMargins, at_free_inputs, blame, margins, refinable, refine
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Arithmetic, Method
from boundscope.sharding.weights import WholeWeights
from support.models import convnet, mlp, save

PARTS, SAMPLES = 12, 12


def node(op: str, *inputs: str, **attributes: object) -> list[NodeProto]:
    return [helper.make_node(op, list(inputs), ["h"], "mid", **attributes)]


def layers(path: Path, middle: list[NodeProto], out: int = 6, **constants: np.ndarray) -> Path:
    """x [1, 4] → u and v [1, 6] → `middle` → h [1, out] → Relu of h's mixture → y [1, 3]."""
    random = np.random.default_rng(7)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    whole = {
        "A": weights(4, 6),
        "a": weights(6, 1).reshape(6),
        "B": weights(4, 6),
        "b": weights(6, 1).reshape(6),
        "C": weights(out, 5),
        "c": weights(5, 1).reshape(5),
        "E": weights(5, 3),
        "one": np.array(1.5, np.float32),
        **constants,
    }
    nodes = [
        helper.make_node("Gemm", ["x", "A", "a"], ["u"], "first"),
        helper.make_node("Gemm", ["x", "B", "b"], ["v"], "second"),
        *middle,
        helper.make_node("Gemm", ["h", "C", "c"], ["m"], "mixed"),
        helper.make_node("Relu", ["m"], ["r"], "rectified"),
        helper.make_node("MatMul", ["r", "E"], ["y"], "last"),
    ]
    used = {name for one in nodes for name in one.input}
    return save(path, nodes, {name: array for name, array in whole.items() if name in used}, [1, 4], [1, 3])


def pooled() -> list[NodeProto]:
    return [
        helper.make_node("Reshape", ["u", "image"], ["i"], "image_of"),
        helper.make_node("MaxPool", ["i"], ["p"], "pool", kernel_shape=[2, 2], strides=[1, 1]),
        helper.make_node("Reshape", ["p", "flat"], ["h"], "flat_of"),
    ]


def attention() -> list[NodeProto]:
    return [
        helper.make_node("Reshape", ["u", "tall"], ["ut"], "ut_of"),
        helper.make_node("Reshape", ["v", "wide"], ["vt"], "vt_of"),
        helper.make_node("MatMul", ["ut", "vt"], ["s"], "scores"),
        helper.make_node("Softmax", ["s"], ["w"], "weights", axis=-1),
        helper.make_node("MatMul", ["w", "ut"], ["o"], "mixed_values"),
        helper.make_node("Reshape", ["o", "flat"], ["h"], "flat_of"),
    ]


INTS = {
    "image": np.array([1, 1, 2, 3], np.int64),
    "flat": np.array([1, -1], np.int64),
    "tall": np.array([3, 2], np.int64),
    "wide": np.array([2, 3], np.int64),
}
POSITIVE = [
    helper.make_node("Mul", ["v", "v"], ["vv"], "square"),
    helper.make_node("Add", ["vv", "one"], ["d"], "positive"),
]
CASES: dict[str, Callable[[Path], Path]] = {
    **{
        op: (lambda path, op=op: layers(path, node(op, "u")))
        for op in (
            "Relu",
            "LeakyRelu",
            "Abs",
            "Sigmoid",
            "Tanh",
            "Exp",
            "Sin",
            "Cos",
            "Elu",
            "Softplus",
            "HardSigmoid",
            "Sign",
            "Softmax",
            "Erf",
        )
    },
    "Clip": lambda path: layers(
        path,
        node("Clip", "u", "low", "high"),
        low=np.array(-0.3, np.float32),
        high=np.array(0.6, np.float32),
    ),
    "Pow": lambda path: layers(path, node("Pow", "u", "two"), two=np.array(2, np.float32)),
    "Cube": lambda path: layers(path, node("Pow", "u", "three"), three=np.array(3, np.float32)),
    "Sqrt": lambda path: layers(path, [*POSITIVE, *node("Sqrt", "d")]),
    "Reciprocal": lambda path: layers(path, [*POSITIVE, *node("Reciprocal", "d")]),
    "Log": lambda path: layers(path, [*POSITIVE, *node("Log", "d")]),
    "Mul": lambda path: layers(path, node("Mul", "u", "v")),
    "Div": lambda path: layers(path, [*POSITIVE, *node("Div", "u", "d")]),
    "Max": lambda path: layers(path, node("Max", "u", "v")),
    "Min": lambda path: layers(path, node("Min", "u", "v")),
    "broadcast Mul": lambda path: layers(
        path,
        [
            helper.make_node("ReduceSum", ["v", "axes"], ["s"], "sum", keepdims=1),
            *node("Mul", "u", "s"),
        ],
        axes=np.array([1], np.int64),
    ),
    "MaxPool": lambda path: layers(path, pooled(), 2, **INTS),
    "attention": lambda path: layers(path, attention(), **INTS),
    "convolutions": lambda path: convnet(path, seed=3),
}


class Parts:
    """Random parts of the box [−r, r]^n of a network, and what was proven of them."""

    def __init__(self, file: Path, arithmetic: Arithmetic, radius: float = 0.7, seed: int = 0) -> None:
        network = load_network(file)
        ledger = MemoryLedger()
        weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
        self.engine = BoundEngine(network, weights, ledger, arithmetic=arithmetic)
        count = self.engine.network.input_count
        random = np.random.default_rng(seed)
        centre = random.uniform(-radius, radius, (PARTS, count))
        reach = radius * random.choice([0.0, 1e-3, 0.1, 1.0], (PARTS, 1)) * random.random((PARTS, count))
        reach[0] = 0.0
        self.lower, self.upper = np.maximum(centre - reach, -radius), np.minimum(centre + reach, radius)
        self.lower[1], self.upper[1] = -radius, radius
        self.context = self.engine.context(box_of(-radius, radius, count), Method.CROWN)
        self.domains = domains_of(self.context, self.lower, self.upper)
        self.constraints = [
            LinearConstraint(np.array([0, 1]), np.array([1.0, -1.0]), Fraction(1, 10)),
            LinearConstraint(
                np.array([2]), np.array([-1.0]), Fraction(0), False, np.array([1]), np.array([0.5])
            ),
        ]

    def bound(self) -> PartMargins:
        free = torch.arange(self.lower.shape[1])
        self.shares = refine(self.domains, Monitor(), rows=33, free=free)
        part = torch.arange(PARTS).repeat_interleave(2)
        return margins(
            self.domains,
            Constraints.of(self.context, self.constraints),
            part,
            torch.arange(2).repeat(PARTS),
            Monitor(),
            rows=16,
        )

    def points(self, part: int, dtype: torch.dtype) -> Tensor:
        """Samples of a part, corners among them, [N, inputs]; of float32 only those that lie in it."""
        random = np.random.default_rng(part)
        low, high = self.lower[part], self.upper[part]
        inner = low + random.random((SAMPLES, len(low))) * (high - low)
        corners = np.where(random.random((SAMPLES, len(low))) < 0.5, low, high)
        found = torch.from_numpy(np.concatenate([inner, corners])).to(dtype)
        inside = (found.double() >= torch.from_numpy(low)) & (found.double() <= torch.from_numpy(high))
        return found[inside.all(1)]


def box_of(low: float, high: float, count: int) -> Box:
    return Box((str(low),) * count, (str(high),) * count, np.full(count, low), np.full(count, high))


def domains_of(context: BoxContext, lower: np.ndarray, upper: np.ndarray) -> Domains:
    (info,) = context.network.inputs
    shape = (len(lower), *info.shape)
    ends = (torch.from_numpy(end.copy()).reshape(shape) for end in (lower, upper))
    return Domains(context, {info.name: Interval(*ends)})


def values(network: Network, point: Tensor) -> dict[str, Tensor]:
    """All tensors at a point, computed in its dtype."""
    seen: dict[str, Tensor] = {}
    (info,) = network.inputs
    network.evaluate(
        {info.name: point.reshape(info.shape)},
        visit=lambda node, outputs: seen.update(zip(node.outputs, outputs, strict=False)),
    )
    return seen


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("name", CASES)
def test_bounds_of_parts_enclose_what_the_network_computes_there(
    tmp_path: Path, name: str, arithmetic: Arithmetic
) -> None:
    parts = Parts(CASES[name](tmp_path / "n.onnx"), arithmetic)
    found = parts.bound()
    dtype = torch.float32 if arithmetic is Arithmetic.FLOAT32 else torch.float64
    slack = (
        1e-11 if dtype == torch.float64 else 0.0
    )  # of the samples' own rounding, for bounds of the real network
    network = parts.engine.network
    for part in range(PARTS):
        for point in parts.points(part, dtype):
            seen = values(network, point)
            for tensor in refinable(parts.context):
                ends = parts.domains.interval(tensor)
                value = seen[tensor].double()
                assert bool((value >= ends.lower[part] - slack).all()), (tensor, part)
                assert bool((value <= ends.upper[part] + slack).all()), (tensor, part)
            output = seen[network.outputs[0].name].double().flatten()
            for number, constraint in enumerate(parts.constraints):
                left = float(output[constraint.output_indices] @ torch.from_numpy(constraint.output_coeffs))
                left += float(
                    point.double()[constraint.input_indices] @ torch.from_numpy(constraint.input_coeffs)
                )
                assert left - float(constraint.bound) >= found.lower[2 * part + number] - slack


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Mul", "Div", "MaxPool", "attention", "convolutions"])
def test_a_row_grows_from_its_least_corner_as_its_coefficients_say(tmp_path: Path, name: str) -> None:
    """Clipping rests on this: a row's value at x is at least its bound plus Σ |a_j|·(distance of x_j from the end that
    minimises the row)."""
    parts = Parts(CASES[name](tmp_path / "n.onnx"), Arithmetic.REAL)
    found = parts.bound()
    free = torch.arange(parts.lower.shape[1])
    slope = at_free_inputs(parts.context, found.at_inputs, 2 * PARTS, free)
    for part in range(PARTS):
        low, high = (torch.from_numpy(end[part]) for end in (parts.lower, parts.upper))
        for point in parts.points(part, torch.float64):
            output = values(parts.engine.network, point)[parts.engine.network.outputs[0].name].flatten()
            for number, constraint in enumerate(parts.constraints):
                row = 2 * part + number
                distance = torch.where(slope[row] > 0, point - low, high - point)
                left = float(output[constraint.output_indices] @ torch.from_numpy(constraint.output_coeffs))
                left += float(point[constraint.input_indices] @ torch.from_numpy(constraint.input_coeffs))
                least = float(found.lower[row] + slope[row].abs() @ distance)
                assert left - float(constraint.bound) >= least - 1e-11


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Mul", "MaxPool", "convolutions"])
def test_small_parts_are_as_tight_as_boxes_bounded_one_by_one(tmp_path: Path, name: str) -> None:
    """Large ones need not be: boxes are also bounded by intervals, forward, which parts are not."""
    parts = Parts(CASES[name](tmp_path / "n.onnx"), Arithmetic.REAL)
    found = parts.bound().lower.reshape(PARTS, 2)
    small = np.flatnonzero((parts.upper - parts.lower).max(1) < 0.05)
    assert len(small) >= 3
    for part in small.tolist():
        box = Box((), (), parts.lower[part], parts.upper[part])
        alone = parts.engine.context(box, Method.CROWN)
        expected = parts.engine.margins(alone, parts.constraints, Method.CROWN)
        assert bool((found[part] >= expected - 1e-3).all()), part


def test_one_part_that_is_the_whole_box_gets_its_margins(tmp_path: Path) -> None:
    file = mlp(tmp_path / "n.onnx", [4, 20, 20, 3], seed=1)
    parts = Parts(file, Arithmetic.REAL)
    low, high = np.full((1, 4), -0.7), np.full((1, 4), 0.7)
    whole = domains_of(parts.context, low, high)
    refine(whole, Monitor())
    found = margins(
        whole,
        Constraints.of(parts.context, parts.constraints),
        torch.zeros(2, dtype=torch.int64),
        torch.arange(2),
        Monitor(),
    )
    expected = parts.engine.margins(parts.context, parts.constraints, Method.CROWN)
    torch.testing.assert_close(found.lower, expected, rtol=1e-4, atol=1e-6)


def test_some_of_the_parts_are_the_same_parts(tmp_path: Path) -> None:
    parts = Parts(mlp(tmp_path / "n.onnx", [4, 20, 20, 3], seed=1), Arithmetic.REAL)
    parts.bound()
    chosen = torch.tensor([7, 2])
    some = parts.domains.of_parts(chosen)
    assert some.count == 2
    for name in refinable(parts.context):
        assert torch.equal(some.interval(name).lower, parts.domains.interval(name).lower[chosen])


def test_shares_of_an_element_are_the_inputs_parts_of_its_width(tmp_path: Path) -> None:
    """An input that is fixed has no share, and is not to blame for anything."""
    parts = Parts(mlp(tmp_path / "n.onnx", [4, 20, 20, 3], seed=1), Arithmetic.REAL)
    parts.lower[:, 2] = parts.upper[:, 2]
    parts.domains = domains_of(parts.context, parts.lower, parts.upper)
    parts.bound()
    assert parts.shares
    for share in parts.shares.values():
        assert bool((share.share[:, 2] == 0).all())
        wide = torch.from_numpy((parts.upper > parts.lower).any(1))[share.part]
        moved = share.share[wide].sum(1)
        torch.testing.assert_close(moved, torch.ones_like(moved))
    chosen = torch.arange(PARTS)
    constraints = Constraints.of(parts.context, parts.constraints)
    found = blame(
        parts.domains, constraints.of_rows(torch.zeros_like(chosen)), chosen, parts.shares, Monitor(), rows=5
    )
    assert found is not None
    assert bool((found[:, 2] == 0).all())
    assert bool((found[0] == 0).all())  # a point is not loose
    assert bool((found[1] > 0).any())


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Mul", "convolutions"])
@pytest.mark.parametrize("steps", [0, 5])
def test_a_mixture_of_constraints_is_above_what_is_proven_of_it(
    tmp_path: Path, name: str, arithmetic: Arithmetic, steps: int
) -> None:
    """With slopes of each row's own, and growing from its least corner as its coefficients say."""
    parts = Parts(CASES[name](tmp_path / "n.onnx"), arithmetic)
    before = parts.bound()
    constraints = Constraints.of(parts.context, parts.constraints)
    part = torch.arange(PARTS)
    weight = torch.rand(PARTS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    start = Mixtures.of(torch.tensor([[0, 1]]).repeat(PARTS, 1), weight)
    found = mixed_margins(parts.domains, constraints, part, start, Monitor(), steps=steps, rows=5)
    used = found.mixtures.weight
    assert bool((used >= 0).all())
    if not steps:
        # CROWN's slopes follow the signs of coefficients, so that a mixture is no worse than its parts.
        apart = (used * before.lower.reshape(PARTS, 2)).sum(1)
        assert bool((found.margins.lower >= apart - 1e-6 * (1 + apart.abs())).all()) or name != "Relu"
    slope = at_free_inputs(parts.context, found.margins.at_inputs, PARTS, torch.arange(parts.lower.shape[1]))
    dtype = torch.float32 if arithmetic is Arithmetic.FLOAT32 else torch.float64
    slack = 1e-11 if dtype == torch.float64 else 0.0
    network = parts.engine.network
    for number in range(PARTS):
        low, high = (torch.from_numpy(end[number]) for end in (parts.lower, parts.upper))
        for point in parts.points(number, dtype):
            output = values(network, point)[network.outputs[0].name].double().flatten()
            at = point.double()
            left = 0.0
            for factor, one in zip(used[number].tolist(), parts.constraints, strict=True):
                margin = float(output[one.output_indices] @ torch.from_numpy(one.output_coeffs))
                margin += float(at[one.input_indices] @ torch.from_numpy(one.input_coeffs))
                left += factor * (margin - float(one.bound))
            distance = torch.where(slope[number] > 0, at - low, high - at)
            assert left >= float(found.margins.lower[number] + slope[number].abs() @ distance) - slack


def test_ascent_finds_weights_and_slopes_that_prove_more(tmp_path: Path) -> None:
    parts = Parts(mlp(tmp_path / "n.onnx", [4, 20, 20, 3], seed=1), Arithmetic.REAL)
    parts.bound()
    constraints = Constraints.of(parts.context, parts.constraints)
    wide = torch.ones(1, dtype=torch.int64)
    start = Mixtures.of(torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.float64))
    first, last = (
        mixed_margins(parts.domains, constraints, wide, start, Monitor(), steps=steps).margins.lower
        for steps in (0, 10)
    )
    assert float(last) > float(first) + 1e-3


def test_weights_that_are_no_weights_still_mix_something() -> None:
    """Zero, infinite and negative weights, and constraints that are not there, leave one that is sound."""
    index = torch.tensor([[3, 4, -1], [-1, 4, 3], [3, -1, -1], [-1, -1, 4]])
    nan = torch.nan
    weight = torch.tensor(
        [[0.0, 0.0, 1.0], [1.0, -2.0, nan], [1e-30, 5.0, 5.0], [nan, 1.0, torch.inf]], dtype=torch.float64
    )
    found = Mixtures.of(index, weight)
    assert bool((found.index[found.weight > 0] == torch.tensor([3, 4, 3, 4])).all())
    assert found.weight.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
