"""What nothing negative is summed to is not negative, however it is rounded: a root or a quotient may follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from boundscope.errors import BoundError
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, assert_holds, box_of, engine_of, network_of

N = helper.make_node
# Each takes "h" [1, 3], a mixture of the input, and gives "y", whose last node needs what is not negative.
GRAPHS: dict[str, Sequence[onnx.NodeProto]] = {
    "even power": [N("Pow", ["h", "two"], ["p"]), N("Sqrt", ["p"], ["y"])],
    "fourth power": [N("Pow", ["h", "four"], ["p"]), N("Sqrt", ["p"], ["y"])],
    "square": [N("Mul", ["h", "h"], ["p"]), N("Sqrt", ["p"], ["y"])],
    "norm": [
        N("Pow", ["h", "two"], ["p"]),
        N("ReduceSum", ["p"], ["s"], axes=[1]),
        N("Sqrt", ["s"], ["y"]),
    ],
    "mean of squares": [
        N("Mul", ["h", "h"], ["p"]),
        N("ReduceMean", ["p"], ["s"], axes=[1]),
        N("Sqrt", ["s"], ["y"]),
    ],
    "sums": [
        N("Abs", ["h"], ["a"]),
        N("Exp", ["h"], ["e"]),
        N("Mul", ["a", "k"], ["m"]),
        N("Add", ["m", "a"], ["p"]),
        N("Mul", ["p", "a"], ["q"]),
        N("Sum", ["q", "m", "k"], ["r"]),
        N("Div", ["r", "e"], ["s"]),
        N("Sqrt", ["s"], ["y"]),
    ],
    "difference": [
        N("Abs", ["h"], ["a"]),
        N("Sub", ["a", "minus"], ["s"]),
        N("Div", ["s", "half"], ["d"]),
        N("Mul", ["d", "a"], ["p"]),
        N("Sqrt", ["p"], ["y"]),
    ],
    "inverse": [
        N("Pow", ["h", "two"], ["p"]),
        N("Add", ["p", "tiny"], ["s"]),
        N("Reciprocal", ["s"], ["y"]),
    ],
}
CONSTANTS: dict[str, NDArray] = {
    "W": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),
    "two": np.array([2.0], np.float32),
    "four": np.array([4.0], np.float32),
    "k": np.array([0.0, 0.5, 2.0], np.float32),
    "minus": np.array([-0.25], np.float32),
    "half": np.array([0.5], np.float32),
    "tiny": np.array([1e-3], np.float32),
}


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("graph", sorted(GRAPHS))
def test_values_lie_inside(tmp_path: Path, graph: str, method: Method, arithmetic: Arithmetic) -> None:
    nodes = [N("Gemm", ["x", "W"], ["h"], "mix", transB=1), *GRAPHS[graph]]
    read = {name for node in nodes for name in node.input}
    constants = {name: value for name, value in CONSTANTS.items() if name in read}
    network = network_of(tmp_path, nodes, 4, constants, opset=12)
    centre = np.random.default_rng(1).standard_normal(4).astype(np.float32).astype(np.float64)
    for radius in (0.0, 1e-9, 0.25, 2.0):
        assert_holds(network, centre - radius, centre + radius, method, arithmetic)
        assert_holds(network, np.full(4, -radius), np.full(4, radius), method, arithmetic)


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
def test_a_difference_of_what_is_not_negative_keeps_no_sign(tmp_path: Path, arithmetic: Arithmetic) -> None:
    """x² − x² may be negative once each is rounded in its own way; nothing is claimed of it."""
    nodes = [
        N("Pow", ["x", "two"], ["p"]),
        N("Mul", ["x", "x"], ["q"]),
        N("Sub", ["p", "q"], ["s"]),
        N("Sqrt", ["s"], ["y"]),
    ]
    network = network_of(tmp_path, nodes, 2, {"two": CONSTANTS["two"]})
    with pytest.raises(BoundError, match="reaches below zero"):
        engine_of(network, arithmetic).context(box_of([0.5, -0.5], [0.5, 0.5]), Method.CROWN)
