"""Products and quotients of two perturbed tensors, bounded by McCormick's planes (McCormick 1976).

For x in [l, u] and y in [m, v] both m·x + l·y − l·m and v·x + u·y − u·v lie below x·y, and v·x + l·y − l·v and
m·x + u·y − u·m above it. Every point between the two of a kind is as sound, and θ is that point: 1 is the first
plane, 0 the second.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.operators.relaxation import Backward, Lines, Planes, Relaxation, dot, sum_to
from boundscope.errors import BoundError
from boundscope.network.operators.arithmetic import Div, Mul
from boundscope.network.operators.linear import MatMul

FULL_PARAMETERS = (
    1 << 14
)  # θ of each product of a MatMul up to so many products, else one for each element of x
BLOCK_ELEMENTS = 1 << 20  # products of a MatMul's interval that exist at a time

Plane = tuple[Tensor, Tensor, Tensor]


def corners(x: Interval, y: Interval) -> Interval:
    """Interval of x·y, from the products of the ends."""
    products = [a * b for a in (x.lower, x.upper) for b in (y.lower, y.upper)]
    low = torch.minimum(torch.minimum(products[0], products[1]), torch.minimum(products[2], products[3]))
    high = torch.maximum(torch.maximum(products[0], products[1]), torch.maximum(products[2], products[3]))
    return Interval(low, high)


def same_sign(x: Interval, y: Interval) -> Tensor:
    """Whether a product or a quotient is at least zero for sure, of intervals that broadcast to it."""
    return ((x.lower >= 0) & (y.lower >= 0)) | ((x.upper <= 0) & (y.upper <= 0))


def preferred(x: Interval, y: Interval) -> tuple[Tensor, Tensor]:
    """A choice between the planes below, and above, for intervals that broadcast to the products.

    The operand whose width is larger for its size gets the slope nearest to zero that both planes allow: its own
    bounds are the looser ones, and what is not carried to it loses nothing there. (On a vision transformer this
    gave better margins than half way, one plane for all, or the flatter slope for always the same operand.)
    """
    share_x, share_y = _width(x) / x.magnitude, _width(y) / y.magnitude
    flat_y = x.upper / _width(x)  # u + θ·(l − u) = 0
    below_x, above_x = y.upper / _width(y), -y.lower / _width(y)
    y_is_wide = share_y > share_x
    below = torch.where(y_is_wide, flat_y, below_x)
    above = torch.where(y_is_wide, flat_y, above_x)
    return tuple(torch.nan_to_num(one.clamp(0.0, 1.0), nan=0.5) for one in (below, above))  # type: ignore[return-value]


def mccormick(x: Interval, y: Interval, below: Tensor, above: Tensor) -> tuple[Plane, Plane]:
    """Planes a·x + b·y + c below and above x·y, for parameters in 0 … 1 that broadcast to the product."""

    def between(first: Tensor, second: Tensor, theta: Tensor) -> Tensor:
        return second + theta * (first - second)

    lower = (
        between(y.lower, y.upper, below),
        between(x.lower, x.upper, below),
        -between(x.lower * y.lower, x.upper * y.upper, below),
    )
    upper = (
        between(y.upper, y.lower, above),
        between(x.lower, x.upper, above),
        -between(x.lower * y.upper, x.upper * y.lower, above),
    )
    return lower, upper


def parts_of(theta: Tensor, rank: int) -> tuple[Tensor, ...]:
    """The parameters [k, *S] or [R, k, *S] one by one, *S of so many axes."""
    return theta.unbind(theta.dim() - 1 - rank)


class ProductRule(Rule[Mul]):
    """x·y element by element, with broadcasting; x·x where both are the same tensor.

    θ [2, *S] chooses between the planes below and above; of a square θ [*S] is where the tangent below touches.
    """

    relaxed = True
    by_element = True
    tall = True

    def _square(self, view: NodeView[Mul]) -> bool:
        return view.node.inputs[0] == view.node.inputs[1]

    def interval(self, view: NodeView[Mul]) -> tuple[Interval, ...]:
        x = view.interval(0)
        interval = corners(x, view.interval(1))
        if self._square(view):
            ends = torch.minimum(x.lower.square(), x.upper.square())
            straddles = (x.lower < 0) & (x.upper > 0)
            return (Interval(torch.where(straddles, 0.0, ends), interval.upper),)
        return (interval,)

    def never_negative(self, view: NodeView[Mul]) -> Tensor:
        x, y = view.interval(0), view.interval(1)
        if self._square(view):
            return torch.ones_like(x.lower, dtype=torch.bool)
        return same_sign(x, y)

    def magnitude(self, view: NodeView[Mul]) -> tuple[Tensor, ...]:
        return (view.interval(0).magnitude * view.interval(1).magnitude,)

    def backward_terms(self, view: NodeView[Mul]) -> int:
        return _repeats(view, math.prod(view.output_shapes[0]))

    def relax(self, view: NodeView[Mul], theta: Tensor | None = None) -> Relaxation:
        x, y = view.interval(0), view.interval(1)
        theta = self.theta(view) if theta is None else theta
        if self._square(view):
            touch = x.lower + theta * (x.upper - x.lower)
            return Lines(2 * touch, -touch.square(), x.lower + x.upper, -x.lower * x.upper, arity=2)
        below, above = parts_of(theta, len(view.output_shapes[0]))
        shapes = (tuple(x.lower.shape), tuple(y.lower.shape))
        return Planes(*mccormick(x, y, below, above), shapes)

    def theta(self, view: NodeView[Mul]) -> Tensor:
        x, y = view.interval(0), view.interval(1)
        if self._square(view):
            return torch.full_like(x.lower, 0.5)
        shape = view.output_shapes[0]
        return torch.stack([one.expand(shape) for one in preferred(x, y)])

    def theta_matters(self, view: NodeView[Mul]) -> Tensor:
        wide = (_width(view.interval(0)) > 0) & (_width(view.interval(1)) > 0)
        return wide if self._square(view) else wide.expand(2, *view.output_shapes[0])

    def relax_magnitude(self, view: NodeView[Mul], relaxation: Relaxation) -> Tensor:
        # Slopes up to |y| and |x| (2|x| of a square), intercepts up to |x|·|y|, as differences of two such.
        return 8.0 * self.magnitude(view)[0]


def _repeats(view: NodeView[Any], products: int) -> int:
    """How many of a node's products one element of an operand takes part in, at most."""
    return products // max(1, min(view.interval(index).lower.numel() for index in view.perturbed))


def batch_of(x: Tensor, y: Tensor) -> tuple[int, ...]:
    """Broadcast shape of two stacks of matrices, without the matrices' own axes."""
    return tuple(torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]))  # type: ignore[no-untyped-call]


def _width(interval: Interval) -> Tensor:
    return interval.upper - interval.lower


@dataclass(frozen=True)
class OneOperand(Relaxation):
    """Planes whose first operand is constant: its slope is zero, and no row is carried to it."""

    planes: Planes

    def through(self, rows: Tensor) -> Backward:
        (_, carried), constant = self.planes.through(rows)
        return (None, carried), constant

    def to(self, dtype: torch.dtype) -> OneOperand:
        return OneOperand(self.planes.to(dtype))


class QuotientRule(Rule[Div]):
    """x/y where y keeps one sign, as x·w with w = 1/y between a tangent below and the chord above (y > 0).

    θ [3, *S]: the two planes of x·w, and where the tangent touches, from √(l·u), where it is parallel to the
    chord, to u.
    """

    relaxed = True

    def _operands(self, view: NodeView[Div]) -> tuple[Interval, Interval, Tensor]:
        """x and y with the divisor's sign taken out, and that sign.

        Raises:
            BoundError: the divisor's interval holds zero; names the tensor.
        """
        y = view.interval(1)
        straddles = ((y.lower <= 0) & (y.upper >= 0)).flatten().nonzero()
        if len(straddles):
            index = int(straddles[0])
            raise BoundError(
                f"the divisor '{view.node.inputs[1]}' of node '{view.node.name}' can be zero: its bounds at element "
                f"{index} are {y.lower.flatten()[index].item()!r} … {y.upper.flatten()[index].item()!r}"
            )
        fixed = view.constant(0)
        x = view.interval(0) if fixed is None else Interval.point(fixed)
        sign = torch.sign(y.lower)
        return _signed(x, sign), _signed(y, sign), sign

    def interval(self, view: NodeView[Div]) -> tuple[Interval, ...]:
        x, y, _ = self._operands(view)
        low = torch.minimum(x.lower / y.lower, x.lower / y.upper)
        return (Interval(low, torch.maximum(x.upper / y.lower, x.upper / y.upper)),)

    def never_negative(self, view: NodeView[Div]) -> Tensor:
        x, y, _ = self._operands(view)
        return same_sign(x, y).expand(view.output_shapes[0])

    def magnitude(self, view: NodeView[Div]) -> tuple[Tensor, ...]:
        x, y, _ = self._operands(view)
        return (x.magnitude / y.lower,)

    def constant_error(self, view: NodeView[Div]) -> Tensor | None:
        return self.magnitude(view)[0]

    def backward_terms(self, view: NodeView[Div]) -> int:
        return _repeats(view, math.prod(view.output_shapes[0]))

    def relax(self, view: NodeView[Div], theta: Tensor | None = None) -> Relaxation:
        x, y, sign = self._operands(view)
        below, above, touch = parts_of(
            self.theta(view) if theta is None else theta, len(view.output_shapes[0])
        )
        reciprocal = Interval(1 / y.upper, 1 / y.lower)
        lower, upper = mccormick(x, reciprocal, below, above)
        parallel = torch.sqrt(y.lower) * torch.sqrt(y.upper)
        point = parallel + touch * (y.upper - parallel)
        tangent = (-1 / point.square(), 2 / point)
        chord = (-1 / (y.lower * y.upper), 1 / y.lower + 1 / y.upper)
        lower, upper = _through_line(lower, tangent, chord), _through_line(upper, chord, tangent)
        fixed = view.constant(0)
        shapes = (
            tuple((view.interval(0).lower if fixed is None else fixed).shape),
            tuple(view.interval(1).lower.shape),
        )
        if fixed is None:
            return Planes(
                (lower[0] * sign, lower[1] * sign, lower[2]),
                (upper[0] * sign, upper[1] * sign, upper[2]),
                shapes,
            )
        # x is a number c: a·c joins the intercept.
        number, none = x.lower, torch.zeros_like(x.lower)
        return OneOperand(
            Planes(
                (none, lower[1] * sign, lower[2] + lower[0] * number),
                (none, upper[1] * sign, upper[2] + upper[0] * number),
                shapes,
            )
        )

    def theta(self, view: NodeView[Div]) -> Tensor:
        x, y, _ = self._operands(view)
        parallel = torch.sqrt(y.lower) * torch.sqrt(y.upper)
        middle = ((y.lower + y.upper) / 2 - parallel) / (y.upper - parallel)
        shape = view.output_shapes[0]
        planes = preferred(x, Interval(1 / y.upper, 1 / y.lower))
        touch = torch.nan_to_num(middle, nan=0.0).clamp(0.0, 1.0)
        return torch.stack([one.expand(shape) for one in (*planes, touch)])

    def theta_matters(self, view: NodeView[Div]) -> Tensor:
        x, y, _ = self._operands(view)
        wide, both = _width(y) > 0, (_width(x) > 0) & (_width(y) > 0)
        shape = view.output_shapes[0]
        return torch.stack([both.expand(shape), both.expand(shape), wide.expand(shape)])

    def relax_magnitude(self, view: NodeView[Div], relaxation: Relaxation) -> Tensor:
        # With w = 1/y at its largest: |a·x|, |b|·(slope·y + intercept) ≤ 3·|x|·w, |c|, as differences of two.
        return 12.0 * self.magnitude(view)[0]


def _signed(interval: Interval, sign: Tensor) -> Interval:
    one, other = interval.lower * sign, interval.upper * sign
    return Interval(torch.minimum(one, other), torch.maximum(one, other))


def _through_line(plane: Plane, positive: tuple[Tensor, Tensor], negative: tuple[Tensor, Tensor]) -> Plane:
    """A plane in (x, w) as one in (x, y), with w replaced by a line in y that the sign of its slope chooses."""
    slope, up, down = plane[1], plane[1].clamp(min=0), plane[1].clamp(max=0)
    assert slope is not None
    return (
        plane[0],
        up * positive[0] + down * negative[0],
        plane[2] + up * positive[1] + down * negative[1],
    )


@dataclass(frozen=True)
class MatMulPlanes(Relaxation):
    """McCormick's planes of every product x_ik·y_kj of a matrix product, summed over k.

    With all θ at one half this is two matrix products, as of a linear layer. A deviation from that is one number
    a product ([R, *B, m, k, n]: only then do rows of that size exist) or one for each element of x
    ([R, *B, m, k, 1]: matrix products again).
    """

    x: Interval  # [*Bx, m, k], or [R, *Bx, m, k] of each row's own
    y: Interval  # [*By, k, n], or [R, *By, k, n]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]  # of the operands in the file, which may be vectors
    below: Tensor | None = None  # ½ − θ of the lower planes
    above: Tensor | None = None  # θ − ½ of the upper planes
    own: bool = False  # whether x and y are of each row's own, with as many axes as rows

    def _tall(self, rows: Tensor) -> Tensor:
        """Rows [R, *S_out] as [R, *B, m, n]."""
        x, y = self.x.lower, self.y.lower
        batch = batch_of(x, y)[1:] if self.own else batch_of(x, y)
        return rows.reshape(len(rows), *batch, x.shape[-2], y.shape[-1])

    def _at_operands(self, to_x: Tensor, to_y: Tensor) -> tuple[Tensor, Tensor]:
        """What belongs to each element of the operands, out of [R, *B, m, k] and [R, *B, k, n]."""
        count, first = len(to_x), 1 if self.own else 0
        return (
            sum_to(to_x, (count, *self.x.lower.shape[first:])).reshape(count, *self.shapes[0]),
            sum_to(to_y, (count, *self.y.lower.shape[first:])).reshape(count, *self.shapes[1]),
        )

    def through(self, rows: Tensor) -> Backward:
        x, y = self.x, self.y
        rows = self._tall(rows)
        negative = rows.clamp(max=0)
        positive = rows - negative
        to_x = rows @ ((y.lower + y.upper) / 2).transpose(-1, -2)
        to_y = ((x.lower + x.upper) / 2).transpose(-1, -2) @ rows
        constant = dot(positive, -(x.lower @ y.lower + x.upper @ y.upper) / 2)
        constant = constant + dot(negative, -(x.lower @ y.upper + x.upper @ y.lower) / 2)
        for part, deviation, flip in ((positive, self.below, 1.0), (negative, self.above, -1.0)):
            if deviation is not None:
                # Below: ε·(Δy·x + Δx·y − (u·v − l·m)); above, with y's ends exchanged, ε·(Δy·x − Δx·y − (l·v − u·m)).
                first, second = (y.lower, y.upper) if flip > 0 else (-y.upper, -y.lower)
                more_x, more_y, ends = self._deviation(part, deviation, first, second)
                to_x, to_y = to_x + more_x, to_y + flip * more_y
                constant = constant - ends
        return self._at_operands(to_x, to_y), constant

    def with_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> MatMulPlanes:
        return dataclasses.replace(self, shapes=(shapes[0], shapes[1]))

    def losses(self, rows: Tensor, inputs: tuple[Tensor | None, ...] | None) -> tuple[Tensor, Tensor]:
        x, y = self.x, self.y
        rows = self._tall(rows)
        if inputs is None:  # a plane loses a quarter of both widths on average, whatever θ is
            size = rows.abs() / 4
            to_x = _width(x) * (size @ _width(y).transpose(-1, -2))
            return self._at_operands(to_x, _width(y) * (_width(x).transpose(-1, -2) @ size))
        left, right = (
            _raised(value, shape, axis, rows.dim())
            for value, shape, axis in zip(inputs, self.shapes, (-2, -1), strict=True)
        )
        x_low, x_high, y_low, y_high = left - x.lower, x.upper - left, right - y.lower, y.upper - right
        negative = rows.clamp(max=0)
        # Of x·y, (x − l)·(y − m) is lost to the first plane below and (u − x)·(v − y) to the second; above, y's ends
        # change places.
        below = 0.5 if self.below is None else 0.5 - self.below
        above = 0.5 if self.above is None else 0.5 + self.above
        parts = (
            _lost(rows - negative, below, x_low, x_high, y_low, y_high),
            _lost(-negative, above, x_low, x_high, y_high, y_low),
        )
        return self._at_operands(parts[0][0] + parts[1][0], parts[0][1] + parts[1][1])

    def _deviation(
        self, rows: Tensor, deviation: Tensor, y_lower: Tensor, y_upper: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Σⱼ a·ε·Δy, Σᵢ a·ε·Δx and Σ a·ε·(u·v − l·m) of rows a."""
        x, y_width = self.x, y_upper - y_lower
        if deviation.shape[-1] == 1 and rows.shape[-1] != 1:
            each = deviation.squeeze(-1)
            below, above = (rows @ end.transpose(-1, -2) for end in (y_lower, y_upper))
            to_y = (each * _width(x)).transpose(-1, -2) @ rows
            return each * (above - below), to_y, dot(each * (x.upper * above - x.lower * below), _one(rows))
        to_x = torch.einsum("...ij,...ikj->...ik", rows, deviation * y_width.unsqueeze(-3))
        to_y = torch.einsum("...ij,...ikj->...kj", rows, deviation * _width(x).unsqueeze(-1))
        highest = x.upper.unsqueeze(-1) * y_upper.unsqueeze(-3)
        lowest = x.lower.unsqueeze(-1) * y_lower.unsqueeze(-3)
        return to_x, to_y, dot(rows, (deviation * (highest - lowest)).sum(-2))

    def to(self, dtype: torch.dtype) -> MatMulPlanes:
        def converted(interval: Interval) -> Interval:
            return Interval(interval.lower.to(dtype), interval.upper.to(dtype))

        return dataclasses.replace(
            self,
            x=converted(self.x),
            y=converted(self.y),
            below=None if self.below is None else self.below.to(dtype),
            above=None if self.above is None else self.above.to(dtype),
        )


def _raised(value: Tensor | None, shape: tuple[int, ...], axis: int, axes: int) -> Tensor:
    """An operand [R, *S] as matrices with so many axes."""
    assert value is not None
    value = value.unsqueeze(axis) if len(shape) == 1 else value
    return value.reshape(len(value), *(1,) * (axes - value.dim()), *value.shape[1:])


def _lost(
    rows: Tensor, share: Tensor | float, x_one: Tensor, x_two: Tensor, y_one: Tensor, y_two: Tensor
) -> tuple[Tensor, Tensor]:
    """Σⱼ and Σᵢ of a_ij·(θ·x¹_ik·y¹_kj + (1 − θ)·x²_ik·y²_kj) for rows a [R, *B, m, n] at least 0, θ of each product or
    of each element of x."""
    if isinstance(share, Tensor) and share.shape[-1] != 1:
        each = share * (x_one.unsqueeze(-1) * y_one.unsqueeze(-3))
        each = rows.unsqueeze(-2) * (each + (1 - share) * (x_two.unsqueeze(-1) * y_two.unsqueeze(-3)))
        return each.sum(-1), each.sum(-3)
    share = share.squeeze(-1) if isinstance(share, Tensor) else share
    one, two = share * x_one, (1 - share) * x_two
    to_x = one * (rows @ y_one.transpose(-1, -2)) + two * (rows @ y_two.transpose(-1, -2))
    return to_x, y_one * (one.transpose(-1, -2) @ rows) + y_two * (two.transpose(-1, -2) @ rows)


def _one(like: Tensor) -> Tensor:
    return torch.ones((), dtype=like.dtype, device=like.device)


class MatMulProductRule(Rule[MatMul]):
    """A matrix product of two perturbed tensors, batched as NumPy's.

    θ [2, *B, m, k, n], or [2, *B, m, k, 1] of large products: between the planes below and between those above.
    """

    relaxed = True
    mixing = True
    tall = True

    def _matrices(self, view: NodeView[MatMul]) -> tuple[Interval, Interval]:
        """The operands as stacks of matrices; a vector is a row on the left, a column on the right."""
        x, y = view.interval(0), view.interval(1)
        of_x, of_y = x.lower.dim(), y.lower.dim()
        if view.boxes is None:
            x_is_vector, y_is_vector = of_x == 1, of_y == 1
        else:  # as many axes as the output has, but for the one that is beside a vector
            axes = len(view.output_shapes[0])
            x_is_vector, y_is_vector = axes == 1 or of_y > axes, axes == 1 or of_x > axes
        if x_is_vector:
            x = Interval(x.lower.unsqueeze(-2), x.upper.unsqueeze(-2))
        if y_is_vector:
            y = Interval(y.lower.unsqueeze(-1), y.upper.unsqueeze(-1))
        return x, y

    def interval(self, view: NodeView[MatMul]) -> tuple[Interval, ...]:
        x, y = self._matrices(view)
        shape = batch_of(x.lower, y.lower) + (
            x.lower.shape[-2],
            y.lower.shape[-1],
        )
        low, high = x.lower.new_zeros(shape), x.lower.new_zeros(shape)
        depth = x.lower.shape[-1]
        step = max(1, BLOCK_ELEMENTS // max(1, low.numel()))
        for first in range(0, depth, step):
            part = slice(first, first + step)
            left = Interval(*(end[..., part].unsqueeze(-1) for end in (x.lower, x.upper)))
            right = Interval(*(end[..., part, :].unsqueeze(-3) for end in (y.lower, y.upper)))
            products = corners(left, right)
            low, high = low + products.lower.sum(-2), high + products.upper.sum(-2)
        return (Interval(low.reshape(view.output_shapes[0]), high.reshape(view.output_shapes[0])),)

    def terms(self, view: NodeView[MatMul]) -> int:
        return view.interval(0).lower.shape[-1]

    def magnitude(self, view: NodeView[MatMul]) -> tuple[Tensor, ...]:
        x, y = self._matrices(view)
        return (torch.matmul(x.magnitude, y.magnitude).reshape(view.output_shapes[0]),)

    def backward_terms(self, view: NodeView[MatMul]) -> int:
        depth = self.terms(view)
        return _repeats(view, math.prod(view.output_shapes[0]) * depth) + depth

    def relax(self, view: NodeView[MatMul], theta: Tensor | None = None) -> Relaxation:
        x, y = self._matrices(view)
        shapes = (tuple(view.interval(0).lower.shape), tuple(view.interval(1).lower.shape))
        theta = self.theta(view) if theta is None else theta
        below, above = parts_of(theta, len(self._parameters(view)) - 1)
        return MatMulPlanes(x, y, shapes, 0.5 - below, above - 0.5, own=view.boxes is not None)

    def _parameters(self, view: NodeView[MatMul]) -> tuple[int, ...]:
        x, y = self._matrices(view)
        batch = batch_of(x.lower, y.lower)
        products = (*batch, *x.lower.shape[-2:], y.lower.shape[-1])
        each = math.prod(products) <= FULL_PARAMETERS * (view.boxes or 1)
        return (2, *products) if each else (2, *products[:-1], 1)

    def parameter_count(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        products = math.prod(output) * inputs[0][-1]
        columns = output[-1] if len(inputs[1]) > 1 else 1
        return products if products <= FULL_PARAMETERS else products // max(1, columns)

    def theta(self, view: NodeView[MatMul]) -> Tensor:
        x, y = self._matrices(view)
        shape = self._parameters(view)
        if shape[-1] == 1:
            return x.lower.new_full(shape, 0.5)
        each = preferred(
            Interval(x.lower.unsqueeze(-1), x.upper.unsqueeze(-1)),
            Interval(y.lower.unsqueeze(-3), y.upper.unsqueeze(-3)),
        )
        return torch.stack([one.expand(shape[1:]) for one in each])

    def theta_matters(self, view: NodeView[MatMul]) -> Tensor:
        x, y = self._matrices(view)
        shape = self._parameters(view)
        wide_x, wide_y = (_width(x) > 0).unsqueeze(-1), (_width(y) > 0).unsqueeze(-3)
        if shape[-1] == 1:
            wide_y = wide_y.any(-1, keepdim=True)
        return (wide_x & wide_y).expand(shape)

    def relax_magnitude(self, view: NodeView[MatMul], relaxation: Relaxation) -> Tensor:
        # Per product: |x|·|y| for each of the two slopes, twice with the deviation, and for the intercept as much.
        return 8.0 * self.magnitude(view)[0]
