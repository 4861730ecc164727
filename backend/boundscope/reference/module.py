"""Our network as a torch module of plain layers, the form that auto_LiRPA traces.

Most operators become the torch layer or function that its tracer knows; Clip, Min and Max are written with ReLU,
uneven pads as kernels with rows of zeros. All of that is exact over the reals. What is left is traced as we
evaluate it, and auto_LiRPA says itself whether it has a rule for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from boundscope.errors import UnsupportedOperatorError
from boundscope.network.graph import Network, Node
from boundscope.network.operators.activation import Clip, LeakyRelu, Neg, Relu, Softmax
from boundscope.network.operators.arithmetic import Add, Div, Max, Min, Mul, Sub
from boundscope.network.operators.linear import Conv, Gemm, MatMul
from boundscope.network.operators.normalization import BatchNormalization
from boundscope.network.operators.pooling import AveragePool, GlobalAveragePool
from boundscope.network.operators.shape import Cast, Dropout, Flatten, Identity, Reshape, Squeeze, Unsqueeze
from boundscope.network.operators.window import split_pads
from boundscope.sharding.zones import SummedGemm, SummedMatMul, ZoneEntry

Constants = tuple[Tensor | None, ...]  # of a node's inputs; None where the input depends on the network's


class NetworkModule(nn.Module):
    """The network in `dtype`: its inputs in order → all outputs flattened and joined, [1, outputs].

    While it is traced it also returns every node's first output, in the order of `tensor_names`, so that the traced
    graph keeps their names.
    """

    def __init__(
        self, network: Network, dtype: torch.dtype, place: Callable[[str, nn.Module], None] | None = None
    ) -> None:
        """
        Args:
            network: what to compute.
            dtype: of its weights.
            place: told each step's name and module as it is made; may leave placeholders for its weights, which then
                are missing in `state_dict`.

        Raises:
            UnsupportedOperatorError: a tensor has no batch axis of one element in front.
        """
        super().__init__()
        _require_batch_axis(network)
        self._network = network
        self._placed = place is not None
        self._steps = nn.ModuleList()
        for number, node in enumerate(network.nodes):
            step = _step(node, network).to(dtype).requires_grad_(False)
            if place is not None:
                place(f"_steps.{number}", step)
            self._steps.append(step)
        self.tensor_names = tuple(node.outputs[0] for node in network.nodes)
        self.eval()

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """As of every module; copies leave placeholders out, which nothing can be copied into."""
        state = super().state_dict(*args, **options)
        if self._placed and not options.get("keep_vars", False):
            for name in [
                key for key, value in state.items() if value.numel() > 1 and not any(value.stride())
            ]:
                del state[name]
        return state

    def forward(self, *inputs: Tensor) -> Any:
        values = {info.name: value for info, value in zip(self._network.inputs, inputs, strict=True)}
        for node, step in zip(self._network.nodes, self._steps, strict=True):
            read = [values[name] for name in node.inputs if name in values]
            results = step(*read)
            results = results if isinstance(results, tuple) else (results,)
            values.update(zip(node.outputs, results, strict=False))
        outputs = [
            values[info.name] if len(info.shape) == 2 else values[info.name].flatten(1)
            for info in self._network.outputs
        ]
        joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return (joined, *(values[name] for name in self.tensor_names))
        return joined


def _require_batch_axis(network: Network) -> None:
    produced = [(node.name, name) for node in network.nodes for name in node.outputs if name]
    for where, name in [*(("the network", info.name) for info in network.inputs), *produced]:
        shape = network.tensors[name].shape
        if len(shape) < 1 or shape[0] != 1:
            raise UnsupportedOperatorError(
                f"auto_LiRPA takes the first axis of every tensor for a batch of one; tensor '{name}' of {where} has "
                f"shape {list(shape)}"
            )
    for info in network.outputs:
        if info.name in network.constants:
            raise UnsupportedOperatorError(
                f"auto_LiRPA cannot bound the constant output '{info.name}' of the network"
            )


def _step(node: Node, network: Network) -> nn.Module:
    constants = tuple(
        _widened(network.constants[name]) if name in network.constants else None for name in node.inputs
    )
    translate = _TRANSLATIONS.get(type(node.op))
    layer = None if translate is None else translate(node, network, constants)
    return _Traced(node, constants) if layer is None else layer


def _widened(array: NDArray[Any]) -> Tensor:
    dtype = np.dtype(np.float64) if array.dtype.kind == "f" else array.dtype
    return torch.from_numpy(array.astype(dtype, order="C"))


class _Function(nn.Module):
    """A function of the perturbed inputs and of buffers."""

    def __init__(self, function: Callable[..., Tensor], *buffers: Tensor) -> None:
        super().__init__()
        self._function = function
        for number, buffer in enumerate(buffers):
            self.register_buffer(f"value{number}", buffer)
        self._count = len(buffers)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._function(*inputs, *(getattr(self, f"value{number}") for number in range(self._count)))


class _Traced(nn.Module):
    """Any other operator, traced as we evaluate it."""

    def __init__(self, node: Node, constants: Constants) -> None:
        super().__init__()
        self._node = node
        self._given: list[bool] = [constant is not None for constant in constants]
        for number, constant in enumerate(constants):
            if constant is not None:
                self.register_buffer(f"value{number}", constant)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        rest = iter(inputs)
        arguments: list[Tensor | None] = []
        for number, (name, given) in enumerate(zip(self._node.inputs, self._given, strict=True)):
            arguments.append(getattr(self, f"value{number}") if given else next(rest) if name else None)
        return self._node.op.evaluate(arguments)


# ---------------------------------------------------------------- linear layers


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Module:
    """x·weightᵀ + bias for a weight [out, in]; always with a bias, for auto_LiRPA merges no rows into a product."""
    outputs, inputs = weight.shape
    layer = nn.Linear(
        inputs, outputs, dtype=weight.dtype, device="meta"
    )  # its own random weights take memory
    layer.weight = nn.Parameter(weight.contiguous())
    given = weight.new_zeros(outputs) if bias is None else bias.expand(outputs)
    layer.bias = nn.Parameter(given.contiguous())
    return layer


def _gemm(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    op = node.op
    assert isinstance(op, Gemm)
    a, b, c = (*constants, None)[:3]
    bias_is_perturbed = len(node.inputs) > 2 and bool(node.inputs[2]) and c is None
    if a is not None or b is None or op.transpose_a or bias_is_perturbed:
        return None
    if c is not None and c.numel() not in (1, c.shape[-1]):
        return None
    weight = b if op.transpose_b else b.mT
    weight = weight if op.alpha == 1.0 else weight * op.alpha
    return _linear(weight, None if c is None else c.reshape(-1) * op.beta)


def _matmul(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    _, b = constants
    if b is None or b.ndim != 2 or len(network.tensors[node.inputs[0]].shape) != 2:
        return None
    return _linear(b.mT, None)


def _convolution(
    weight: Tensor, bias: Tensor | None, strides: Sequence[int], pads: tuple[int, ...], group: int
) -> nn.Module:
    """A convolution without dilation; where its pads are uneven the kernel grows by zeros until they are even."""
    begins, ends = split_pads(pads)
    even = tuple(max(pair) for pair in zip(begins, ends, strict=True))
    zeros: list[int] = []
    for begin, end, pad in reversed(list(zip(begins, ends, even, strict=True))):
        zeros += [pad - begin, pad - end]
    weight = F.pad(weight, zeros)
    axes = len(begins)
    kind: Any = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    layer: Any = kind(
        weight.shape[1] * group,
        weight.shape[0],
        tuple(weight.shape[2:]),
        tuple(strides),
        even,
        groups=group,
        bias=bias is not None,
        dtype=weight.dtype,
    )
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer  # type: ignore[no-any-return]


def _conv(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    op = node.op
    assert isinstance(op, Conv)
    x, weight, bias = (*constants, None)[:3]
    if x is not None or weight is None:
        return None
    if any(step != 1 for step in op.dilations):
        spread = weight.new_zeros(
            *weight.shape[:2],
            *((k - 1) * d + 1 for k, d in zip(op.kernel_shape, op.dilations, strict=True)),
        )
        spread[(slice(None), slice(None), *(slice(None, None, step) for step in op.dilations))] = weight
        weight = spread
    return _convolution(weight, bias, op.strides, op.pads, op.group)


def _average_pool(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    """A convolution of each channel with ones, divided by how many elements each window counts."""
    op = node.op
    assert isinstance(op, AveragePool)
    if any(step != 1 for step in op.dilations):
        return None
    info = network.tensors[node.inputs[0]]
    dtype = torch.float64
    channels = info.shape[1]
    divisors = op.divisors(torch.zeros(info.shape, dtype=dtype))
    begins, ends = split_pads(op.pads)
    pads = (*begins, *(e + c for e, c in zip(ends, op.ceil_pads, strict=True)))
    weight = torch.ones(channels, 1, *op.kernel_shape, dtype=dtype)
    if bool((divisors == divisors.flatten()[0]).all()):
        return _convolution(weight / divisors.flatten()[0], None, op.strides, pads, channels)
    sums = _convolution(weight, None, op.strides, pads, channels)
    factors = (1 / divisors).expand(1, *network.tensors[node.outputs[0]].shape[1:]).contiguous()
    return nn.Sequential(sums, _Function(torch.mul, factors))


def _global_average_pool(node: Node, network: Network, constants: Constants) -> nn.Module:
    axes = tuple(range(2, len(network.tensors[node.inputs[0]].shape)))
    return _Function(lambda x: x.mean(dim=axes, keepdim=True))


def _batch_normalization(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    op = node.op
    assert isinstance(op, BatchNormalization)
    x, scale, bias, mean, var = constants
    if x is not None or scale is None or bias is None or mean is None or var is None:
        return None
    rank = len(network.tensors[node.inputs[0]].shape)
    if rank not in (2, 4):
        return None
    layer = (nn.BatchNorm1d if rank == 2 else nn.BatchNorm2d)(len(scale), eps=op.epsilon, dtype=scale.dtype)
    layer.weight, layer.bias = nn.Parameter(scale), nn.Parameter(bias)
    layer.running_mean, layer.running_var = mean, var
    return layer.eval()


# ---------------------------------------------------------------- element by element, and shapes


def _arithmetic(
    combine: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[Node, Network, Constants], nn.Module | None]:
    """Of two tensors; a constant one gets the other's number of axes."""

    def translate(node: Node, network: Network, constants: Constants) -> nn.Module | None:
        if len(node.inputs) != 2:
            return None
        a, b = constants
        if a is None and b is None:
            return _Function(combine)
        constant = a if b is None else b
        assert constant is not None
        rank = len(network.tensors[node.inputs[0 if a is None else 1]].shape)
        constant = constant.reshape(*(1,) * (rank - constant.ndim), *constant.shape)
        if a is None:
            return _Function(combine, constant)
        return _Function(lambda x, value: combine(value, x), constant)

    return translate


def _div(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    """Division by a constant is multiplication by its inverse, rounded to float64."""
    a, b = constants
    if a is not None or b is None:
        return None
    return _arithmetic(torch.mul)(node, network, (None, 1 / b))


def _clip(node: Node, network: Network, constants: Constants) -> nn.Module:
    op = node.op
    assert isinstance(op, Clip)
    lower, upper = op.lower, op.upper

    def clip(x: Tensor) -> Tensor:
        if lower is not None:
            x = F.relu(x - lower) + lower if lower else F.relu(x)
        return x if upper is None else upper - F.relu(upper - x)

    return _Function(clip)


def _reshape(node: Node, network: Network, constants: Constants) -> nn.Module:
    shape = network.tensors[node.outputs[0]].shape
    return _Function(lambda x: x.reshape(shape))


def _softmax(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    op = node.op
    assert isinstance(op, Softmax)
    return nn.Softmax(dim=op.axes[0]) if len(op.axes) == 1 else None


def _cast(node: Node, network: Network, constants: Constants) -> nn.Module | None:
    return nn.Identity() if node.op.only_rounds else None


def _plain(layer: Callable[[Any], nn.Module]) -> Callable[..., nn.Module]:
    return lambda node, network, constants: layer(node.op)


def _slope(op: LeakyRelu) -> nn.Module:
    return nn.LeakyReLU(op.alpha)


_TRANSLATIONS: dict[type[Any], Callable[[Node, Network, Constants], nn.Module | None]] = {
    Gemm: _gemm,
    MatMul: _matmul,
    SummedGemm: _gemm,
    SummedMatMul: _matmul,
    Conv: _conv,
    AveragePool: _average_pool,
    GlobalAveragePool: _global_average_pool,
    BatchNormalization: _batch_normalization,
    Relu: _plain(lambda op: nn.ReLU()),
    LeakyRelu: _plain(_slope),
    Neg: _plain(lambda op: _Function(torch.neg)),
    Cast: _cast,
    Dropout: _plain(lambda op: nn.Identity()),
    Identity: _plain(lambda op: nn.Identity()),
    ZoneEntry: _plain(lambda op: nn.Identity()),
    Add: _arithmetic(torch.add),
    Sub: _arithmetic(torch.sub),
    Mul: _arithmetic(torch.mul),
    Div: _div,
    Clip: _clip,
    Max: _arithmetic(lambda a, b: F.relu(a - b) + b),
    Min: _arithmetic(lambda a, b: a - F.relu(a - b)),
    Flatten: _reshape,
    Reshape: _reshape,
    Squeeze: _reshape,
    Unsqueeze: _reshape,
    Softmax: _softmax,
}
