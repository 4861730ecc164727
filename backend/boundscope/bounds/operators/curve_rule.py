"""The bound rule of every element-wise function that is given as a `Curve`."""

from __future__ import annotations

from typing import Generic, TypeVar

from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.operators.envelope import Curve, Envelope, envelope_of
from boundscope.bounds.operators.relaxation import BroadcastLines, Relaxation
from boundscope.errors import BoundError
from boundscope.network.graph import Operator

Op = TypeVar("Op", bound=Operator)


class CurveRule(Rule[Op], Generic[Op]):
    """θ, [2, *S_out], is where the lines below and above touch the function."""

    relaxed = True
    by_element = True
    tall = True

    def curve(self, view: NodeView[Op]) -> Curve:
        raise NotImplementedError

    def _input(self, view: NodeView[Op]) -> Interval:
        """The perturbed input, in the output's shape."""
        x = view.interval(view.perturbed[0])
        shape = view.output_shapes[0]
        if x.lower.shape == shape:
            return x
        return Interval(x.lower.expand(shape), x.upper.expand(shape))

    def _envelope(self, view: NodeView[Op]) -> Envelope:
        key = view.interval(view.perturbed[0])
        beside = None if view.root is None else (self._input(view.root), self._envelope(view.root))
        return envelope_of(self.curve(view), view.node.name, key, self._input(view), beside)

    def interval(self, view: NodeView[Op]) -> tuple[Interval, ...]:
        curve, x = self.curve(view), self._input(view)
        reason = curve.reason_outside(x)
        if reason is not None:
            name = view.node.inputs[view.perturbed[0]]
            raise BoundError(
                f"the interval of tensor '{name}' {reason}, so {view.node.op.onnx_type} of node "
                f"'{view.node.name}' has no finite bound; a smaller box or a tighter method may help"
            )
        return (curve.range(x),)

    def terms(self, view: NodeView[Op]) -> int:
        return self.curve(view).terms

    def magnitude(self, view: NodeView[Op]) -> tuple[Tensor, ...]:
        return (self.curve(view).magnitude(self._input(view)),)

    def theta(self, view: NodeView[Op]) -> Tensor:
        return self._envelope(view).theta

    def theta_matters(self, view: NodeView[Op]) -> Tensor:
        return self._envelope(view).theta_matters

    def relax(self, view: NodeView[Op], theta: Tensor | None = None) -> Relaxation:
        envelope = self._envelope(view)
        (index,) = view.perturbed
        theta = envelope.theta if theta is None else theta
        lines = envelope.lines(self.curve(view), theta, index, len(view.inputs))
        shape = view.interval(index).lower.shape
        return lines if shape == view.output_shapes[0] else BroadcastLines(lines, shape)

    def relax_magnitude(self, view: NodeView[Op], relaxation: Relaxation) -> Tensor:
        x = self._input(view)
        # Slope and value are off by a few ulp, and the slope counts at a distance of up to the interval's width.
        return 8.0 * (self._envelope(view).steepest * x.magnitude + self.curve(view).magnitude(x))
