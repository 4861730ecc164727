"""Which search comes first depends on how many inputs can be split, not on how their values are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boundscope.network import load_network
from boundscope.properties.read import read_property
from boundscope.protocol import Branching
from boundscope.search.complete import free_inputs, plan
from support.models import box_property, mlp

FREE = 8


@pytest.mark.parametrize("fixed", [0.1, -24.735, 0.5, 3e-300])
def test_an_input_that_is_fixed_at_a_decimal_is_not_free(tmp_path: Path, fixed: float) -> None:
    """A decimal that no float64 equals makes a box with two neighbours as its ends; no search can halve it."""
    inputs = 60
    low, high = [fixed] * inputs, [fixed] * inputs
    low[:FREE], high[:FREE] = [-1.0] * FREE, [1.0] * FREE
    path = tmp_path / "p.vnnlib"
    path.write_text(box_property(low, high, 2, "(assert (<= Y_0 0.0))"))
    network = load_network(mlp(tmp_path / "n.onnx", [inputs, 300, 2], seed=1))
    cases = read_property(path).cases
    assert free_inputs(cases[0]) == FREE
    assert plan(Branching.AUTO, network, cases)[0] is Branching.INPUT


def test_an_input_with_a_number_between_its_ends_is_free(tmp_path: Path) -> None:
    low, high = 0.5, float(np.nextafter(np.nextafter(0.5, 1), 1))
    path = tmp_path / "p.vnnlib"
    path.write_text(box_property([low], [high], 2, "(assert (<= Y_0 0.0))"))
    assert free_inputs(read_property(path).cases[0]) == 1
