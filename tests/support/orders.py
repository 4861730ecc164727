"""Networks evaluated in float32 as different runtimes may do it: any order of summation, fused or not, flushed or not.

Sums of products are written out here, one float32 operation after another, so that their order is ours to choose;
everything else is the operator's own evaluation in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from boundscope.network.graph import Network, Node
from boundscope.network.operators.activation import LeakyRelu
from boundscope.network.operators.arithmetic import Add, Div, Mul, Sub
from boundscope.network.operators.linear import Conv, Gemm, MatMul
from boundscope.network.operators.normalization import BatchNormalization
from boundscope.network.operators.window import split_pads, torch_pads
from boundscope.network.runtime import Session

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
LEAST_NORMAL = np.float32(2.0**-126)


def fused(a: Float32, b: Float32, c: Float32) -> Float32:
    """a·b + c rounded once. The product is exact in float64; the sum is rounded to odd there, so that the second
    rounding, to float32, is as good as the only one (Boldo and Melquiond 2008)."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, odd, total).astype(np.float32)


@dataclass(frozen=True)
class Arithmetic:
    """One runtime's habits: how it sums, whether it flushes subnormals, and how it normalises a batch."""

    name: str
    flush: bool
    folded: bool
    seed: int

    def kept(self, value: Float32) -> Float32:
        """What is left of a result, or of an operand, where subnormals count as zero."""
        return np.where(np.abs(value) < LEAST_NORMAL, np.float32(0), value) if self.flush else value

    def sum(self, terms: Sequence[Float32]) -> Float32:
        """Σ terms by the habit `name`, every addition rounded."""
        parts = list(terms)
        if self.name == "sequential":
            return self._in_a_row(parts)
        if self.name == "backwards":
            return self._in_a_row(parts[::-1])
        if self.name == "blocked":
            # As SIMD code does: eight running sums side by side, joined at the end.
            lanes = [self._in_a_row(parts[lane::8]) for lane in range(min(8, len(parts)))]
            return self._pairwise(lanes)
        random = np.random.default_rng(self.seed)
        order = [parts[i] for i in random.permutation(len(parts))]
        if self.name == "pairwise":
            return self._pairwise(order)
        while len(order) > 1:  # a random tree
            one = order.pop(int(random.integers(len(order))))
            place = int(random.integers(len(order)))
            order[place] = self.kept(one + order[place])
        return order[0]

    def dot(self, factors: Sequence[tuple[Float32, Float32]], addend: Float32 | None) -> Float32:
        """Σ a·b (+ addend, first or last as the seed has it) for pairs of arrays that broadcast."""
        factors = [(self.kept(a), self.kept(b)) for a, b in factors]
        first = addend is not None and self.seed % 2 == 0
        if self.name == "fused":
            total = np.zeros((), np.float32) if addend is None or not first else self.kept(addend)
            for a, b in factors:
                a, b, total = np.broadcast_arrays(a, b, total)
                total = self.kept(fused(a, b, total))
            return total if addend is None or first else self.kept(total + self.kept(addend))
        products = [self.kept(a * b) for a, b in factors]
        if addend is not None and first:
            return self.sum([np.broadcast_to(self.kept(addend), products[0].shape), *products])
        total = self.sum(products)
        return total if addend is None else self.kept(total + self.kept(addend))

    def _in_a_row(self, parts: Sequence[Float32]) -> Float32:
        total = parts[0]
        for part in parts[1:]:
            total = self.kept(total + part)
        return total

    def _pairwise(self, parts: Sequence[Float32]) -> Float32:
        parts = list(parts)
        while len(parts) > 1:
            rest = parts[-1:] if len(parts) % 2 else []
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [self.kept(a + b) for a, b in pairs] + rest
        return parts[0]


HABITS = ("sequential", "backwards", "blocked", "pairwise", "tree", "fused")


def values(network: Network, point: Float64, arithmetic: Arithmetic) -> dict[str, Float64]:
    """Every tensor that a node computes at a point of float32 numbers, by name; exact as float64."""
    known: dict[str, Float32] = dict(network.constants)
    position = 0
    for info in network.inputs:
        known[info.name] = point[position : position + info.size].astype(np.float32).reshape(info.shape)
        position += info.size
    seen: dict[str, Float64] = {}
    with np.errstate(all="ignore"):
        for node in network.nodes:
            inputs = [known[name] if name else None for name in node.inputs]
            for name, value in zip(node.outputs, _outputs(node, inputs, arithmetic), strict=False):
                known[name] = value
                seen[name] = value.astype(np.float64)
    return seen


def _outputs(node: Node, inputs: list[Any], arithmetic: Arithmetic) -> tuple[Float32, ...]:
    written_out: dict[type, Callable[..., Float32]] = {
        Gemm: _gemm,
        MatMul: _matmul,
        Conv: _conv,
        BatchNormalization: _normalised,
    }
    own = written_out.get(type(node.op))
    if own is not None:
        return (own(node.op, inputs, arithmetic),)
    rounds = isinstance(node.op, Add | Sub | Mul | Div | LeakyRelu)
    floats = [
        x if x is None or x.dtype != np.float32 else arithmetic.kept(x) if rounds else x for x in inputs
    ]
    results = node.op.evaluate([None if x is None else torch.from_numpy(np.array(x)) for x in floats])
    return tuple(arithmetic.kept(r.numpy()) if r.dtype == torch.float32 else r.numpy() for r in results)


def _gemm(op: Gemm, inputs: list[Any], arithmetic: Arithmetic) -> Float32:
    x, weight = inputs[0], inputs[1] if op.transpose_b else inputs[1].T
    bias = inputs[2] if len(inputs) > 2 else None
    factors = [(x[:, k, None], weight[None, :, k]) for k in range(x.shape[1])]
    if op.alpha == 1.0 and op.beta == 1.0:
        return arithmetic.dot(factors, bias)
    product = arithmetic.kept(arithmetic.dot(factors, None) * np.float32(op.alpha))
    return product if bias is None else arithmetic.kept(product + arithmetic.kept(bias * np.float32(op.beta)))


def _matmul(op: MatMul, inputs: list[Any], arithmetic: Arithmetic) -> Float32:
    left, right = inputs
    return arithmetic.dot(
        [(left[..., :, k, None], right[..., None, k, :]) for k in range(left.shape[-1])], None
    )


def _conv(op: Conv, inputs: list[Any], arithmetic: Arithmetic) -> Float32:
    """Two-dimensional, by writing each output's window out as a row (im2col)."""
    x, weight = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    padded = F.pad(torch.from_numpy(x), torch_pads(*split_pads(op.pads))).numpy()
    kernel_h, kernel_w = op.kernel_shape
    height, width = (
        (padded.shape[2 + axis] - op.dilations[axis] * (op.kernel_shape[axis] - 1) - 1) // op.strides[axis]
        + 1
        for axis in (0, 1)
    )
    channels, per_group = weight.shape[0], weight.shape[1]
    first = np.arange(channels) // (channels // op.group) * per_group
    factors = []
    for c in range(per_group):
        for i in range(kernel_h):
            for j in range(kernel_w):
                top, left = i * op.dilations[0], j * op.dilations[1]
                rows = slice(top, top + (height - 1) * op.strides[0] + 1, op.strides[0])
                columns = slice(left, left + (width - 1) * op.strides[1] + 1, op.strides[1])
                factors.append((padded[:, first + c, rows, columns], weight[:, c, i, j].reshape(1, -1, 1, 1)))
    return arithmetic.dot(factors, None if bias is None else bias.reshape(1, -1, 1, 1))


def _normalised(op: BatchNormalization, inputs: list[Any], arithmetic: Arithmetic) -> Float32:
    """As written, or with the scale and the shift computed first."""
    x = inputs[0]
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scale, bias, mean, variance = (arithmetic.kept(v.reshape(shape)) for v in inputs[1:5])
    root = np.sqrt(variance + np.float32(op.epsilon))
    kept = arithmetic.kept
    if arithmetic.folded:
        slope = kept(scale / root)
        return kept(kept(kept(x) * slope) + kept(bias - kept(mean * slope)))
    return kept(kept(kept(kept(kept(x) - mean) / root) * scale) + bias)


def kernel_values(network: Network, point: Float64) -> dict[str, Float64]:
    """Every tensor by torch's own float32 kernels."""
    seen: dict[str, Float64] = {}

    def visit(node: Node, outputs: tuple[torch.Tensor, ...]) -> None:
        seen.update((n, t.double().numpy()) for n, t in zip(node.outputs, outputs, strict=False))

    network.evaluate(_feeds(network, point, torch.from_numpy), visit=visit)
    return seen


class OnnxRuntime:
    """The file in ONNX Runtime: with every tensor shown and no graph optimisation, and fully optimised."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path)
        self._optimized = Session(model.SerializeToString(), path.name, optimized=True)
        shown = {value.name for value in model.graph.output}
        for node in model.graph.node:
            for name in node.output:
                if name not in shown:
                    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        self._plain = Session(model.SerializeToString(), path.name, optimized=False)

    def values(self, network: Network, point: Float64) -> list[dict[str, Float64]]:
        feeds = _feeds(network, point, lambda array: array)
        return [
            {
                name: value.astype(np.float64)
                for name, value in zip(session.outputs, session.run(feeds), strict=True)
            }
            for session in (self._plain, self._optimized)
        ]


def _feeds(network: Network, point: Float64, make: Callable[[Float32], Any]) -> dict[str, Any]:
    feeds, position = {}, 0
    for info in network.inputs:
        part = point[position : position + math.prod(info.shape)].astype(np.float32)
        feeds[info.name] = make(part.reshape(info.shape))
        position += info.size
    return feeds
