"""Forward mode: sound for every tensor, and it spares backward rows where inputs are few."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from boundscope.bounds.forward import ForwardPass
from boundscope.network import load_network
from boundscope.properties.types import Box
from boundscope.protocol import Arithmetic, Method
from support.enclosure import assert_contains, box_around, engine_of, network_of
from support.models import convnet, mlp

SETTINGS = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def few_free(size: int, free: int, radius: float, seed: int) -> Box:
    """A box in which only `free` inputs vary."""
    random = np.random.default_rng(seed)
    widths = np.zeros(size)
    widths[random.choice(size, free, replace=False)] = radius
    return box_around(random.standard_normal(size).astype(np.float32).astype(np.float64), widths)


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@SETTINGS
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([1e-6, 0.05, 0.5]), free=st.integers(1, 4))
def test_values_lie_inside(
    tmp_path: Path, arithmetic: Arithmetic, seed: int, radius: float, free: int
) -> None:
    network = load_network(convnet(tmp_path / "n.onnx", seed))
    box = few_free(72, free, radius, seed)
    engine = engine_of(network, arithmetic=arithmetic)
    assert ForwardPass.where_it_pays(engine.context(box, Method.IBP)) is not None
    assert_contains(network, box, Method.CROWN, arithmetic, seed)


def test_it_is_tighter_than_intervals_where_inputs_are_shared(tmp_path: Path) -> None:
    """Its intervals alone, without any backward row, lie within those of plain interval arithmetic."""
    network = load_network(mlp(tmp_path / "n.onnx", [3, 30, 30, 30, 4], 1))
    engine = engine_of(network)
    box = box_around(np.zeros(3), 0.2)
    plain = engine.context(box, Method.IBP)
    forward = engine.context(box, Method.IBP)
    start = {info.name: forward.intervals[info.name] for info in network.inputs}
    forward.intervals = dict(start)
    passing = ForwardPass.where_it_pays(forward)
    assert passing is not None
    for node in network.nodes:
        forward.advance(node)
        passing.advance(node)
    width = {
        name: float((c.intervals["y"].upper - c.intervals["y"].lower).sum())
        for name, c in (("plain", plain), ("forward", forward))
    }
    assert width["forward"] < 0.7 * width["plain"]


def test_many_free_inputs_do_without_it(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [100, 30, 4], 1))
    context = engine_of(network).context(box_around(np.zeros(100), 0.2), Method.IBP)
    assert ForwardPass.where_it_pays(context) is None


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE])
def test_truth_values_that_become_numbers_keep_their_width(
    tmp_path: Path, arithmetic: Arithmetic, to: int
) -> None:
    """What is known of a comparison is its range alone; a cast rounds nothing of it, and must not lose it."""
    random = np.random.default_rng(5)
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["h"], "mix", transB=1),
        helper.make_node("Greater", ["h", "k"], ["b"]),
        helper.make_node("Dropout", ["b_number"], ["d"]),
        helper.make_node("Cast", ["b"], ["b_number"], to=to),
        helper.make_node("ReduceSum", ["d"], ["s"], keepdims=1),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    nodes = [nodes[i] for i in (0, 1, 3, 2, 4, 5)]
    if to == TensorProto.INT64:
        nodes = [node for node in nodes if node.op_type != "Dropout"]
        nodes[-2].input[0] = "b_number"
    constants = {
        "W": random.standard_normal((24, 2)).astype(np.float32),
        "k": random.standard_normal(24).astype(np.float32) * np.float32(0.3),
    }
    network = network_of(tmp_path, nodes, 2, constants)
    box = box_around(np.zeros(2), 0.3)
    assert ForwardPass.where_it_pays(engine_of(network).context(box, Method.IBP)) is not None
    context = assert_contains(network, box, Method.CROWN, arithmetic)
    open_ = context.intervals["b"].lower < context.intervals["b"].upper
    assert bool(open_.any())
    assert bool(
        (context.intervals["b_number"].upper - context.intervals["b_number"].lower)[open_].eq(1.0).all()
    )
