"""Small networks of any element-wise operator, for searches that narrow what it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

Nodes = list[onnx.NodeProto]


def _plain(operator: str, **attributes: object) -> Callable[[str, str], Nodes]:
    return lambda x, y: [helper.make_node(operator, [x], [y], f"act_{y}", **attributes)]


def _with(operator: str, *constants: str) -> Callable[[str, str], Nodes]:
    return lambda x, y: [helper.make_node(operator, [x, *constants], [y], f"act_{y}")]


def _silu(x: str, y: str) -> Nodes:
    gate = helper.make_node("Sigmoid", [x], [f"{y}_gate"], f"gate_{y}")
    return [gate, helper.make_node("Mul", [x, f"{y}_gate"], [y], f"act_{y}")]


def _product(x: str, y: str) -> Nodes:
    """x times x in another order: two elements that differ."""
    turned = helper.make_node("Gather", [x, f"turn_{y}"], [f"{y}_turned"], f"turned_{y}", axis=1)
    return [turned, helper.make_node("Mul", [x, f"{y}_turned"], [y], f"act_{y}")]


def _both(x: str, y: str) -> Nodes:
    """A rectifier and a sigmoid that read the same."""
    return [
        helper.make_node("Sigmoid", [x], [f"{y}_s"], f"s_{y}"),
        helper.make_node("Relu", [x], [f"{y}_r"], f"r_{y}"),
        helper.make_node("Sub", [f"{y}_r", f"{y}_s"], [y], f"act_{y}"),
    ]


ACTIVATIONS: dict[str, Callable[[str, str], Nodes]] = {
    "Sigmoid": _plain("Sigmoid"),
    "Tanh": _plain("Tanh"),
    "Erf": _plain("Erf"),
    "Gelu": _plain("Gelu"),
    "Softplus": _plain("Softplus"),
    "Elu": _plain("Elu", alpha=0.8),
    "HardSwish": _plain("HardSwish"),
    "Sin": _plain("Sin"),
    "Cos": _plain("Cos"),
    "Exp": _plain("Exp"),
    "Abs": _plain("Abs"),
    "Sign": _plain("Sign"),
    "Floor": _plain("Floor"),
    "Clip": _with("Clip", "least", "most"),
    "Pow": _with("Pow", "two"),
    "Silu": _silu,
    "Mul": _product,
    "Both": _both,
}


def smooth(path: Path, activation: str, widths: list[int], seed: int = 0, *, scale: float = 1.5) -> Path:
    """Gemm and an activation in turn: widths[0] inputs … widths[-1] outputs."""
    random = np.random.default_rng(seed)
    nodes: Nodes = []
    constants: dict[str, NDArray] = {
        "least": np.array(-0.4, np.float32),
        "most": np.array(0.7, np.float32),
        "two": np.array(2.0, np.float32),
    }
    name = "x"
    for layer in range(1, len(widths)):
        fan_in, fan_out = widths[layer - 1], widths[layer]
        weight = scale * random.standard_normal((fan_out, fan_in)) / np.sqrt(fan_in)
        constants[f"W{layer}"] = weight.astype(np.float32)
        constants[f"b{layer}"] = (0.5 * random.standard_normal(fan_out)).astype(np.float32)
        last = layer == len(widths) - 1
        out = "y" if last else f"z{layer}"
        nodes.append(
            helper.make_node("Gemm", [name, f"W{layer}", f"b{layer}"], [out], f"fc{layer}", transB=1)
        )
        if not last:
            constants[f"turn_a{layer}"] = np.roll(np.arange(fan_out), 1)
            nodes += ACTIVATIONS[activation](out, f"a{layer}")
            name = f"a{layer}"
    used = {one for node in nodes for one in node.input}
    graph = helper.make_graph(
        nodes,
        "smooth",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, widths[0]])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, widths[-1]])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
