"""Wide products, computed a band at a time, are what the operators compute, with their gradients; and a file that ONNX
Runtime runs in pieces gives the values that it gives whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from boundscope.errors import NetworkError
from boundscope.network import Network, arrays, comparison, file, load_network, pieces, products, stored
from boundscope.network.comparison import compare_with_onnxruntime
from boundscope.network.products import WideProduct
from boundscope.search.evaluation import BatchedNetwork
from network.models import model_of, save


@pytest.fixture(autouse=True)
def small_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "WIDE_BYTES", 1)
    monkeypatch.setattr(products, "PRODUCT_BAND_BYTES", 64)
    monkeypatch.setattr(pieces, "WIDE_BYTES", 1)
    monkeypatch.setattr(pieces, "PIECES_FROM_BYTES", 1)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 100)
    monkeypatch.setattr(stored, "LARGE_BYTES", 1)
    monkeypatch.setattr(file, "LARGE_BYTES", 1)


def gemm(**attributes: float) -> dict[str, object]:
    turned = attributes.get("transB", 0)
    return {
        "node": helper.make_node("Gemm", ["r", "W", "c"], ["h"], "wide", **attributes),
        "W": (9, 6) if turned else (6, 9),
        "c": (9,),
    }


KINDS = {
    "gemm": gemm(),
    "turned": gemm(transB=1),
    "scaled": gemm(transB=1, alpha=0.5, beta=-2.0),
    "without": {"node": helper.make_node("Gemm", ["r", "W"], ["h"], "wide", transB=1), "W": (9, 6)},
    "one for all": gemm(transB=1) | {"c": (1,)},
    "matmul": {"node": helper.make_node("MatMul", ["r", "W"], ["h"], "wide"), "W": (6, 9)},
}


def network_of(folder: Path, kind: str, *, shape: tuple[int, ...] = (2, 6), name: str = "") -> Path:
    """x -> Relu -> the product -> Relu -> another product -> y."""
    random = np.random.default_rng(3)
    what = KINDS[kind]
    constants = {
        key: random.standard_normal(size).astype(np.float32)
        for key, size in what.items()
        if isinstance(size, tuple)
    }
    constants["V"] = random.standard_normal((9, 4)).astype(np.float32)
    constants["b"] = random.standard_normal(4).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "first"),
        what["node"],
        helper.make_node("Relu", ["h"], ["s"], "second"),
        helper.make_node("MatMul", ["s", "V"], ["p"], "last"),
        helper.make_node("Add", ["p", "b"], ["y"], "bias"),
    ]
    model = model_of(nodes, inputs={"x": shape}, outputs=["y"], constants=constants)
    model.producer_name = name
    return save(model, folder)


def wide_node(network: Network) -> tuple[WideProduct, list[torch.Tensor | None]]:
    node = next(node for node in network.nodes if node.name == "wide")
    product = WideProduct.of(network, node)
    assert product is not None
    return product, [None, *(arrays.as_tensor(network.constants[name]) for name in node.inputs[1:])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products(tmp_path: Path, kind: str, mapped: bool, dtype: torch.dtype) -> None:
    """Wherever the matrix begins, and in a wider dtype than the file's, too."""
    for name in ("", "a", "bc"):
        network = load_network(network_of(tmp_path, kind, name=name), mapped=mapped)
        product, (_, matrix, *more) = wide_node(network)
        op = next(node.op for node in network.nodes if node.name == "wide")
        x = torch.randn(2, 6, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()
        assert matrix is not None
        inputs = [x, matrix.to(dtype), *(None if one is None else one.to(dtype) for one in more)]
        (expected,) = op.evaluate(inputs)
        found = product.evaluate([x, None, *inputs[2:]])
        torch.testing.assert_close(found, expected)
        weight = torch.randn(expected.shape, dtype=dtype, generator=torch.Generator().manual_seed(2))
        gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (found, expected)]
        torch.testing.assert_close(gradients[0], gradients[1])
        magnitude = product.term_magnitude([x.detach(), None, *inputs[2:]])
        torch.testing.assert_close(magnitude, op.term_magnitude([x.detach(), *inputs[1:]], expected))


@pytest.mark.parametrize("kind", KINDS)
def test_many_points(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network over a batch axis, with wide products and without."""
    network = load_network(network_of(tmp_path, kind), mapped=True)
    points = torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    points.requires_grad_()
    lean = BatchedNetwork(network, torch.float64)
    found = lean.outputs(points)
    assert lean._batched
    (gradient,) = torch.autograd.grad(found.sum(), points)
    monkeypatch.setattr(products, "WIDE_BYTES", 1 << 30)
    expected = BatchedNetwork(network, torch.float64).outputs(points)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), points)[0])


def test_what_is_no_wide_product(tmp_path: Path) -> None:
    """A matrix on the left, or one that moves, is left to the operator."""
    nodes = [
        helper.make_node("MatMul", ["W", "x"], ["h"], "left"),
        helper.make_node("MatMul", ["h", "h"], ["y"], "both"),
    ]
    constants = {"W": np.ones((6, 6), np.float32)}
    path = save(model_of(nodes, inputs={"x": [6, 6]}, outputs=["y"], constants=constants), tmp_path)
    network = load_network(path)
    assert all(WideProduct.of(network, node) is None for node in network.nodes)


# ------------------------------------------------------------ pieces


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_agree_with_the_whole(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = network_of(tmp_path, kind)
    wanted = {"r", "h", "s", "p"}
    cut = pieces.in_pieces(path, wanted, "n", 1)
    assert cut is not None
    assert len(cut._pieces) > 2
    x = np.random.default_rng(5).standard_normal((2, 6)).astype(np.float32)
    found: dict[str, np.ndarray] = {}
    for part in cut.run({"x": x}):
        found.update(part)
    assert set(found) == wanted | {"y"}
    network = load_network(path)
    (whole,) = comparison._Whole(comparison._whole_session(network, lambda: None)).run({"x": x})
    for name, value in found.items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-5, atol=1e-6)
    box = np.full(12, 1.0)
    compared = compare_with_onnxruntime(network, -box, box)
    assert compared.nodes == tuple(node.name for node in network.nodes)
    monkeypatch.setattr(pieces, "PIECES_FROM_BYTES", 1 << 30)
    assert compare_with_onnxruntime(network, -box, box).tensors == compared.tensors


@pytest.mark.parametrize("family", ["cgan", "cifar10_resnet", "mnist_fc", "vit", "nn4sys"])
def test_published_files_in_pieces(vnncomp: Path, family: str) -> None:
    path = sorted((vnncomp / family / "onnx").iterdir())[0]
    network = load_network(path, mapped=True)
    count = network.input_count
    compared = compare_with_onnxruntime(network, np.full(count, -0.5), np.full(count, 0.5))
    assert compared.nodes == tuple(node.name for node in network.nodes)


def test_a_wrong_weight_is_found_in_pieces(tmp_path: Path) -> None:
    network = load_network(network_of(tmp_path, "turned"))
    network.constants["W"][2, 3] += 0.01
    box = np.full(12, 1.0)
    with pytest.raises(NetworkError, match=r"node 'wide' \(Gemm\) differs from ONNX Runtime"):
        compare_with_onnxruntime(network, -box, box)
