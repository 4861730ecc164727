"""A search for sources names the layer that makes the noise, and what it says adds up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.protocol import SourceSearch
from boundscope.variability.inputs import Inputs
from boundscope.variability.sampling import Perturbation, Sampler, layers_of
from boundscope.variability.source import Search, Source
from support.models import convnet, save

SAMPLES = 30


def search(path: Path, points: np.ndarray, how: SourceSearch, mode: str = "sr") -> list[Source]:
    net = load_network(path)
    values = Inputs({"x": points.astype(np.float32)}, "test")
    sampler = Sampler(net, values, Perturbation(mode, 5, None, 1), layers_of(net), Monitor())  # type: ignore[arg-type]
    baseline, coverage = sampler.baseline()
    nodes = [row.layer for row in coverage.layers() if row.total]
    return Search(sampler, baseline, SAMPLES).run(how, nodes)


def noisy(path: Path) -> Path:
    """Whole numbers, which never round; then 4096 added and taken away again, which loses 12 bits; then a product."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "W1"], ["h1"], "exact"),
        helper.make_node("Mul", ["h1", "third"], ["h2"], "third"),
        helper.make_node("Add", ["h2", "far"], ["h3"], "away"),
        helper.make_node("Sub", ["h3", "far"], ["h4"], "back"),
        helper.make_node("MatMul", ["h4", "W2"], ["y"], "fc"),
    ]
    constants = {
        "W1": random.integers(-3, 4, (6, 6)).astype(np.float32),
        "third": np.full((1, 1), 1 / 3, np.float32),
        "far": np.full((1, 1), 4096, np.float32),
        "W2": random.standard_normal((6, 4)).astype(np.float32),
    }
    return save(path, nodes, constants, [1, 6], [1, 4])


@pytest.mark.parametrize("how", [SourceSearch.ONE, SourceSearch.ALL_BUT_ONE, SourceSearch.BISECT])
def test_the_layer_that_makes_the_noise_is_first(tmp_path: Path, how: SourceSearch) -> None:
    points = np.random.default_rng(1).integers(-4, 5, (8, 1, 6))
    found = search(noisy(tmp_path / "n.onnx"), points, how)
    assert found[0].nodes == ("away",)
    assert found[0].share == pytest.approx(1.0, abs=0.02)
    assert sorted(name for source in found for name in source.nodes) == [
        "away",
        "back",
        "exact",
        "fc",
        "third",
    ]


def test_a_layer_that_never_rounds_causes_nothing(tmp_path: Path) -> None:
    points = np.random.default_rng(1).integers(-4, 5, (8, 1, 6))
    found = {
        source.nodes[0]: source for source in search(noisy(tmp_path / "n.onnx"), points, SourceSearch.ONE)
    }
    assert found["exact"].caused.deviation == 0.0
    assert found["exact"].caused.bits is None
    assert found["back"].caused.deviation == 0.0


@pytest.mark.parametrize(("mode", "low", "high"), [("ud", 0.85, 1.25), ("sr", 1.0, 2.5)])
def test_variances_of_layers_add_up(tmp_path: Path, mode: str, low: float, high: float) -> None:
    """To one under UD. Under SR to more: rounding to nearest after a perturbed layer differs from sample to sample."""
    points = np.random.default_rng(1).random((6, 1, 2, 6, 6))
    found = search(convnet(tmp_path / "c.onnx"), points, SourceSearch.ONE, mode)
    assert low < sum(source.share or 0.0 for source in found) < high


def test_bisecting_leaves_groups_that_cause_little(tmp_path: Path) -> None:
    points = np.random.default_rng(1).integers(-4, 5, (8, 1, 6))
    found = search(noisy(tmp_path / "n.onnx"), points, SourceSearch.BISECT)
    assert len(found) < 5
    assert all(source.share is not None and source.share < 0.05 for source in found if len(source.nodes) > 1)
