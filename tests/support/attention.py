"""Small networks with attention, or with a maximum, for searches that narrow what matrix products and maxima read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

Constants = dict[str, NDArray]


def saved(path: Path, nodes: list[onnx.NodeProto], constants: Constants, inputs: int, outputs: int) -> Path:
    """A network of x [1, inputs] → y [1, outputs]."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, inputs])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, outputs])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def attention(
    path: Path,
    inputs: int = 3,
    tokens: int = 3,
    size: int = 4,
    outputs: int = 1,
    seed: int = 0,
    *,
    scale: float = 1.0,
    softmax: bool = True,
    relu: bool = False,
) -> Path:
    """One head of attention: x → tokens × size → queries, keys and values → their mixture, added → y.

    Without `softmax` scores weigh values as they are; with `relu` a rectifier comes before the last layer.
    """
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> NDArray:
        return (scale * random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    constants: Constants = {
        "embed": weights(inputs, tokens * size),
        "place": (0.5 * random.standard_normal(tokens * size)).astype(np.float32),
        "by_token": np.array([1, tokens, size]),
        "flat": np.array([1, tokens * size]),
        "root": np.array(1.0 / np.sqrt(size), np.float32),
        **{name: weights(size, size) for name in ("Wq", "Wk", "Wv")},
        "last": weights(tokens * size, outputs),
        "bias": (0.5 * random.standard_normal(outputs)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "embed", "place"], ["e"], "embedding"),
        helper.make_node("Reshape", ["e", "by_token"], ["t"], "tokens"),
        *(helper.make_node("MatMul", ["t", f"W{one}"], [one], f"of_{one}") for one in "qkv"),
        helper.make_node("Transpose", ["k"], ["kt"], "turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"], "scores"),
        helper.make_node("Mul", ["s", "root"], ["p" if softmax else "a"], "scaled"),
        *([helper.make_node("Softmax", ["p"], ["a"], "shares", axis=-1)] if softmax else []),
        helper.make_node("MatMul", ["a", "v"], ["m"], "mixed"),
        helper.make_node("Add", ["m", "t"], ["r"], "added"),
        helper.make_node("Reshape", ["r", "flat"], ["f"], "flattened"),
        *([helper.make_node("Relu", ["f"], ["g"], "rectified")] if relu else []),
        helper.make_node("Gemm", ["g" if relu else "f", "last", "bias"], ["y"], "head"),
    ]
    used = {one for node in nodes for one in node.input}
    return saved(path, nodes, {n: a for n, a in constants.items() if n in used}, inputs, outputs)


def pooled(
    path: Path,
    operator: str = "MaxPool",
    inputs: int = 3,
    side: int = 4,
    channels: int = 2,
    outputs: int = 1,
    seed: int = 0,
) -> Path:
    """x → channels × side × side → the greatest of each 2 × 2 (or of pairs, for Max and Min) → y."""
    random = np.random.default_rng(seed)
    many = channels * side * side

    def weights(*shape: int) -> NDArray:
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    constants: Constants = {
        "A": weights(inputs, many),
        "a": (0.5 * random.standard_normal(many)).astype(np.float32),
        "image": np.array([1, channels, side, side]),
        "rows": np.array([1, many // 4, 4]),
        "flat": np.array([1, many // 4 if operator not in ("Max", "Min") else many]),
        "around": np.roll(np.arange(many), 1),
    }
    nodes = [helper.make_node("Gemm", ["x", "A", "a"], ["u"], "first")]
    if operator == "MaxPool":
        nodes += [
            helper.make_node("Reshape", ["u", "image"], ["i"], "image"),
            helper.make_node("MaxPool", ["i"], ["m"], "most", kernel_shape=[2, 2], strides=[2, 2]),
        ]
    elif operator in ("ReduceMax", "ReduceMin"):
        nodes += [
            helper.make_node("Reshape", ["u", "rows"], ["i"], "rows"),
            helper.make_node(operator, ["i"], ["m"], "most", axes=[2], keepdims=0),
        ]
    else:
        nodes += [
            helper.make_node("Gather", ["u", "around"], ["w"], "around", axis=1),
            helper.make_node(operator, ["u", "w"], ["m"], "most"),
        ]
    width = many if operator in ("Max", "Min") else many // 4
    constants |= {
        "B": weights(width, 6),
        "b": (0.5 * random.standard_normal(6)).astype(np.float32),
        "C": weights(6, outputs),
    }
    nodes += [
        helper.make_node("Reshape", ["m", "flat"], ["n"], "flattened"),
        helper.make_node("Gemm", ["n", "B", "b"], ["h"], "second"),
        helper.make_node("Relu", ["h"], ["r"], "rectified"),
        helper.make_node("MatMul", ["r", "C"], ["y"], "last"),
    ]
    used = {one for node in nodes for one in node.input}
    return saved(path, nodes, {n: a for n, a in constants.items() if n in used}, inputs, outputs)


def joint(path: Path, kind: str, inputs: int = 3, outputs: int = 1, seed: int = 0) -> Path:
    """A network whose non-linear nodes read many elements at a time, of one of the KINDS."""
    if kind in ("Scores", "Attention", "Rectified"):
        plain = {"softmax": kind != "Scores", "relu": kind == "Rectified"}
        return attention(path, inputs, outputs=outputs, seed=seed, **plain)
    return pooled(path, kind, inputs, outputs=outputs, seed=seed)


KINDS = ("Scores", "Attention", "Rectified", "MaxPool", "ReduceMax", "ReduceMin", "Max", "Min")
