"""How far rounding can move a network's outputs: a bound that is proven, and simple, not tight.

`bounded(model, inputs, unit)` runs the model in float64 and carries, beside each tensor x, an e with |y - x| <= e for
whatever y is computed where every operation has a relative error of at most `unit` and sums go in any order (Higham,
"Accuracy and Stability of Numerical Algorithms", 2nd ed., lemmas 3.1 and 3.3: gamma(n) = n u / (1 - n u)). Functions
are followed by their Lipschitz constants. float64's own errors, below 2**-50, are covered by SLACK. Written from the
text, in the operations that torch's documentation gives, not from the kernels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from boundscope_prism.instrument.switches import separate_operators

# Relative error of one operation in float32: half a spacing, one, and one and a half.
UNITS = {"rn": 2.0**-24, "sr": 2.0**-23, "rr": 2.0**-23, "ud": 1.5 * 2.0**-23}
SLACK = 1.0 + 2.0**-20
TINY = 2.0**-140


@dataclass(frozen=True)
class Value:
    """x and e, of one shape, float64."""

    x: Tensor
    e: Tensor

    @property
    def size(self) -> Tensor:
        """What the computed value's magnitude is at most."""
        return self.x.abs() + self.e


class Bound:
    """The arithmetic: each method's result has the errors of its operands and its own."""

    def __init__(self, unit: float) -> None:
        self.unit = unit

    def gamma(self, n: int) -> float:
        return n * self.unit / (1 - n * self.unit) * SLACK

    def rounded(self, x: Tensor, e: Tensor, operations: int = 1) -> Value:
        return Value(x, e + self.gamma(operations) * (x.abs() + e) + TINY)

    def add(self, a: Value, b: Value, sign: float = 1.0) -> Value:
        return self.rounded(a.x + sign * b.x, a.e + b.e)

    def multiply(self, a: Value, b: Value) -> Value:
        return self.rounded(a.x * b.x, a.size * b.e + a.e * b.x.abs())

    def divide(self, a: Value, b: Value) -> Value:
        least = (b.x.abs() - b.e).clamp(min=0)
        quotient = a.x / b.x
        return self.rounded(quotient, (a.e + quotient.abs() * b.e) / least)

    def sqrt(self, a: Value) -> Value:
        root = a.x.clamp(min=0).sqrt()
        return self.rounded(root, torch.minimum(a.e / root.clamp(min=1e-300), a.e.sqrt()))

    def function(
        self, x: Tensor, a: Value, lipschitz: float, magnitude: Tensor, operations: int = 1
    ) -> Value:
        """A function with that Lipschitz constant, computed in `operations` steps none larger than `magnitude`."""
        return Value(x, lipschitz * a.e + self.gamma(operations) * (magnitude + lipschitz * a.e) + TINY)

    def exp(self, a: Value) -> Value:
        x = a.x.exp()
        return self.rounded(x, x * a.e.expm1())

    def log(self, a: Value) -> Value:
        return self.rounded(a.x.log(), a.e / (a.x - a.e).clamp(min=1e-300))

    def sum(self, a: Value, dim: Sequence[int], keepdim: bool = False) -> Value:
        n = math.prod(a.x.shape[axis] for axis in dim)
        x, e, size = (torch.sum(t, list(dim), keepdim) for t in (a.x, a.e, a.size))
        return Value(x, e + self.gamma(n) * size + TINY)

    def linear(self, product: Callable[[Tensor, Tensor], Tensor], a: Value, b: Value, n: int) -> Value:
        """A bilinear operator whose results are sums of n products."""
        x = product(a.x, b.x)
        size = product(a.size, b.size)
        through = size - product(a.x.abs(), b.x.abs())
        return Value(x, through.abs() + (self.gamma(n + 1) + 2.0**-40) * size + TINY)

    def mean(self, a: Value, dim: Sequence[int], keepdim: bool = False) -> Value:
        n = math.prod(a.x.shape[axis] for axis in dim)
        total = self.sum(a, dim, keepdim)
        return self.rounded(total.x / n, total.e / n)

    def variance(self, a: Value, dim: Sequence[int], correction: float, keepdim: bool) -> Value:
        n = math.prod(a.x.shape[axis] for axis in dim)
        center = self.mean(a, dim, True)
        d = self.add(a, center, -1.0)
        squares = self.sum(self.multiply(d, d), dim, keepdim)
        return self.rounded(squares.x / (n - correction), squares.e / (n - correction))

    def normalized(self, a: Value, mean: Value, variance: Value, eps: float) -> Value:
        root = self.sqrt(self.rounded(variance.x + eps, variance.e))
        inverse = self.divide(Value(torch.ones_like(root.x), torch.zeros_like(root.e)), root)
        return self.multiply(self.add(a, mean, -1.0), inverse)


class BoundMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Carries the errors of float64 tensors; raises NotImplementedError for an operator that it has no rule for."""

    def __init__(self, unit: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bound = Bound(unit)
        self.errors = WeakTensorKeyDictionary()

    def of(self, tensor: Tensor) -> Value:
        error = self.errors.get(tensor)  # type: ignore[no-untyped-call]
        return Value(tensor, torch.zeros_like(tensor) if error is None else error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in RULES:
            values = [self.of(a) if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
            result = RULES[name](self.bound, *values, **kwargs)
            if func._schema.is_mutable:
                args[0].copy_(result.x)
                self.errors[args[0]] = result.e
                return args[0]
            return self.store(result)
        if name in CARRIED or any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns):
            return self.carry(func, args, kwargs)
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        result = func(*args, **kwargs)
        reads = any(isinstance(a, Tensor) and a.is_floating_point() for a in args)
        if reads and name not in FRESH and isinstance(result, Tensor) and result.is_floating_point():
            raise NotImplementedError(f"no bound for {func}")
        return result

    def carry(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Copies and rearrangements: the errors go the same way."""
        result = func(*args, **kwargs)
        errors = func(
            *tree_map_only(Tensor, lambda t: self.of(t).e if t.is_floating_point() else t, args), **kwargs
        )
        for kept, error in zip(_list(result), _list(errors), strict=True):
            if isinstance(kept, Tensor) and kept.is_floating_point():
                self.errors[kept] = error.abs()
        return result

    def store(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(self.store(part) for part in result)
        if isinstance(result, Value):
            self.errors[result.x] = result.e
            return result.x
        return result


def bounded(model: nn.Module, inputs: Sequence[Tensor], unit: float) -> tuple[Tensor, Tensor]:
    """The model's first output in float64, and how far from it a computed one can be. Inputs and weights are exact."""
    mode = BoundMode(unit)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    copied = copy.deepcopy(model).double()
    with torch.no_grad(), separate_operators(), mode:
        out = copied(*wide)
    first = _list(out)[0]
    return first, mode.of(first).e * SLACK + first.abs() * 2.0**-40


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _value(x: Any) -> Value:
    if isinstance(x, Value):
        return x
    number = torch.tensor(float(x), dtype=torch.float64)
    return Value(number, number.abs() * 2.0**-24)


def _add(b: Bound, a: Any, c: Any, alpha: float = 1) -> Value:
    other = _value(c)
    if alpha != 1:
        other = b.multiply(other, _value(alpha))
    return b.add(_value(a), other)


def _addmm(b: Bound, start: Value, left: Value, right: Value) -> Value:
    product = b.linear(torch.matmul, left, right, left.x.shape[-1] + 1)
    n = left.x.shape[-1]
    return Value(product.x + start.x, product.e + start.e + b.gamma(n + 1) * start.size)


def _convolution(
    b: Bound, x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Value:  # fmt: skip
    n = math.prod(weight.x.shape[2:]) * (x.x.shape[1] // groups)

    def product(a: Tensor, c: Tensor) -> Tensor:
        return torch.convolution(a, c, None, stride, padding, dilation, transposed, output_padding, groups)

    result = b.linear(product, x, weight, n)
    if bias is None:
        return result
    shape = (-1, *(1 for _ in weight.x.shape[2:]))
    return Value(result.x + bias.x.view(shape), result.e + (bias.e + b.gamma(n + 1) * bias.size).view(shape))


def _affine(b: Bound, a: Value, weight: Value | None, bias: Value | None, shape: Sequence[int]) -> Value:
    if weight is not None:
        a = b.multiply(a, Value(weight.x.view(shape), weight.e.view(shape)))
    return a if bias is None else b.add(a, Value(bias.x.view(shape), bias.e.view(shape)))


def _layer_norm(
    b: Bound, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Tensor, Tensor]:
    dim = list(range(-len(shape), 0))
    out = b.normalized(x, b.mean(x, dim, True), b.variance(x, dim, 0, True), eps)
    return _affine(b, out, weight, bias, shape), torch.empty(0), torch.empty(0)


def _group_norm(
    b: Bound, x: Value, weight: Value | None, bias: Value | None, n: int, c: int, length: int, group: int, eps: float
) -> tuple[Value, Tensor, Tensor]:  # fmt: skip
    rows = Value(x.x.reshape(n, group, -1), x.e.reshape(n, group, -1))
    out = b.normalized(rows, b.mean(rows, [-1], True), b.variance(rows, [-1], 0, True), eps)
    out = Value(out.x.view(x.x.shape), out.e.view(x.x.shape))
    ones = [1] * (x.x.dim() - 2)
    return _affine(b, out, weight, bias, (-1, *ones)), torch.empty(0), torch.empty(0)


def _batch_norm(
    b: Bound, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, variance: Value | None,
    training: bool, momentum: float, eps: float,
) -> tuple[Value, Tensor, Tensor]:  # fmt: skip
    shape = (1, -1, *(1 for _ in x.x.shape[2:]))
    if training or mean is None or variance is None:
        dim = [axis for axis in range(x.x.dim()) if axis != 1]
        center, spread = b.mean(x, dim, True), b.variance(x, dim, 0, True)
    else:
        center, spread = (Value(v.x.view(shape), v.e.view(shape)) for v in (mean, variance))
    return (
        _affine(b, b.normalized(x, center, spread, eps), weight, bias, shape),
        torch.empty(0),
        torch.empty(0),
    )


def _exponentials(b: Bound, x: Value, dim: int) -> tuple[Value, Value, Value]:
    top = x.x.amax(dim, keepdim=True)
    shifted = b.add(x, Value(top, x.e.amax(dim, keepdim=True)), -1.0)
    powers = b.exp(shifted)
    return shifted, powers, b.sum(powers, [dim], True)


def _softmax(b: Bound, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    _shifted, powers, total = _exponentials(b, x, dim)
    return b.divide(powers, total)


def _log_softmax(b: Bound, x: Value, dim: int, *_: Any) -> Value:
    shifted, _powers, total = _exponentials(b, x, dim)
    return b.add(shifted, b.log(total), -1.0)


def _dims(x: Value, dim: Any) -> list[int]:
    if dim is None or dim == []:
        return list(range(x.x.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


def _pool(function: Callable[..., Tensor], terms: Callable[..., int]) -> Callable[..., Value]:
    def rule(b: Bound, x: Value, *settings: Any) -> Value:
        out = function(x.x, *settings)
        return Value(
            out,
            function(x.e, *settings) + b.gamma(terms(x, *settings) + 1) * function(x.size, *settings) + TINY,
        )

    return rule


def _weighted(name: str, taps: int) -> Callable[..., Value]:
    """Upsampling: each axis takes two products and a sum, with weights whose places are float32 numbers."""
    function = getattr(torch.ops.aten, name)

    def rule(b: Bound, x: Value, *settings: Any) -> Value:
        out = function(x.x, *settings)
        axes = x.x.dim() - 2
        size = max(x.x.shape[2:])
        # A weight's own error: its place in the input, of up to `size`, in float32.
        slope = 4 * size * 2.0**-24 * axes * 2 * x.size.amax()
        return Value(out, function(x.e, *settings) + (b.gamma(taps * axes)) * x.size.amax() + slope)

    return rule


def _norm(b: Bound, x: Value, order: float = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    assert order == 2
    return b.sqrt(b.sum(b.multiply(x, x), _dims(x, dim), keepdim))


def _power(b: Bound, x: Value, exponent: float) -> Value:
    if exponent == 2:
        return b.multiply(x, x)
    slope = abs(exponent) * (x.x.abs() + math.copysign(1, exponent - 1) * x.e).clamp(min=1e-300) ** (
        exponent - 1
    )
    return b.rounded(x.x**exponent, slope * x.e)


def _activation(
    function: Callable[..., Tensor], lipschitz: float, operations: int = 1
) -> Callable[..., Value]:
    """No step of these is larger than |x| + |f(x)| + 1 times a small constant, which `operations` covers."""

    def rule(b: Bound, x: Value, *settings: Any, **named: Any) -> Value:
        out = function(x.x, *settings, **named)
        exact = operations == 0
        return b.function(
            out, x, lipschitz, torch.zeros_like(out) if exact else x.size + out.abs() + 1, operations
        )

    return rule


def _bounded_function(function: Callable[..., Tensor]) -> Callable[..., Value]:
    """One rounding, slope at most 1."""
    return lambda b, x: b.rounded(function(x.x), x.e)


def _trilinear(
    b: Bound, i1: Value, i2: Value, i3: Value, e1: Any, e2: Any, e3: Any, sumdim: Any, unroll_dim: int = 1
) -> Value:
    def expanded(v: Value, axes: Any) -> Value:
        for axis in axes:
            v = Value(v.x.unsqueeze(axis), v.e.unsqueeze(axis))
        return v

    product = b.multiply(b.multiply(expanded(i1, e1), expanded(i2, e2)), expanded(i3, e3))
    return b.sum(product, sumdim)


def _mse_loss(b: Bound, x: Value, y: Value, reduction: int = 1) -> Value:
    assert reduction == 1
    d = b.add(x, y, -1.0)
    return b.mean(b.multiply(d, d), _dims(d, None))


def _nll_loss(
    b: Bound, x: Value, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Value, Tensor]:
    assert weight is None
    assert reduction == 1
    chosen = Value(-x.x.gather(1, target[:, None]), x.e.gather(1, target[:, None]))
    return b.mean(chosen, [0, 1]), torch.tensor(float(len(target)))


RULES: dict[str, Callable[..., Any]] = {
    "add": _add,
    "add_": _add,
    "sub": lambda b, a, c, alpha=1: (
        _add(b, a, c, -alpha) if alpha != 1 else b.add(_value(a), _value(c), -1.0)
    ),
    "mul": lambda b, a, c: b.multiply(_value(a), _value(c)),
    "mul_": lambda b, a, c: b.multiply(_value(a), _value(c)),
    "div": lambda b, a, c: b.divide(_value(a), _value(c)),
    "div_": lambda b, a, c: b.divide(_value(a), _value(c)),
    "sqrt": lambda b, a: b.sqrt(a),
    "rsqrt": lambda b, a: b.divide(_value(1), b.sqrt(a)),
    "pow": _power,
    "exp": lambda b, a: b.exp(a),
    "log": lambda b, a: b.log(a),
    "neg": lambda b, a: Value(-a.x, a.e),
    "abs": lambda b, a: Value(a.x.abs(), a.e),
    "mm": lambda b, a, c: b.linear(torch.matmul, a, c, a.x.shape[-1]),
    "bmm": lambda b, a, c: b.linear(torch.matmul, a, c, a.x.shape[-1]),
    "addmm": _addmm,
    "convolution": _convolution,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "_softmax": _softmax,
    "_safe_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "sum": lambda b, a, dim=None, keepdim=False, **_: b.sum(a, _dims(a, dim), keepdim),
    "mean": lambda b, a, dim=None, keepdim=False, **_: b.mean(a, _dims(a, dim), keepdim),
    "linalg_vector_norm": _norm,
    "_trilinear": _trilinear,
    "mse_loss": _mse_loss,
    "nll_loss_forward": _nll_loss,
    "avg_pool2d": _pool(torch.ops.aten.avg_pool2d, lambda x, size, *_: math.prod(size)),
    "avg_pool3d": _pool(torch.ops.aten.avg_pool3d, lambda x, size, *_: math.prod(size)),
    "_adaptive_avg_pool2d": _pool(
        torch.ops.aten._adaptive_avg_pool2d, lambda x, *_: math.prod(x.x.shape[-2:])
    ),
    "upsample_bilinear2d": _weighted("upsample_bilinear2d", 3),
    "max_pool2d_with_indices": lambda b, x, *s: (
        Value(
            torch.ops.aten.max_pool2d_with_indices(x.x, *s)[0],
            torch.ops.aten.max_pool2d_with_indices(x.e, *s)[0],
        ),
        torch.empty(0),
    ),
    "relu": _activation(torch.relu, 1, 0),
    "clamp_min": lambda b, x, low: Value(x.x.clamp(min=low.x if isinstance(low, Value) else low), x.e),
    "clamp_min_": lambda b, x, low: Value(x.x.clamp(min=low.x if isinstance(low, Value) else low), x.e),
    "hardtanh": _activation(functional.hardtanh, 1, 0),
    "sigmoid": _bounded_function(torch.sigmoid),
    "sigmoid_": _bounded_function(torch.sigmoid),
    "tanh": _bounded_function(torch.tanh),
    "tanh_": _bounded_function(torch.tanh),
    "erf": _activation(torch.erf, 1.13),
    "gelu": _activation(functional.gelu, 1.13, 8),
    "silu": _activation(functional.silu, 1.1, 4),
    "softplus": _activation(functional.softplus, 1, 4),
    "elu": _activation(torch.ops.aten.elu, 1.0, 4),
    "mish": _activation(functional.mish, 1.1, 6),
    "hardswish": _activation(functional.hardswish, 1.5, 6),
    "leaky_relu": _activation(functional.leaky_relu, 1, 1),
    "_prelu_kernel": lambda b, x, w: b.function(
        torch.where(x.x > 0, x.x, w.x * x.x), x, max(1.0, float(w.x.abs().max())), x.size * (1 + w.x.abs()), 1
    ),
}
CARRIED = {
    "clone", "repeat", "cat", "stack", "index_select", "gather", "embedding", "constant_pad_nd", "unsafe_split",
    "_unsafe_view", "pixel_shuffle", "upsample_nearest2d", "contiguous", "copy",
}  # fmt: skip
# New memory, filled with constants or by the generator.
FRESH = {"empty_like", "zeros_like", "ones_like", "bernoulli_", "fill_", "zero_"}
