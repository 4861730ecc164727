"""Layers split over ranks: sound, with `tp-exact` as tight as one rank, and no rank holds a split weight whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from onnx import helper
from torch import Tensor

from boundscope import capabilities
from boundscope.errors import BoundError, UsageError
from boundscope.network.graph import Network
from boundscope.network.loader import load
from boundscope.protocol import (
    Arithmetic,
    Method,
    PropertyFile,
    Sharding,
    VerifyJob,
)
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.zones import ZoneEntry, Zones, split_network
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from support.jobs import ref
from support.models import box_property, mlp, save
from support.ranks import on_ranks
from support.tensor_parallel import (
    EXACT,
    TP,
    Case,
    Found,
    all_bounds,
    bounds_of,
    box_of,
    failing,
    gradients_of,
)


def alone(case: Case) -> Found:
    with torch.no_grad():
        return bounds_of(RankGroup(), case._replace(sharding=Sharding.NONE))


def least_sampled(case: Case) -> Tensor:
    """The least Y_i − Y_0 at random points of the box and at corners."""
    network = load(Path(case.network))
    box, random = box_of(network, case.radius), np.random.default_rng(2)
    (info,) = network.inputs
    least = torch.full((network.output_count - 1,), torch.inf, dtype=torch.float64)
    for index in range(60):
        part = random.random(network.input_count)
        part = part.round() if index % 2 else part
        point = torch.from_numpy(box.lower + part * (box.upper - box.lower)).reshape(info.shape)
        (y,) = network.evaluate({info.name: point}).values()
        least = torch.minimum(least, (y.flatten() - y.flatten()[0])[1:])
    return least


def conv_net(path: Path) -> Path:
    """Two convolutions with a shortcut and normalisation between, pooled, flattened, and two dense layers."""
    random = np.random.default_rng(5)

    def weights(*shape: int) -> NDArray[np.float32]:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "W1": weights(5, 2, 3, 3),
        "b1": weights(5, 4)[:, 0].copy(),
        "scale": (1 + weights(5, 4)[:, 0]).astype(np.float32),
        "shift": weights(5, 4)[:, 0].copy(),
        "mean": weights(5, 4)[:, 0].copy(),
        "var": (1 + np.abs(weights(5, 4)[:, 0])).astype(np.float32),
        "W2": weights(2, 5, 3, 3),
        "b2": weights(2, 4)[:, 0].copy(),
        "W3": weights(7, 2, 2, 2),
        "b3": weights(7, 4)[:, 0].copy(),
        "W4": weights(4, 7 * 4),
        "b4": weights(4, 4)[:, 0].copy(),
    }
    nodes = [
        helper.make_node("Conv", ["x", "W1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "norm1"),
        helper.make_node("Relu", ["n1"], ["a1"], "relu1"),
        helper.make_node("Conv", ["a1", "W2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "x"], ["s2"], "skip"),
        helper.make_node("Relu", ["s2"], ["a2"], "relu2"),
        helper.make_node("Conv", ["a2", "W3", "b3"], ["c3"], "conv3", strides=[2, 2]),
        helper.make_node("Relu", ["c3"], ["a3"], "relu3"),
        helper.make_node("Flatten", ["a3"], ["f3"], "flat"),
        helper.make_node("Gemm", ["f3", "W4", "b4"], ["y"], "fc4", transB=1),
    ]
    return save(path, nodes, constants, [1, 2, 4, 4], [1, 4])


def attention(path: Path, heads: int = 3) -> Path:
    """One attention block of `heads` heads of width 2 over 4 tokens, with its shortcut, and a dense layer."""
    random = np.random.default_rng(6)
    width = 2 * heads
    constants: dict[str, NDArray[np.generic]] = {
        name: (random.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32) for name in "QKVO"
    }
    constants |= {f"b{name}": (0.1 * random.standard_normal(width)).astype(np.float32) for name in "QKVO"}
    constants["W"] = (random.standard_normal((4 * width, 3)) / 4).astype(np.float32)
    constants["apart"] = np.array([1, 4, heads, 2], dtype=np.int64)
    constants["together"] = np.array([1, 4, width], dtype=np.int64)
    constants["half"] = np.array(0.5, dtype=np.float32)
    nodes = []
    for name in "QKV":
        order = [0, 2, 3, 1] if name == "K" else [0, 2, 1, 3]
        nodes += [
            helper.make_node("MatMul", ["x", name], [f"m{name}"], f"product{name}"),
            helper.make_node("Add", [f"b{name}", f"m{name}"], [f"s{name}"], f"sum{name}"),
            helper.make_node("Reshape", [f"s{name}", "apart"], [f"r{name}"], f"apart{name}"),
            helper.make_node("Transpose", [f"r{name}"], [f"t{name}"], f"heads{name}", perm=order),
        ]
    nodes += [
        helper.make_node("MatMul", ["tQ", "tK"], ["scores"], "scores"),
        helper.make_node("Mul", ["scores", "half"], ["scaled"], "scaled"),
        helper.make_node("Softmax", ["scaled"], ["weights"], "softmax", axis=-1),
        helper.make_node("MatMul", ["weights", "tV"], ["mixed"], "mixed"),
        helper.make_node("Transpose", ["mixed"], ["back"], "back", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "together"], ["joined"], "joined"),
        helper.make_node("MatMul", ["joined", "O"], ["out"], "out"),
        helper.make_node("Add", ["bO", "out"], ["biased"], "biased"),
        helper.make_node("Add", ["biased", "x"], ["skipped"], "skipped"),
        helper.make_node("Flatten", ["skipped"], ["flat"], "flat"),
        helper.make_node("MatMul", ["flat", "W"], ["y"], "y"),
    ]
    return save(path, nodes, constants, [1, 4, width], [1, 3])


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("networks")
    return {
        "one zone": str(mlp(folder / "one.onnx", [20, 61, 4], seed=3)),
        "two hidden": str(mlp(folder / "two.onnx", [20, 40, 31, 4], seed=3)),
        "three hidden": str(mlp(folder / "three.onnx", [20, 41, 43, 37, 4], seed=4)),
        "three zones": str(mlp(folder / "six.onnx", [20, 41, 40, 39, 38, 37, 4], seed=5)),
        "conv": str(conv_net(folder / "conv.onnx")),
        "attention": str(attention(folder / "attention.onnx")),
    }


def cases_of(networks: dict[str, str]) -> list[Case]:
    plain = [Case(path, sharding) for path in networks.values() for sharding in (TP, EXACT)]
    others = [
        Case(networks["three zones"], TP, Method.IBP),
        Case(networks["three zones"], EXACT, Method.CROWN_IBP),
        Case(networks["three hidden"], EXACT, Method.ALPHA_CROWN, radius=0.1),
        Case(networks["three hidden"], TP, Method.ALPHA_CROWN, radius=0.1),
        Case(networks["conv"], EXACT, Method.ALPHA_CROWN),
        Case(networks["three hidden"], EXACT, arithmetic=Arithmetic.FLOAT32),
        Case(networks["conv"], EXACT, arithmetic=Arithmetic.FLOAT32),
    ]
    return plain + others


@pytest.mark.parametrize("size", [2, 3])
def test_bounds_of_split_layers(networks: dict[str, str], tmp_path: Path, size: int) -> None:
    cases = cases_of(networks)
    every = on_ranks(size, tmp_path / "ranks", all_bounds, cases)
    for case, *found in zip(cases, *every, strict=True):
        first, whole = found[0], alone(case)
        for other in found[1:]:
            assert torch.equal(first.lower, other.lower), case  # the same bits on all ranks
        assert (first.lower <= least_sampled(case)).all(), case
        scale = 1.0 + whole.lower.abs().max()
        # Never tighter than one rank but by rounding, and by what a search happens to find.
        # Float32's slack is that of the intervals that are known of each tensor, which a forward pass cuts on one rank.
        found_alike = case.method is not Method.ALPHA_CROWN and case.arithmetic is Arithmetic.REAL
        slack = 1e-8 * float(scale) if found_alike else 1e-5
        if case.sharding is TP:
            assert (first.lower <= whole.lower + slack).all(), case
        if case.sharding is EXACT or case.network == networks["one zone"] or case.method is Method.IBP:
            assert (first.lower - whole.lower).abs().max() <= slack, (case, first.lower - whole.lower)
        if case == Case(networks["three zones"], TP):
            assert (first.lower < whole.lower - 0.01).all()
        if case.sharding is EXACT:
            assert [(one.node, one.size) for one in first.layers] == [
                (one.node, one.size) for one in whole.layers
            ]
            assert [one.unstable for one in first.layers] == [one.unstable for one in whole.layers]
        assert [one.layers for one in found[1:]] == [[] for _ in found[1:]]
        if case.network == networks["three zones"]:
            assert max(one.weights_bytes for one in found) < 1.15 * whole.weights_bytes / size


# ---------------------------------------------------------------- gradients of a search


def test_gradients_are_those_of_one_rank(networks: dict[str, str], tmp_path: Path) -> None:
    """Sums over ranks are differentiated by their adjoints, in split layers and in those between."""
    with torch.no_grad():
        lower, whole = gradients_of(RankGroup(), networks["three zones"], Sharding.NONE)
    found = on_ranks(2, tmp_path / "ranks", gradients_of, networks["three zones"], EXACT)
    assert any(gradient.abs().max() > 0.01 for gradient in whole.values())
    for one, _ in found:
        assert torch.allclose(one, lower, atol=1e-4)
    for node, gradient in whole.items():
        parts = [one[node] for _, one in found]
        split = parts[0].shape[1] < gradient.shape[1]
        if split:
            assert torch.allclose(torch.cat(parts, dim=1), gradient, atol=1e-4), node
        else:
            assert torch.equal(parts[0], parts[1]), node
            assert torch.allclose(parts[0], gradient, atol=1e-4), node


# ---------------------------------------------------------------- a rank that fails


def test_what_fails_on_one_rank_stops_all(networks: dict[str, str], tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path / "ranks", failing, networks["two hidden"])
    assert first == second
    assert first.startswith(BoundError.__name__)


# ---------------------------------------------------------------- where zones lie


def parts_of(path: str, size: int) -> list[Network]:
    network = load(Path(path))
    return [split_network(network, RankGroup(rank, size, splits_rows=False)) for rank in range(size)]


@pytest.mark.parametrize("size", [2, 3])
def test_attention_is_split_by_heads(networks: dict[str, str], size: int) -> None:
    parts = parts_of(networks["attention"], size)
    heads = [part.tensors["scores"].shape[1] for part in parts]
    assert sum(heads) == 3
    assert min(heads) >= 1
    for part in parts:
        assert sum(isinstance(node.op, ZoneEntry) for node in part.nodes) == 1
        assert {"weights", "mixed", "joined"} <= Zones.of(part).tensors
        assert not {"x", "out", "biased", "y"} & Zones.of(part).tensors


def test_more_ranks_than_heads_leave_attention_whole(networks: dict[str, str]) -> None:
    network = load(Path(networks["attention"]))
    assert split_network(network, RankGroup(0, 4, splits_rows=False)) is network


def test_every_rank_holds_its_part_of_split_weights(networks: dict[str, str]) -> None:
    parts = parts_of(networks["three hidden"], 3)
    for layer in ("W1", "W2"):
        shapes = [a.shape for one in parts for name, a in one.constants.items() if name.startswith(layer)]
        axis = 0 if layer == "W1" else 1
        assert [shape[axis] for shape in shapes] == [14, 14, 13]


# ---------------------------------------------------------------- as a job


def test_a_job_with_split_layers(networks: dict[str, str], tmp_path: Path) -> None:
    network, prop = Path(networks["two hidden"]), tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.1] * 20, [0.1] * 20, 4, "(assert (>= Y_1 50))"))
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        sharding=EXACT,
        ranks=2,
        timeout_s=60.0,
    )
    assert run_local(job, JobFiles(network, prop), lambda rank, event: None).verdict == "verified"


@pytest.mark.parametrize("sharding", [TP, EXACT])
def test_branch_and_bound_says_that_it_does_not_go_with_split_layers(
    networks: dict[str, str], sharding: Sharding
) -> None:
    network = Path(networks["one zone"])
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(network)),
        method=Method.COMPLETE,
        sharding=sharding,
        ranks=2,
    )
    with pytest.raises(UsageError, match=f"--sharding {sharding} does not go with --method complete"):
        capabilities.check(job)
