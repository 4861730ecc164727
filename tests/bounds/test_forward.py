"""Forward mode: sound for every tensor, and it spares backward rows where inputs are few."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boundscope.bounds.forward import ForwardPass
from boundscope.network import load_network
from boundscope.properties.types import Box
from boundscope.protocol import Arithmetic, Method
from support.enclosure import assert_contains, box_around, engine_of
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
