"""The comparison finds what is wrong, at the node that is wrong, and nothing where nothing is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import helper

from boundscope.errors import NetworkError
from boundscope.network import Network, comparison, file, load_network, pieces, stored
from boundscope.network.comparison import compare_with_onnxruntime
from boundscope.network.operators.activation import Abs, LeakyRelu
from boundscope.network.operators.linear import Gemm
from boundscope.network.operators.pooling import AveragePool, MaxPool
from network.models import model_of, save, two_layers


def compare(network: Network, low: float = -1.0, high: float = 2.0) -> None:
    compare_with_onnxruntime(network, np.full(network.input_count, low), np.full(network.input_count, high))


def with_op(network: Network, index: int, op: object) -> Network:
    nodes = list(network.nodes)
    nodes[index] = dataclasses.replace(nodes[index], op=op)
    return dataclasses.replace(network, nodes=tuple(nodes))


def test_what_it_reports(tmp_path: Path) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    result = compare_with_onnxruntime(network, np.full(3, -1.0), np.full(3, 1.0), seed=5)
    assert result.nodes == ("first", "relu", "second")
    assert (result.tensors, result.points) == (3, 6)
    assert 0 <= result.max_difference < 1e-5
    assert 0 <= result.output_difference < 1e-5
    assert result.seconds > 0


@pytest.mark.parametrize("cut", [False, True])
def test_weights_beside_the_file_may_be_more_than_protobuf_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """Such a network is compared in pieces or, where it cannot be cut, from a file with its weights beside it. Whoever
    asks for the size of a model above 2 GiB is refused."""

    def refused(*_: object) -> int:
        raise EncodeError("Failed to serialize proto")

    path = tmp_path / "b.onnx"
    whole = onnx.load(two_layers(tmp_path / "a.onnx"))
    onnx.save(whole, str(path), save_as_external_data=True, location="b.data", size_threshold=0)
    expected = compare_with_onnxruntime(load_network(tmp_path / "a.onnx"), np.full(3, -1.0), np.full(3, 1.0))
    network = load_network(path)
    for module in (file, stored):
        monkeypatch.setattr(module, "LARGE_BYTES", 1)
    monkeypatch.setattr(pieces, "PIECES_FROM_BYTES", 1 if cut else 1 << 40)
    monkeypatch.setattr(comparison, "PROTOBUF_LIMIT_BYTES", 1)
    monkeypatch.setattr(onnx.ModelProto, "ByteSize", refused)
    result = compare_with_onnxruntime(network, np.full(3, -1.0), np.full(3, 1.0))
    assert result.tensors == expected.tensors
    assert result.max_difference == pytest.approx(expected.max_difference, abs=1e-6)


def test_one_wrong_weight_is_found_at_its_node(tmp_path: Path) -> None:
    """A relative change of 1e-4 in one of 12 weights."""
    network = load_network(two_layers(tmp_path / "a.onnx"))
    weights = network.constants["W1"].copy()
    weights[2, 1] *= 1.0001
    wrong = dataclasses.replace(network, constants={**network.constants, "W1": weights})
    with pytest.raises(
        NetworkError, match=r"node 'first' \(Gemm\) differs from ONNX Runtime: element \[0, 2\] of 'h'"
    ):
        compare(wrong)


@pytest.mark.parametrize(
    ("index", "op", "named"),
    [
        (0, Gemm(transpose_b=True, beta=1.001), "first"),
        (1, Abs(), "relu"),
        (1, LeakyRelu(1e-4), "relu"),
        (2, Gemm(transpose_b=True, alpha=0.999), "second"),
    ],
)
def test_a_wrong_operator_is_found_at_its_node(tmp_path: Path, index: int, op: object, named: str) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    with pytest.raises(NetworkError, match=f"node '{named}'"):
        compare(with_op(network, index, op), low=-3.0, high=3.0)


def test_a_wrong_shape_is_found(tmp_path: Path) -> None:
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2], strides=[2])]
    network = load_network(save(model_of(nodes, inputs={"x": [1, 1, 6]}, outputs=["y"]), tmp_path))
    wrong = with_op(network, 0, MaxPool((2,), (1,), (0, 0), (1,)))
    with pytest.raises(
        NetworkError, match=r"'y' of node 'pool' has shape \[1, 1, 5\] here and \[1, 1, 3\] in"
    ):
        compare(wrong)


def test_padding_that_counts_is_found(cases: Path) -> None:
    """The mistake of case ONX-05."""
    network = load_network(cases / "ONX-05" / "model.onnx")
    compare(network)
    op = network.nodes[0].op
    assert isinstance(op, AveragePool)
    with pytest.raises(NetworkError, match="AveragePool"):
        compare(with_op(network, 0, dataclasses.replace(op, count_include_pad=True)))


def test_a_wrong_folded_constant_is_found(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["k"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    constants = {"k": np.ones(3, np.float32)}
    network = load_network(
        save(model_of(nodes, inputs={"x": [1, 3]}, outputs=["y"], constants=constants), tmp_path)
    )
    compare(network)
    wrong = dataclasses.replace(network, constants={"c": np.ones(3, np.float32)})
    with pytest.raises(NetworkError, match="constant 'c' is folded to another value"):
        compare(wrong)


@pytest.mark.parametrize("low", [0.0, 1.2])
def test_absorption_is_no_difference(cases: Path, low: float) -> None:
    """Case BND-04: float32 swallows the input, in both evaluations alike."""
    network = load_network(cases / "BND-04" / "model.onnx")
    result = compare_with_onnxruntime(network, np.array([low]), np.array([1.4]))
    assert result.max_difference == 0.0
    assert result.output_difference == 0.0


def test_the_box_must_fit(tmp_path: Path) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    with pytest.raises(NetworkError, match="has 3 inputs; the box has 2 and 3"):
        compare_with_onnxruntime(network, np.zeros(2), np.zeros(3))


def test_degenerate_and_huge_boxes(tmp_path: Path) -> None:
    network = load_network(two_layers(tmp_path / "a.onnx"))
    compare(network, low=0.25, high=0.25)
    compare(network, low=-1e30, high=1e30)
