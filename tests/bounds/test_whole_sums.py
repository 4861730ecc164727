"""Sums of whole numbers are computed without rounding, and only those are taken to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from boundscope.protocol import Method
from support.enclosure import box_of, engine_of, network_of


@pytest.mark.parametrize(
    ("weights", "point", "exact"),
    [
        ([1.0, -1.0, 3.0], [0.5, 0.25, 7.0], True),
        ([1.0, -1.0, 1.0], [0.1, 0.25, 7.0], False),  # 0.1 is no multiple of the grid
        ([1.0, -0.5, 0.1], [0.5, 0.25, 7.0], False),  # nor are the products of these weights
        ([1.0, -1.0, 3.0], [2.0**40, 0.25, 7.0], False),  # a sum that float64 may not hold on the way
    ],
)
def test_a_sum_is_exact_where_float64_holds_it(
    tmp_path: Path, weights: list[float], point: list[float], exact: bool
) -> None:
    network = network_of(
        tmp_path,
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        3,
        {"W": np.array(weights, dtype=np.float32).reshape(3, 1)},
    )
    values = np.array(point)
    interval = engine_of(network).context(box_of(values, values), Method.IBP).intervals["y"]
    true = float(np.float32(weights).astype(np.float64) @ values)
    assert float(interval.lower) <= true <= float(interval.upper)
    assert (float(interval.lower) == float(interval.upper)) is exact
