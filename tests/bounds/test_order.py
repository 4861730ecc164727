"""ArgMax is decided by the differences of what it compares: sound everywhere, and as tight as these are."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from boundscope.bounds import BoundEngine
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.network.lowering import lowered
from boundscope.network.operators.activation import Softmax
from boundscope.network.operators.order import ArgMaxOfDifferences
from boundscope.properties import read_property
from boundscope.properties.types import LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, assert_holds, box_of, engine_of, network_of, points_of

N = helper.make_node
FLOAT = TensorProto.FLOAT
SETTINGS = settings(
    max_examples=16,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def pixels(folder: Path, weights: NDArray, bias: NDArray, *, softmax: bool = True, axis: int = 1) -> Network:
    """Like a segmentation network: logits [1, K, 2, 2] of ReLU features, Softmax over `axis`, ArgMax over K, and the
    number of pixels whose class is 1."""
    classes = weights.shape[0] // 4
    nodes = [
        N("Gemm", ["x", "F"], ["f"], "features", transB=1),
        N("Relu", ["f"], ["r"], "relu"),
        N("Gemm", ["r", "W", "b"], ["z"], "logits", transB=1),
        N("Reshape", ["z", "image"], ["i"]),
        N("Transpose", ["i"], ["t"], perm=[0, 3, 2, 1]),
        *([N("Softmax", ["t"], ["s"], axis=4 - axis)] if softmax else [N("Identity", ["t"], ["s"])]),
        N("Transpose", ["s"], ["u"], perm=[0, 3, 2, 1]),
        N("Gather", ["u", "first"], ["g"], axis=0),
        N("ArgMax", ["g"], ["a"], axis=0, keepdims=0),
        N("Equal", ["a", "one"], ["e"]),
        N("Cast", ["e"], ["c"], to=FLOAT),
        N("ReduceSum", ["c"], ["y"], keepdims=0),
    ]
    features = np.random.default_rng(0).standard_normal((weights.shape[1], 3)).astype(np.float32)
    constants = {
        "F": features,
        "W": weights.astype(np.float32),
        "b": bias.astype(np.float32),
        "image": np.array([1, classes, 2, 2], np.int64),
        "first": np.array(0, np.int64),
        "one": np.array(1, np.int64),
    }
    return network_of(folder, nodes, 3, constants)


def alike(classes: int) -> tuple[NDArray, NDArray]:
    """Logits of a pixel are equal but for a constant: class 1 leads by 0.5."""
    shared = np.random.default_rng(1).standard_normal((4, 8))
    bias = np.zeros((classes, 4))
    bias[1] = 0.5
    return np.concatenate([shared] * classes), bias.ravel()


def count(engine: BoundEngine, radius: float, method: Method) -> tuple[float, float]:
    """Bounds of the number of pixels of class 1."""
    context = engine.context(box_of(np.full(3, 0.2 - radius), np.full(3, 0.2 + radius)), method)
    rows = [LinearConstraint(np.arange(1), np.array([sign]), bound=Fraction(0)) for sign in (1.0, -1.0)]
    low, high = engine.margins(context, rows, method).tolist()
    return low, -high


@pytest.mark.parametrize("softmax", [True, False])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", METHODS[1:])
def test_what_logits_share_cancels(
    tmp_path: Path, method: Method, arithmetic: Arithmetic, classes: int, softmax: bool
) -> None:
    """Intervals of the logits overlap by far, their differences are constant: every pixel is decided."""
    network = pixels(tmp_path, *alike(classes), softmax=softmax)
    low, high = count(engine_of(network, arithmetic), 2.0, method)
    assert (low, high) == pytest.approx((4.0, 4.0), abs=1e-4)


def test_a_softmax_of_other_groups_stays(tmp_path: Path) -> None:
    """Over another axis than the ArgMax it does not keep the order of what is compared."""
    other = lowered(pixels(tmp_path, *alike(2), axis=2))
    assert any(isinstance(node.op, Softmax) for node in other.nodes)
    same = lowered(pixels(tmp_path, *alike(2)))
    assert not any(isinstance(node.op, Softmax) for node in same.nodes)
    assert sum(isinstance(node.op, ArgMaxOfDifferences) for node in same.nodes) == 1


@pytest.mark.parametrize("method", METHODS)
@SETTINGS
@given(
    classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    radius=st.sampled_from([0.0, 1e-7, 0.05, 0.5, 3.0]),
    softmax=st.booleans(),
    axis=st.sampled_from([1, 2]),
    arithmetic=st.sampled_from(list(Arithmetic)),
)
def test_values_lie_inside(
    tmp_path: Path,
    method: Method,
    classes: int,
    seed: int,
    radius: float,
    softmax: bool,
    axis: int,
    arithmetic: Arithmetic,
) -> None:
    """Of the rewritten network too, in either arithmetic; in float32 some pixels have equal logits."""
    random = np.random.default_rng(seed)
    weights = random.standard_normal((classes * 4, 8))
    if arithmetic is Arithmetic.FLOAT32:  # over the reals, float64 values at ties say nothing
        weights[4:8:2] = weights[:4:2]
    network = pixels(tmp_path, weights, np.zeros(classes * 4), softmax=softmax, axis=axis)
    centre = random.standard_normal(3).astype(np.float32).astype(np.float64)
    assert_holds(lowered(network), centre - radius, centre + radius, method, arithmetic, seed=seed)


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
def test_the_first_of_equal_logits_is_the_largest(tmp_path: Path, arithmetic: Arithmetic) -> None:
    nodes = [N("ArgMax", ["x"], ["i"], axis=1), N("Cast", ["i"], ["y"], to=FLOAT)]
    network = network_of(tmp_path, nodes, 3)
    for method in METHODS:
        assert_holds(network, np.array([1.0, 1.0, 0.0]), np.array([1.0, 1.0, 2.0]), method, arithmetic)


def test_what_a_float32_softmax_cannot_tell_apart_stays_open(tmp_path: Path) -> None:
    """Logits one float32 apart have equal probabilities in float32, and the first of them wins there; over the reals
    the second does. Neither is excluded."""
    nodes = [
        N("Softmax", ["x"], ["s"], axis=1),
        N("ArgMax", ["s"], ["i"], axis=1),
        N("Cast", ["i"], ["y"], to=FLOAT),
    ]
    network = network_of(tmp_path, nodes, 2)
    near = float(np.nextafter(np.float32(1e-3), np.float32(1)))
    for arithmetic in Arithmetic:
        for method in METHODS:
            box = box_of([1e-3, near], [1e-3, near])
            interval = engine_of(network, arithmetic).context(box, method).intervals["y"]
            assert (interval.lower.item(), interval.upper.item()) == (0.0, 1.0)


def test_many_classes_are_compared_by_their_intervals(tmp_path: Path) -> None:
    """Pairs grow with the square of the classes: beyond a number of these the ArgMax stays as it is."""
    nodes = [N("ArgMax", ["x"], ["i"], axis=1), N("Cast", ["i"], ["y"], to=FLOAT)]
    network = network_of(tmp_path, nodes, 40)
    assert [node.op.onnx_type for node in lowered(network).nodes] == ["ArgMax", "Cast"]


def test_pixels_of_a_segmentation_are_decided(vnncomp: Path) -> None:
    """How many of 1457 pixels match the mask, by a network with Softmax, ArgMax, OneHot and Equal at its end."""
    folder = vnncomp / "carvana_unet"
    network = load_network(folder / "onnx/unet_simp_small.onnx.gz")
    prop = read_property(sorted(folder.glob("vnnlib/*"))[0], input_count=network.input_count)
    whole = prop.cases[0].box
    centre = (whole.lower + whole.upper) / 2
    box = box_of(np.maximum(whole.lower, centre - 1e-5), np.minimum(whole.upper, centre + 1e-5))
    interval = engine_of(network, Arithmetic.FLOAT32).context(box, Method.CROWN_IBP).intervals["out_num"]
    assert interval.lower.item() > 1440
    for point in points_of(box, 6, 0, np.float32):
        inputs = {"input": torch.from_numpy(point.astype(np.float32)).reshape(network.inputs[0].shape)}
        assert interval.lower.item() <= network.evaluate(inputs)["out_num"].item() <= interval.upper.item()
