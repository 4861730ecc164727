"""Rows on a part of a tensor bound the same as whole rows, whatever part of it they live on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from boundscope.bounds.context import BoxContext
from boundscope.bounds.operators import conv as conv_module
from boundscope.bounds.operators.relaxation import Lines
from boundscope.bounds.steps import SlopeStep
from boundscope.bounds.support import Block, Elements, Windows, added
from boundscope.network import Network, load_network
from boundscope.network.operators.linear import Conv
from boundscope.properties.types import Box
from boundscope.protocol import Arithmetic, Method
from support.enclosure import assert_contains, box_around, box_of, engine_of
from support.models import mlp, save

Made = Callable[[Path], tuple[Network, Box]]
SETTINGS = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    """Windows that may stick out of the tensor on any side."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    shape = (1, draw(st.integers(1, 3)), *sizes)
    size = tuple(draw(st.integers(1, 4)) for _ in sizes)
    rows = draw(st.integers(1, 5))
    corners = [
        [draw(st.integers(-window, full)) for full, window in zip(sizes, size, strict=True)]
        for _ in range(rows)
    ]
    which = draw(st.none() | st.lists(st.integers(0, rows - 1), min_size=1, max_size=6))
    return Windows(shape, torch.tensor(corners), size, None if which is None else torch.tensor(which))


def _block(support: Windows, seed: int = 0) -> Block:
    generator = torch.Generator().manual_seed(seed)
    count = len(support.corners if support.which is None else support.which)
    rows = torch.randn(count, support.shape[1], *support.size, generator=generator)
    return Block(support.inside(rows), support)


@SETTINGS
@given(windows())
def test_windows_meet_the_same_values_as_whole_rows(support: Windows) -> None:
    block = _block(support)
    values = torch.randn(support.shape)
    assert block.whole().shape == (len(block.rows), *support.shape)
    met = (block.rows * support.take(values)).flatten(1).sum(1)
    torch.testing.assert_close(met, (block.whole() * values).flatten(1).sum(1))
    for one, both in zip(support.take_all([values, -values]), (values, -values), strict=True):
        assert torch.equal(one, support.take(both))


@SETTINGS
@given(windows(), st.data())
def test_blocks_on_different_windows_add_as_whole_rows_do(support: Windows, data: st.DataObject) -> None:
    moved = torch.tensor([data.draw(st.integers(-2, 2)) for _ in support.size])
    if data.draw(st.booleans()):  # each row its own way
        moved = moved * torch.arange(len(support.corners))[:, None]
    size = tuple(data.draw(st.integers(1, 3)) for _ in support.size)
    a, b = _block(support), _block(Windows(support.shape, support.corners + moved, size, support.which), 1)
    torch.testing.assert_close(added(a, b).whole(), a.whole() + b.whole())


def test_elements_leave_out_what_they_do_not_name() -> None:
    support = Elements(torch.tensor([4, 1]), (1, 6))
    whole = Block(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), support).whole()
    assert whole.tolist() == [[[0.0, 2.0, 0.0, 0.0, 1.0, 0.0]], [[0.0, 4.0, 0.0, 0.0, 3.0, 0.0]]]


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 2)])
def test_transposed_convolutions_by_products_are_torchs(channels: int, stride: int, dilation: int) -> None:
    rows, weight = torch.randn(4, 6, 5, 3).double(), torch.randn(6, channels, 2, 3).double()
    op = Conv(kernel_shape=(2, 3), strides=(stride,) * 2, pads=(0,) * 4, dilations=(dilation,) * 2, group=1)
    expected = F.conv_transpose2d(rows, weight, stride=stride, dilation=dilation)
    torch.testing.assert_close(conv_module.transposed(rows, weight, op), expected)


@pytest.mark.parametrize("part", [False, True])
def test_a_searched_step_has_the_values_and_gradients_of_the_proven_one(part: bool) -> None:
    torch.manual_seed(0)
    count, elements = 3, 7
    matters = torch.tensor([1, 2, 6])
    lines = Lines(
        torch.ones(1, elements).double(),
        None,
        torch.rand(1, elements).double(),
        torch.rand(1, elements).double(),
    )
    support = Elements(torch.tensor([0, 4, 1, 2, 6]), (1, elements)) if part else None
    x, y = torch.randn(1, elements).double(), torch.randn(1, elements).double()
    step = SlopeStep.of(lines, x, y, matters, support, torch.float64)
    rows = torch.randn(count, 5 if part else elements).double().requires_grad_()
    theta = torch.rand(count, len(matters)).double().requires_grad_()
    for one, other in zip(step.searched(rows, theta), step.through(rows, theta), strict=True):
        torch.testing.assert_close(one, other)
    torch.autograd.gradcheck(lambda *both: step.searched(*both), (rows, theta))


def _dense(folder: Path) -> tuple[Network, Box]:
    """Many dead neurons, and inputs that are fixed."""
    network = load_network(mlp(folder / "n.onnx", [40, 64, 64, 64, 5], bias=1.0))
    box = box_around(np.random.default_rng(0).standard_normal(40), 0.05)
    lower, upper = box.lower.copy(), box.upper.copy()
    upper[5:25] = lower[5:25]
    return network, box_of(lower, upper)


def _convolutional(folder: Path) -> tuple[Network, Box]:
    """Convolutions with strides, uneven pads, groups, dilation, and a residual sum, on 2×14×14."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "W1": weights(4, 2, 3, 3),
        "b1": weights(4, 1).reshape(4),
        "W2": weights(4, 2, 3, 3),
        "W3": weights(4, 4, 1, 1),
        "W4": weights(3, 4, 3, 3),
        "W5": weights(4, 3 * 4 * 4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "W1", "b1"], ["c1"], "conv1", pads=[1, 0, 1, 1]),
        helper.make_node("Relu", ["c1"], ["a1"], "relu1"),
        helper.make_node("Conv", ["a1", "W2"], ["c2"], "conv2", pads=[1, 1, 1, 1], group=2),
        helper.make_node("Conv", ["a1", "W3"], ["c3"], "conv3"),
        helper.make_node("Sub", ["c2", "c3"], ["s"], "sub"),
        helper.make_node("Relu", ["s"], ["a2"], "relu2"),
        helper.make_node(
            "Conv", ["a2", "W4"], ["c4"], "conv4", strides=[3, 3], dilations=[2, 2], pads=[1, 0, 1, 1]
        ),
        helper.make_node("Relu", ["c4"], ["a4"], "relu4"),
        helper.make_node("Flatten", ["a4"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "W5"], ["y"], "fc", transB=1),
    ]
    network = load_network(save(folder / "n.onnx", nodes, constants, [1, 2, 14, 14], [1, 4]))
    return network, box_around(random.standard_normal(2 * 14 * 14), 0.05)


@pytest.mark.parametrize("make", [_dense, _convolutional])
def test_parts_of_rows_change_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Made) -> None:
    network, box = make(tmp_path)
    part = engine_of(network).context(box, Method.CROWN)
    if make is _dense:
        assert part.live("x") is not None
        assert part.live("a1") is not None
    monkeypatch.setattr(BoxContext, "live", lambda self, name: None)
    monkeypatch.setattr(conv_module, "WINDOW_SHARE", 0.0)
    whole = engine_of(network).context(box, Method.CROWN)
    for name, interval in part.intervals.items():
        other = whole.intervals[name]
        scale = float(other.magnitude.max())
        torch.testing.assert_close(interval.lower, other.lower, rtol=0, atol=1e-4 * scale)
        torch.testing.assert_close(interval.upper, other.upper, rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("make", [_dense, _convolutional])
@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
def test_values_lie_inside_the_bounds_of_parts(
    tmp_path: Path, make: Made, method: Method, arithmetic: Arithmetic
) -> None:
    network, box = make(tmp_path)
    assert_contains(network, box, method, arithmetic, 0)
