"""What backward passes need to know of a node: its relaxation, and what rows pay for rounding on their way through."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.operators.base import NodeView
from boundscope.bounds.operators.relaxation import SUM_BLOCK, BroadcastLines, Lines, Relaxation
from boundscope.bounds.rounding import ENGINE, INFLATION, RoundingModel, gamma
from boundscope.bounds.support import Support, Windows

# Added to magnitudes, so that γ of them covers what halving an interval loses among subnormals.
HALVED = 2.0**-960


@dataclass(frozen=True)
class Effort:
    """What carrying rows through a node costs in rounding: `terms` products a coefficient, of total size `magnitude`
    [*S_out] per unit of coefficient, and `elements` products in a constant's sum.

    `whole` takes the place of `magnitude` in float64 passes: of a relaxation, it covers free parameters of any value.
    """

    magnitude: Tensor
    terms: int
    elements: int = 0
    whole: Tensor | None = None

    def slack(self, engine: RoundingModel) -> Tensor:
        """Largest error of one pass per unit of coefficient. Constants of float32 rows are summed in short blocks."""
        single = engine.unit > ENGINE.unit
        count = max(self.terms, SUM_BLOCK if single else self.elements)
        magnitude = self.magnitude if single or self.whole is None else self.whole
        return magnitude * (gamma(count + 8, engine.unit) * INFLATION) + engine.absolute(count)


@dataclass(frozen=True)
class Charge:
    """What rows pay at one tensor: `weights` [n], the slack per unit of coefficient of each element in the rows' dtype,
    and `lost`, what every row that is not zero pays besides."""

    weights: Tensor
    lost: float

    @classmethod
    def of(cls, slack: Tensor, lost: float, engine: RoundingModel, dtype: torch.dtype) -> Charge:
        # A slack, or its product with a coefficient, may vanish in the rows' dtype.
        slack = slack.flatten()
        kept = slack.to(dtype)
        if dtype != slack.dtype:
            kept = torch.nextafter(kept, kept.new_full((), math.inf))
        kept = torch.where(slack == 0, 0.0, kept.clamp(min=engine.underflow))  # a NaN stays one
        return cls(kept, lost + engine.absolute(kept.numel()))


@dataclass(frozen=True)
class Reach:
    """An interval as shift ± radius of the distance from a reference point, float64 [*S]; no shift: zero. `whole` is
    what errors of sums are relative to, |shift| + radius and what halving loses; none: the radius."""

    radius: Tensor
    shift: Tensor | None
    whole: Tensor | None


@dataclass
class NodeFacts:
    """What a backward pass needs to know of a node, for each of its outputs.

    `deployed` [*S_out] is what the deployed arithmetic may add to the output; `own` bounds the float64 errors of
    its reference point and intercepts; `efforts` tell the rounding of rows. Where the node is not linear,
    `relaxation` bounds it, and `local` is the same about the reference point, where that has a short form.
    """

    deployed: tuple[Tensor | None, ...]
    own: tuple[Tensor | None, ...]
    efforts: tuple[Effort | None, ...]
    relaxation: Relaxation | None = None
    local: Relaxation | None = None
    reach: Tensor | None = (
        None  # Σ|x| over the perturbed inputs, a scalar; None where no coefficient is rounded
    )
    _charges: dict[torch.dtype, tuple[Charge | None, ...]] = field(default_factory=dict)
    # What rules and passes derive from constants and from the relaxation once for all chunks, by dtype.
    kept: dict[torch.dtype, dict[Any, Any]] = field(default_factory=dict)

    def charges(self, engine: RoundingModel, dtype: torch.dtype) -> tuple[Charge | None, ...]:
        """What rows pay for each output on their way through the node, in passes of this arithmetic."""
        if dtype not in self._charges:
            lost = self._underflow(engine)
            rows = [None if effort is None else effort.slack(engine) for effort in self.efforts]
            slacks = [_sum(_sum(a, b), c) for a, b, c in zip(self.deployed, self.own, rows, strict=True)]
            self._charges[dtype] = tuple(
                None if slack is None else Charge.of(slack, lost, engine, dtype) for slack in slacks
            )
        return self._charges[dtype]

    def derived(self, dtype: torch.dtype, what: str, support: Support | None, make: Callable[[], Any]) -> Any:
        """What `make` gives for rows on a support, kept for the next chunks, unless it belongs to the windows of this
        one."""
        if isinstance(support, Windows):
            return make()
        kept = self.kept.setdefault(dtype, {})
        if (what, support) not in kept:
            kept[what, support] = make()
        return kept[what, support]

    def _underflow(self, engine: RoundingModel) -> float:
        """What the coefficients that a row gets at the inputs can lose to underflow, all together."""
        if self.reach is None:
            return 0.0
        terms = max((effort.terms for effort in self.efforts if effort is not None), default=1)
        return float(self.reach) * engine.absolute(terms + 8)


def local_magnitude(view: NodeView[Any], local: Relaxation) -> Tensor:
    """Σ|terms| of lines about the reference point, per unit of coefficient, [*S_out]."""
    lines = local.lines if isinstance(local, BroadcastLines) else local
    assert isinstance(lines, Lines)
    far = view.deviations[lines.position]
    assert far is not None
    slope = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs())
    low = lines.upper_intercept if lines.lower_intercept is None else lines.lower_intercept
    return slope * far + torch.maximum(low.abs(), lines.upper_intercept.abs())


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b
