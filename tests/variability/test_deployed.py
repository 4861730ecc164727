"""No sample may leave the interval that is proven for its point: hunted for on random networks, and told if it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.properties import read_property
from boundscope.protocol import RoundingMode
from boundscope.variability.deployed import meet, unit_roundoff
from boundscope.variability.inputs import draw_inputs
from boundscope.variability.moments import Moments
from boundscope.variability.moments_file import RunMoments
from boundscope.variability.sampling import Part, Perturbation, Sampler, layers_of
from boundscope.worker.proven import Deployed, deployed
from boundscope_prism import add, rounding
from support.models import box_property, convnet, mlp, save

MODES = tuple(RoundingMode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", [24, 8])
def test_no_operation_is_off_by_more_than_the_unit(mode: RoundingMode, precision: int) -> None:
    """Sums that float64 holds exactly, many just below a power of two, where the ulp changes; nearly all is reached."""
    random = np.random.default_rng(0)
    a = (2.0 - random.random(60_000) * 2.0 ** -random.integers(1, 24, 60_000)).astype(np.float32)
    b = (random.standard_normal(60_000) * 2.0 ** -random.integers(4, 26, 60_000)).astype(np.float32)
    exact = a.astype(np.float64) + b.astype(np.float64)
    chosen = None if precision == 24 else precision
    unit = unit_roundoff(mode, precision)
    errors = []
    for sample in range(4):
        how = rounding(mode.value, seed=1, sample=sample, precision=chosen, threads=1)
        errors.append(np.abs(np.asarray(add(a, b, how), np.float64) - exact) / np.abs(exact))
    assert np.max(errors) <= unit
    assert np.max(errors) > 0.45 * unit


def mixed(path: Path, seed: int) -> Path:
    """Products, sums, quotients, roots and functions in a row, with a branch that joins again."""
    random = np.random.default_rng(seed)
    constants = {
        "W1": (random.standard_normal((8, 12)) / 3).astype(np.float32),
        "b1": random.standard_normal((1, 12)).astype(np.float32),
        "W2": (random.standard_normal((12, 6)) / 3).astype(np.float32),
        "one": np.full((1, 1), 1.5, np.float32),
    }
    nodes: list[onnx.NodeProto] = [
        helper.make_node("MatMul", ["x", "W1"], ["m1"], "product"),
        helper.make_node("Add", ["m1", "b1"], ["s1"], "bias"),
        helper.make_node(["Tanh", "Sigmoid", "Elu"][seed % 3], ["s1"], ["t1"], "function"),
        helper.make_node("Mul", ["t1", "s1"], ["g1"], "gate"),
        helper.make_node("Sub", ["g1", "m1"], ["d1"], "difference"),
        helper.make_node("LeakyRelu", ["d1"], ["r1"], "leaky", alpha=0.1),
        helper.make_node("MatMul", ["r1", "W2"], ["m2"], "product2"),
        helper.make_node("Div", ["m2", "one"], ["q2"], "quotient"),
        helper.make_node("Softmax", ["q2"], ["y"], "softmax", axis=1),
    ]
    return save(path, nodes, constants, [1, 8], [1, 6])


def met(path: Path, folder: Path, mode: RoundingMode, precision: int | None, seed: int) -> Deployed:
    net = load_network(path)
    size = net.input_count
    text = box_property([-0.8] * size, [1.0] * size, net.output_count, "(assert (<= Y_0 Y_1))")
    (folder / "p.vnnlib").write_text(text)
    prop = read_property(folder / "p.vnnlib", input_count=size, output_count=net.output_count)
    inputs = draw_inputs(prop, net.inputs, 3, seed)
    sampler = Sampler(net, inputs, Perturbation(mode.value, seed, precision, 1), layers_of(net), Monitor())
    run = RunMoments.start("hunt", sampler.baseline()[0])
    Part(sampler, run, range(6)).run()
    return deployed(sampler, run, prop, mode, Monitor())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", [None, 8])
def test_hunt_for_a_sample_outside_the_proof(
    tmp_path: Path, mode: RoundingMode, precision: int | None
) -> None:
    for seed in range(3):
        paths = [
            mlp(tmp_path / "mlp.onnx", [6, 16, 12, 4], seed),
            convnet(tmp_path / "conv.onnx", seed),
            mixed(tmp_path / "mixed.onnx", seed),
        ]
        for path in paths:
            found = met(path, tmp_path, mode, precision, seed)
            assert found.note == "", found.note
            assert found.violations == (), f"{path.name}, {mode}, seed {seed}: {found.violations}"
            assert all(layer.observed <= layer.rounding for layer in found.layers)
            assert max(layer.used for layer in found.layers) > 0.005
            # The engine bounds x·sigmoid(x) as one function, whose inner tensor then has no width.
            assert all(layer.width is None or layer.width > 0 for layer in found.layers)
            assert found.layers[-1].width is not None


def test_a_sample_outside_is_told_with_place_and_seed() -> None:
    moments = Moments(np.ones((1, 2), np.float32), "fc")
    for number, value in enumerate((1.0, 1.25)):
        moments.update(number, np.array([[1.0, value]], np.float32))
    lower, upper = np.full((1, 2), 0.875), np.full((1, 2), 1.125)
    how = Perturbation("sr", 99)
    found = meet(moments, lower, upper, how)
    assert "fc, point 0, element [1]: proven 0.875 to 1.125, samples reach from 1 to 1.25" in found.violation
    assert "seed 99, samples 0 to 1" in found.violation
    assert found.used == 1.0
    assert meet(moments, lower, upper + 0.25, how).violation == ""


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sample_that_is_no_number_is_outside(value: float) -> None:
    moments = Moments(np.ones(1, np.float32), "fc")
    for number, one in enumerate((1.0, value)):
        moments.update(number, np.array([one], np.float32))
    assert meet(moments, np.zeros(1), np.full(1, 2.0), Perturbation("sr", 1)).violation


def test_what_has_no_bound_is_said(tmp_path: Path) -> None:
    """8 bits leave no bound on a sum of hundreds of products: no row is made up."""
    path = mlp(tmp_path / "wide.onnx", [400, 4], 0)
    found = met(path, tmp_path, RoundingMode.UD, 8, 0)
    assert found.layers == ()
    assert "no rounding is proven from node 'fc1' on" in found.note


def test_layers_before_one_without_a_bound_are_compared(tmp_path: Path) -> None:
    path = mlp(tmp_path / "wide.onnx", [4, 300, 4], 0)
    found = met(path, tmp_path, RoundingMode.UD, 8, 0)
    assert [layer.layer for layer in found.layers] == ["fc1", "relu1"]
    assert "no rounding is proven from node 'fc2' on" in found.note
