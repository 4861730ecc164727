"""x·sigmoid(x), as exporters write it, is bounded as one function of x."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from boundscope.network.graph import Network
from boundscope.network.lowering import lowered
from boundscope.network.operators.fused import Silu
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, assert_holds, box_of, engine_of, network_of

N = helper.make_node


def gated(folder: Path, *, flipped: bool = False, kept: bool = False) -> Network:
    """y = W·silu(V·x), plus the gates where they are `kept`."""
    product = ["s", "h"] if flipped else ["h", "s"]
    nodes = [
        N("Gemm", ["x", "V"], ["h"], transB=1),
        N("Sigmoid", ["h"], ["s"]),
        N("Mul", product, ["g"]),
        *([N("Add", ["g", "s"], ["k"])] if kept else [N("Identity", ["g"], ["k"])]),
        N("Gemm", ["k", "W"], ["y"], transB=1),
    ]
    random = np.random.default_rng(0)
    constants = {
        "V": random.standard_normal((8, 4)).astype(np.float32),
        "W": random.standard_normal((3, 8)).astype(np.float32),
    }
    return network_of(folder, nodes, 4, constants)


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kept", [False, True])
def test_values_lie_inside(tmp_path: Path, method: Method, arithmetic: Arithmetic, kept: bool) -> None:
    network = lowered(gated(tmp_path, kept=kept))
    centre = np.random.default_rng(1).standard_normal(4).astype(np.float32).astype(np.float64)
    for radius in (0.0, 1e-6, 0.3, 3.0, 40.0):
        assert_holds(network, centre - radius, centre + radius, method, arithmetic)


@pytest.mark.parametrize("flipped", [False, True])
def test_it_is_one_node(tmp_path: Path, flipped: bool) -> None:
    network = lowered(gated(tmp_path, flipped=flipped))
    assert [node.op.onnx_type for node in network.nodes] == ["Gemm", "Mul", "Gemm"]
    assert isinstance(network.nodes[1].op, Silu)


def test_its_range_is_its_own(tmp_path: Path) -> None:
    """Over −5 … 5 it stays above −0.279; the factors apart only allow more than −5."""
    nodes = [N("Sigmoid", ["x"], ["s"]), N("Mul", ["x", "s"], ["y"])]
    network = network_of(tmp_path, nodes, 1)
    interval = engine_of(network).context(box_of([-5.0], [5.0]), Method.IBP).intervals["y"]
    assert interval.lower.item() == pytest.approx(-0.27846454276107, abs=1e-9)
    assert interval.upper.item() == pytest.approx(5.0 / (1.0 + np.exp(-5.0)), abs=1e-9)
