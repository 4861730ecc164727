"""The attack: where it looks, what it never skips, and that what it finds is only a candidate."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties import read_property
from boundscope.properties.types import Property
from boundscope.protocol import Arithmetic, Verdict
from boundscope.search.attack import Attack, Effort
from boundscope.search.attack_found import Candidate
from boundscope.search.evaluation import BatchedNetwork
from support.enclosure import network_of
from support.jobs import verify
from support.models import box_property, convnet, mlp

N = helper.make_node
SECONDS = 60.0


def written(folder: Path, text: str, network: Network) -> Property:
    path = folder / "p.vnnlib"
    path.write_text(text)
    return read_property(path, input_count=network.input_count, output_count=network.output_count)


def plain(network: Network, points: np.ndarray) -> np.ndarray:
    """[B, outputs] float64 by the network's own evaluation, point after point."""
    rows = []
    for point in points:
        inputs, position = {}, 0
        for info in network.inputs:
            inputs[info.name] = torch.from_numpy(point[position : position + info.size].reshape(info.shape))
            position += info.size
        values = network.evaluate(inputs)
        rows.append(np.concatenate([values[info.name].reshape(-1).numpy() for info in network.outputs]))
    return np.stack(rows)


def first_found(attack: Attack, effort: Effort = Effort.QUICK) -> Candidate | None:
    return attack.run(Monitor(), SECONDS, lambda _: True, effort=effort)


# ------------------------------------------------------------ evaluation


def test_batches_give_what_single_points_give(tmp_path: Path) -> None:
    network = load_network(convnet(tmp_path / "n.onnx"))
    points = np.random.default_rng(0).standard_normal((7, network.input_count))
    batched = BatchedNetwork(network, torch.float64)
    assert np.allclose(
        batched.values(torch.from_numpy(points)), plain(network, points), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    "family", ["cgan", "ml4acopf_2024", "nn4sys", "vit", "marabou-cifar10", "carvana_unet"]
)
def test_batches_of_the_families(vnncomp: Path, family: str) -> None:
    row = next(row for row in csv.DictReader((vnncomp / "manifest.csv").open()) if row["family"] == family)
    network = load_network(vnncomp / row["onnx"])
    box = read_property(vnncomp / row["vnnlib"], input_count=network.input_count).cases[0].box
    share = np.random.default_rng(0).random((3, network.input_count))
    points = box.lower + share * (box.upper - box.lower)
    batched = BatchedNetwork(network, torch.float64).values(torch.from_numpy(points))
    assert np.allclose(batched, plain(network, points), rtol=1e-9, atol=1e-9)


def moved_window(folder: Path) -> Network:
    """y = c[k], k the whole part of x_0: no value where k is beyond the three elements of c."""
    nodes = [
        N("Reshape", ["x", "flat"], ["v"]),
        N("Cast", ["v"], ["k"], to=TensorProto.INT64),
        N("Add", ["k", "one"], ["end"]),
        N("Slice", ["c", "k", "end"], ["s"]),
        N("Reshape", ["s", "flat"], ["y"]),
    ]
    constants = {
        "flat": np.array([1], dtype=np.int64),
        "one": np.array([1], dtype=np.int64),
        "c": np.array([3.0, 2.0, -1.0], dtype=np.float32),
    }
    return network_of(folder, nodes, 1, constants)


def test_a_point_without_a_value_spoils_no_other(tmp_path: Path) -> None:
    batched = BatchedNetwork(moved_window(tmp_path), torch.float64)
    values = batched.values(torch.tensor([[0.5], [7.0], [2.9], [1.0]], dtype=torch.float64))[:, 0].tolist()
    assert values[0] == 3.0
    assert math.isnan(values[1])
    assert values[2:] == [-1.0, 2.0]


# ------------------------------------------------------------ where it looks


@pytest.mark.parametrize("count", [3, 2000])
def test_the_last_of_many_boxes_is_not_starved(tmp_path: Path, count: int) -> None:
    """Only the last box has a point that violates, and only near one corner."""
    network = load_network(mlp(tmp_path / "n.onnx", [2, 8, 1], seed=3))
    corner = plain(network, np.array([[1.0, -1.0]]))[0, 0]
    nearby = plain(network, np.array([[0.0, 0.0]]))[0, 0]
    relation = ">=" if corner > nearby else "<="
    threshold = float(corner - 0.01 * (corner - nearby))
    boxes = [
        f"(and (>= X_0 0) (<= X_0 {0.1 + 1e-6 * i:.7f}) (>= X_1 0) (<= X_1 0.1) ({relation} Y_0 {threshold!r}))"
        for i in range(count - 1)
    ]
    boxes.append(f"(and (>= X_0 0) (<= X_0 1) (>= X_1 -1) (<= X_1 0) ({relation} Y_0 {threshold!r}))")
    declared = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0"))
    prop = written(tmp_path, f"{declared}(assert (or {' '.join(boxes)}))", network)
    assert len(prop.cases) == count
    found = first_found(Attack(network, prop))
    assert found is not None
    assert found.case == count - 1


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
def test_boxes_thinner_than_float32_and_inputs_that_are_fixed(tmp_path: Path, arithmetic: Arithmetic) -> None:
    network = network_of(
        tmp_path,
        [N("MatMul", ["x", "W"], ["y"])],
        3,
        {"W": np.array([[1.0], [0.0], [0.0]], dtype=np.float32)},
    )
    assert network.input_count == 3
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([0.1, 0.3, 0.7], [0.10000001, 0.3, 0.7], 1, "(assert (>= Y_0 0.100000009))"))
    result = verify(tmp_path / "network.onnx", prop, arithmetic=arithmetic)
    if arithmetic is Arithmetic.REAL:
        assert result.verdict is Verdict.VIOLATED, result.reason
        assert result.counterexample is not None
        assert 0.100000009 <= float(result.counterexample.inputs[0]) <= 0.10000001
        assert result.counterexample.inputs[1:] == ("0.3", "0.7")
    else:
        assert result.verdict is not Verdict.VERIFIED  # 0.1 runs as 0.100000001490116…


def test_a_conjunction_in_a_narrow_corner(tmp_path: Path) -> None:
    """Each of ten constraints is easy alone; together they hold in a cube of a hundredth of each side."""
    size = 5
    network = network_of(
        tmp_path, [N("MatMul", ["x", "W"], ["y"])], size, {"W": np.eye(size, dtype=np.float32)}
    )
    asserts = "\n".join(
        f"(assert (>= Y_{i} {0.3 + 0.05 * i:.3f}))\n(assert (<= Y_{i} {0.31 + 0.05 * i:.3f}))"
        for i in range(size)
    )
    prop = written(tmp_path, box_property([0.0] * size, [1.0] * size, size, asserts), network)
    found = first_found(Attack(network, prop)) or first_found(Attack(network, prop), Effort.THOROUGH)
    assert found is not None
    assert found.margin < 0  # with slack, not on the boundary


# ------------------------------------------------------------ without gradients


def test_signs_are_followed_through_and_certified(tmp_path: Path) -> None:
    """Sums of signs are zero often; over the reals that is exact, and a witness is one there too."""
    random = np.random.default_rng(1)
    constants = {
        "W": random.choice([-1.0, 1.0], (12, 16)).astype(np.float32),
        "V": random.choice([-1.0, 1.0], (16, 8)).astype(np.float32),
        "tenth": np.array(0.1, dtype=np.float32),
        "U": random.choice([-1.0, 1.0], (8, 2)).astype(np.float32),
    }
    nodes = [
        N("MatMul", ["x", "W"], ["a"]),
        N("Sign", ["a"], ["b"]),
        N("MatMul", ["b", "V"], ["c"]),
        N("Sign", ["c"], ["d"]),
        N("Add", ["d", "tenth"], ["e"]),
        N("Sign", ["e"], ["f"]),
        N("MatMul", ["f", "U"], ["y"]),
    ]
    network = network_of(tmp_path, nodes, 12, constants)
    points = random.uniform(-1, 1, (4000, 12))
    reached = plain(network, points)[:, 0]
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-1.0] * 12, [1.0] * 12, 2, f"(assert (>= Y_0 {float(reached.max())!r}))"))
    result = verify(tmp_path / "network.onnx", prop)
    assert result.verdict is Verdict.VIOLATED, result.reason
    assert "over the reals and when replayed" in result.reason


def test_one_cell_of_a_grid_of_whole_numbers(tmp_path: Path) -> None:
    """The output depends on two inputs' whole parts only, and one cell in 900 violates."""
    nodes = [
        N("Cast", ["x"], ["k"], to=TensorProto.INT64),
        N("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
        N("Sub", ["f", "cell"], ["d"]),
        N("Abs", ["d"], ["a"]),
        N("ReduceSum", ["a"], ["y"], keepdims=1),
    ]
    network = network_of(tmp_path, nodes, 2, {"cell": np.array([[17.0, 23.0]], dtype=np.float32)})
    prop = written(tmp_path, box_property([0.0, 0.0], [29.5, 29.5], 1, "(assert (<= Y_0 0.5))"), network)
    found = first_found(Attack(network, prop))
    assert found is not None
    assert np.floor(found.point).tolist() == [17.0, 23.0]


def test_another_evaluation_stands_in_where_ours_has_no_value(tmp_path: Path) -> None:
    network = moved_window(tmp_path)
    prop = written(tmp_path, box_property([0.0], [9.0], 1, "(assert (<= Y_0 -4.0))"), network)
    asked: list[float] = []

    def original(points: np.ndarray) -> np.ndarray:
        asked.extend(points[:, 0].tolist())
        return np.where(points >= 6.0, -5.0, np.nan)

    found = first_found(Attack(network, prop, fallback=original))
    assert found is not None
    assert found.point[0] >= 6.0
    assert min(asked) >= 3.0  # elsewhere ours has a value


# ------------------------------------------------------------ candidates


def test_a_candidate_that_is_refused_ends_nothing(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 12, 12, 3], 3))
    prop = written(tmp_path, box_property([-1.0] * 4, [1.0] * 4, 3, "(assert (<= Y_0 Y_1))"), network)
    offered: list[Candidate] = []

    def accept(candidate: Candidate) -> bool:
        offered.append(candidate)
        return len(offered) > 12

    found = Attack(network, prop).run(Monitor(), SECONDS, accept, effort=Effort.NORMAL)
    assert found is offered[-1]
    assert len({tuple(one.point) for one in offered}) == len(offered)
    for one in offered:
        outputs = plain(network, one.point[None])[0]
        assert outputs[0] - outputs[1] <= 1e-6
        assert (np.abs(one.point) <= 1.0).all()


def test_clauses_that_are_closed_are_left_alone(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 12, 12, 3], 3))
    asserts = "(assert (or (and (<= Y_0 1000)) (and (>= Y_0 1000))))"
    prop = written(tmp_path, box_property([-1.0] * 4, [1.0] * 4, 3, asserts), network)
    attack = Attack(network, prop)
    assert attack.run(Monitor(), SECONDS, lambda _: True, open_clauses=[(0, 1)]) is None
    found = attack.run(Monitor(), SECONDS, lambda _: True, open_clauses=[(0, 0)])
    assert found is not None
    assert found.clause == 0


def test_points_that_a_search_meets_are_judged_and_walked_from(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 12, 12, 3], 3))
    points = np.random.default_rng(0).uniform(-1, 1, (50, 4))
    values = plain(network, points)[:, 0]
    threshold = float(values.min()) - 1e-3
    prop = written(
        tmp_path, box_property([-1.0] * 4, [1.0] * 4, 3, f"(assert (<= Y_0 {threshold!r}))"), network
    )
    attack = Attack(network, prop)
    cases = np.zeros(len(points), dtype=np.int64)
    judged = attack.judge(points, cases)
    assert np.allclose(judged.margins[:, 0], values - threshold, atol=1e-12)
    assert judged.candidates == ()
    assert attack.margins[0, 0] == pytest.approx(1e-3)
    nearest = points[[values.argmin()]]
    refined = attack.refine(nearest, np.zeros(1, dtype=np.int64), Monitor())
    assert len(refined.candidates) == 1
    assert refined.candidates[0].margin <= 0
    far = attack.judge(np.full((1, 4), 7.0), np.zeros(1, dtype=np.int64))  # moved into the box
    assert far.margins[0, 0] == pytest.approx(plain(network, np.ones((1, 4)))[0, 0] - threshold)


def test_the_same_seed_walks_the_same_ways(tmp_path: Path) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [4, 12, 12, 3], 3))
    prop = written(tmp_path, box_property([-1.0] * 4, [1.0] * 4, 3, "(assert (<= Y_0 Y_1))"), network)
    first, second = first_found(Attack(network, prop)), first_found(Attack(network, prop))
    assert first is not None
    assert second is not None
    assert first.point.tolist() == second.point.tolist()


# ------------------------------------------------------------ known violations

HARD = (  # few inputs, and violations in a thousandth of the box or less
    ("acasxu", "prop_8.vnnlib"),
    ("acasxu", "prop_2.vnnlib"),
    ("reach_prob_density", "robot_10.vnnlib"),
    ("reach_prob_density", "vdp_8.vnnlib"),
    ("marabou-cifar10", "networkcifar10_small_index1783_eps0.012"),
    ("oval21", "cifar_base_kw-img1598"),
)


@pytest.mark.parametrize(("family", "name"), HARD)
def test_violations_that_are_hard_to_find(vnncomp: Path, family: str, name: str) -> None:
    rows = [
        row
        for row in csv.DictReader((vnncomp / "manifest.csv").open())
        if row["family"] == family and row["verdict"] == "sat" and name in row["vnnlib"]
    ]
    assert rows
    for row in rows:
        network = load_network(vnncomp / row["onnx"])
        prop = read_property(
            vnncomp / row["vnnlib"], input_count=network.input_count, output_count=network.output_count
        )
        attack = Attack(network, prop)
        assert first_found(attack) or first_found(attack, Effort.THOROUGH), f"{row['onnx']} {row['vnnlib']}"
