"""Networks whose outputs jump have no gradient to follow: they are sampled, bounded and judged all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from boundscope.protocol import Method, Verdict
from support.enclosure import network_of
from support.jobs import verify
from support.models import box_property

N = helper.make_node


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN, Method.ALPHA_CROWN])
@pytest.mark.parametrize(
    ("lower", "upper", "asserts", "verdict"),
    [
        ([0.0, 2.0], [1.0, 3.0], "(assert (<= Y_0 0.5))", Verdict.VERIFIED),
        ([0.0, 2.0], [1.0, 3.0], "(assert (>= Y_0 0.5))", Verdict.VIOLATED),
        ([2.0, 0.0], [3.0, 2.5], "(assert (>= Y_0 1.5))", Verdict.VERIFIED),
    ],
)
def test_an_index_as_output(
    tmp_path: Path, method: Method, lower: list[float], upper: list[float], asserts: str, verdict: Verdict
) -> None:
    nodes = [
        N("Gemm", ["x", "W"], ["h"], "mix"),
        N("ArgMax", ["h"], ["i"], "largest", axis=1),
        N("Cast", ["i"], ["y"], "number", to=TensorProto.FLOAT),
    ]
    network_of(tmp_path, nodes, 2, {"W": np.eye(2, dtype=np.float32)})
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property(lower, upper, 1, asserts))
    result = verify(tmp_path / "network.onnx", prop, method=method)
    assert result.verdict is verdict, result.reason
