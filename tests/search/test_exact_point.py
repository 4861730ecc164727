"""One point over the reals: what is said to hold does, and what cannot be told apart is not said to hold."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from boundscope.network.graph import Network
from boundscope.properties.types import LinearConstraint
from boundscope.search.exact_point import holds_over_the_reals
from support.enclosure import network_of

N = helper.make_node


def at_most(bound: Fraction, *, strict: bool = False, output: int = 0) -> LinearConstraint:
    return LinearConstraint(np.array([output]), np.array([1.0]), bound, strict)


def between(network: Network, inputs: list[Fraction], value: float, width: float, output: int = 0) -> bool:
    """Whether the output is proven to lie within `width` of a value, and not proven to lie below or above that."""
    low, high = Fraction(value) - Fraction(width), Fraction(value) + Fraction(width)
    over = LinearConstraint(np.array([output]), np.array([-1.0]), -low)
    return (
        holds_over_the_reals(network, inputs, [at_most(high, output=output), over])
        and not holds_over_the_reals(network, inputs, [at_most(low, output=output)])
        and not holds_over_the_reals(
            network, inputs, [LinearConstraint(np.array([output]), np.array([-1.0]), -high)]
        )
    )


def image_network(folder: Path) -> Network:
    """Grouped and padded convolutions with strides and dilations, pooling, picking, joining, a quotient."""
    random = np.random.default_rng(0)
    constants = {
        "image": np.array([1, 2, 6, 6], dtype=np.int64),
        "W": random.standard_normal((4, 1, 3, 3)).astype(np.float32),
        "b": random.standard_normal(4).astype(np.float32),
        "V": random.standard_normal((3, 4, 2, 2)).astype(np.float32),
        "flat": np.array([1, -1], dtype=np.int64),
        "three": np.array([3.0], dtype=np.float32),
    }
    nodes = [
        N("Reshape", ["x", "image"], ["i"]),
        N("Conv", ["i", "W", "b"], ["c"], group=2, pads=[1, 0, 2, 1], strides=[1, 2]),
        N("Relu", ["c"], ["r"]),
        N("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], pads=[0, 1, 1, 0], strides=[1, 1]),
        N("Conv", ["p", "V"], ["v"], dilations=[2, 1]),
        N("Transpose", ["v"], ["t"], perm=[0, 2, 3, 1]),
        N("Reshape", ["t", "flat"], ["f"]),
        N("Abs", ["f"], ["a"]),
        N("Add", ["a", "three"], ["d"]),
        N("Div", ["f", "d"], ["q"]),
        N("Mul", ["q", "f"], ["m"]),
        N("Concat", ["m", "q"], ["y"], axis=1),
    ]
    return network_of(folder, nodes, 72, constants)


def test_it_computes_what_the_network_computes(tmp_path: Path) -> None:
    network = image_network(tmp_path)
    random = np.random.default_rng(1)
    point = random.uniform(-1, 1, 72).round(3)
    inputs = [Fraction(repr(float(value))) for value in point]
    outputs = network.evaluate({"x": torch.from_numpy(point).reshape(1, 72)})["y"].reshape(-1).tolist()
    assert len(outputs) > 10
    for index, value in enumerate(outputs):
        assert between(network, inputs, value, 1e-11, index)


def test_a_margin_of_nothing_holds_where_equality_counts(tmp_path: Path) -> None:
    """Halves and quarters are exact here; a third is not, and nothing is said of it at its very value."""
    constants = {
        "half": np.array([0.5], dtype=np.float32),
        "first": np.array([0], dtype=np.int64),
        "second": np.array([1], dtype=np.int64),
    }
    nodes = [
        N("Mul", ["x", "half"], ["h"]),
        N("Gather", ["h", "first"], ["a"], axis=1),
        N("Gather", ["h", "second"], ["b"], axis=1),
        N("Add", ["a", "b"], ["y"]),
    ]
    network = network_of(tmp_path, nodes, 2, constants)
    exact = [Fraction(1, 2), Fraction(1, 4)]
    assert holds_over_the_reals(network, exact, [at_most(Fraction(3, 8))])
    assert not holds_over_the_reals(network, exact, [at_most(Fraction(3, 8), strict=True)])
    thirds = [Fraction(1, 3), Fraction(1, 3)]
    assert not holds_over_the_reals(network, thirds, [at_most(Fraction(1, 3))])
    assert holds_over_the_reals(network, thirds, [at_most(Fraction(1, 3) + Fraction(1, 10**60))])


@pytest.mark.parametrize("value", ["2.5", "1.999999999999999999999999", "2", "-1.5"])
def test_whole_parts_are_told_to_the_last_digit(tmp_path: Path, value: str) -> None:
    nodes = [
        N("Cast", ["x"], ["k"], to=TensorProto.INT64),
        N("Cast", ["k"], ["y"], to=TensorProto.FLOAT),
    ]
    network = network_of(tmp_path, nodes, 1)
    whole = Fraction(int(Fraction(value)))
    assert holds_over_the_reals(network, [Fraction(value)], [at_most(whole)])
    assert not holds_over_the_reals(network, [Fraction(value)], [at_most(whole, strict=True)])


def test_operators_that_it_does_not_know_decide_nothing(tmp_path: Path) -> None:
    network = network_of(tmp_path, [N("Exp", ["x"], ["y"])], 1)
    assert not holds_over_the_reals(network, [Fraction(0)], [at_most(Fraction(100))])
