"""Element-wise arithmetic: sums and differences of anything, negation, products and quotients
(with a constant here; of two perturbed tensors in `bilinear`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.bilinear import ProductRule, QuotientRule, same_sign
from boundscope.bounds.operators.relaxation import Parts, sum_to
from boundscope.bounds.support import Block, Elements
from boundscope.network.operators.activation import Neg
from boundscope.network.operators.arithmetic import Add, Div, Mul, Sub
from boundscope.network.operators.normalization import BatchNormalization


def _signed_sum(view: NodeView[Add | Sub], rows: Tensor, sign: float) -> Parts:
    """Backward step of x₀ + sign·x₁, either of which may be constant."""
    carried: list[Tensor | None] = [None, None]
    for index, factor in ((0, 1.0), (1, sign)):
        signed = rows if factor > 0 else -rows
        interval = view.inputs[index]
        if interval is not None:
            carried[index] = sum_to(signed, (rows.shape[0], *interval.lower.shape))
    return tuple(carried)


def _repeated(view: NodeView[Any]) -> int:
    """How many output elements one element of a perturbed input goes to, at most."""
    size = int(torch.Size(view.output_shapes[0]).numel())
    return max(size // max(view.interval(index).lower.numel(), 1) for index in view.perturbed)


def _ends(view: NodeView[Add | Sub], index: int) -> tuple[Tensor, Tensor]:
    interval = view.inputs[index]
    if interval is not None:
        return interval.lower, interval.upper
    fixed = view.constant(index)
    assert fixed is not None
    return fixed, fixed


class _SumRule(Rule[Add | Sub]):
    sign = 1.0

    def interval(self, view: NodeView[Add | Sub]) -> tuple[Interval, ...]:
        (low, high), (other_low, other_high) = _ends(view, 0), _ends(view, 1)
        if self.sign < 0:
            other_low, other_high = -other_high, -other_low
        return (Interval(low + other_low, high + other_high),)

    def never_negative(self, view: NodeView[Add | Sub]) -> Tensor:
        (low, _), (other_low, other_high) = _ends(view, 0), _ends(view, 1)
        return (low >= 0) & ((other_low >= 0) if self.sign > 0 else (other_high <= 0))

    def magnitude(self, view: NodeView[Add | Sub]) -> tuple[Tensor, ...]:
        (low, high), (other_low, other_high) = _ends(view, 0), _ends(view, 1)
        return (torch.maximum(low.abs(), high.abs()) + torch.maximum(other_low.abs(), other_high.abs()),)

    def constant_error(self, view: NodeView[Add | Sub]) -> Tensor | None:
        return view.constant(1 - view.perturbed[0])

    def backward_terms(self, view: NodeView[Add | Sub]) -> int:
        return _repeated(view) + 1

    def backward(self, view: NodeView[Add | Sub], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        return _signed_sum(view, coefficients, self.sign)

    def backward_on(
        self, view: NodeView[Add | Sub], block: Block, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        whole = view.output_shapes[0]
        shapes = (None if x is None else tuple(x.lower.shape) for x in view.inputs)
        if any(shape not in (None, whole) for shape in shapes):
            return None
        signed = (block, Block(-block.rows, block.support) if self.sign < 0 else block)
        return tuple(None if x is None else one for x, one in zip(view.inputs, signed, strict=True))


@bounds(Add)
class AddRule(_SumRule):
    pass


@bounds(Sub)
class SubRule(_SumRule):
    sign = -1.0


@bounds(Neg)
class NegRule(Rule[Neg]):
    exact = True
    silent = True

    def interval(self, view: NodeView[Neg]) -> tuple[Interval, ...]:
        x = view.interval(0)
        return (Interval(-x.upper, -x.lower),)

    def magnitude(self, view: NodeView[Neg]) -> tuple[Tensor, ...]:
        return (view.interval(0).magnitude,)

    def backward(self, view: NodeView[Neg], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        return (-coefficients,)


_PRODUCT = ProductRule()
_QUOTIENT = QuotientRule()


class _ScaleRule(Rule[Mul | Div]):
    """y = x·s with a constant s: the other operand, or its reciprocal."""

    def _scale(self, view: NodeView[Mul | Div]) -> Tensor:
        raise NotImplementedError

    def _moved(self, view: NodeView[Mul | Div], value: Tensor) -> Tensor:
        return value * self._scale(view)

    def never_negative(self, view: NodeView[Mul | Div]) -> Tensor:
        index = view.perturbed[0]
        fixed = view.constant(1 - index)
        assert fixed is not None
        return same_sign(view.interval(index), Interval.point(fixed))

    def interval(self, view: NodeView[Mul | Div]) -> tuple[Interval, ...]:
        x = view.interval(view.perturbed[0])
        one, other = self._moved(view, x.lower), self._moved(view, x.upper)
        return (Interval(torch.minimum(one, other), torch.maximum(one, other)),)

    def magnitude(self, view: NodeView[Mul | Div]) -> tuple[Tensor, ...]:
        return (self._moved(view, view.interval(view.perturbed[0]).magnitude).abs(),)

    def backward_terms(self, view: NodeView[Mul | Div]) -> int:
        return _repeated(view) + 1

    def backward(self, view: NodeView[Mul | Div], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        index = view.perturbed[0]
        shape = (coefficients.shape[0], *view.interval(index).lower.shape)
        carried = sum_to(self._moved(view, coefficients), shape)
        return (carried, None) if index == 0 else (None, carried)


@bounds(Mul)
class MulRule(_ScaleRule):
    def use(self, perturbed: Sequence[bool]) -> Rule[Any]:
        return _PRODUCT if all(perturbed) else self

    def constant_error(self, view: NodeView[Mul | Div]) -> Tensor | None:
        return self.magnitude(view)[0]

    def _scale(self, view: NodeView[Mul | Div]) -> Tensor:
        scale = view.constant(1 - view.perturbed[0])
        assert scale is not None
        return scale


@bounds(Div)
class DivRule(_ScaleRule):
    def use(self, perturbed: Sequence[bool]) -> Rule[Any]:
        return _QUOTIENT if perturbed[1] else self

    def _moved(self, view: NodeView[Mul | Div], value: Tensor) -> Tensor:
        divisor = view.constant(1)
        assert divisor is not None
        return value / divisor


@bounds(BatchNormalization)
class BatchNormalizationRule(Rule[BatchNormalization]):
    """y = (x − mean)·scale/√(var + ε) + bias, channel by channel (axis 1), as at inference."""

    def supports(self, view_perturbed: Sequence[bool], op: BatchNormalization) -> str | None:
        return "parameters that depend on the network's input" if any(view_perturbed[1:]) else None

    def _affine(self, view: NodeView[BatchNormalization]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """scale/√(var + ε), bias − mean·that, and the magnitudes |bias|, |mean|·|that|; each along axis 1."""
        scale, bias, mean, variance = (view.constant(index) for index in range(1, 5))
        assert scale is not None
        assert bias is not None
        assert mean is not None
        assert variance is not None
        slope = scale / torch.sqrt(variance + view.op.epsilon)
        shape = [1, -1] + [1] * (len(view.output_shapes[0]) - 2)
        return (
            slope.reshape(shape),
            (bias - mean * slope).reshape(shape),
            bias.abs().reshape(shape),
            (mean * slope).abs().reshape(shape),
        )

    def interval(self, view: NodeView[BatchNormalization]) -> tuple[Interval, ...]:
        slope, offset, _, _ = self._affine(view)
        x = view.interval(0)
        one, other = x.lower * slope + offset, x.upper * slope + offset
        return (Interval(torch.minimum(one, other), torch.maximum(one, other)),)

    def terms(self, view: NodeView[BatchNormalization]) -> int:
        return 8

    def magnitude(self, view: NodeView[BatchNormalization]) -> tuple[Tensor, ...]:
        slope, _, bias, mean = self._affine(view)
        return (view.interval(0).magnitude * slope.abs() + bias + mean,)

    def backward_terms(self, view: NodeView[BatchNormalization]) -> int:
        return 8

    def backward(self, view: NodeView[BatchNormalization], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        slope, _, _, _ = self._affine(view)
        return (coefficients * slope, None, None, None, None)
