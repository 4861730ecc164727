"""The networks and boxes of the comparison: random ones made here, and those of VNN-COMP where they are."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from boundscope.network import Network, load_network
from boundscope.properties import read_property
from boundscope.properties.types import Box
from support.models import save

ROOT = Path(__file__).resolve().parents[3]
VNNCOMP = Path(os.environ.get("BOUNDSCOPE_SHARED", ROOT.parent / "shared")) / "vnncomp"


@dataclass(frozen=True)
class Row:
    """One line of the table: `load` gives a network and a box."""

    name: str
    load: Callable[[], tuple[Network, Box]]
    methods: tuple[str, ...] = ("crown", "alpha")
    files: tuple[Path, ...] = ()

    @property
    def missing(self) -> str:
        """Why the row is left out, or ""."""
        absent = [str(path) for path in self.files if not path.is_file()]
        return f"{absent[0]} is not there" if absent else ""


class _Builder:
    """An ONNX graph with seeded random weights, drawn as torch draws them (uniform, 1/√fan-in)."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = (1, *shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[np.float32]] = {}
        self._random = np.random.default_rng(0)
        self._input_shape = self.shape

    def _add(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}{len(self.nodes)}", **attributes))
        return name

    def _drawn(self, name: str, shape: tuple[int, ...], fan_in: int) -> str:
        limit = 1.0 / math.sqrt(fan_in)
        self.constants[name] = self._random.uniform(-limit, limit, shape).astype(np.float32)
        return name

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        number = len(self.nodes)
        weight = self._drawn(f"W{number}", (outputs, inputs), inputs)
        return self._add("Gemm", [x, weight, self._drawn(f"b{number}", (outputs,), inputs)], transB=1)

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int, pad: int) -> str:
        number, fan_in = len(self.nodes), inputs * kernel * kernel
        weight = self._drawn(f"W{number}", (outputs, inputs, kernel, kernel), fan_in)
        bias = self._drawn(f"b{number}", (outputs,), fan_in)
        return self._add("Conv", [x, weight, bias], strides=[stride] * 2, pads=[pad] * 4)

    def relu(self, x: str) -> str:
        return self._add("Relu", [x])

    def add(self, x: str, y: str) -> str:
        return self._add("Add", [x, y])

    def flatten(self, x: str) -> str:
        return self._add("Flatten", [x])

    def network(self, outputs: int) -> Network:
        self.nodes[-1].output[0] = "y"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            return load_network(save(path, self.nodes, self.constants, self._input_shape, (1, outputs)))


def _mlp(*widths: int) -> Network:
    builder, x = _Builder(widths[:1]), "x"
    for fan_in, fan_out in itertools.pairwise(widths[:-1]):
        x = builder.relu(builder.linear(x, fan_in, fan_out))
    builder.linear(x, *widths[-2:])
    return builder.network(widths[-1])


def _small_conv() -> Network:
    """MNIST: two convolutions of 16 and 32 channels, 4×4, stride 2, and two dense layers."""
    builder = _Builder((1, 28, 28))
    x = builder.relu(builder.conv("x", 1, 16, 4, 2, 1))
    x = builder.relu(builder.conv(x, 16, 32, 4, 2, 1))
    x = builder.relu(builder.linear(builder.flatten(x), 32 * 7 * 7, 100))
    builder.linear(x, 100, 10)
    return builder.network(10)


def _tiny_conv() -> Network:
    builder = _Builder((3, 12, 12))
    x = builder.relu(builder.conv("x", 3, 8, 3, 2, 1))
    x = builder.relu(builder.conv(x, 8, 8, 3, 1, 1))
    builder.linear(builder.flatten(x), 8 * 6 * 6, 10)
    return builder.network(10)


def _resnet() -> Network:
    """CIFAR: the shape of VNN-COMP's resnet_2b, two blocks of 16 channels after a convolution of 8."""
    builder = _Builder((3, 32, 32))
    x = builder.relu(builder.conv("x", 3, 8, 3, 2, 1))
    for inputs, stride in ((8, 2), (16, 1)):
        inner = builder.relu(builder.conv(x, inputs, 16, 3, stride, 1))
        around = builder.conv(x, inputs, 16, 1, 2, 0) if stride == 2 else x
        x = builder.relu(builder.add(builder.conv(inner, 16, 16, 3, 1, 1), around))
    x = builder.relu(builder.linear(builder.flatten(x), 16 * 8 * 8, 100))
    builder.linear(x, 100, 10)
    return builder.network(10)


def _random(network: Callable[[], Network], radius: float) -> Callable[[], tuple[Network, Box]]:
    """A network of random weights, and the box of this radius around a random input."""

    def load() -> tuple[Network, Box]:
        made = network()
        centre = np.random.default_rng(1).random(made.input_count).astype(np.float32)
        lower, upper = (np.float32(centre + sign * radius).astype(np.float64) for sign in (-1, 1))
        texts = (tuple(map(repr, ends.tolist())) for ends in (lower, upper))
        return made, Box(*texts, lower, upper)

    return load


# What each kind of layer brings into a process once: libraries' code, their caches.
WARM_UPS = (_random(lambda: _mlp(784, 256, 256, 10), 0.01), _random(_tiny_conv, 0.05))


def _shared(name: str, network: str, prop: str, **more: tuple[str, ...]) -> Row:
    files = (VNNCOMP / network, VNNCOMP / prop)

    def load() -> tuple[Network, Box]:
        loaded = load_network(files[0])
        return loaded, read_property(files[1], input_count=loaded.input_count).cases[0].box

    return Row(name, load, more.get("methods", ("crown", "alpha")), files)


ROWS = (
    Row("mlp-256x2", _random(lambda: _mlp(784, 256, 256, 10), 0.01)),
    Row("mlp-256x4", _random(lambda: _mlp(784, *[256] * 4, 10), 0.01)),
    Row("mlp-256x4-wide-box", _random(lambda: _mlp(784, *[256] * 4, 10), 0.03)),
    Row("conv-small", _random(_small_conv, 0.01)),
    Row("resnet-2b", _random(_resnet, 0.004), ("crown",)),
    Row("mlp-1024x4", _random(lambda: _mlp(784, *[1024] * 4, 10), 0.01)),
    Row("mlp-2048x3", _random(lambda: _mlp(784, *[2048] * 3, 10), 0.01), ("alpha",)),
    Row("mlp-4096x2", _random(lambda: _mlp(784, *[4096] * 2, 10), 0.01), ("crown",)),
    Row("mlp-4096x4", _random(lambda: _mlp(784, *[4096] * 4, 10), 0.01), ("crown",)),
    _shared(
        "mnist_fc-256x4", "mnist_fc/onnx/mnist-net_256x4.onnx.gz", "mnist_fc/vnnlib/prop_1_0.05.vnnlib.gz"
    ),
    _shared(
        "cifar10_resnet-2b",
        "cifar10_resnet/onnx/resnet_2b.onnx.gz",
        "cifar10_resnet/vnnlib/prop_21_eps_0.008.vnnlib.gz",
        methods=("crown",),
    ),
    _shared("vit", "vit/onnx/pgd_2_3_16.onnx.gz", "vit/vnnlib/pgd_2_3_16_1298.vnnlib.gz"),
)
