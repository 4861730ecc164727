"""Boxes of no width, or of next to none: no bounds cross, in any method and arithmetic; a true crossing is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from boundscope.bounds.interval import Interval
from boundscope.errors import BoundError
from boundscope.network.graph import Network
from boundscope.protocol import Arithmetic, Method, Precision
from support.enclosure import METHODS, assert_contains, box_around, engine_of, network_of


def two_linear_and_relu(folder: Path) -> Network:
    """Gemm–Gemm–Relu–Gemm, with weights of very different sizes."""
    random = np.random.default_rng(3)
    nodes = [
        helper.make_node("Gemm", ["x", "A", "a"], ["u"], "fc1", transB=1),
        helper.make_node("Gemm", ["u", "B"], ["v"], "fc2", transB=1),
        helper.make_node("Relu", ["v"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "C"], ["y"], "fc3", transB=1),
    ]
    constants = {
        "A": (random.standard_normal((12, 6)) * 10.0 ** random.integers(-4, 4, (12, 6))).astype(np.float32),
        "a": random.standard_normal(12).astype(np.float32),
        "B": random.standard_normal((12, 12)).astype(np.float32),
        "C": random.standard_normal((3, 12)).astype(np.float32),
    }
    return network_of(folder, nodes, 6, constants)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("radius", [0.0, 1e-300, 1e-12, 1e-3])
def test_no_bounds_cross(
    tmp_path: Path, radius: float, method: Method, arithmetic: Arithmetic, precision: Precision
) -> None:
    """Every method returns, and every lower bound is at most its upper one; every value lies between."""
    network = two_linear_and_relu(tmp_path)
    centre = np.random.default_rng(1).standard_normal(6).astype(np.float32).astype(np.float64)
    box = box_around(centre, radius * np.abs(centre))
    context = assert_contains(network, box, method, arithmetic, precision=precision)
    for name, interval in context.intervals.items():
        assert bool((interval.lower <= interval.upper).all()), name


def test_bounds_that_truly_cross_name_the_tensor_and_the_neuron(tmp_path: Path) -> None:
    network = two_linear_and_relu(tmp_path)
    context = engine_of(network).context(box_around(np.zeros(6), 0.1), Method.CROWN)
    known = context.intervals["v"]
    elsewhere = Interval(known.lower.clone(), known.upper.clone())
    elsewhere.lower[0, 7] = elsewhere.upper[0, 7] = known.upper[0, 7] + 1.0
    with pytest.raises(BoundError, match=r"'v' cross at element 7: .* > "):
        context.tighten("v", elsewhere)
    assert torch.equal(context.intervals["v"].lower, known.lower)
