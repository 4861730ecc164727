"""Products and quotients of two perturbed tensors lie between their planes, whatever the choice between these."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.operators import bilinear
from boundscope.errors import BoundError
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.enclosure import (
    METHODS,
    assert_contains,
    box_around,
    box_of,
    corners_and_points,
    engine_of,
    values_at,
)
from support.models import save

SETTINGS = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def sliced(
    start: int, stop: int, out: str, shape: Sequence[int]
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Nodes that take inputs start … stop−1 of "x" as a tensor of a shape."""
    constants = {
        f"{out}_from": np.array([start]),
        f"{out}_to": np.array([stop]),
        f"{out}_shape": np.array(list(shape), dtype=np.int64),
    }
    nodes = [
        helper.make_node("Slice", ["x", f"{out}_from", f"{out}_to"], [f"{out}_flat"], f"slice_{out}"),
        helper.make_node("Reshape", [f"{out}_flat", f"{out}_shape"], [out], f"shape_{out}"),
    ]
    return nodes, constants


def of_two(path: Path, op: str, first: Sequence[int], second: Sequence[int], out: Sequence[int]) -> Network:
    """y = op(a, b), with a and b the parts of the input one after the other."""
    split = int(np.prod(first))
    total = split + int(np.prod(second))
    nodes, constants = sliced(0, split, "a", first)
    more, others = sliced(split, total, "b", second)
    last = helper.make_node(op, ["a", "b"], ["y"], "pair")
    return load_network(save(path, [*nodes, *more, last], constants | others, [total], out))


def attention(path: Path, seed: int) -> Network:
    """Scores, weighted values, a gated and a squared part, and a quotient: every rule here after another."""
    random = np.random.default_rng(seed)
    constants = {name: (random.standard_normal((4, 4)) / 2).astype(np.float32) for name in "QKV"}
    constants["one"] = np.ones(1, dtype=np.float32)
    make = helper.make_node
    nodes = [
        *(make("MatMul", ["x", name], [name.lower()], name.lower()) for name in "QKV"),
        make("Transpose", ["k"], ["kt"], "kt", perm=[0, 2, 1]),
        make("MatMul", ["q", "kt"], ["scores"], "scores"),
        make("MatMul", ["scores", "v"], ["mixed"], "mixed"),
        make("Mul", ["mixed", "v"], ["gated"], "gated"),
        make("Mul", ["gated", "gated"], ["square"], "square"),
        make("Add", ["square", "one"], ["positive"], "positive"),
        make("Div", ["gated", "positive"], ["y"], "y"),
    ]
    return load_network(save(path, nodes, constants, [2, 3, 4], [2, 3, 4]))


@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
@pytest.mark.parametrize("method", METHODS)
@SETTINGS
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 1e-7, 0.01, 0.1]))
def test_an_attention_like_network_stays_inside(
    tmp_path: Path, method: Method, arithmetic: Arithmetic, seed: int, radius: float
) -> None:
    network = attention(tmp_path / "n.onnx", seed)
    centre = np.random.default_rng(seed).standard_normal(24).astype(np.float32).astype(np.float64)
    assert_contains(network, box_around(centre, radius), method, arithmetic, seed)


SHAPES = [
    ("Mul", (3,), (3,), (3,)),
    ("Mul", (2, 3), (3,), (2, 3)),
    ("Mul", (2, 1), (1, 3), (2, 3)),
    ("MatMul", (3,), (3,), ()),
    ("MatMul", (3,), (3, 2), (2,)),
    ("MatMul", (2, 3), (3,), (2,)),
    ("MatMul", (2, 2, 3), (3, 2), (2, 2, 2)),
    ("MatMul", (2, 1, 2, 3), (3, 3, 2), (2, 3, 2, 2)),
    ("Div", (2, 1), (1, 3), (2, 3)),
]


@pytest.mark.parametrize(("op", "first", "second", "out"), SHAPES)
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("chooses", ["zeros", "ones", "random"])
def test_every_choice_of_planes_is_sound(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    op: str,
    first: tuple[int, ...],
    second: tuple[int, ...],
    out: tuple[int, ...],
    each: bool,
    chooses: str,
) -> None:
    """Rows with parameters of their own, with broadcasting, vectors and stacks of matrices of every kind."""
    if not each:
        monkeypatch.setattr(bilinear, "FULL_PARAMETERS", 0)
    network = of_two(tmp_path / "n.onnx", op, first, second, out)
    random = np.random.default_rng(len(first) + 7 * len(second))
    lower = random.uniform(-2, 1, network.input_count)
    if op == "Div":
        lower = np.abs(lower) + 0.1
        lower[-1], lower[-2] = -3.0, -4.0
    box = box_of(lower.tolist(), (lower + random.uniform(0, 1.5, network.input_count)).tolist())
    context = engine_of(network).context(box, Method.IBP)
    node = next(node for node in network.nodes if node.name == "pair")
    with context.view(node) as view:
        default = context.rule(node).theta(view)
    assert default is not None
    rows = 16
    thetas = {
        "zeros": torch.zeros(rows, *default.shape),
        "ones": torch.ones(rows, *default.shape),
        "random": torch.rand(rows, *default.shape, generator=torch.Generator().manual_seed(0)),
    }
    size = network.output_count
    coefficients = torch.from_numpy(random.standard_normal((rows, size)))
    one = BackwardPass(context, thetas={"pair": thetas[chooses]})
    bound = one.lower({"y": coefficients.reshape(rows, *out)}, rows)
    least = torch.full((rows,), torch.inf, dtype=torch.float64)
    for point in corners_and_points(box, 200, torch.float64, 1):
        least = torch.minimum(
            least, coefficients @ values_at(network, point, torch.float64)["y"].reshape(size)
        )
    assert bool(torch.isfinite(bound).all())
    assert bool((bound <= least).all())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_product_is_bounded_exactly_at_its_corners(tmp_path: Path, sign: float) -> None:
    """McCormick's planes are the convex hull: a product alone has exact bounds, also after optimisation."""
    network = of_two(tmp_path / "n.onnx", "Mul", (1,), (1,), (1,))
    box = box_of([-1.0, 0.5], [2.0, 3.0])
    row = LinearConstraint(np.array([0]), np.array([sign]), bound=Fraction(0))
    context = engine_of(network).context(box, Method.ALPHA_CROWN)
    margin = engine_of(network).margins(context, [row], Method.ALPHA_CROWN).item()
    assert margin == pytest.approx(-3.0 if sign > 0 else -6.0, abs=1e-12)


def test_a_difference_of_products_is_tightened_by_the_choice(tmp_path: Path) -> None:
    """x·y − ½(x + y) over [0, 1]² is never below −½; either plane gives −1, the one half way −½."""
    nodes, constants = sliced(0, 1, "a", [1])
    more, others = sliced(1, 2, "b", [1])
    constants |= others | {"half": np.array([0.5], dtype=np.float32)}
    make = helper.make_node
    nodes += [
        *more,
        make("Mul", ["a", "b"], ["ab"], "product"),
        make("Add", ["a", "b"], ["sum"], "sum"),
        make("Mul", ["sum", "half"], ["mean"], "mean"),
        make("Sub", ["ab", "mean"], ["y"], "y"),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [2], [1]))
    row = LinearConstraint(np.array([0]), np.array([1.0]), bound=Fraction(0))
    engine = engine_of(network)
    context = engine.context(box_of([0.0, 0.0], [1.0, 1.0]), Method.CROWN)
    crown, best = (engine.margins(context, [row], m).item() for m in (Method.CROWN, Method.ALPHA_CROWN))
    assert crown < -0.9
    assert -0.51 <= best <= -0.5


@pytest.mark.parametrize(
    ("lower", "upper"), [(-2.0, 3.0), (1.0, 3.0), (-3.0, -1.0), (2.0, 2.0), (-1e-12, 1e-12)]
)
def test_a_tensor_times_itself_is_a_square(tmp_path: Path, lower: float, upper: float) -> None:
    """Never negative, exact above, and with the tangent at the origin within reach of the optimisation."""
    node = helper.make_node("Mul", ["x", "x"], ["y"], "square")
    network = load_network(save(tmp_path / "n.onnx", [node], {}, [1], [1]))
    least = 0.0 if lower < 0 < upper else min(lower**2, upper**2)
    for method in METHODS:
        context = assert_contains(network, box_of([lower], [upper]), method, Arithmetic.REAL)
        interval = context.intervals["y"]
        assert interval.lower.item() == pytest.approx(least, abs=1e-12)
        assert interval.upper.item() == pytest.approx(max(lower**2, upper**2), abs=1e-12)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("lower", "upper"), [(0.5, 2.0), (-2.0, -0.5), (3.0, 3.0), (2.0**-20, 2.0**20), (-1.0, -1.0 + 1e-12)]
)
def test_a_quotient_has_the_bounds_of_its_corners(
    tmp_path: Path, lower: float, upper: float, constant: bool
) -> None:
    make = helper.make_node
    if constant:
        constants = {"c": np.array([-1.5], dtype=np.float32)}
        path = save(tmp_path / "n.onnx", [make("Div", ["c", "x"], ["y"], "pair")], constants, [1], [1])
        network, box = load_network(path), box_of([lower], [upper])
        corners = [-1.5 / lower, -1.5 / upper]
    else:
        network, box = (
            of_two(tmp_path / "n.onnx", "Div", (1,), (1,), (1,)),
            box_of([-1.0, lower], [2.0, upper]),
        )
        corners = [a / b for a in (-1.0, 2.0) for b in (lower, upper)]
    near = 1e-9 * max(map(abs, corners))
    for method in METHODS:
        interval = assert_contains(network, box, method, Arithmetic.REAL).intervals["y"]
        assert interval.lower.item() == pytest.approx(min(corners), abs=near)
        assert interval.upper.item() == pytest.approx(max(corners), abs=near)
        assert_contains(network, box, method, Arithmetic.FLOAT32)


def test_a_divisor_that_may_be_zero_is_named(tmp_path: Path) -> None:
    network = of_two(tmp_path / "n.onnx", "Div", (1,), (1,), (1,))
    with pytest.raises(BoundError, match="divisor 'b' of node 'pair' can be zero"):
        engine_of(network).context(box_of([0.0, -1.0], [1.0, 2.0]), Method.CROWN)


def test_a_large_product_has_one_parameter_for_each_element_of_x(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer parameters, and still no looser than without optimisation."""
    network = attention(tmp_path / "n.onnx", 3)
    box = box_around(np.random.default_rng(3).standard_normal(24), 0.1)
    monkeypatch.setattr(bilinear, "FULL_PARAMETERS", 0)
    crown = assert_contains(network, box, Method.CROWN, Arithmetic.REAL).intervals["mixed"]
    best = assert_contains(network, box, Method.ALPHA_CROWN, Arithmetic.REAL).intervals["mixed"]
    assert (best.upper - best.lower).mean() < (crown.upper - crown.lower).mean()
