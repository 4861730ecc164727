"""auto_LiRPA with pairs of layers split over the ranks, as published: exact with one zone, looser and still sound with
more, and no rank with more than its part."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper

from boundscope.protocol import (
    Engine,
    Event,
    LayerBounds,
    LogLine,
    Method,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.reference import compat
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from support.jobs import ref
from support.models import FloatArray, box_property, convnet, mlp, save
from support.ranks import on_ranks
from support.reference_ranks import Found, split_beside_alone, split_faults

pytestmark = pytest.mark.skipif(not compat.version(), reason="auto_LiRPA is not installed")

RADIUS = 0.1
ONE_ZONE = (20, 65, 5)
THREE_ZONES = (20, 64, 48, 33, 64, 48, 5)
OUTPUTS = 5
METHODS = (Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN)
COMPARED = [
    ("three", Method.IBP),
    ("three", Method.CROWN),
    ("three", Method.ALPHA_CROWN),
    ("dead", Method.CROWN),
    ("dead", Method.ALPHA_CROWN),
    ("sums", Method.CROWN),
]

Key = tuple[str, Method, torch.dtype]
Compared = dict[Key, tuple[Found, Found, Found, int]]


def files_of(folder: Path, network: Path, inputs: int, outputs: int) -> JobFiles:
    """Every output's upper end is asked for, over a box around zero."""
    prop = folder / f"{network.stem}.vnnlib"
    clauses = " ".join(f"(and (>= Y_{i} 1))" for i in range(outputs))
    prop.write_text(box_property([-RADIUS] * inputs, [RADIUS] * inputs, outputs, f"(assert (or {clauses}))"))
    return JobFiles(network, prop)


def half_dead(path: Path) -> Path:
    """The three zones, all neurons of the second rank's half of the middle one off whatever the input."""
    model = onnx.load(mlp(path, THREE_ZONES, seed=1))
    for tensor in model.graph.initializer:
        if tensor.name == "b3":
            bias = onnx.numpy_helper.to_array(tensor).copy()
            bias[17:] = -100.0
            tensor.CopyFrom(onnx.numpy_helper.from_array(bias, "b3"))
    onnx.save(model, path)
    return path


def products_and_sums(path: Path) -> Path:
    """Layers as exporters of other frameworks write them: MatMul, Add, and activations of two kinds."""
    random = np.random.default_rng(2)
    widths = (20, 30, 25, 5)
    constants: dict[str, FloatArray] = {}
    nodes, name = [], "x"
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(widths), 1):
        weight = random.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)
        constants[f"W{layer}"] = weight.astype(np.float32)
        constants[f"b{layer}"] = (0.3 * random.standard_normal(fan_out)).astype(np.float32)
        out = "y" if layer == 3 else f"z{layer}"
        nodes += [
            helper.make_node("MatMul", [name, f"W{layer}"], [f"p{layer}"], f"product{layer}"),
            helper.make_node("Add", [f"b{layer}", f"p{layer}"], [out], f"sum{layer}"),
        ]
        if layer < 3:
            nodes.append(
                helper.make_node(("Tanh", "LeakyRelu")[layer - 1], [out], [f"a{layer}"], f"act{layer}")
            )
            name = f"a{layer}"
    return save(path, nodes, constants, [1, 20], [1, 5])


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobFiles]:
    folder = tmp_path_factory.mktemp("networks")
    made = {
        "one": mlp(folder / "one.onnx", ONE_ZONE, seed=1),
        "three": mlp(folder / "three.onnx", THREE_ZONES, seed=1),
        "dead": half_dead(folder / "dead.onnx"),
        "sums": products_and_sums(folder / "sums.onnx"),
    }
    return {name: files_of(folder, path, 20, OUTPUTS) for name, path in made.items()}


@pytest.fixture(scope="module")
def compared(networks: dict[str, JobFiles], tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """On one rank and on two, one zone in both precisions."""
    keys: list[Key] = [("one", method, torch.float64) for method in METHODS]
    keys += [("one", method, torch.float32) for method in (Method.IBP, Method.CROWN)]
    keys += [(name, method, torch.float64) for name, method in COMPARED]
    cases = [(networks[name], method, dtype) for name, method, dtype in keys]
    mine, other = on_ranks(2, tmp_path_factory.mktemp("ranks") / "two", split_beside_alone, cases)
    for one, same in zip(mine, other, strict=True):
        assert torch.equal(one[1][0], same[1][0])  # all ranks hold the same bits
    return dict(zip(keys, mine, strict=True))


def furthest(one: Found, other: Found) -> float:
    """The largest difference of a margin or of an end of a layer that both have bounded."""
    names = one[1].keys() & other[1].keys()
    assert names
    pairs = [(one[0], other[0])]
    pairs += [pair for name in names for pair in zip(one[1][name], other[1][name], strict=True)]
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_one_zone_costs_nothing(compared: Compared, method: Method) -> None:
    """Intervals of the first layer are what the method would find: only the order of sums differs."""
    for dtype, most in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
        if ("one", method, dtype) not in compared:
            continue
        alone, together, _, zones = compared["one", method, dtype]
        assert zones == 1
        assert furthest(alone, together) <= most


def test_three_zones_are_far_off_and_only_looser(compared: Compared) -> None:
    """Intervals inside the second zone and the third: every interval of one rank lies in that of two."""
    for method in (Method.CROWN, Method.ALPHA_CROWN):
        (margins, layers), (split_margins, split_layers), _, zones = compared["three", method, torch.float64]
        assert zones == 3
        assert float((margins - split_margins).min()) > 1
        if method is Method.ALPHA_CROWN:
            continue  # hidden bounds serve another goal where slopes are searched for the looser margins
        assert layers.keys() == {"z1", "z2", "z3", "z4", "z5"} == split_layers.keys() - {"a2", "a4"}
        for name, (lower, upper) in layers.items():
            split_lower, split_upper = split_layers[name]
            assert bool((split_lower <= lower + 1e-9).all())
            assert bool((split_upper >= upper - 1e-9).all())


@pytest.mark.parametrize(("name", "method"), COMPARED, ids=str)
def test_bounds_hold_for_every_input(
    networks: dict[str, JobFiles], compared: Compared, name: str, method: Method
) -> None:
    model = onnx.load(networks[name].network)
    _, (margins, layers), _, _ = compared[name, method, torch.float64]
    tensors = [one for one in layers if one != "y"]
    model.graph.output.extend(
        helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, None) for one in tensors
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(0)
    for corner in (False, True):
        for _ in range(100):
            x = random.uniform(-RADIUS, RADIUS, (1, 20))
            x = (np.sign(x) * RADIUS if corner else x).astype(np.float32)
            outputs, *values = session.run(None, {"x": x})
            # A clause says y ≥ 1; its margin bounds 1 − y from below.
            assert (1 - outputs[0] >= margins.numpy() - 1e-5).all()
            for tensor, value in zip(tensors, values, strict=True):
                lower, upper = layers[tensor]
                assert (value >= lower.numpy() - 1e-5).all(), tensor
                assert (value <= upper.numpy() + 1e-5).all(), tensor


@pytest.mark.parametrize(("name", "method"), COMPARED, ids=str)
def test_ranks_compute_what_one_rank_with_intervals_would(
    compared: Compared, name: str, method: Method
) -> None:
    """Also slopes, whose gradients meet at both ends of a zone, and where one rank's neurons are all off."""
    _, together, zoned, zones = compared[name, method, torch.float64]
    assert zones == (1 if name == "sums" else 3)
    assert furthest(together, zoned) <= 1e-9


def test_slopes_inside_zones_are_optimised(compared: Compared) -> None:
    crown, alpha = (compared["three", method, torch.float64][1][0] for method in METHODS[2:])
    assert float((alpha - crown).min()) > 0


# ---------------------------------------------------------------- jobs


def run(files: JobFiles, method: Method, ranks: int) -> tuple[VerifyResult, list[LayerBounds], list[LogLine]]:
    job = VerifyJob(
        network=ref(files.network),
        property=PropertyFile(file=ref(files.property)),
        engine=Engine.AUTO_LIRPA,
        method=method,
        sharding=Sharding.NONE if ranks == 1 else Sharding.TP,
        ranks=ranks,
        timeout_s=60.0,
    )
    layers: list[LayerBounds] = []
    lines: list[LogLine] = []

    def listen(rank: int, event: Event) -> None:
        if isinstance(event, LayerBounds):
            layers.append(event)
        elif isinstance(event, LogLine):
            lines.append(event)

    return run_local(job, files, listen), layers, lines


def test_a_job_on_two_ranks_takes_half_the_weights_each(tmp_path: Path) -> None:
    files = files_of(tmp_path, mlp(tmp_path / "n.onnx", [41, 401, 333, 4], seed=3), 41, 4)
    alone, layers, _ = run(files, Method.CROWN, 1)
    together, split_layers, _ = run(files, Method.CROWN, 2)
    assert together.verdict is alone.verdict is not Verdict.ERROR, together.reason
    for one, other in zip(alone.margin.per_clause, together.margin.per_clause, strict=True):
        assert one.lower == pytest.approx(other.lower, abs=1e-5)
    told = {(one.node, one.method): one.size for one in split_layers}
    assert layers
    assert all(told[one.node, one.method] == one.size for one in layers)
    whole = alone.peak_bytes[0].by_category["weights"]
    for memory in together.peak_bytes:
        assert memory.by_category["weights"] < whole / 1.9


def test_a_network_without_zones_is_whole_on_every_rank_and_says_so(tmp_path: Path) -> None:
    network = convnet(tmp_path / "n.onnx")
    files = files_of(tmp_path, network, 72, 3)
    alone, _, _ = run(files, Method.IBP, 1)
    together, _, lines = run(files, Method.IBP, 2)
    assert together.verdict is not Verdict.ERROR, together.reason
    assert together.margin == alone.margin
    assert [one.level for one in lines if "nothing is split" in one.text] == ["warning"]


# ---------------------------------------------------------------- faults, on two ranks


def test_a_rank_that_fails_ends_the_other_in_the_middle_of_a_pass(
    networks: dict[str, JobFiles], tmp_path: Path
) -> None:
    """Cancelled, or short of memory; and nothing is left behind that a later sum would meet."""
    found = on_ranks(2, tmp_path / "ranks", split_faults, networks["three"])
    assert found == [("cancelled", "out of memory", True)] * 2
