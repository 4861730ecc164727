"""Small ONNX models for tests, made with onnx.helper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 13,
    dtype: int = TensorProto.FLOAT,
    output_dtype: int | None = None,
    ir_version: int = 8,
    list_initializers: bool = False,
) -> onnx.ModelProto:
    """A model; output shapes are left open, as some exporters do."""
    initializers = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    declared = [helper.make_tensor_value_info(name, dtype, list(shape)) for name, shape in inputs.items()]
    if list_initializers:
        declared += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in initializers]
    given = [helper.make_tensor_value_info(name, output_dtype or dtype, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "test", declared, given, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def save(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def two_layers(
    path: Path, *, dtype: type[np.floating[Any]] = np.float32, opset: int = 13, **options: Any
) -> Path:
    """x [1, 3] -> Gemm -> Relu -> Gemm -> y [1, 2], with fixed weights."""
    generator = np.random.default_rng(1)
    constants = {
        "W1": generator.normal(size=(4, 3)).astype(dtype),
        "b1": generator.normal(size=4).astype(dtype),
        "W2": generator.normal(size=(2, 4)).astype(dtype),
        "b2": generator.normal(size=2).astype(dtype),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W1", "b1"], ["h"], name="first", transB=1),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Gemm", ["r", "W2", "b2"], ["y"], name="second", transB=1),
    ]
    options.setdefault("inputs", {"x": [1, 3]})
    model = model_of(
        nodes,
        outputs=["y"],
        constants=constants,
        opset=opset,
        dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
        **options,
    )
    path.write_bytes(model.SerializeToString())
    return path
