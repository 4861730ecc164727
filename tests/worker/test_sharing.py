"""What the cases of one property share: the copies of the network for attacks, and the runs that replay witnesses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from boundscope.bounds import BoundEngine
from boundscope.protocol import Method, Verdict
from boundscope.search import replay as replay_module
from boundscope.worker import witness as witness_module
from support.jobs import verify

CASES = 5


def absorbing(folder: Path, dtype: type[np.floating]) -> Path:
    """y = (x + 2²⁴) − 2²⁴: over the reals x, in float32 an even number."""
    kind = TensorProto.FLOAT if dtype is np.float32 else TensorProto.DOUBLE
    nodes = [helper.make_node("Add", ["x", "c"], ["s"]), helper.make_node("Sub", ["s", "c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "absorbing",
        [helper.make_tensor_value_info("x", kind, [1, 1])],
        [helper.make_tensor_value_info("y", kind, [1, 1])],
        [numpy_helper.from_array(np.array([2.0**24], dtype), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "network.onnx"
    onnx.save(model, path)
    return path


def boxes(folder: Path) -> Path:
    """In each box y is at most 1.4 over the reals and 2 in float32."""
    path = folder / "p.vnnlib"
    ends = [(1.1 + number / 100, 1.4) for number in range(CASES)]
    parts = [f"(and (>= X_0 {low}) (<= X_0 {high}) (>= Y_0 1.5))" for low, high in ends]
    path.write_text(f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (or {' '.join(parts)}))")
    return path


class Counted:
    """Counts how often a class is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
        self.made: list[tuple[Any, ...]] = []
        real = getattr(where, name)

        def make(*args: Any, **options: Any) -> Any:
            self.made.append(args)
            return real(*args, **options)

        monkeypatch.setattr(where, name, make)


def test_witnesses_of_all_cases_are_replayed_by_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session costs a copy of the network; one with graph optimisation and one without are all that is needed."""
    sessions = Counted(monkeypatch, replay_module, "Session")
    attacks = Counted(monkeypatch, witness_module, "Attack")
    result = verify(absorbing(tmp_path, np.float32), boxes(tmp_path))
    assert result.verdict is Verdict.VERIFIED
    assert "ONNX Runtime in float32 violates" in result.reason
    assert len(sessions.made) == 2
    assert len(attacks.made) == 1


def test_a_float64_network_is_attacked_in_float64_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32 it would be another network, whose witnesses ONNX Runtime never reproduces."""
    sessions = Counted(monkeypatch, replay_module, "Session")
    attacks = Counted(monkeypatch, witness_module, "Attack")
    result = verify(absorbing(tmp_path, np.float64), boxes(tmp_path))
    assert result.verdict is Verdict.VERIFIED
    assert len(attacks.made) == 1
    assert sessions.made == []


def test_steps_of_one_box_share_its_hidden_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes of the margins are searched over the CROWN bounds that are there; two cases of one box have them in
    common."""
    methods: list[Method] = []
    real = BoundEngine.context

    def context(self: BoundEngine, box: Any, method: Method, **options: Any) -> Any:
        if len(box.lower) == 1 and box.lower[0] < box.upper[0]:
            methods.append(method)
        return real(self, box, method, **options)

    monkeypatch.setattr(BoundEngine, "context", context)
    prop = tmp_path / "p.vnnlib"
    parts = [f"(and (>= X_0 -1.0) (<= X_0 1.0) (>= Y_0 {bound}))" for bound in (1.2, 1.3)]
    prop.write_text(f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (or {' '.join(parts)}))")
    network = relus(tmp_path)
    result = verify(network, prop, method=Method.ALPHA_CROWN)
    assert result.verdict in (Verdict.VERIFIED, Verdict.UNKNOWN)
    assert methods[:2] == [Method.IBP, Method.CROWN]
    assert Method.CROWN not in methods[2:]
    assert Method.IBP not in methods[2:]


def relus(folder: Path) -> Path:
    """y = relu(x) + relu(−x) in two layers, at most 1 where |x| ≤ 1."""
    constants = {
        "A": np.array([[1.0, -1.0]], np.float32),
        "B": np.array([[1.0, 0.5], [0.5, 1.0]], np.float32),
        "C": np.array([[2 / 3], [2 / 3]], np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "B"], ["b"]),
        helper.make_node("Relu", ["b"], ["s"]),
        helper.make_node("MatMul", ["s", "C"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "relus",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "relus.onnx"
    onnx.save(model, path)
    return path
