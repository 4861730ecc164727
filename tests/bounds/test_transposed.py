"""Transposed convolutions are linear: carried back by their exact transpose, forward exactly up to rounding."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper

from boundscope.bounds.operators import rule_of
from boundscope.network.graph import Network
from boundscope.properties.types import LinearConstraint
from boundscope.protocol import Arithmetic, Method
from support.enclosure import METHODS, assert_holds, box_of, engine_of, network_of


@dataclass(frozen=True)
class Form:
    """Shapes of the input and of the weights, and the node's attributes."""

    shape: tuple[int, ...]
    weights: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    bias: bool = True


FORMS = (
    Form((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    Form(
        (1, 2, 3, 4),
        (2, 2, 3, 3),
        {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 2], "output_padding": [1, 0]},
    ),
    Form((1, 2, 3, 3), (2, 1, 2, 3), {"dilations": [2, 1], "pads": [0, 1, 1, 0]}, bias=False),
    Form((2, 2, 3, 3), (2, 1, 3, 2), {"strides": [2, 1], "output_shape": [6, 3]}),
    Form((1, 2, 5), (2, 2, 3), {"strides": [3], "output_padding": [2]}),
    Form((1, 1, 2, 3, 2), (1, 2, 2, 2, 2), {"strides": [1, 2, 1], "pads": [1, 0, 0, 0, 1, 0]}, bias=False),
)


def network_with(folder: Path, form: Form, seed: int = 0) -> Network:
    """Reshape, the transposed convolution, flattened."""
    random = np.random.default_rng(seed)
    constants = {
        "shape": np.array(form.shape, np.int64),
        "flat": np.array([1, -1], np.int64),
        "W": random.standard_normal(form.weights).astype(np.float32),
    }
    names = ["h", "W"]
    if form.bias:
        channels = form.weights[1] * form.attributes.get("group", 1)
        constants["b"] = random.standard_normal(channels).astype(np.float32)
        names.append("b")
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["h"], "shape_h"),
        helper.make_node("ConvTranspose", names, ["c"], "tested", **form.attributes),
        helper.make_node("Reshape", ["c", "flat"], ["y"], "flat"),
    ]
    return network_of(folder, nodes, int(np.prod(form.shape)), constants)


@pytest.mark.parametrize("form", FORMS)
def test_backward_is_the_dense_jacobian(tmp_path: Path, form: Form) -> None:
    network = network_with(tmp_path, form)
    box = box_of(-np.ones(network.input_count), np.ones(network.input_count))
    context = engine_of(network).context(box, Method.IBP)
    (node,) = (node for node in network.nodes if node.name == "tested")
    with context.view(node) as view:
        constants = [None if value is None else value for value in view.constants[1:]]

        def apply(x: torch.Tensor) -> torch.Tensor:
            return view.op.evaluate([x, *constants])[0]

        zero = torch.zeros(form.shape, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(apply, zero)
        size = apply(zero).numel()
        rows = torch.eye(size, dtype=torch.float64).reshape(size, *apply(zero).shape)
        parts = context.rule(node).backward(view, (rows,))
    assert parts[0] is not None
    assert parts[0].shape == (size, *form.shape)
    torch.testing.assert_close(parts[0].reshape(size, -1), jacobian.reshape(size, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_bounds_are_the_exact_range(tmp_path: Path, form: Form) -> None:
    """Of a linear network over a box the range is known."""
    network = network_with(tmp_path, form)
    random = np.random.default_rng(1)
    centre, radius = random.standard_normal(network.input_count), random.random(network.input_count)
    lower, upper = centre - radius, centre + radius
    engine = engine_of(network)
    context = engine.context(box_of(lower, upper), Method.CROWN)

    def apply(x: torch.Tensor) -> torch.Tensor:
        constants = {name: torch.from_numpy(a).double() for name, a in network.constants.items()}
        return network.evaluate({"x": x.reshape(1, -1)}, constants=constants)["y"].flatten()

    zero = torch.zeros(network.input_count, dtype=torch.float64)
    matrix = torch.autograd.functional.jacobian(apply, zero).numpy()
    least = matrix @ centre + apply(zero).numpy() - np.abs(matrix) @ radius
    np.testing.assert_allclose(context.intervals["y"].lower.flatten().numpy(), least, rtol=0, atol=1e-12)
    row = random.standard_normal(network.output_count)
    constraint = LinearConstraint(np.arange(len(row)), row, bound=Fraction(0))
    margin = engine.margins(context, [constraint], Method.CROWN).item()
    slope = row @ matrix
    exact = slope @ centre + row @ apply(zero).numpy() - np.abs(slope) @ radius
    assert exact - 1e-10 <= margin <= exact + 1e-13


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS)
def test_values_lie_inside(tmp_path: Path, form: Form, method: Method, arithmetic: Arithmetic) -> None:
    network = network_with(tmp_path, form, 2)
    for radius in (0.0, 0.1):
        centre = np.random.default_rng(3).standard_normal(network.input_count)
        centre = centre.astype(np.float32).astype(np.float64)
        assert_holds(network, centre - radius, centre + radius, method, arithmetic)


def test_perturbed_weights_are_refused(tmp_path: Path) -> None:
    network = network_with(tmp_path, FORMS[0])
    (node,) = (node for node in network.nodes if node.name == "tested")
    rule = rule_of(node.op)
    assert rule is not None
    assert rule.supports([True, False, False], node.op) is None
    assert "weights" in str(rule.supports([True, True, False], node.op))
