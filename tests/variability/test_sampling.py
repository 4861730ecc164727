"""Samples of real networks show the deviation that the arithmetic says, and the same bits however they are taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from boundscope.errors import CancelledError, DeadlineError, OutOfMemoryError, VariabilityError
from boundscope.monitor import Monitor
from boundscope.network import Network, load_network
from boundscope.variability.digits import Kind, digits, estimate_noise_bits
from boundscope.variability.inputs import Inputs
from boundscope.variability.moments_file import RunMoments, merged
from boundscope.variability.sampling import (
    Part,
    Perturbation,
    Sampler,
    class_axes,
    layers_of,
    require_memory,
    share,
)
from support.models import convnet, save

SAMPLES = 20


def inputs(values: np.ndarray) -> Inputs:
    return Inputs({"x": np.ascontiguousarray(values, np.float32)}, "test")


def network(
    path: Path, nodes: Sequence[onnx.NodeProto], constants: dict[str, np.ndarray], size: int, out: int
) -> Network:
    return load_network(save(path, nodes, constants, [1, size], [1, out]))


def sampler(net: Network, points: np.ndarray, mode: str = "sr", **changes: object) -> Sampler:
    how = Perturbation(mode, seed=11, threads=1, **changes)  # type: ignore[arg-type]
    return Sampler(net, inputs(points), how, layers_of(net))


def taken(source: Sampler, numbers: Iterable[int]) -> RunMoments:
    run = RunMoments.start("test", source.baseline()[0], class_axes(source.layers))
    Part(source, run, tuple(numbers)).run()
    return run


def same_bits(one: RunMoments, other: RunMoments) -> bool:
    states = [(one.layers[name].state(), other.layers[name].state()) for name in one.layers]
    states += [(one.decisions[name].state(), other.decisions[name].state()) for name in one.decisions]
    return one.numbers == other.numbers and all(
        first.keys() == second.keys() and all(first[key].tobytes() == second[key].tobytes() for key in first)
        for first, second in states
    )


# ------------------------------------------------------------ known answers


def test_exact_arithmetic_is_exact_under_sr(tmp_path: Path) -> None:
    """A linear layer of small whole numbers never rounds."""
    random = np.random.default_rng(0)
    weights = random.integers(-8, 9, (16, 5)).astype(np.float32)
    net = network(
        tmp_path / "n.onnx", [helper.make_node("MatMul", ["x", "W"], ["y"], "fc")], {"W": weights}, 16, 5
    )
    run = taken(sampler(net, random.integers(-8, 9, (7, 1, 16))), range(SAMPLES))
    assert (digits(run.layers["fc"]).kind == Kind.EXACT).all()


@pytest.mark.parametrize(("mode", "deviation"), [("sr", np.sqrt(3) / 4), ("ud", 3 / 4)])
def test_a_sum_with_cancellation(tmp_path: Path, mode: str, deviation: float) -> None:
    """1 + 2^-25 - (1 - 2^-10): the one sum that SR rounds deviates by sqrt(3)/4 ulp of 1, and the difference makes
    that all but 14.2 bits of the result. UD moves the rounded sum, 1, by an ulp up or by half of one down."""
    nodes = [
        helper.make_node("Add", ["x", "a"], ["s"], "sum"),
        helper.make_node("Sub", ["s", "b"], ["y"], "difference"),
    ]
    constants = {
        "a": np.full((1, 1), 2.0**-25, np.float32),
        "b": np.full((1, 1), 1 - 2.0**-10, np.float32),
    }
    net = network(tmp_path / "n.onnx", nodes, constants, 1, 1)
    run = taken(sampler(net, np.ones((400, 1, 1)), mode), range(SAMPLES))
    found = digits(run.layers["difference"])
    expected = -np.log2(deviation * 2.0**-23 / 2.0**-10)
    assert (found.kind != Kind.EXACT).mean() > 0.9
    bits = found.deviation_bits[found.relative]
    # The deviation over all elements, for single ones are exact now and then.
    variance = (2.0 ** (-2 * bits)).mean()
    assert -0.5 * np.log2(variance) == pytest.approx(expected, abs=0.15)


def deviation_from_reference(net: Network, points: np.ndarray, mode: str) -> tuple[float, float]:
    """Bits lost by the samples' own deviation, and by their distance from a float64 evaluation, over the output."""
    source = sampler(net, points, mode)
    run = taken(source, range(SAMPLES))
    (info,) = net.outputs
    exact = np.stack(
        [
            net.evaluate({"x": torch.from_numpy(point.astype(np.float32)).to(torch.float64)})[
                info.name
            ].numpy()[0]
            for point in points
        ]
    )
    name = source.layers[-1].name
    samples = np.stack([source.sample(number)[name].astype(np.float64) for number in range(SAMPLES)])
    distance = np.sqrt(((samples - exact) ** 2).mean() / (exact**2).mean())
    totals = run.layers[name].totals()
    deviation = np.sqrt((totals.std(ddof=1) ** 2).mean() / (exact**2).mean())
    return float(-np.log2(deviation)), float(-np.log2(distance))


def test_a_softmax_deviates_as_far_as_it_is_from_the_exact_one(tmp_path: Path) -> None:
    """SR has no bias to first order, so its deviation is its error."""
    net = network(
        tmp_path / "n.onnx", [helper.make_node("Softmax", ["x"], ["y"], "softmax", axis=1)], {}, 12, 12
    )
    points = np.random.default_rng(3).standard_normal((40, 1, 12)).astype(np.float32)
    deviation, error = deviation_from_reference(net, points, "sr")
    assert deviation == pytest.approx(error, abs=0.15)
    assert 20 < deviation < 26


def test_a_deep_residual_chain(tmp_path: Path) -> None:
    """Noise adds up over 24 blocks of x + 0.3·W·tanh(x) exactly as errors do; under UD it is more than a bit more."""
    random = np.random.default_rng(5)
    nodes, constants, x = [], {}, "x"
    for block in range(24):
        constants[f"W{block}"] = (0.3 * random.standard_normal((10, 10)) / np.sqrt(10)).astype(np.float32)
        out = "y" if block == 23 else f"x{block}"
        nodes += [
            helper.make_node("Tanh", [x], [f"t{block}"], f"tanh{block}"),
            helper.make_node("MatMul", [f"t{block}", f"W{block}"], [f"z{block}"], f"fc{block}"),
            helper.make_node("Add", [x, f"z{block}"], [out], f"add{block}"),
        ]
        x = out
    net = network(tmp_path / "n.onnx", nodes, constants, 10, 10)
    points = random.standard_normal((12, 1, 10)).astype(np.float32)
    sr, error = deviation_from_reference(net, points, "sr")
    ud, _ = deviation_from_reference(net, points, "ud")
    assert sr == pytest.approx(error, abs=estimate_noise_bits(SAMPLES))
    assert 0.8 < sr - ud < 2.2


def test_virtual_precision_costs_as_many_bits_as_it_leaves_out(tmp_path: Path) -> None:
    net = load_network(convnet(tmp_path / "c.onnx"))
    points = np.random.default_rng(1).random((4, 1, 2, 6, 6))
    whole, half = sampler(net, points), sampler(net, points, precision=11)
    found = [digits(taken(source, range(SAMPLES)).layers["fc3"]) for source in (whole, half)]
    lost = found[0].deviation_bits.mean() - found[1].deviation_bits.mean()
    assert lost == pytest.approx(13, abs=0.6)


def test_more_bits_than_the_network_has_are_refused(tmp_path: Path) -> None:
    net = load_network(convnet(tmp_path / "c.onnx"))
    with pytest.raises(VariabilityError, match="cannot be instrumented: precision: expected at most the 24"):
        sampler(net, np.zeros((1, 1, 2, 6, 6)), precision=30).sample(0)


def test_a_network_with_two_inputs_in_float64(tmp_path: Path) -> None:
    """Digits are of the network's own type: a quotient of float64 numbers keeps about 53 bits."""
    shapes = {"a": [1, 5], "b": [1, 5]}
    graph = helper.make_graph(
        [helper.make_node("Div", ["a", "b"], ["y"], "ratio")],
        "test",
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, shape)
            for name, shape in shapes.items()
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [1, 5])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
        tmp_path / "n.onnx",
    )
    random = np.random.default_rng(0)
    values = {name: 1.0 + random.random((30, 1, 5)) for name in shapes}
    net = load_network(tmp_path / "n.onnx")
    source = Sampler(net, Inputs(values, "test"), Perturbation("sr", 1, None, 1), layers_of(net))
    found = digits(taken(source, range(SAMPLES)).layers["ratio"])
    assert found.kind.shape == (30, 5)
    assert 52.5 < found.deviation_bits[found.relative].mean() < 55


# ------------------------------------------------------------ the same bits


def test_any_number_of_ranks_gives_the_same_bits(tmp_path: Path) -> None:
    source = sampler(
        load_network(convnet(tmp_path / "c.onnx")), np.random.default_rng(2).random((2, 1, 2, 6, 6))
    )
    alone = taken(source, range(7))
    for size in (2, 3):
        parts = [taken(source, share(range(7), rank, size)) for rank in range(size)]
        assert same_bits(merged(reversed(parts)), alone)


def test_shares_are_ranges_of_all_numbers() -> None:
    for size in (1, 2, 3, 5):
        parts = [share((0, 1, 3, 4, 5, 8), rank, size) for rank in range(size)]
        assert sum(parts, ()) == (0, 1, 3, 4, 5, 8)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_more_points_leave_the_first_as_they_are(tmp_path: Path) -> None:
    """Operations are numbered through the points of a sample."""
    net = load_network(convnet(tmp_path / "c.onnx"))
    points = np.random.default_rng(2).random((3, 1, 2, 6, 6))
    few, more = (sampler(net, part).sample(4)["fc3"] for part in (points[:2], points))
    assert few.tobytes() == more[:2].tobytes()


def test_equal_points_have_random_words_of_their_own(tmp_path: Path) -> None:
    net = load_network(convnet(tmp_path / "c.onnx"))
    found = sampler(net, np.full((2, 1, 2, 6, 6), 0.3)).sample(0)["conv1"]
    assert (found[0] != found[1]).any()


def test_a_layer_alone_is_perturbed_where_it_is_selected(tmp_path: Path) -> None:
    """What comes before it keeps the baseline's bits, and nothing else adds noise after it."""
    source = sampler(
        load_network(convnet(tmp_path / "c.onnx")), np.random.default_rng(2).random((2, 1, 2, 6, 6))
    )
    baseline, coverage = source.baseline()
    assert coverage.complete
    found = source.sample(0, select=lambda name: name == "conv2")
    changed = [name for name in baseline if found[name].tobytes() != baseline[name].tobytes()]
    assert changed[0] == "conv2"
    nothing = source.sample(0, select=lambda name: False)
    assert all(nothing[name].tobytes() == baseline[name].tobytes() for name in baseline)


# ------------------------------------------------------------ stopping


class _StopsAfter(Monitor):
    """Asked for the `steps`-th time, it raises `error`."""

    def __init__(self, steps: int, error: Exception) -> None:
        super().__init__()
        self.left, self.error = steps, error

    def check(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.mark.parametrize("error", [CancelledError("stop"), DeadlineError("late")])
def test_a_stop_in_mid_sample_loses_that_sample_only(tmp_path: Path, error: Exception) -> None:
    """What was taken before is whole, and a resumed run has the bits of one that was never stopped."""
    source = sampler(
        load_network(convnet(tmp_path / "c.onnx")), np.random.default_rng(2).random((2, 1, 2, 6, 6))
    )
    whole = taken(source, range(5))
    run = RunMoments.start("test", source.baseline()[0], class_axes(source.layers))
    source.monitor = _StopsAfter(2 * 10 * 2 + 7, error)  # 2 points of 10 nodes a sample: in the third sample
    with pytest.raises(type(error)):
        Part(source, run, range(5)).run()
    assert run.numbers == (0, 1)
    run.save(tmp_path / "run.npz")
    source.monitor = Monitor()
    resumed = RunMoments.load(tmp_path / "run.npz", "test")
    Part(source, resumed, resumed.missing(5)).run()
    assert same_bits(resumed, whole)


# ------------------------------------------------------------ layers


def test_layers_by_pattern_and_outputs_always(tmp_path: Path) -> None:
    net = load_network(convnet(tmp_path / "c.onnx"))
    assert [layer.name for layer in layers_of(net, ["conv*", "relu?"])] == [
        "conv1",
        "relu1",
        "conv2",
        "relu2",
        "fc3",
    ]
    with pytest.raises(VariabilityError, match=r"no layer is called 'bn\*'; the network has conv1"):
        layers_of(net, ["bn*"])


def test_decisions_are_of_outputs_with_classes(tmp_path: Path) -> None:
    layers = layers_of(load_network(convnet(tmp_path / "c.onnx")))
    assert class_axes(layers) == {"fc3": 1}
    assert class_axes(layers, 2) == {}


def test_too_much_memory_is_refused_with_the_largest_layers(tmp_path: Path) -> None:
    layers = layers_of(load_network(convnet(tmp_path / "c.onnx")))
    require_memory(layers, 10, 10, 1 << 30)
    with pytest.raises(OutOfMemoryError, match=r"10 layers over 1000 points need .* MiB.*--layers"):
        require_memory(layers, 1000, 10, 1 << 20)
