"""Small ONNX networks with seeded random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

FloatArray = NDArray[np.float32]


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, NDArray],
    input_shape: Sequence[int],
    output_shape: Sequence[int],
    *,
    opset: int = 13,
) -> Path:
    """Write a network with input "x" and output "y"."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(input_shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(output_shape))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def mlp(path: Path, widths: Sequence[int], seed: int = 0, *, bias: float = 0.3) -> Path:
    """Gemm and Relu in turn: widths[0] inputs … widths[-1] outputs. Nodes fc1, relu1, fc2, …"""
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, NDArray] = {}
    name = "x"
    for layer in range(1, len(widths)):
        fan_in, fan_out = widths[layer - 1], widths[layer]
        constants[f"W{layer}"] = (random.standard_normal((fan_out, fan_in)) / np.sqrt(fan_in)).astype(
            np.float32
        )
        constants[f"b{layer}"] = (bias * random.standard_normal(fan_out)).astype(np.float32)
        last = layer == len(widths) - 1
        out = "y" if last else f"z{layer}"
        nodes.append(
            helper.make_node("Gemm", [name, f"W{layer}", f"b{layer}"], [out], f"fc{layer}", transB=1)
        )
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"a{layer}"], f"relu{layer}"))
            name = f"a{layer}"
    return save(path, nodes, constants, [1, widths[0]], [1, widths[-1]])


def convnet(path: Path, seed: int = 0, *, side: int = 6, opset: int = 13) -> Path:
    """A residual network with normalisation, asymmetric pads, strides, groups, pooling: 2×side×side → 3."""
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> FloatArray:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    half = (side + 1 - 3) // 2 + 1
    constants = {
        "W1": weights(4, 2, 3, 3),
        "b1": weights(4, 1).reshape(4),
        "scale": (1 + 0.2 * random.standard_normal(4)).astype(np.float32),
        "shift": weights(4, 1).reshape(4),
        "mean": weights(4, 1).reshape(4),
        "var": np.abs(1 + 0.3 * random.standard_normal(4)).astype(np.float32),
        "W2": weights(4, 2, 3, 3),
        "b2": weights(4, 1).reshape(4),
        "W3": weights(3, 4 * half * half),
        "b3": weights(3, 1).reshape(3),
        "gain": (0.5 + random.random((4, 1, 1))).astype(np.float32),
        "shape": np.array([1, -1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "W1", "b1"], ["c1"], "conv1", pads=[0, 1, 1, 0], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "norm1"),
        helper.make_node("Relu", ["n1"], ["a1"], "relu1"),
        helper.make_node("Conv", ["a1", "W2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1], group=2),
        helper.make_node("Mul", ["c2", "gain"], ["g2"], "gain2"),
        helper.make_node("Add", ["g2", "a1"], ["s2"], "skip2"),
        helper.make_node("Relu", ["s2"], ["a2"], "relu2"),
        helper.make_node(
            "AveragePool", ["a2"], ["p2"], "pool2", kernel_shape=[2, 2], pads=[0, 0, 1, 1], strides=[1, 1]
        ),
        helper.make_node("Reshape", ["p2", "shape"], ["f2"], "flat2"),
        helper.make_node("Gemm", ["f2", "W3", "b3"], ["y"], "fc3", transB=1),
    ]
    return save(path, nodes, constants, [1, 2, side, side], [1, 3], opset=opset)


def box_property(lower: Sequence[float], upper: Sequence[float], outputs: int, asserts: str) -> str:
    """VNN-LIB 1.0 text of a box and further asserts."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (>= X_{i} {low!r}))", f"(assert (<= X_{i} {high!r}))"]
    return "\n".join([*lines, asserts]) + "\n"
