"""Every operator, in every opset where its form differs, means what ONNX Runtime says it means.

Each row is one node; the comparison runs it in ONNX Runtime at corners and random points of a box. A row that gives
an input as an array makes it an initializer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from boundscope.errors import UnsupportedOperatorError
from boundscope.network import load_network
from boundscope.network.comparison import compare_with_onnxruntime
from boundscope.network.operators import known_operators
from network.models import Array, model_of, save

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
FLOAT = TensorProto.FLOAT


@dataclass(frozen=True)
class Row:
    op: str
    shape: tuple[int, ...] = (2, 3)
    extra: Sequence[Array | str] = ()  # further inputs; "x" is the network's input once more
    attributes: dict[str, Any] = field(default_factory=dict)
    since: int = 7
    until: int = 22
    low: float = -2.0
    high: float = 2.0
    outputs: int = 1
    first: Array | None = None  # a constant before the network's input
    result: int = FLOAT

    @property
    def opsets(self) -> list[int]:
        return [opset for opset in OPSETS if self.since <= opset <= self.until]


def f32(*shape: int) -> Array:
    return np.random.default_rng(sum(shape) + 7).normal(size=shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return np.abs(f32(*shape)) + np.float32(0.5)


def i64(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def scalar(value: float) -> Array:
    return np.array(value, dtype=np.float32)


IMAGE = (1, 2, 5, 6)
ROWS = [
    *(
        Row(op)
        for op in ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Exp", "Sin", "Cos", "Softplus", "Floor", "Ceil")
    ),
    *(Row(op, low=0.1) for op in ("Sqrt", "Log", "Reciprocal")),
    *(Row(op, since=9) for op in ("Sign", "Erf")),
    Row("Relu", (1,)),
    Row("LeakyRelu", attributes={"alpha": 0.3}),
    Row("LeakyRelu"),
    Row("PRelu", extra=[f32(3)]),
    Row("Elu", attributes={"alpha": 0.7}),
    Row("HardSigmoid"),
    Row("HardSigmoid", attributes={"alpha": 0.5, "beta": 0.1}),
    Row("HardSwish", low=-5.0, high=5.0, since=14),
    Row("Mish", low=-5.0, high=5.0, since=18),
    Row("Gelu", since=20),
    Row("Gelu", since=20, attributes={"approximate": "tanh"}),
    Row("Clip", until=10, attributes={"min": -0.5, "max": 0.75}),
    Row("Clip", until=10, attributes={"max": 0.75}),
    Row("Clip", since=11, extra=[scalar(-0.5), scalar(0.75)]),
    Row("Clip", since=11, extra=["", scalar(0.75)]),
    Row("Clip", since=11, extra=[scalar(0.0), scalar(np.inf)]),
    *(Row(op, extra=[f32(3)]) for op in ("Add", "Sub", "Mul")),
    *(Row(op, first=f32(2, 1)) for op in ("Add", "Sub", "Mul")),
    *(Row(op, extra=["x"]) for op in ("Add", "Sub", "Mul")),
    Row("Div", extra=[positive(3)]),
    Row("Div", low=0.5, first=f32(2, 3)),
    Row("Pow", extra=[scalar(2.0)]),
    Row("Pow", low=0.1, extra=[f32(3)]),
    Row("Pow", since=12, extra=[i64(3)]),
    Row("Min", since=8, extra=[f32(3), scalar(0.5)]),
    Row("Max", since=8, extra=[f32(3), scalar(0.5)]),
    Row("Min", until=7, extra=[f32(2, 3)]),
    Row("Max", until=7, extra=[f32(2, 3)]),
    Row("Sum", since=8, extra=[f32(3), "x"]),
    *(Row("Softmax", (2, 3, 4), attributes={"axis": axis}) for axis in (0, 1, 2)),
    Row("Softmax", (2, 3, 4)),
    Row("Softmax", (2, 3, 4), since=11, attributes={"axis": -2}),
    Row("LogSoftmax", (2, 3, 4)),
    Row("LogSoftmax", (2, 3, 4), attributes={"axis": 1}),
    Row("MatMul", extra=[f32(3, 5)]),
    Row("MatMul", first=f32(4, 2)),
    Row("MatMul", (3,), extra=[f32(3, 5)]),
    Row("MatMul", (2, 4, 3), extra=[f32(2, 3, 5)]),
    Row("MatMul", (3, 3), extra=["x"]),
    Row("Gemm", extra=[f32(3, 4), f32(4)]),
    Row("Gemm", extra=[f32(4, 3), f32(2, 1)], attributes={"transB": 1, "alpha": 0.5, "beta": 2.0}),
    Row("Gemm", extra=[f32(2, 4), f32(1)], attributes={"transA": 1}),
    Row("Gemm", since=11, extra=[f32(3, 4)]),
    Row("Gemm", first=f32(5, 2), extra=[f32(1, 3)], attributes={"alpha": -1.5}),
    Row("Conv", IMAGE, extra=[f32(3, 2, 3, 3), f32(3)]),
    Row("Conv", IMAGE, extra=[f32(3, 2, 3, 3)], attributes={"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    Row("Conv", IMAGE, extra=[f32(4, 1, 2, 3), f32(4)], attributes={"group": 2, "dilations": [2, 1]}),
    *(
        Row("Conv", IMAGE, extra=[f32(3, 2, 3, 2)], attributes={"auto_pad": pad, "strides": [2, 2]})
        for pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    Row("Conv", (1, 2, 7), extra=[f32(3, 2, 3)], attributes={"pads": [0, 2]}),
    Row("Conv", (1, 1, 3, 4, 3), extra=[f32(2, 1, 2, 2, 2)], attributes={"pads": [1, 0, 0, 1, 0, 0]}),
    Row("ConvTranspose", IMAGE, extra=[f32(2, 3, 3, 3), f32(3)]),
    Row(
        "ConvTranspose",
        IMAGE,
        extra=[f32(2, 2, 3, 3), f32(4)],
        attributes={"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 2], "output_padding": [1, 0]},
    ),
    Row(
        "ConvTranspose",
        IMAGE,
        extra=[f32(2, 3, 3, 3)],
        attributes={"strides": [2, 2], "output_shape": [10, 12]},
    ),
    Row("ConvTranspose", (1, 2, 4), extra=[f32(2, 1, 3)], attributes={"dilations": [2], "strides": [2]}),
    Row(
        "BatchNormalization",
        IMAGE,
        extra=[f32(2), f32(3)[:2], f32(4)[:2], positive(2)],
        attributes={"epsilon": 0.01},
    ),
    Row("BatchNormalization", (4, 3), extra=[f32(3), f32(3), f32(3), positive(3)]),
    Row("LayerNormalization", (2, 3, 4), since=17, extra=[f32(4), f32(4)]),
    Row("LayerNormalization", (2, 3, 4), since=17, extra=[f32(3, 4)], attributes={"axis": 1}),
    Row("MaxPool", IMAGE, attributes={"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    Row("MaxPool", IMAGE, attributes={"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    *(
        Row(
            op,
            (1, 2, 7, 9),
            since=since,
            attributes={"kernel_shape": [3, 2], "strides": [2, 4], "ceil_mode": 1},
        )
        for op, since in (("MaxPool", 10), ("AveragePool", 10))
    ),
    *(
        Row(
            op,
            (1, 2, 7, 6),
            since=19,
            attributes={"kernel_shape": [2, 2], "dilations": [2, 1], "pads": [1, 1, 0, 1], "strides": [2, 3]},
        )
        for op in ("MaxPool", "AveragePool")
    ),
    Row("MaxPool", (1, 2, 8), attributes={"kernel_shape": [3], "pads": [1, 1]}),
    *(
        Row(
            "AveragePool",
            IMAGE,
            attributes={
                "kernel_shape": [3, 2],
                "strides": [2, 2],
                "pads": [1, 0, 0, 1],
                "count_include_pad": include,
            },
        )
        for include in (0, 1)
    ),
    *(
        Row(
            "AveragePool",
            (1, 1, 5, 6),
            since=19,
            attributes={
                "kernel_shape": [3, 3],
                "strides": [2, 2],
                "pads": [1, 1, 1, 1],
                "ceil_mode": 1,
                "count_include_pad": include,
            },
        )
        for include in (0, 1)
    ),
    Row("AveragePool", IMAGE, attributes={"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"}),
    Row("GlobalAveragePool", IMAGE),
    Row("GlobalMaxPool", IMAGE),
    *(
        Row(op, (2, 3, 4), until=until, attributes=attributes)
        for op, until in (
            ("ReduceSum", 12),
            ("ReduceMean", 17),
            ("ReduceMax", 17),
            ("ReduceMin", 17),
            ("ReduceProd", 17),
        )
        for attributes in ({"axes": [1]}, {"axes": [0, 2], "keepdims": 0}, {})
    ),
    *(
        Row(op, (2, 3, 4), since=since, extra=[i64(-1, 1)], attributes={"keepdims": 0})
        for op, since in (
            ("ReduceSum", 13),
            ("ReduceMean", 18),
            ("ReduceMax", 18),
            ("ReduceMin", 18),
            ("ReduceProd", 18),
        )
    ),
    Row("ReduceSum", since=13, attributes={"noop_with_empty_axes": 1}),
    Row("ReduceSum", since=13),
    Row("ArgMax", attributes={"axis": 1}, result=TensorProto.INT64),
    Row("ArgMax", attributes={"axis": 0, "keepdims": 0}, result=TensorProto.INT64),
    Row("Flatten", (2, 3, 4)),
    Row("Flatten", (2, 3, 4), attributes={"axis": 0}),
    Row("Flatten", (2, 3, 4), since=11, attributes={"axis": -1}),
    Row("Flatten", (2, 3, 4), attributes={"axis": 3}),
    Row("Reshape", (2, 3, 4), extra=[i64(0, -1)]),
    Row("Reshape", (2, 3, 4), extra=[i64(4, 6)]),
    Row("Squeeze", (1, 3, 1), until=12, attributes={"axes": [2]}),
    Row("Squeeze", (1, 3, 1), until=12),
    Row("Squeeze", (1, 3, 1), since=13, extra=[i64(-1)]),
    Row("Squeeze", (1, 3, 1), since=13),
    Row("Unsqueeze", until=12, attributes={"axes": [0, 3]}),
    Row("Unsqueeze", since=13, extra=[i64(-1, 0)]),
    Row("Transpose", (2, 3, 4)),
    Row("Transpose", (2, 3, 4), attributes={"perm": [1, 2, 0]}),
    Row("Expand", (2, 1, 3), since=8, extra=[i64(4, 1)]),
    Row("Identity"),
    Row("Dropout", until=11, attributes={"ratio": 0.5}),
    Row("Dropout", since=12, extra=[scalar(0.5)]),
    Row("Cast", attributes={"to": TensorProto.DOUBLE}, result=TensorProto.DOUBLE),
    Row("Cast", attributes={"to": TensorProto.INT64}, result=TensorProto.INT64),
    Row("Cast", attributes={"to": TensorProto.BOOL}, result=TensorProto.BOOL),
    Row("Cast", attributes={"to": TensorProto.FLOAT}),
    Row("Concat", extra=[f32(2, 1), "x"], attributes={"axis": 1}),
    Row("Concat", since=11, first=f32(2, 2), attributes={"axis": -1}),
    Row("Split", (2, 6), until=12, attributes={"axis": 1, "split": [1, 5]}, outputs=2),
    Row("Split", (2, 6), until=17, attributes={"axis": 1}, outputs=3),
    Row("Split", (2, 6), since=13, extra=[i64(4, 2)], attributes={"axis": 1}, outputs=2),
    Row("Split", (2, 7), since=18, attributes={"axis": 1, "num_outputs": 3}, outputs=3),
    Row("Slice", (4, 6), until=9, attributes={"starts": [1, -4], "ends": [3, 100], "axes": [0, 1]}),
    Row("Slice", (4, 6), since=10, extra=[i64(1), i64(-1), i64(1)]),
    Row("Slice", (4, 6), since=10, extra=[i64(5, 0), i64(-100, 4), i64(-1, 0), i64(-2, 3)]),
    Row("Gather", (4, 3), extra=[np.array([[2, 0], [1, 1]], dtype=np.int64)]),
    Row("Gather", (4, 3), since=11, extra=[np.array(-1, dtype=np.int64)], attributes={"axis": 1}),
    Row("ScatterND", (4, 3), since=11, extra=[np.array([[2], [-4]], dtype=np.int64), f32(2, 3)]),
    Row("Pad", until=10, attributes={"pads": [1, 0, 0, 2], "value": 1.5}),
    Row("Pad", (3, 4), until=10, attributes={"pads": [1, 2, 2, 0], "mode": "reflect"}),
    Row("Pad", since=11, extra=[i64(1, 0, -1, 2), scalar(1.5)]),
    *(
        Row("Pad", (3, 4), since=11, extra=[i64(1, 2, 2, 1)], attributes={"mode": m})
        for m in ("reflect", "edge")
    ),
    Row("Pad", (3, 4), since=19, extra=[i64(1, 2, 2, 1)], attributes={"mode": "wrap"}),
    Row("Pad", (3, 4), since=18, extra=[i64(1, 2), "", i64(1)]),
    *(
        Row(op, since=since, extra=[f32(3)], result=TensorProto.BOOL)
        for op, since in (
            ("Less", 9),
            ("Greater", 9),
            ("LessOrEqual", 12),
            ("GreaterOrEqual", 12),
            ("Equal", 11),
        )
    ),
    Row("Where", since=9, first=np.array([[True], [False]]), extra=[f32(3)]),
    Row("Upsample", IMAGE, until=8, attributes={"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}),
    Row("Upsample", IMAGE, since=9, until=9, extra=[np.array([1, 1, 2, 2], np.float32)]),
    Row("Resize", IMAGE, since=10, until=10, extra=[np.array([1, 1, 2, 2], np.float32)]),
    *(
        Row(
            "Resize",
            IMAGE,
            since=13,
            extra=["", np.array([1, 1, 1.7, 2.0], np.float32)],
            attributes={"coordinate_transformation_mode": transform, "nearest_mode": rounding},
        )
        for transform, rounding in (
            ("asymmetric", "floor"),
            ("half_pixel", "round_prefer_ceil"),
            ("half_pixel", "round_prefer_floor"),
            ("pytorch_half_pixel", "ceil"),
        )
    ),
    Row("Resize", IMAGE, since=13, extra=["", "", i64(1, 2, 8, 9)], attributes={"nearest_mode": "floor"}),
    Row("Upsample", IMAGE, until=8, attributes={"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}),
    Row(
        "Resize",
        IMAGE,
        since=10,
        until=10,
        extra=[np.array([1, 1, 2, 2.5], np.float32)],
        attributes={"mode": "linear"},
    ),
    *(
        Row(
            "Resize",
            IMAGE,
            since=13,
            extra=["", "", i64(1, 2, *size)],
            attributes={"mode": "linear", "coordinate_transformation_mode": transform},
        )
        for transform in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
        for size in ((8, 9), (3, 4))
    ),
]
# Operators on booleans, integers or no tensor at all; they have tests of their own below or in test_folding.
ELSEWHERE = {"And", "Or", "Not", "OneHot", "Constant", "ConstantOfShape", "Shape", "Size", "Range"}


def test_every_operator_has_a_row() -> None:
    """An operator that is added without a row here is not tested against ONNX Runtime."""
    assert known_operators() - {row.op for row in ROWS} == ELSEWHERE


def _model_path(row: Row, opset: int, folder: Path) -> Path:
    constants: dict[str, Array] = {}
    names: list[str] = []
    if row.first is not None:
        constants["c"] = row.first
        names.append("c")
    names.append("x")
    for index, value in enumerate(row.extra):
        if isinstance(value, str):
            names.append(value)
        else:
            constants[f"k{index}"] = value
            names.append(f"k{index}")
    outputs = [f"y{i}" for i in range(row.outputs)]
    node = helper.make_node(row.op, names, outputs, name="tested", **row.attributes)
    model = model_of(
        [node],
        inputs={"x": row.shape},
        outputs=outputs,
        constants=constants,
        opset=opset,
        output_dtype=row.result,
    )
    return save(model, folder)


@pytest.mark.parametrize("row", ROWS, ids=[f"{i}-{row.op}" for i, row in enumerate(ROWS)])
def test_operator_agrees_with_onnxruntime(row: Row, tmp_path: Path) -> None:
    for opset in row.opsets:
        network = load_network(_model_path(row, opset, tmp_path))
        count = network.input_count
        comparison = compare_with_onnxruntime(
            network, np.full(count, row.low), np.full(count, row.high), seed=opset
        )
        nothing_left = row.op in ("Identity", "Dropout") or row.attributes.get("to") == FLOAT
        assert comparison.points == 6
        assert nothing_left or comparison.tensors == row.outputs, f"opset {opset}"


def test_logic_on_comparisons(tmp_path: Path) -> None:
    """Boolean operators and OneHot, on tensors that depend on the input."""
    nodes = [
        helper.make_node("Less", ["x", "k"], ["a"]),
        helper.make_node("Greater", ["x", "m"], ["b"]),
        helper.make_node("And", ["a", "b"], ["and"]),
        helper.make_node("Or", ["a", "b"], ["or"]),
        helper.make_node("Not", ["or"], ["not"]),
        helper.make_node("Cast", ["not"], ["z"], to=FLOAT),
        helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
        helper.make_node("OneHot", ["i", "depth", "values"], ["hot"], axis=0),
        helper.make_node("MatMul", ["hot", "z"], ["y"]),
        helper.make_node("Where", ["and", "y2", "z"], ["w"]),
        helper.make_node("ReduceMean", ["y"], ["y2"], axes=[0]),
    ]
    constants = {
        "k": np.zeros(3, np.float32),
        "m": np.full(3, -1, np.float32),
        "depth": i64(2),
        "values": np.array([0.25, 2.0], np.float32),
    }
    model = model_of(nodes, inputs={"x": (2, 3)}, outputs=["w"], constants=constants)
    network = load_network(save(model, tmp_path))
    comparison = compare_with_onnxruntime(network, np.full(6, -3.0), np.full(6, 2.0))
    assert comparison.tensors == len(nodes)


def test_indices_that_depend_on_the_input(tmp_path: Path) -> None:
    """Gather, Slice and ScatterND where the input says, and integers divided towards zero."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Slice", ["i", "zero", "one", "zero"], ["first"]),
        helper.make_node("Add", ["first", "two"], ["last"]),
        helper.make_node("Slice", ["table", "first", "last", "zero", "one"], ["cut"]),
        helper.make_node("Gather", ["table", "i"], ["taken"], axis=0),
        helper.make_node("Unsqueeze", ["i"], ["places"], axes=[1]),
        helper.make_node("ScatterND", ["long", "places", "taken"], ["written"]),
        helper.make_node("ScatterND", ["long", "fixed", "cut"], ["linear"]),
        helper.make_node("Sub", ["i", "five"], ["less"]),
        helper.make_node("Div", ["less", "two"], ["half"]),
        helper.make_node("Sub", ["half", "less"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["number"], to=FLOAT),
        helper.make_node("Add", ["written", "linear"], ["both"]),
        helper.make_node("ReduceMean", ["both"], ["mean"], axes=[0, 1]),
        helper.make_node("Add", ["mean", "number"], ["y"]),
    ]
    constants = {
        "zero": i64(0),
        "one": i64(1),
        "two": i64(2),
        "five": i64(5),
        "fixed": np.array([[4], [-1]], dtype=np.int64),
        "table": f32(7, 2),
        "long": f32(9, 2),
    }
    model = model_of(nodes, inputs={"x": (3,)}, outputs=["y"], constants=constants, opset=12)
    network = load_network(save(model, tmp_path))
    comparison = compare_with_onnxruntime(network, np.array([0.0, 3.0, -7.0]), np.array([4.9, 6.9, -4.1]))
    assert comparison.tensors == len(nodes)


def test_writing_one_element_twice_is_refused(tmp_path: Path) -> None:
    """ONNX leaves the order open, so the result is not defined."""
    nodes = [helper.make_node("ScatterND", ["x", "places", "values"], ["y"], name="twice")]
    constants = {"places": np.array([[1], [-3]], dtype=np.int64), "values": f32(2)}
    model = model_of(nodes, inputs={"x": (4,)}, outputs=["y"], constants=constants)
    with pytest.raises(UnsupportedOperatorError, match=r"twice.*writing one element twice"):
        load_network(save(model, tmp_path))


def test_constant_attributes_become_arrays(tmp_path: Path) -> None:
    """All forms in which a Constant node gives numbers."""
    for opset, attributes in (
        (9, {"value": numpy_helper.from_array(f32(3))}),
        (12, {"value_float": 1.5}),
        (12, {"value_floats": [1.5, 2.0, 3.0]}),
    ):
        nodes = [
            helper.make_node("Constant", [], ["c"], **attributes),
            helper.make_node("Add", ["x", "c"], ["y"]),
        ]
        network = load_network(
            save(model_of(nodes, inputs={"x": (2, 3)}, outputs=["y"], opset=opset), tmp_path)
        )
        assert [node.op.onnx_type for node in network.nodes] == ["Add"]
        assert network.constants["c"].dtype == np.float32
        compare_with_onnxruntime(network, np.zeros(6), np.ones(6))
