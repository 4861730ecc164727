"""What a file becomes: constants folded, copies gone, names kept, old and new ways of export alike."""

from __future__ import annotations

import dataclasses
import gzip
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from boundscope.errors import NetworkError
from boundscope.network import Network, load_network
from boundscope.network.comparison import compare_with_onnxruntime
from boundscope.network.operators.movement import Gather
from boundscope.network.operators.shape import Identity, Reshape
from network.models import model_of, save, two_layers


def agree(network: Network) -> None:
    count = network.input_count
    compare_with_onnxruntime(network, np.full(count, -1.0), np.full(count, 2.0))


@pytest.mark.parametrize("opset", range(7, 23))
def test_opsets(tmp_path: Path, opset: int) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx", opset=opset))
    assert network.opset == opset
    assert [node.name for node in network.nodes] == ["first", "relu", "second"]
    assert network.tensors["h"].shape == (1, 4)
    assert (network.input_count, network.output_count) == (3, 2)
    agree(network)


def test_weights_stay_inputs_of_their_node(tmp_path: Path) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    assert network.nodes[0].inputs == ("x", "W1", "b1")
    assert set(network.constants) == {"W1", "b1", "W2", "b2"}
    assert network.node_by_output["h"] is network.nodes[0]
    assert network.source == str(tmp_path / "a.onnx")


def test_initializers_listed_as_inputs(tmp_path: Path) -> None:
    """IR 3 files list every weight as an input; the network's inputs are only the others."""
    network = load_network(two_layers(tmp_path / "a.onnx", opset=8, ir_version=3, list_initializers=True))
    assert [info.name for info in network.inputs] == ["x"]
    agree(network)


@pytest.mark.parametrize("batch", ["N", None, -1])
def test_symbolic_batch_is_one(tmp_path: Path, batch: str | int | None) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx", inputs={"x": [batch, 3]}))
    assert network.inputs[0].shape == (1, 3)
    agree(network)


def test_another_symbolic_axis_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = two_layers(tmp_path / "a.onnx", inputs={"x": ["N", "features"]})
    with pytest.raises(NetworkError, match=r"'first' \(Gemm\).*axis 1 of 'x' \('features'\)"):
        load_network(path)


def test_another_symbolic_axis_is_fine_where_one_works(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], inputs={"x": ["N", "M"]}, outputs=["y"])
    assert load_network(save(model, tmp_path)).outputs[0].shape == (1, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dtype_of_the_file_is_kept(tmp_path: Path, dtype: type[np.floating]) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx", dtype=dtype))
    assert {info.dtype for info in network.tensors.values()} == {np.dtype(dtype)}
    agree(network)


def test_gzip(tmp_path: Path) -> None:
    plain = two_layers(tmp_path / "a.onnx")
    packed = tmp_path / "a.onnx.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    network = load_network(packed)
    assert network.constants["W1"].tobytes() == load_network(plain).constants["W1"].tobytes()
    agree(network)


@pytest.mark.parametrize("packed", [False, True])
def test_external_data(tmp_path: Path, packed: bool) -> None:
    reference = load_network(two_layers(tmp_path / "a.onnx"))
    path = tmp_path / "b.onnx"
    onnx.save(
        onnx.load(tmp_path / "a.onnx"),
        str(path),
        save_as_external_data=True,
        location="b.data",
        size_threshold=0,
    )
    assert (tmp_path / "b.data").stat().st_size >= 4 * (12 + 4 + 8 + 2)
    if packed:
        (tmp_path / "b.onnx.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "b.onnx.gz"
    network = load_network(path)
    for name, value in reference.constants.items():
        assert np.array_equal(network.constants[name], value)
    agree(network)


def test_shapes_computed_in_the_graph_are_folded(tmp_path: Path) -> None:
    """Shape → Gather → Concat → Reshape, as exporters write x.view(x.size(0), -1)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value=helper.make_tensor("", TensorProto.INT64, [], [0])),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["batch1"]),
        helper.make_node("Concat", ["batch1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node(
            "ConstantOfShape", ["target2"], ["ones"], value=helper.make_tensor("", 1, [1], [1.0])
        ),
        helper.make_node("Range", ["start", "limit", "step"], ["steps"]),
        helper.make_node("Cast", ["steps"], ["steps32"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["ones", "steps32"], ["shift"]),
        helper.make_node("Add", ["flat", "shift"], ["y"]),
    ]
    constants = {
        "axis": np.array([0]),
        "rest": np.array([-1]),
        "target2": np.array([1, 6]),
        "start": np.array(0),
        "limit": np.array(12),
        "step": np.array(2),
    }
    model = model_of(nodes, inputs={"x": ["N", 2, 3]}, outputs=["y"], constants=constants)
    network = load_network(save(model, tmp_path))
    assert [node.op.onnx_type for node in network.nodes] == ["Reshape", "Add"]
    assert network.nodes[0].inputs == ("x",)
    assert network.nodes[0].op == Reshape((1, 6))
    assert network.constants["shift"].tolist() == [[0, 2, 4, 6, 8, 10]]
    assert set(network.constants) == {"shift"}
    agree(network)


def test_operator_without_class_is_folded_where_it_is_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["mask"], ["where"]),
        helper.make_node("Squeeze", ["where", "axis"], ["indices"]),
        helper.make_node("Gather", ["x", "indices"], ["y"], axis=1),
    ]
    constants = {"mask": np.array([1.0, 0.0, 2.0], np.float32), "axis": np.array([0])}
    network = load_network(
        save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"], constants=constants), tmp_path)
    )
    assert [node.op for node in network.nodes] == [Gather(1, (0, 2), (2,))]
    agree(network)


def test_rounding_of_folded_constants_is_known(tmp_path: Path) -> None:
    """0.1f · 0.1f is not a float32 number; what was lost is on record, and exact folds are not."""
    nodes = [
        helper.make_node("Mul", ["a", "a"], ["square"]),
        helper.make_node("Neg", ["a"], ["minus"]),
        helper.make_node("Add", ["x", "square"], ["s"]),
        helper.make_node("Add", ["s", "minus"], ["y"]),
    ]
    tenth = np.array([0.1], np.float32)
    network = load_network(
        save(model_of(nodes, inputs={"x": [1, 1]}, outputs=["y"], constants={"a": tenth}), tmp_path)
    )
    exact = float(tenth[0]) * float(tenth[0])
    assert network.rounded_constants == {"square": abs(float(network.constants["square"][0]) - exact)}


def test_identity_and_dropout_are_gone_and_outputs_keep_their_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Relu", ["i"], ["r"]),
        helper.make_node("Dropout", ["r"], ["d", "mask"]),
        helper.make_node("Neg", ["d"], ["n"]),
        helper.make_node("Identity", ["n"], ["y"]),
    ]
    network = load_network(save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"]), tmp_path))
    assert [(node.op.onnx_type, node.inputs, node.outputs) for node in network.nodes] == [
        ("Relu", ("x",), ("r",)),
        ("Neg", ("r",), ("y",)),
    ]
    assert [info.name for info in network.outputs] == ["y"]
    agree(network)


def test_an_input_that_is_an_output(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    network = load_network(save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y", "z"]), tmp_path))
    assert any(isinstance(node.op, Identity) for node in network.nodes)
    x = torch.tensor([[1.0, -2.0, 3.0]])
    outputs = network.evaluate({"x": x})
    assert outputs["y"].tolist() == x.tolist()
    assert outputs["z"].tolist() == [[1.0, 0.0, 3.0]]


def test_unnamed_and_doubly_named_nodes_have_stable_unique_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"], name="same"),
        helper.make_node("Abs", ["b"], ["y"], name="same"),
    ]
    path = save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"]), tmp_path)
    assert [node.name for node in load_network(path).nodes] == ["Relu_0", "same", "same#2"]


def test_nodes_that_no_output_needs_are_dropped(tmp_path: Path) -> None:
    """Also where nothing could evaluate them."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("LSTMish", ["x"], ["unused"], domain="somewhere"),
    ]
    network = load_network(save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"]), tmp_path))
    assert [node.op.onnx_type for node in network.nodes] == ["Relu"]


def test_several_inputs_and_outputs_and_unsorted_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["sum"], ["y"]),
        helper.make_node("Add", ["a", "b"], ["sum"]),
    ]
    model = model_of(nodes, inputs={"a": [1, 3], "b": [1, 1]}, outputs=["y", "sum"])
    network = load_network(save(model, tmp_path))
    assert (network.input_count, network.output_count) == (4, 6)
    agree(network)


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    body = [helper.make_node("Neg", ["v"], ["t"]), helper.make_node("Relu", ["t"], ["w"])]
    function = helper.make_function("mine", "NegRelu", ["v"], ["w"], body, [opsets[0]])
    graph = helper.make_graph(
        [helper.make_node("NegRelu", ["x"], ["y"], domain="mine")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
    )
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    network = load_network(save(model, tmp_path))
    assert [node.op.onnx_type for node in network.nodes] == ["Neg", "Relu"]
    agree(network)


def test_evaluation_in_float64(tmp_path: Path) -> None:
    """The same graph in another precision: constants follow the inputs, casts between floats do not round."""
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["d", "third"], ["m"]),
        helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "c"], ["y"]),
    ]
    constants = {"third": np.array([1 / 3]), "c": np.array([0.1], np.float32)}
    network = load_network(
        save(model_of(nodes, inputs={"x": [1, 1]}, outputs=["y"], constants=constants), tmp_path)
    )
    agree(network)
    exact = network.evaluate({"x": torch.tensor([[0.7]], dtype=torch.float64)})["y"]
    assert exact.dtype == torch.float64
    assert exact.item() == pytest.approx(0.7 / 3 + float(np.float32(0.1)), abs=1e-15)
    assert network.evaluate({"x": torch.tensor([[0.7]])})["y"].dtype == torch.float32


def test_evaluation_in_batches(tmp_path: Path) -> None:
    """Many points at once, differentiable, by vmap over the graph of one."""
    network = load_network(two_layers(tmp_path / "a.onnx"))
    points = torch.linspace(-2, 2, 15, requires_grad=True).reshape(5, 1, 3)
    together = torch.vmap(lambda x: network.evaluate({"x": x})["y"])(points)
    one_by_one = torch.stack([network.evaluate({"x": x})["y"] for x in points])
    assert torch.allclose(together, one_by_one, atol=1e-6)
    (gradient,) = torch.autograd.grad(together.sum(), points)
    assert gradient.shape == points.shape
    assert gradient.abs().sum() > 0


def test_evaluation_visits_every_node_and_takes_other_constants(tmp_path: Path) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    seen: list[str] = []
    ours = {name: torch.zeros_like(torch.from_numpy(value)) for name, value in network.constants.items()}
    outputs = network.evaluate(
        {"x": torch.ones(1, 3)}, constants=ours, visit=lambda node, _: seen.append(node.name)
    )
    assert seen == ["first", "relu", "second"]
    assert outputs["y"].tolist() == [[0.0, 0.0]]


def test_evaluation_checks_its_inputs(tmp_path: Path) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    with pytest.raises(NetworkError, match=r"has shape \[1, 3\]; got \[3\]"):
        network.evaluate({"x": torch.ones(3)})
    with pytest.raises(NetworkError, match="needs a value for its input 'x'"):
        network.evaluate({})


def test_no_warnings(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = load_network(two_layers(tmp_path / "a.onnx"))
        network.evaluate({"x": torch.ones(1, 3)})
        agree(network)


def test_importing_the_graph_does_not_import_torch() -> None:
    code = "import sys, boundscope.network; sys.exit(any(m in sys.modules for m in ('torch', 'onnx', 'onnxruntime')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_networks_are_values(tmp_path: Path) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        network.opset = 1  # type: ignore[misc]
