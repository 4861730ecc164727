"""Values passed on, chosen by constants, added or interpolated: linear, and most of them exact."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, bounds
from boundscope.bounds.operators.coarse import ChoiceRule
from boundscope.bounds.operators.indexing import WrittenRule
from boundscope.bounds.operators.moves import MoveRule, SumRule
from boundscope.bounds.operators.relaxation import Parts, sum_to
from boundscope.network.graph import Operator
from boundscope.network.operators.arithmetic import Sum
from boundscope.network.operators.logic import Not, Where
from boundscope.network.operators.movement import ScatterND
from boundscope.network.operators.resize import LinearResize
from boundscope.network.operators.shape import Cast, Dropout, Identity


@bounds(Identity, Dropout)
class IdentityRule(Rule[Operator]):
    exact = True
    silent = True

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        return (view.interval(0),)

    def magnitude(self, view: NodeView[Operator]) -> tuple[Tensor, ...]:
        return (view.interval(0).magnitude,)

    def backward(self, view: NodeView[Operator], rows: tuple[Tensor | None, ...]) -> Parts:
        return rows


@bounds(Cast)
class CastRule(Rule[Cast]):
    """To a floating type, or to one that holds all values of the source's: the identity, up to rounding."""

    silent = True

    def supports(self, view_perturbed: Sequence[bool], op: Cast) -> str | None:
        return "half precision inside a network" if op.to == torch.float16 else None

    def interval(self, view: NodeView[Cast]) -> tuple[Interval, ...]:
        return (view.interval(0),)

    def terms(self, view: NodeView[Cast]) -> int:
        # Integers and truth values never underflow.
        return 1 if view.op.source.is_floating_point else -1

    def magnitude(self, view: NodeView[Cast]) -> tuple[Tensor, ...]:
        """What the target rounds; integers only where it does not hold them all."""
        magnitude = view.interval(0).magnitude
        if view.op.source.is_floating_point:
            return (magnitude,)
        whole = 2.0**24 if view.op.to == torch.float32 else 2.0**53
        rounds = view.op.to.is_floating_point & (magnitude > whole)
        return (torch.where(rounds, magnitude, 0.0),)

    def spread(self, view: NodeView[Cast]) -> tuple[Tensor, ...]:
        return (view.interval(0).magnitude,)

    def backward(self, view: NodeView[Cast], rows: tuple[Tensor | None, ...]) -> Parts:
        return rows


@bounds(Not)
class NotRule(Rule[Not]):
    """1 − x of truth values 0 and 1."""

    exact = True

    def interval(self, view: NodeView[Not]) -> tuple[Interval, ...]:
        x = view.interval(0)
        return (Interval(1 - x.upper, 1 - x.lower),)

    def magnitude(self, view: NodeView[Not]) -> tuple[Tensor, ...]:
        return (1 + view.interval(0).magnitude,)

    def backward(self, view: NodeView[Not], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        return (-coefficients,)


@bounds(Sum)
class AddAllRule(Rule[Sum]):
    """Of any number of tensors that broadcast, perturbed or constant."""

    def _ends(self, view: NodeView[Sum], which: str) -> list[Tensor]:
        values: list[Tensor] = []
        for constant, interval in zip(view.constants, view.inputs, strict=True):
            value = constant if interval is None else getattr(interval, which)
            assert value is not None
            values.append(value.abs() if which == "magnitude" else value)
        return values

    def interval(self, view: NodeView[Sum]) -> tuple[Interval, ...]:
        lower, upper = (functools.reduce(torch.add, self._ends(view, which)) for which in ("lower", "upper"))
        return (Interval(lower, upper),)

    def never_negative(self, view: NodeView[Sum]) -> Tensor:
        return functools.reduce(torch.logical_and, [low >= 0 for low in self._ends(view, "lower")])

    def terms(self, view: NodeView[Sum]) -> int:
        return len(view.inputs)

    def magnitude(self, view: NodeView[Sum]) -> tuple[Tensor, ...]:
        return (functools.reduce(torch.add, self._ends(view, "magnitude")),)

    def constant_error(self, view: NodeView[Sum]) -> Tensor | None:
        return functools.reduce(torch.add, [value for value in view.constants if value is not None])

    def backward_terms(self, view: NodeView[Sum]) -> int:
        smallest = min(view.interval(index).lower.numel() for index in view.perturbed)
        return int(torch.Size(view.output_shapes[0]).numel()) // max(smallest, 1)

    def backward(self, view: NodeView[Sum], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        return tuple(
            None if interval is None else sum_to(coefficients, (len(coefficients), *interval.lower.shape))
            for interval in view.inputs
        )


class _ChosenRule(MoveRule):
    """The operand at `chooser` is constant and says which values of the others are passed on."""

    chooser = 0
    dynamic: Rule[Any]

    def use(self, perturbed: Sequence[bool]) -> Rule[Any]:
        return self.dynamic if perturbed[self.chooser] else self

    def magnitude(self, view: NodeView[Operator]) -> tuple[Tensor, ...]:
        values: list[Tensor | None] = []
        for index, (constant, interval) in enumerate(zip(view.constants, view.inputs, strict=True)):
            if interval is not None:
                values.append(interval.magnitude)
            else:
                assert constant is not None
                values.append(constant if index == self.chooser else constant.abs())
        return view.op.evaluate(values)


@bounds(Where)
class WhereRule(_ChosenRule):
    dynamic = ChoiceRule()


@bounds(ScatterND)
class ScatterNDRule(_ChosenRule):
    chooser = 1
    dynamic = WrittenRule()


@bounds(LinearResize)
class LinearResizeRule(SumRule):
    def terms(self, view: NodeView[Operator]) -> int:
        """Runtimes compute positions in float32, with an error in proportion to the position."""
        axes = view.interval(0).lower.shape
        return 16 + 8 * sum(axes)

    def backward_terms(self, view: NodeView[Operator]) -> int:
        grown = max(a / b for a, b in zip(view.output_shapes[0], view.interval(0).lower.shape, strict=True))
        return 16 + int(2 * grown + 2) ** 3
