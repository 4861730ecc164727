"""A rectifier with a left slope is bounded as a sum of its input and a Relu: the same lines, and pieces to split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper

from boundscope.bounds import engine as bound_engine
from boundscope.network.graph import Network
from boundscope.network.lowering import lowered
from boundscope.network.operators.activation import LeakyRelu, PRelu, Relu
from boundscope.network.operators.fused import LeakySum
from boundscope.protocol import Arithmetic, Method
from boundscope.search.complete import neurons, splits_activations
from support.enclosure import METHODS, assert_holds, box_of, engine_of, network_of

N = helper.make_node
SLOPES = (0.1, 0.5, 1.0, 2.0**-40, -0.5, 1.7)


def rectifier(x: str, y: str, slope: float, learned: bool) -> NodeProto:
    return N("PRelu", [x, "a"], [y]) if learned else N("LeakyRelu", [x], [y], alpha=slope)


def leaky(folder: Path, slope: float, *, learned: bool = False) -> Network:
    """4 → 12 → 12 → 3; where `learned`, every neuron has a slope of its own around `slope`."""
    random = np.random.default_rng(0)
    constants = {
        "V": random.standard_normal((12, 4)).astype(np.float32),
        "U": random.standard_normal((12, 12)).astype(np.float32),
        "W": random.standard_normal((3, 12)).astype(np.float32),
    }
    if learned:
        constants["a"] = (slope + (1 - slope) * random.uniform(0, 0.3, 12)).astype(np.float32)

    nodes = [
        N("Gemm", ["x", "V"], ["h"], transB=1),
        rectifier("h", "g", slope, learned),
        N("Gemm", ["g", "U"], ["k"], transB=1),
        rectifier("k", "l", slope, learned),
        N("Gemm", ["l", "W"], ["y"], transB=1),
    ]
    return network_of(folder, nodes, 4, constants)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", METHODS)
def test_values_lie_inside(tmp_path: Path, method: Method, arithmetic: Arithmetic, learned: bool) -> None:
    centre = np.random.default_rng(1).standard_normal(4).astype(np.float32).astype(np.float64)
    for slope in SLOPES:
        network = leaky(tmp_path, slope, learned=learned)
        for radius in (0.0, 1e-6, 0.3, 3.0):
            assert_holds(network, centre - radius, centre + radius, method, arithmetic)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN])
def test_bounds_are_those_of_the_one_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method, slope: float, learned: bool
) -> None:
    network = leaky(tmp_path, slope, learned=learned)
    box = box_of([-0.3] * 4, [0.3] * 4)
    apart = engine_of(network).context(box, method).intervals["y"]
    monkeypatch.setattr(bound_engine, "lowered", lambda network: network)
    whole = engine_of(network).context(box, method).intervals["y"]
    np.testing.assert_allclose(apart.lower, whole.lower, rtol=1e-4)
    np.testing.assert_allclose(apart.upper, whole.upper, rtol=1e-4)


def test_its_neurons_can_be_split(tmp_path: Path) -> None:
    for learned in (False, True):
        network = lowered(leaky(tmp_path, 0.1, learned=learned))
        assert not any(isinstance(node.op, LeakyRelu | PRelu) for node in network.nodes)
        assert sum(isinstance(node.op, Relu) for node in network.nodes) == 2
        assert sum(isinstance(node.op, LeakySum) for node in network.nodes) == 2
        assert splits_activations(network)
        assert neurons(network) == 24


@pytest.mark.parametrize("slope", [-0.5, 1.7])
def test_parts_that_go_against_each_other_stay_one_function(tmp_path: Path, slope: float) -> None:
    network = leaky(tmp_path, slope)
    assert lowered(network) is network
