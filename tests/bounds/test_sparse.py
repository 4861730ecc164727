"""Large matrices that are nearly all zero: the same bounds as by dense products, from the elements that are not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Arithmetic, Method
from boundscope.sharding.weights import LARGE_ELEMENTS, WholeWeights
from support.models import save

SIZE = 520


class Dense(WholeWeights):
    def sparse(self, name: str, dtype: torch.dtype) -> torch.Tensor | None:
        return None


def network(folder: Path, shape: list[int], *, left: bool) -> Network:
    """Two sparse products, each with a bias and a Relu, and a sum with four columns or rows of weights."""
    random = np.random.default_rng(0)
    matrices = np.zeros((2, SIZE, SIZE), np.float32)
    for matrix in matrices:
        for _ in range(2):
            matrix[np.arange(SIZE), random.integers(0, SIZE, SIZE)] = random.standard_normal(SIZE)
    last = random.standard_normal((4, SIZE) if left else (SIZE, 4)).astype(np.float32)
    constants = {"A": matrices[0], "B": matrices[1], "C": last, "b": np.float32([0.1])}
    assert matrices[0].size >= LARGE_ELEMENTS
    nodes, x = [], "x"
    for number, name in enumerate("ABC"):
        inputs = [name, x] if left else [x, name]
        out = "y" if name == "C" else f"p{number}"
        nodes.append(helper.make_node("MatMul", inputs, [out], f"product{number}"))
        if name != "C":
            nodes.append(helper.make_node("Add", [out, "b"], [f"s{number}"], f"add{number}"))
            nodes.append(helper.make_node("Relu", [f"s{number}"], [f"r{number}"], f"relu{number}"))
            x = f"r{number}"
    out_shape = [4, *shape[1:]] if left else [1, 4]
    return load_network(save(folder / "n.onnx", nodes, constants, shape, out_shape))


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN, Method.ALPHA_CROWN])
@pytest.mark.parametrize(("shape", "left"), [([1, SIZE], False), ([SIZE], True), ([SIZE, 2], True)])
def test_the_elements_alone_give_the_bounds_of_the_matrix(
    tmp_path: Path, method: Method, shape: list[int], left: bool
) -> None:
    net = network(tmp_path, shape, left=left)
    centre = np.random.default_rng(1).standard_normal(net.input_count)
    low, high = centre - 0.05, centre + 0.05
    box = Box(tuple(map(repr, low.tolist())), tuple(map(repr, high.tolist())), low, high)
    rows = [LinearConstraint(np.array([0, 1]), np.array([1.0, -1.0]), bound=Fraction(1000))]
    found = []
    for store in (WholeWeights, Dense):
        ledger = MemoryLedger()
        weights = store(net.constants, ledger, torch.device("cpu"), torch.float64)
        engine = BoundEngine(net, weights, ledger, arithmetic=Arithmetic.FLOAT32)
        context = engine.context(box, method)
        found.append((context.intervals, engine.margins(context, rows, method).item()))
    assert weights.sparse("A", torch.float64) is None
    assert WholeWeights.sparse(weights, "A", torch.float64) is not None
    (few, margin), (whole, same) = found
    tolerance = 1e-3 if method is Method.ALPHA_CROWN else 1e-5
    assert margin == pytest.approx(same, rel=tolerance)
    assert set(few) == set(whole)
    for name, interval in few.items():
        width = float((whole[name].upper - whole[name].lower).mean())
        assert torch.allclose(interval.lower, whole[name].lower, rtol=0, atol=tolerance * width), name
        assert torch.allclose(interval.upper, whole[name].upper, rtol=0, atol=tolerance * width), name
    random = np.random.default_rng(2)
    for _ in range(50):
        point = np.where(random.random(len(low)) < 0.5, low, high)
        values = net.evaluate({"x": torch.from_numpy(point).reshape(shape)})["y"]
        assert bool((values >= few["y"].lower).all())
        assert bool((values <= few["y"].upper).all())
