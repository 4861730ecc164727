"""What a bound rule is, and the table of rules by ONNX operator.

A rule knows one operator and nothing of rows in chunks, ranks, methods or memory; the driver knows all of that
and no operator. Shapes: R rows are carried backward together; `*S` is a tensor's own shape.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.relaxation import Parts, Relaxation
from boundscope.bounds.support import Block, Elements
from boundscope.network.graph import Node, Operator

Op = TypeVar("Op", bound=Operator)


@dataclass(frozen=True)
class NodeView(Generic[Op]):
    """One node as its rule sees it.

    For each input of the node, either `constants[i]` or `inputs[i]` is there (neither: an optional one left out).
    """

    node: Node
    op: Op
    constants: tuple[Tensor | None, ...]
    inputs: tuple[Interval | None, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    # For each perturbed input, how far it can be from the context's reference point, element by element.
    deviations: tuple[Tensor | None, ...] = ()
    # What a rule derives from its constants once and uses again, for the same box; None where weights are only lent.
    kept: dict[Any, Any] | None = None
    # Of a view of many boxes at once that differ from one box at a few elements only: the node over that box.
    root: NodeView[Op] | None = None
    # Of a view of many boxes at once: how many. Intervals are [D, *S] with as many axes as the output (D, *S), or more.
    boxes: int | None = None

    def at(self, points: tuple[Tensor | None, ...]) -> NodeView[Op]:
        """The node with points in place of its inputs' intervals."""
        return dataclasses.replace(
            self, inputs=tuple(None if point is None else Interval.point(point) for point in points)
        )

    def constant(self, index: int) -> Tensor | None:
        return self.constants[index] if index < len(self.constants) else None

    def interval(self, index: int) -> Interval:
        """The interval of input `index`, which must be perturbed."""
        value = self.inputs[index]
        assert value is not None, f"input {index} of node '{self.node.name}' is not perturbed"
        return value

    @property
    def perturbed(self) -> tuple[int, ...]:
        """Indices of the inputs that depend on the network's input."""
        return tuple(index for index, value in enumerate(self.inputs) if value is not None)


@dataclass(frozen=True)
class Enclosure:
    """Of each output: its interval, before rounding; Σ|terms| at the largest (None: nothing is rounded); and
    Σ|terms| of its distance from the reference point (None: coefficients are not computed, or not by `backward`)."""

    intervals: tuple[Interval, ...]
    magnitudes: tuple[Tensor, ...] | None
    deviations: tuple[Tensor, ...] | None


class Rule(Generic[Op]):
    """Bounds of one operator. Subclasses say how; see each method.

    Class attributes:
        exact: floating-point arithmetic computes the operator without rounding (moving or comparing values).
        mixing: one output element depends on several input elements, so that an interval of the output may lose
            what the input's elements have in common.
        silent: `backward` only moves or negates coefficients and adds no constant.
        relaxed: the operator is not linear; rows go through a relaxation of it.
        kinked: piecewise linear; elements that `wanted` names are the unstable neurons.
        final: rows end here, for its relaxation has no slope: only bounds of its inputs decide, and every method but
            `ibp` takes them backward.
        elementwise: an output element depends on the same element of the one input only, and `relax`, `theta` and
            `theta_matters` work on any selection of elements.
        by_element: each output element is relaxed by itself, and the rule is `tall`.
        tall: `theta`, `relax` and `relax_magnitude` also take many boxes at once, intervals [D, *S] and output shapes
            (D, *S); what they give has the axis of boxes first, θ after its own axis where it has one.
        covers_parts: `relax_magnitude` covers the relaxations of every part of the intervals, too.
        slope_free: also elementwise, and θ is the slope of the lower line, through the origin, where it matters; the
            upper line is fixed.
        limits: the range of the function, which no interval of an output needs to leave (by more than rounding).
        as_stored: input positions whose constants the rule also takes in another dtype than the rest, and converts as
            it goes: large weights, of which a second copy would be felt.
        as_tiles: input positions whose large matrices the rule also takes as LentMatrix, which it reads by tiles.
        as_sparse: input positions whose constants may also come as COO tensors.
        collective: ranks sum their parts in what it tells of the output, and must ask for the same in the same order.
    """

    exact: bool = False
    mixing: bool = False
    silent: bool = False
    relaxed: bool = False
    kinked: bool = False
    elementwise: bool = False
    slope_free: bool = False
    by_element: bool = False
    tall: bool = False
    covers_parts: bool = False
    final: bool = False
    limits: tuple[float, float] | None = None
    as_stored: tuple[int, ...] = ()
    as_tiles: tuple[int, ...] = ()
    as_sparse: tuple[int, ...] = ()
    collective: bool = False

    def use(self, perturbed: Sequence[bool]) -> Rule[Op]:
        """The rule for a node with these inputs perturbed: this one, or another that it stands for."""
        return self

    def supports(self, view_perturbed: Sequence[bool], op: Op) -> str | None:
        """A reason why this use of the operator has no rule (which inputs are perturbed), or None."""
        return None

    def interval(self, view: NodeView[Op]) -> tuple[Interval, ...]:
        """Interval of each output, before rounding of any kind is added."""
        raise NotImplementedError

    def enclose(self, view: NodeView[Op]) -> Enclosure:
        """All that is known of the outputs from the inputs, for rules that get its parts cheaper together."""
        intervals = self.interval(view)
        magnitudes = None if self.exact else self.magnitude(view)
        if self.relaxed or self.silent:
            return Enclosure(intervals, magnitudes, None)
        far = self.magnitude(view.at(view.deviations))
        fixed = self.magnitude(
            view.at(tuple(None if d is None else torch.zeros_like(d) for d in view.deviations))
        )
        pairs = zip(far, fixed, strict=True)
        return Enclosure(intervals, magnitudes, tuple((a - b).clamp(min=0) + a * 2.0**-40 for a, b in pairs))

    def image(self, view: NodeView[Op], inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """The outputs at a point, float64: `inputs` are the view's constants, and the point's values in the place of
        its intervals (only where not `relaxed`)."""
        return view.op.evaluate(inputs)

    def terms(self, view: NodeView[Op]) -> int:
        """How many products are summed in one output element."""
        return 1

    def backward_terms(self, view: NodeView[Op]) -> int:
        """How many products `backward` sums in one coefficient."""
        return 1

    def magnitude(self, view: NodeView[Op]) -> tuple[Tensor, ...]:
        """Sum of the absolute values of the terms of each output element, at their largest: |W||x| + |b|."""
        raise NotImplementedError

    def never_negative(self, view: NodeView[Op]) -> Tensor | None:
        """Boolean *S_out: elements that no rounding makes negative, for nothing negative is summed on the way to them.

        None where the rule cannot tell, or tells by its `limits` or by being `exact`.
        """
        return None

    def spread(self, view: NodeView[Op]) -> tuple[Tensor, ...]:
        """|W||x| + |b| of each output element, also where `magnitude` leaves out what is never rounded."""
        return self.magnitude(view)

    def constant_error(self, view: NodeView[Op]) -> Tensor | None:
        """How far the output can be off when the node's constants are off by as much as `view.constants` say.

        `view.constants` hold error bounds in place of the constants (zeros for exact ones). Returns a tensor that
        broadcasts to the first output, or None where the rule cannot tell.
        """
        return None

    def relax(self, view: NodeView[Op], theta: Tensor | None = None) -> Relaxation:
        """Linear bounds on the inputs' intervals (only where `relaxed`).

        Args:
            view: the node.
            theta: free parameters in 0 … 1, [R, *P] for each row its own, of the shape *P that `theta` gives;
                every value is sound. None: the rule's own choice, [*P] = `theta(view)`.
        """
        raise NotImplementedError

    def theta(self, view: NodeView[Op]) -> Tensor | None:
        """The rule's own choice of the free parameters, [*P] in 0 … 1; None where the relaxation has none."""
        return None

    def parameter_count(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        """How many numbers each kind of free parameter has, for inputs and an output of these shapes."""
        return math.prod(output)

    def theta_matters(self, view: NodeView[Op]) -> Tensor:
        """Boolean *P: parameters whose value makes a difference (only where `theta` gives some)."""
        raise NotImplementedError

    def relax_magnitude(self, view: NodeView[Op], relaxation: Relaxation) -> Tensor:
        """Largest Σ|terms| that one unit of coefficient meets on its way through the relaxation, whatever theta.

        [*S_out]. Covers also the errors of computing the relaxation itself, to about ten roundings.
        """
        raise NotImplementedError

    def bends(self, view: NodeView[Op]) -> tuple[float, ...]:
        """Places where it may pay to split what is read, the same for all elements (only where `by_element`)."""
        return (0.0,)

    def wanted(self, op: Op, position: int, interval: Interval) -> Tensor:
        """Boolean *S: elements of input `position` whose tighter bounds would tighten the relaxation."""
        return interval.lower < interval.upper

    def wanted_each(self, op: Op, position: int, interval: Interval) -> Tensor:
        """The same of many boxes, [D, *S]."""
        if self.by_element:
            return self.wanted(op, position, interval)
        ends = zip(interval.lower, interval.upper, strict=True)
        return torch.stack([self.wanted(op, position, Interval(low, high)) for low, high in ends])

    def backward(self, view: NodeView[Op], rows: tuple[Tensor | None, ...]) -> Parts:
        """Carry linear functions of the outputs back to the inputs (only where not `relaxed`).

        Rows are functions of the distance from the context's reference point, which linear nodes map to their
        outputs' reference: no constant comes along.

        Args:
            view: the node.
            rows: for each output, coefficients [R, *S_out], or None.

        Returns:
            For each input, coefficients [R, *S_in] or None.
        """
        raise NotImplementedError

    def backward_on(
        self, view: NodeView[Op], block: Block, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        """`backward` of rows at the one output that may live on a part of it.

        Args:
            view: the node.
            block: the rows.
            wanted: for each input the elements whose coefficients are of use, or None: all.

        Returns:
            For each input a block or None; or None where the rule needs whole rows.
        """
        return None

    def select(
        self, view: NodeView[Op], elements: Tensor, signs: Tensor, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        """`backward` of rows that are single elements of the first output, without building these rows.

        Args:
            view: the node.
            elements: flat index into the output for each row, [R] int64.
            signs: factor of each row, +1, −1, or 0 for rows that only fill a chunk, [R].
            wanted: as in `backward_on`.

        Returns:
            As `backward_on`, or None where the rule has no shorter way.
        """
        return None


_RULES: dict[type[Operator], Rule[Any]] = {}
R = TypeVar("R", bound=type[Rule[Any]])


def bounds(*operators: type[Operator]) -> Callable[[R], R]:
    """Class decorator: this rule bounds these operators."""

    def register(rule: R) -> R:
        for operator in operators:
            _RULES[operator] = rule()
        return rule

    return register


def rule_of(op: Operator) -> Rule[Any] | None:
    """The rule of an operator, or None."""
    return _RULES.get(type(op))


def operators_with_rules() -> frozenset[str]:
    """ONNX names of all operators that have a rule."""
    return frozenset(operator.onnx_type for operator in _RULES)
