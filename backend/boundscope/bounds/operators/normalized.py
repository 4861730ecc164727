"""LayerNormalization: y = γ·c·r + β with c = x − mean(x) and r = 1/√(mean(c²) + ε).

c is linear in x. Of v = mean(c²) + ε there are linear bounds (tangents below each square, chords above), so there
are of r (chord above 1/√v, tangent below), and each c_i·r lies between McCormick's planes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.bilinear import Plane, corners, mccormick, parts_of, preferred
from boundscope.bounds.operators.relaxation import Backward, Relaxation, dot
from boundscope.bounds.rounding import UNIT_FLOAT64
from boundscope.network.operators.normalization import LayerNormalization

GROWN = 2.0**30  # beyond any float32, and harmless to float64, whose error the statistics hold already


@dataclass(frozen=True)
class Line:
    """A linear function of the centred values of a group: slopes·c + intercept, [*P, n] and [*P, 1]."""

    slopes: Tensor
    intercept: Tensor

    def to(self, dtype: torch.dtype) -> Line:
        return Line(self.slopes.to(dtype), self.intercept.to(dtype))

    def reach(self, magnitude: Tensor) -> Tensor:
        return self.intercept.abs() + (self.slopes.abs() * magnitude).sum(-1, keepdim=True)


@dataclass(frozen=True)
class NormalizedPlanes(Relaxation):
    """Planes of c_i·r in (c_i, r), [*P, n] or [R, *P, n], with lines below and above r; then γ and β.

    `shape` is the tensor's own, of which *P are the leading axes and n elements the rest.
    """

    lower: Plane
    upper: Plane
    below: Line
    above: Line
    scale: Tensor  # [n]
    bias: Tensor | None
    arity: int
    shape: tuple[int, ...]

    def through(self, rows: Tensor) -> Backward:
        count, size = rows.shape[0], self.scale.numel()
        rows = rows.reshape(count, *self.below.slopes.shape[:-1], size)
        scaled = rows * self.scale
        negative = scaled.clamp(max=0)
        positive = scaled - negative
        of_root = positive * self.lower[1] + negative * self.upper[1]
        raised = of_root.clamp(max=0).sum(-1, keepdim=True)  # multiplies r's upper line
        lowered = of_root.clamp(min=0).sum(-1, keepdim=True)
        carried = positive * self.lower[0] + negative * self.upper[0]
        carried = carried + lowered * self.below.slopes + raised * self.above.slopes
        constant = dot(positive, self.lower[2]) + dot(negative, self.upper[2])
        constant = constant + dot(lowered, self.below.intercept) + dot(raised, self.above.intercept)
        if self.bias is not None:
            constant = constant + dot(rows, self.bias.expand(rows.shape[1:]))
        carried = carried - carried.mean(-1, keepdim=True)
        return (carried.reshape(count, *self.shape), *(None,) * (self.arity - 1)), constant

    def to(self, dtype: torch.dtype) -> NormalizedPlanes:
        lower, upper = (tuple(part.to(dtype) for part in plane) for plane in (self.lower, self.upper))
        return dataclasses.replace(
            self,
            lower=(lower[0], lower[1], lower[2]),
            upper=(upper[0], upper[1], upper[2]),
            below=self.below.to(dtype),
            above=self.above.to(dtype),
            scale=self.scale.to(dtype),
            bias=None if self.bias is None else self.bias.to(dtype),
        )


@dataclass(frozen=True)
class Statistics:
    """Enclosures over a box: centred values [*P, n], variance plus ε and its inverse root [*P, 1], largest |x|."""

    centred: Interval
    variance: Interval
    root: Interval
    reach: Tensor


@bounds(LayerNormalization)
class LayerNormalizationRule(Rule[LayerNormalization]):
    """θ [2, *P, n]: between the planes below, and above, each product c_i·r."""

    relaxed = True
    mixing = True

    def supports(self, view_perturbed: Sequence[bool], op: LayerNormalization) -> str | None:
        if any(view_perturbed[1:]):
            return "parameters that depend on the network's input"
        return None if op.epsilon > 0 else "no positive epsilon"

    def _statistics(self, view: NodeView[LayerNormalization]) -> Statistics:
        x = view.interval(0)
        low, high = (end.flatten(view.op.axis) for end in (x.lower, x.upper))
        size = low.shape[-1]
        doubt = (4 * size + 64) * UNIT_FLOAT64
        reach = torch.maximum(low.abs(), high.abs()).amax(-1, keepdim=True)
        own = 1.0 - 1.0 / size
        least = low * own - (high.sum(-1, keepdim=True) - high) / size - doubt * reach
        most = high * own - (low.sum(-1, keepdim=True) - low) / size + doubt * reach
        ends = torch.minimum(least.square(), most.square())
        smallest = torch.where((least < 0) & (most > 0), 0.0, ends).mean(-1, keepdim=True)
        largest = torch.maximum(least.square(), most.square()).mean(-1, keepdim=True)
        variance = Interval(
            (smallest + view.op.epsilon) * (1 - doubt), (largest + view.op.epsilon) * (1 + doubt)
        )
        root = Interval((1 - doubt) / variance.upper.sqrt(), (1 + doubt) / variance.lower.sqrt())
        return Statistics(Interval(least, most), variance, root, reach)

    def _parameters(self, view: NodeView[LayerNormalization]) -> tuple[Tensor, Tensor | None]:
        scale, bias = view.constant(1), view.constant(2)
        assert scale is not None
        shape = view.interval(0).lower.shape[view.op.axis :]
        return scale.expand(shape).flatten(), None if bias is None else bias.expand(shape).flatten()

    def _product(self, facts: Statistics) -> Interval:
        """c_i·r, which is never above √(n − 1) in size."""
        limit = math.sqrt(facts.centred.lower.shape[-1] - 1) * (1 + 8 * UNIT_FLOAT64)
        product = corners(facts.centred, facts.root)
        return Interval(product.lower.clamp(-limit, limit), product.upper.clamp(-limit, limit))

    def interval(self, view: NodeView[LayerNormalization]) -> tuple[Interval, ...]:
        scale, bias = self._parameters(view)
        product = self._product(self._statistics(view))
        one, other = product.lower * scale, product.upper * scale
        low, high = torch.minimum(one, other), torch.maximum(one, other)
        low, high = (low, high) if bias is None else (low + bias, high + bias)
        return (Interval(low.reshape(view.output_shapes[0]), high.reshape(view.output_shapes[0])),)

    def _amplified(self, view: NodeView[LayerNormalization], facts: Statistics) -> tuple[Tensor, float]:
        """How a rounding of x, and of x² in a variance computed as mean(x²) − mean(x)², grows; and its largest."""
        relative = facts.reach * facts.root.upper
        growth = (1 + relative + relative.square()).clamp(max=GROWN)
        return growth, float(growth.max())

    def terms(self, view: NodeView[LayerNormalization]) -> int:
        # The growth is counted here, so that the bound becomes infinite where the variance is lost in rounding.
        facts = self._statistics(view)
        return math.ceil((2 * facts.centred.lower.shape[-1] + 24) * self._amplified(view, facts)[1])

    def magnitude(self, view: NodeView[LayerNormalization]) -> tuple[Tensor, ...]:
        scale, bias = self._parameters(view)
        facts = self._statistics(view)
        growth, largest = self._amplified(view, facts)
        whole = (1 + self._product(facts).magnitude) * scale.abs() * (growth / largest)
        whole = whole if bias is None else whole + bias.abs()
        return (whole.reshape(view.output_shapes[0]),)

    def constant_error(self, view: NodeView[LayerNormalization]) -> Tensor | None:
        scale, bias = self._parameters(view)
        error = self._product(self._statistics(view)).magnitude * scale
        return (error if bias is None else error + bias).reshape(view.output_shapes[0])

    def backward_terms(self, view: NodeView[LayerNormalization]) -> int:
        return 2 * math.prod(view.interval(0).lower.shape[view.op.axis :]) + 8

    def _root_lines(self, facts: Statistics, epsilon: float) -> tuple[Line, Line]:
        centred, variance, root = facts.centred, facts.variance, facts.root
        size = centred.lower.shape[-1]
        middle = (variance.lower + variance.upper) / 2
        fall = 0.5 * middle.pow(-1.5)
        ends = (centred.lower * centred.upper).mean(-1, keepdim=True)
        below = Line(
            -fall * (centred.lower + centred.upper) / size,
            middle.rsqrt() + fall * (middle - epsilon + ends),
        )
        # 1/√l − 1/√u over u − l, without cancellation.
        first, second = variance.lower.sqrt(), variance.upper.sqrt()
        fall = 1 / (first * second * (first + second))
        touch = (centred.lower + centred.upper) / 2
        above = Line(
            -2 * fall * touch / size,
            root.upper + fall * (variance.lower - epsilon + touch.square().mean(-1, keepdim=True)),
        )
        return below, above

    def relax(self, view: NodeView[LayerNormalization], theta: Tensor | None = None) -> Relaxation:
        facts = self._statistics(view)
        scale, bias = self._parameters(view)
        theta = self.theta(view) if theta is None else theta
        lower, upper = mccormick(facts.centred, facts.root, *parts_of(theta, facts.centred.lower.dim()))
        below, above = self._root_lines(facts, view.op.epsilon)
        shape = tuple(view.interval(0).lower.shape)
        return NormalizedPlanes(lower, upper, below, above, scale, bias, len(view.inputs), shape)

    def theta(self, view: NodeView[LayerNormalization]) -> Tensor:
        facts = self._statistics(view)
        return torch.stack(
            [one.expand_as(facts.centred.lower) for one in preferred(facts.centred, facts.root)]
        )

    def theta_matters(self, view: NodeView[LayerNormalization]) -> Tensor:
        centred = self._statistics(view).centred
        return (centred.upper > centred.lower).expand(2, *centred.lower.shape)

    def relax_magnitude(self, view: NodeView[LayerNormalization], relaxation: Relaxation) -> Tensor:
        facts = self._statistics(view)
        scale, bias = self._parameters(view)
        below, above = self._root_lines(facts, view.op.epsilon)
        largest = 2 * facts.reach.expand_as(facts.centred.lower)  # a centred value, as the sum that it is
        # The parts of an intercept are each at most r at its largest, and may cancel.
        line = torch.maximum(below.reach(largest), above.reach(largest)) + 8 * facts.root.upper
        whole = scale.abs() * (4 * facts.root.upper * largest + 2 * facts.centred.magnitude * line)
        whole = whole if bias is None else whole + bias.abs()
        return whole.reshape(view.output_shapes[0])
