"""Files that cannot be used are refused in a sentence that names the file and the place, never with a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from boundscope.errors import NetworkError, UnsupportedOperatorError
from boundscope.network import load_network
from network.models import model_of, save, two_layers


def relu(name: str = "x", result: str = "y") -> onnx.NodeProto:
    return helper.make_node("Relu", [name], [result])


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"nowhere\.onnx: cannot be read"):
        load_network(tmp_path / "nowhere.onnx")


@pytest.mark.parametrize(
    "content", [b"", b"hello, this is text\n" * 20, b"\x89PNG\r\n\x1a\n" + bytes(200), b"PK\x03\x04"]
)
def test_not_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(content)
    with pytest.raises(NetworkError, match=r"a.onnx: is not an ONNX network"):
        load_network(path)


def test_named_gz_but_is_not(tmp_path: Path) -> None:
    path = two_layers(tmp_path / "a.onnx.gz")
    with pytest.raises(NetworkError, match=r"is named \.gz, but it is not gzip data"):
        load_network(path)


def test_damaged_gz(tmp_path: Path) -> None:
    packed = gzip.compress(two_layers(tmp_path / "a.onnx").read_bytes())
    for number, content in enumerate(
        (packed[: len(packed) // 2], packed[:-8] + bytes(8), b"\x1f\x8b" + bytes(30))
    ):
        path = tmp_path / f"{number}.onnx.gz"
        path.write_bytes(content)
        with pytest.raises(NetworkError, match=f"{number}.onnx.gz: the gzip data is damaged or cut off"):
            load_network(path)


def test_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    """At every length: either not ONNX, or a tensor is missing; never anything else, never a network."""
    whole = two_layers(tmp_path / "a.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    end_of_graph = len(whole) - 10  # what follows names the opset
    for length in range(0, end_of_graph, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(NetworkError, match=r"cut\.onnx: "):
            load_network(path)


def test_damage_anywhere_is_a_network_or_a_sentence(tmp_path: Path) -> None:
    """Every byte of a file changed, one at a time: nothing but our own errors comes out."""
    whole = two_layers(tmp_path / "a.onnx", list_initializers=True).read_bytes()
    path = tmp_path / "damaged.onnx"
    refused: list[str] = []
    for position in range(len(whole)):
        for value in (0x00, 0xFF, whole[position] ^ 0x01):
            path.write_bytes(whole[:position] + bytes([value]) + whole[position + 1 :])
            try:
                load_network(path)
            except NetworkError as error:
                refused.append(str(error))
    assert len(refused) > len(whole) / 2
    assert not [message for message in refused if str(path) not in message]


@pytest.mark.parametrize(("opset", "text"), [(6, "uses opset 6"), (25, "uses opset 25")])
def test_opset_out_of_range(tmp_path: Path, opset: int, text: str) -> None:
    path = save(model_of([relu()], inputs={"x": [1, 3]}, outputs=["y"], opset=opset), tmp_path)
    with pytest.raises(NetworkError, match=text):
        load_network(path)


def test_missing_external_data(tmp_path: Path) -> None:
    two_layers(tmp_path / "a.onnx")
    path = tmp_path / "b.onnx"
    onnx.save(
        onnx.load(tmp_path / "a.onnx"),
        str(path),
        save_as_external_data=True,
        location="b.data",
        size_threshold=0,
    )
    data = (tmp_path / "b.data").read_bytes()
    (tmp_path / "b.data").write_bytes(data[:30])
    with pytest.raises(NetworkError, match=r"tensor '\w+' needs \d+ bytes of 'b.data'"):
        load_network(path)
    (tmp_path / "b.data").unlink()
    with pytest.raises(NetworkError, match=r"external data file 'b.data' of tensor 'W1' cannot be read"):
        load_network(path)


@pytest.mark.parametrize("location", ["../b.data", "/etc/hostname", ""])
def test_external_data_elsewhere(tmp_path: Path, location: str) -> None:
    """A network file cannot make us read files outside its folder."""
    model = onnx.load(two_layers(tmp_path / "a.onnx"))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    with pytest.raises(NetworkError, match="must lie beside the network's file"):
        load_network(save(model, tmp_path))


def test_all_unsupported_operators_are_named_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Det", ["x"], ["a"], name="first"),
        helper.make_node("Fused", ["x"], ["b"], name="second", domain="com.microsoft"),
        helper.make_node("Det", ["x"], ["c"], name="third"),
        helper.make_node("Sum", ["a", "b", "c"], ["y"]),
    ]
    path = save(model_of(nodes, inputs={"x": [3, 3]}, outputs=["y"]), tmp_path)
    with pytest.raises(UnsupportedOperatorError) as error:
        load_network(path)
    assert "Det (node 'first', 'third'); com.microsoft.Fused (node 'second')" in str(error.value)


def test_subgraphs(tmp_path: Path) -> None:
    branch = helper.make_graph([relu("x", "b")], "g", [], [helper.make_tensor_value_info("b", 1, [1, 3])])
    nodes = [helper.make_node("If", ["cond"], ["y"], name="choice", then_branch=branch, else_branch=branch)]
    model = model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"], constants={"cond": np.array(True)})
    with pytest.raises(UnsupportedOperatorError, match=r"If \(node 'choice'\)"):
        load_network(save(model, tmp_path))


def test_variants_that_are_not_there(tmp_path: Path) -> None:
    nodes = [helper.make_node("MaxPool", ["x"], ["y", "i"], name="pool", kernel_shape=[2, 2])]
    path = save(model_of(nodes, inputs={"x": [1, 1, 4, 4]}, outputs=["y", "i"]), tmp_path)
    with pytest.raises(UnsupportedOperatorError, match=r"'pool' \(MaxPool\): the second output \(indices\)"):
        load_network(path)


def test_attribute_input_that_depends_on_the_network_input(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["shape"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "shape"], ["y"], name="moving"),
    ]
    path = save(model_of(nodes, inputs={"x": [1]}, outputs=["y"]), tmp_path)
    with pytest.raises(
        UnsupportedOperatorError, match=r"'moving' \(Reshape\): its input 1 \('shape'\) depends"
    ):
        load_network(path)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            [helper.make_node("Add", ["x", "gone"], ["y"], name="n")],
            r"tensor 'gone', read by node 'n' \(Add\)",
        ),
        ([relu("x", "z")], "output 'y' is produced by no node"),
        ([relu(), relu()], "tensor 'y' is produced twice"),
        (
            [helper.make_node("Add", ["x", "b"], ["a"]), relu("a", "b"), relu("b", "y")],
            "lies on a cycle",
        ),
        ([helper.make_node("Relu", ["x"], ["y"], name="n", slope=3)], r"node 'n' \(Relu\) is not valid"),
        (
            [helper.make_node("MatMul", ["x", "x"], ["y"], name="n")],
            r"node 'n' \(MatMul\) cannot be applied to inputs",
        ),
        (
            [helper.make_node("Transpose", ["x"], ["y"], name="n", perm=[0, 5])],
            r"node 'n' \(Transpose\): axis 5",
        ),
        ([helper.make_node("Softmax", ["x"], ["y"], name="n", axis=2)], r"node 'n' \(Softmax\): axis 2"),
    ],
)
def test_graphs_that_make_no_sense(tmp_path: Path, nodes: list[onnx.NodeProto], text: str) -> None:
    path = save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"]), tmp_path)
    with pytest.raises(NetworkError, match=text) as error:
        load_network(path)
    assert str(path) in str(error.value)


def test_inputs_that_cannot_be_bounded(tmp_path: Path) -> None:
    integers = model_of([relu()], inputs={"x": [1, 3]}, outputs=["y"], dtype=TensorProto.INT64, opset=14)
    with pytest.raises(NetworkError, match="input 'x' is of type INT64"):
        load_network(save(integers, tmp_path))
    shapeless = model_of([relu()], inputs={"x": [1, 3]}, outputs=["y"])
    shapeless.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(NetworkError, match="input 'x' is no tensor with a shape"):
        load_network(save(shapeless, tmp_path))
    empty = model_of([relu()], inputs={"x": [1, 0]}, outputs=["y"])
    with pytest.raises(NetworkError, match="axis 1 of input 'x' has size 0"):
        load_network(save(empty, tmp_path))
    nothing = model_of([relu("k")], inputs={}, outputs=["y"], constants={"k": np.ones(3, np.float32)})
    with pytest.raises(NetworkError, match="has no input"):
        load_network(save(nothing, tmp_path))


def test_bfloat16_weights(tmp_path: Path) -> None:
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"], name="n")], inputs={"x": [1, 3]}, outputs=["y"]
    )
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.BFLOAT16, [3], [1.0, 2.0, 3.0]))
    with pytest.raises(NetworkError, match=r"initializer 'w' of node 'n' \(Add\) has element type BFLOAT16"):
        load_network(save(model, tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_weights_are_refused_by_name(tmp_path: Path, value: float) -> None:
    model = onnx.load(two_layers(tmp_path / "a.onnx"))
    weights = onnx.numpy_helper.to_array(model.graph.initializer[2]).copy()
    weights[0, 1] = weights[1, 3] = value
    model.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(weights, "W2"))
    with pytest.raises(
        NetworkError, match=r"initializer 'W2' \(2 non-finite values\), used by node 'second' \(Gemm\)"
    ):
        load_network(save(model, tmp_path))


def test_nonfinite_constant_that_the_file_computes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Log", ["k"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"], name="n")]
    constants = {"k": np.array([1.0, 0.0, 2.0], np.float32)}
    path = save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"], constants=constants), tmp_path)
    with pytest.raises(NetworkError, match=r"constant 'c' \(1 non-finite value\) of node 'n' \(Add\)"):
        load_network(path)


def test_nan_in_a_case_is_refused_as_it_asks(cases: Path) -> None:
    expected = json.loads((cases / "ONX-08" / "expected.json").read_text())
    assert "naming initializer 'W1' (1 non-finite value) and node 'layer1_gemm'" in json.dumps(expected)
    with pytest.raises(NetworkError) as error:
        load_network(cases / "ONX-08" / "model.onnx")
    assert "initializer 'W1' (1 non-finite value)" in str(error.value)
    assert "node 'layer1_gemm'" in str(error.value)
