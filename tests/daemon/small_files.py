"""A small network and properties of it, as files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write_network(path: Path, operator: str = "Relu") -> Path:
    """y = W1·act(W0·x): 2 inputs, 8 neurons, 2 outputs; all weights within ±1, so |y| ≤ 16 on [-1, 1]² with ReLU."""
    numbers = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(numbers.uniform(-1, 1, shape).astype(np.float32), name)
        for name, shape in (("w0", (2, 8)), ("w1", (8, 2)))
    ]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
            helper.make_node(operator, ["h"], ["a"], name="kink"),
            helper.make_node("MatMul", ["a", "w1"], ["y"], name="second"),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def write_property(path: Path, *, inputs: int = 2, threshold: float = 100.0) -> Path:
    """Violated where Y_0 ≥ threshold for some x in [-1, 1]^inputs."""
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(2)]
    for i in range(inputs):
        lines += [f"(assert (>= X_{i} -1.0))", f"(assert (<= X_{i} 1.0))"]
    lines.append(f"(assert (>= Y_0 {threshold}))")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_wide_network(path: Path, width: int, layers: int, inputs: int = 2) -> Path:
    """ReLU layers of `width` neurons between two inputs and two outputs: bounding them takes a while."""
    numbers = np.random.default_rng(1)
    sizes = [inputs, *[width] * layers, 2]
    nodes, weights, last = [], [], "x"
    for number, shape in enumerate(pairwise(sizes)):
        array = numbers.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"h{number}"], name=f"layer{number}"))
        last = f"h{number}"
        if number < layers:
            nodes.append(helper.make_node("Relu", [last], [f"a{number}"], name=f"kink{number}"))
            last = f"a{number}"
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inputs])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, 2])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
