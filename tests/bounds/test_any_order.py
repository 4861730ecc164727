"""`float32 (any order)`: whatever a float32 runtime computes lies inside, in any order of summation, fused or not,
with subnormals or without, by torch's kernels, and by ONNX Runtime with and without graph optimisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.context import BoxContext
from boundscope.errors import BoundError
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box
from boundscope.protocol import Arithmetic, Method
from boundscope.sharding.weights import WholeWeights
from support import orders
from support.models import convnet, mlp, save

METHODS = (Method.IBP, Method.CROWN, Method.ALPHA_CROWN)
CPU = torch.device("cpu")
SETTINGS = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
RADII = st.sampled_from([0.0, 1e-6, 0.05, 2.0])


def boxed(lower: np.ndarray, upper: np.ndarray) -> Box:
    return Box(tuple(map(repr, lower.tolist())), tuple(map(repr, upper.tolist())), lower, upper)


def around(centre: np.ndarray, radius: float) -> Box:
    """A box around float32 numbers."""
    centre = centre.astype(np.float32).astype(np.float64)
    return boxed(centre - radius, centre + radius)


def contexts(network: Network, box: Box) -> dict[Method, BoxContext]:
    ledger = MemoryLedger()
    weights = WholeWeights(network.constants, ledger, CPU, torch.float64)
    engine = BoundEngine(network, weights, ledger, arithmetic=Arithmetic.FLOAT32)
    return {method: engine.context(box, method) for method in METHODS}


def float32_points(box: Box, seed: int, count: int) -> Iterator[np.ndarray]:
    """float32 numbers of the box: corners and inner points in turn."""
    random = np.random.default_rng(seed)
    for trial in range(count):
        share = random.random(len(box.lower))
        share = share.round() if trial % 2 else share
        point = (box.lower + share * (box.upper - box.lower)).astype(np.float32)
        point = np.where(point < box.lower, np.nextafter(point, np.float32(np.inf)), point)
        point = np.where(point > box.upper, np.nextafter(point, np.float32(-np.inf)), point)
        yield point.astype(np.float64)


@contextmanager
def flushing(on: bool) -> Iterator[None]:
    """This thread's vector unit flushes subnormals, where the processor can."""
    torch.set_flush_denormal(on)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def runs(
    network: Network, path: Path, point: np.ndarray, seed: int, runtime: orders.OnnxRuntime
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every tensor that each of many ways to compute in float32 shows."""
    for number, habit in enumerate(orders.HABITS):
        for flush in (False, True):
            arithmetic = orders.Arithmetic(habit, flush, folded=(number + seed) % 2 == 0, seed=seed + number)
            yield f"{habit}, flush {flush}", orders.values(network, point, arithmetic)
    for flush in (False, True):
        with flushing(flush):
            yield f"torch, flush {flush}", orders.kernel_values(network, point)
    plain, optimized = runtime.values(network, point)
    yield "ONNX Runtime", plain
    yield "ONNX Runtime, optimized", optimized


def assert_all_inside(path: Path, box: Box, seed: int, *, points: int = 3) -> None:
    network, runtime = load_network(path), orders.OnnxRuntime(path)
    bounds = contexts(network, box)
    for trial, point in enumerate(float32_points(box, seed, points)):
        for how, seen in runs(network, path, point, seed + trial, runtime):
            for name, value in seen.items():
                for method, context in bounds.items():
                    if name not in context.intervals:
                        continue
                    interval = context.intervals[name]
                    lower, upper = interval.lower.numpy().ravel(), interval.upper.numpy().ravel()
                    got = value.ravel()
                    outside = np.flatnonzero(~((lower <= got) & (got <= upper)))
                    assert not len(outside), (
                        f"{how}: {name}[{outside[0]}] = {got[outside[0]]!r} leaves its {method} interval "
                        f"[{lower[outside[0]]!r}, {upper[outside[0]]!r}]"
                    )


def chain(path: Path, seed: int, scale: float = 1.0) -> Path:
    """MatMul and Add apart, Mul, Sub and Div by constants, LeakyRelu, and a sum over everything: 6 → 4."""
    random = np.random.default_rng(seed)

    def array(*shape: int) -> np.ndarray:
        return (scale * random.standard_normal(shape)).astype(np.float32)

    constants = {
        "A": array(6, 12),
        "a": array(12),
        "B": array(12, 12),
        "b": array(1, 12),
        "C": array(12, 4),
        "gain": array(12),
        "loss": (0.1 + random.random((1, 12))).astype(np.float32),
        "shift": array(12),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["m1"], "matmul1"),
        helper.make_node("Add", ["m1", "a"], ["s1"], "add1"),
        helper.make_node("LeakyRelu", ["s1"], ["r1"], "leaky1", alpha=0.1),
        helper.make_node("Mul", ["r1", "gain"], ["g1"], "gain"),
        helper.make_node("MatMul", ["g1", "B"], ["m2"], "matmul2"),
        helper.make_node("Add", ["b", "m2"], ["s2"], "add2"),
        helper.make_node("Div", ["s2", "loss"], ["d2"], "loss"),
        helper.make_node("Sub", ["shift", "d2"], ["t2"], "shift"),
        helper.make_node("Relu", ["t2"], ["r2"], "relu2"),
        helper.make_node("Sub", ["r2", "g1"], ["u2"], "skip"),
        helper.make_node("MatMul", ["u2", "C"], ["m3"], "matmul3"),
        helper.make_node("ReduceMean", ["u2"], ["mean"], "mean", axes=[1], keepdims=1),
        helper.make_node("Add", ["m3", "mean"], ["y"], "join"),
    ]
    return save(path, nodes, constants, [1, 6], [1, 4])


def cancelling(path: Path, seed: int, size: int, width: int = 8) -> Path:
    """Weights of 10⁴ and their near-opposites side by side: sums that lose nearly all their digits."""
    random = np.random.default_rng(seed)

    def pairs(rows: int, columns: int) -> np.ndarray:
        half = 1e4 * (1 + random.random((rows, columns // 2)))
        almost = -half * (1 + 1e-6 * random.standard_normal(half.shape))
        return np.stack([half, almost], axis=2).reshape(rows, columns).astype(np.float32)

    constants = {
        "W1": pairs(width, size),
        "b1": random.standard_normal(width).astype(np.float32),
        "W2": pairs(width, width),
        "b2": random.standard_normal(width).astype(np.float32),
        "W3": pairs(3, width),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W1", "b1"], ["h1"], "fc1", transB=1),
        helper.make_node("Relu", ["h1"], ["r1"], "relu1"),
        helper.make_node("Gemm", ["r1", "W2", "b2"], ["h2"], "fc2", transB=1),
        helper.make_node("Relu", ["h2"], ["r2"], "relu2"),
        helper.make_node("Gemm", ["r2", "W3"], ["y"], "fc3", transB=1),
    ]
    return save(path, nodes, constants, [1, size], [1, 3])


@SETTINGS
@given(seed=st.integers(0, 10**6), radius=RADII)
def test_fully_connected(tmp_path: Path, seed: int, radius: float) -> None:
    path = mlp(tmp_path / "n.onnx", [7, 33, 20, 3], seed)
    assert_all_inside(path, around(np.random.default_rng(seed).standard_normal(7), radius), seed)


@SETTINGS
@given(seed=st.integers(0, 10**6), radius=RADII)
def test_convolutions_with_normalisation_skips_and_pooling(tmp_path: Path, seed: int, radius: float) -> None:
    """ONNX Runtime folds the normalisation, the Mul and the Add into the convolutions when it optimises."""
    path = convnet(tmp_path / "n.onnx", seed)
    assert_all_inside(path, around(np.random.default_rng(seed).standard_normal(72), radius), seed)


@SETTINGS
@given(seed=st.integers(0, 10**6), radius=RADII)
def test_products_sums_and_quotients_one_by_one(tmp_path: Path, seed: int, radius: float) -> None:
    path = chain(tmp_path / "n.onnx", seed)
    assert_all_inside(path, around(np.random.default_rng(seed).standard_normal(6), radius), seed)


@SETTINGS
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 1e-3]))
def test_sums_that_cancel(tmp_path: Path, seed: int, radius: float) -> None:
    path = cancelling(tmp_path / "n.onnx", seed, 32)
    assert_all_inside(path, around(np.repeat(np.random.default_rng(seed).random(16) + 1, 2), radius), seed)


@pytest.mark.parametrize("radius", [0.0, 1e-3])
def test_sums_of_4096_terms_that_cancel(tmp_path: Path, radius: float) -> None:
    path = cancelling(tmp_path / "n.onnx", 1, 4096)
    centre = np.repeat(np.random.default_rng(1).random(2048) + 1, 2)
    assert_all_inside(path, around(centre, radius), 1, points=1)


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    radius=st.sampled_from([0.0, 1e-3, 0.5]),
    scale=st.sampled_from([1e-13, 1e-20]),
)
def test_products_that_underflow(tmp_path: Path, seed: int, radius: float, scale: float) -> None:
    """Products of three small weights lie among float32's subnormals, or below them."""
    path = chain(tmp_path / "n.onnx", seed, scale)
    assert_all_inside(path, around(np.random.default_rng(seed).standard_normal(6), radius), seed)


@pytest.mark.parametrize("seed", range(4))
def test_subnormal_inputs_and_weights_that_a_runtime_reads_as_zero(tmp_path: Path, seed: int) -> None:
    """Inputs near 10⁻³⁹ times 10³⁸, and 10⁻³⁹ times 10³⁸ the other way round: all of the value is at stake."""
    random = np.random.default_rng(seed)
    constants = {
        "W1": (1e38 * random.standard_normal((5, 4)) / 4).astype(np.float32),
        "W2": np.full((5, 5), 1e-39, dtype=np.float32) * random.choice([1, 2, 3], (5, 5)).astype(np.float32),
        "W3": (1e37 * random.standard_normal((2, 5))).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W1"], ["h1"], "fc1", transB=1),
        helper.make_node("Relu", ["h1"], ["r1"], "relu1"),
        helper.make_node("Gemm", ["r1", "W2"], ["h2"], "fc2", transB=1),
        helper.make_node("Relu", ["h2"], ["r2"], "relu2"),
        helper.make_node("Gemm", ["r2", "W3"], ["y"], "fc3", transB=1),
    ]
    path = save(tmp_path / "n.onnx", nodes, constants, [1, 4], [1, 2])
    centre = (1e-39 * (1 + random.random(4))).astype(np.float32).astype(np.float64)
    assert_all_inside(path, boxed(centre, centre), seed, points=1)


@pytest.mark.parametrize("method", METHODS)
def test_sums_that_may_leave_float32_are_refused_by_name(tmp_path: Path, method: Method) -> None:
    """10²⁵·10²⁵ is infinite in float32 and its difference NaN, where the real value is finite."""
    constants = {
        "W1": np.full((2, 2), 1e25, dtype=np.float32),
        "W2": np.array([[1e25, -1e25]], dtype=np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W1"], ["h"], "fc1", transB=1),
        helper.make_node("Gemm", ["h", "W2"], ["y"], "fc2", transB=1),
    ]
    path = save(tmp_path / "n.onnx", nodes, constants, [1, 2], [1, 1])
    network = load_network(path)
    ledger = MemoryLedger()
    weights = WholeWeights(network.constants, ledger, CPU, torch.float64)
    box = boxed(np.ones(2), np.full(2, 1.5))
    deployed = BoundEngine(network, weights, ledger, arithmetic=Arithmetic.FLOAT32)
    with pytest.raises(BoundError, match="'y' may leave the range of float32"):
        deployed.context(box, method)
    real = BoundEngine(network, weights, ledger).context(box, method)
    assert float(real.intervals["y"].upper) >= 0


@pytest.mark.parametrize("kind", ["Gemm", "MatMul", "Conv"])
def test_the_worst_order_of_a_sum_nearly_uses_the_bound_up(tmp_path: Path, kind: str) -> None:
    """1 and then 1023 terms just above half an ulp of 1: summed in a row, each rounds up by half an ulp."""
    terms = 1024
    point = np.full(terms, 2.0**-24 * (1 + 2.0**-20))
    point[0] = 1.0
    exact = float(point.sum())
    if kind == "Conv":
        weights = np.ones((1, 1, 32, 32), dtype=np.float32)
        node = helper.make_node("Conv", ["x", "W"], ["y"], "conv")
        path = save(tmp_path / "n.onnx", [node], {"W": weights}, [1, 1, 32, 32], [1, 1, 1, 1])
    else:
        node = helper.make_node(kind, ["x", "W"], ["y"], "product")
        weights = np.ones((terms, 1), dtype=np.float32)
        path = save(tmp_path / "n.onnx", [node], {"W": weights}, [1, terms], [1, 1])
    network = load_network(path)
    worst = orders.values(network, point, orders.Arithmetic("sequential", False, False, 0))["y"].item()
    assert worst - exact > 0.99 * (terms - 1) * 2.0**-24
    for context in contexts(network, boxed(point, point)).values():
        interval = context.intervals["y"]
        assert float(interval.lower) <= worst <= float(interval.upper)
        assert float(interval.upper) - exact < 1.02 * (worst - exact)


def test_a_constant_that_a_runtime_folds_in_another_order(tmp_path: Path) -> None:
    """x·(A·B): the product of constants is computed at load, by each runtime in an order of its own."""
    random = np.random.default_rng(0)
    half = 1e3 * random.standard_normal((512, 1))
    constants = {
        "A": np.tile([1.0, -1.0], (4, 512)).astype(np.float32),
        "B": (np.repeat(half, 2, axis=0) * (1 + 1e-6 * random.standard_normal((1024, 3)))).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["A", "B"], ["W"], "fold"),
        helper.make_node("MatMul", ["x", "W"], ["y"], "product"),
    ]
    path = save(tmp_path / "n.onnx", nodes, constants, [1, 4], [1, 3])
    network, point = load_network(path), np.ones(4)
    seen = [found["y"].ravel() for found in orders.OnnxRuntime(path).values(network, point)]
    columns = [(constants["A"][:, k, None], constants["B"][None, k]) for k in range(1024)]
    for seed, habit in enumerate(orders.HABITS):
        arithmetic = orders.Arithmetic(habit, False, False, seed)
        folded = arithmetic.dot(columns, None)
        seen.append(arithmetic.dot([(point.astype(np.float32)[k], folded[k]) for k in range(4)], None))
    assert np.ptp(np.stack(seen), axis=0).min() > 0
    for context in contexts(network, boxed(point, point)).values():
        interval = context.intervals["y"]
        for value in seen:
            assert (interval.lower.numpy().ravel() <= value).all()
            assert (value <= interval.upper.numpy().ravel()).all()


def width_against_spread(path: Path, centre: np.ndarray) -> dict[Method, float]:
    """At one point: mean width of the outputs' intervals over the mean spread of all ways to compute them."""
    network, runtime = load_network(path), orders.OnnxRuntime(path)
    (output,) = (info.name for info in network.outputs)
    point = centre.astype(np.float32).astype(np.float64)
    seen = [
        found[output].ravel()
        for seed in range(10)
        for _, found in runs(network, path, point, seed, runtime)
        if output in found
    ]
    spread = np.ptp(np.stack(seen), axis=0).mean()
    return {
        method: float((context.intervals[output].upper - context.intervals[output].lower).mean()) / spread
        for method, context in contexts(network, around(centre, 0.0)).items()
    }


def test_the_width_at_a_point_against_what_runtimes_really_differ_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worst case over all orders is wider than any sample; how much wider is printed, for the record."""
    random = np.random.default_rng(0)
    for name, path, size in (
        ("fully connected 7-33-20-3", mlp(tmp_path / "a.onnx", [7, 33, 20, 3]), 7),
        ("residual convolutional", convnet(tmp_path / "b.onnx"), 72),
        ("products and sums", chain(tmp_path / "c.onnx", 0), 6),
    ):
        ratios = width_against_spread(path, random.standard_normal(size))
        with capsys.disabled():
            print(f"\n  {name}: " + ", ".join(f"{m} {r:.1f}" for m, r in ratios.items()), end="")
        assert all(ratio >= 1.0 for ratio in ratios.values())
