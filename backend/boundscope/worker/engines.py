"""The engines behind one question: lower bounds of the margins of some constraints over one case's box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.context import BoxContext
from boundscope.bounds.interval import Interval
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Box, Case, LinearConstraint
from boundscope.protocol import LayerBounds, Method, Sharding
from boundscope.sharding.ranks import RankGroup


class Step(NamedTuple):
    """Hidden layers bounded by one method, margins by another: what is cheap first, so that a clause that it excludes
    never meets what is dear."""

    hidden: Method
    margins: Method


_INTERVALS = Step(Method.IBP, Method.IBP)
_CROWN = Step(Method.CROWN, Method.CROWN)
NATIVE_STEPS = {
    Method.IBP: (_INTERVALS,),
    Method.CROWN_IBP: (_INTERVALS, Step(Method.CROWN_IBP, Method.CROWN_IBP)),
    Method.CROWN: (_INTERVALS, _CROWN),
    # Slopes of the margins alone take a small part of the time that those of all layers take, and often suffice.
    Method.ALPHA_CROWN: (
        _INTERVALS,
        _CROWN,
        Step(Method.CROWN, Method.ALPHA_CROWN),
        Step(Method.ALPHA_CROWN, Method.ALPHA_CROWN),
    ),
}
REFERENCE_STEPS = {
    method: tuple(step for step in steps if step.hidden is step.margins)
    for method, steps in NATIVE_STEPS.items()
}


class CaseEngine(Protocol):
    """What bounds the cases of a job."""

    def steps(self, method: Method) -> tuple[Step, ...]:
        """What a method consists of, the last one the dearest by far."""
        ...

    def margins(
        self, number: int, case: Case, constraints: Sequence[LinearConstraint], step: Step
    ) -> list[float]:
        """Lower bounds of the constraints' margins, in their order; reports layers on the way."""
        ...

    def allow(self, seconds: float) -> None:
        """Searches for better bounds may take so long from now; then what they have found is proven and used."""
        ...

    @property
    def cut_short(self) -> bool:
        """Whether a search since the last `allow` ended for want of time."""
        ...

    def excludes(self, margin: float, constraint: LinearConstraint) -> bool:
        """Whether this bound of its margin rules the constraint out."""
        ...

    @property
    def note(self) -> str:
        """What a reader of the verdict must know of the engine, as the end of a sentence; "" where nothing."""
        ...


class NativeCases:
    """Our own engine, whose bounds are proofs."""

    note = ""

    def __init__(self, engine: BoundEngine) -> None:
        self._engine = engine
        self._kept: tuple[Box, Method, BoxContext] | None = (
            None  # for the next step, or the next case of this box
        )
        self._proof_s = 0.0  # the longest that CROWN bounds of a box took, with their margins

    def steps(self, method: Method) -> tuple[Step, ...]:
        return NATIVE_STEPS[method]

    def margins(
        self, number: int, case: Case, constraints: Sequence[LinearConstraint], step: Step
    ) -> list[float]:
        begun_s = self._engine.monitor.now_s
        context = self._bounded(number, case.box, step.hidden)
        found = [float(value) for value in self._engine.margins(context, constraints, step.margins)]
        if step.margins is Method.CROWN:
            self._proof_s = max(self._proof_s, self._engine.monitor.now_s - begun_s)
        return found

    def _bounded(self, number: int, box: Box, method: Method) -> BoxContext:
        """The context of a box: the one that is kept where it is of an equal box and at least as tight."""
        known: Mapping[str, Interval] | None = None
        if self._kept is not None:
            known_box, known_method, context = self._kept
            if _equal(known_box, box):
                if method in (known_method, Method.IBP):
                    return context
                if known_method is Method.CROWN:
                    known = context.intervals
            del context
        if method is Method.IBP:
            return self._engine.context(box, method, case=number)
        self._kept = None  # its memory is needed
        context = self._engine.context(box, method, case=number, known=known)
        self._kept = (box, method, context)
        return context

    def root(self, number: int, case: Case, steps: Sequence[Step]) -> BoxContext:
        """The context of a case's box by the tightest of the steps; the one that is kept, where it is that."""
        return self._bounded(number, case.box, steps[-1].hidden if steps else Method.CROWN)

    def allow(self, seconds: float) -> None:
        """What is left of the time must suffice for CROWN bounds, and to prove what a search has found."""
        left_s = max(0.0, seconds - 2.0 * self._proof_s)
        self._engine.search_until_s = self._engine.monitor.now_s + left_s

    @property
    def cut_short(self) -> bool:
        return self._engine.out_of_time()

    def excludes(self, margin: float, constraint: LinearConstraint) -> bool:
        return margin > 0 or (margin == 0 and constraint.strict)


def _equal(one: Box, other: Box) -> bool:
    """Whether two boxes are the same set of inputs."""
    return one is other or (
        one.ball is None
        and other.ball is None
        and np.array_equal(one.lower, other.lower)
        and np.array_equal(one.upper, other.upper)
    )


class ReferenceCases:
    """auto_LiRPA, whose bounds are float32 numbers: positive ones count where float64 confirms them."""

    def __init__(
        self,
        network: Network,
        monitor: Monitor,
        ranks: RankGroup | None = None,
        ledger: MemoryLedger | None = None,
        sharding: Sharding = Sharding.FSDP,
    ) -> None:
        """Of several ranks each holds its part of the weights (`fsdp`, `tp`), counted in the ledger; all call together.

        Raises:
            BoundscopeError: auto_LiRPA is not installed.
        """
        from boundscope.reference.engine import ReferenceEngine

        self._ranks = ranks or RankGroup()
        self._engine = ReferenceEngine(network, monitor, ranks=self._ranks, ledger=ledger, sharding=sharding)
        if (
            sharding is Sharding.TP
            and self._ranks.size > 1
            and not self._engine.zones
            and not self._ranks.rank
        ):
            monitor.log(
                "no two linear layers have activations alone between them: nothing is split, and every rank holds the "
                "whole network; --sharding fsdp shares its weights out",
                "warning",
            )
        self._monitor, self._network = monitor, network
        self._rounding = 0.0
        self._remark: str | None = None

    def steps(self, method: Method) -> tuple[Step, ...]:
        return REFERENCE_STEPS[method]

    def allow(self, seconds: float) -> None:
        """Its searches end by the time limit alone."""

    cut_short = False

    def margins(
        self, number: int, case: Case, constraints: Sequence[LinearConstraint], step: Step
    ) -> list[float]:
        method = step.margins
        if method is Method.ALPHA_CROWN and self._remark is None:
            from boundscope.reference.guard import start_values_note

            self._remark = start_values_note()
            if self._remark and self._ranks.rank == 0:
                self._monitor.log(self._remark, "warning")
        found = self._engine.careful(case.box, constraints, method)
        self._rounding = max(self._rounding, found.rounding)
        for name, (lower, upper) in found.layers.items() if self._ranks.rank == 0 else ():
            node = self._network.node_by_output[name]
            width = upper - lower
            self._monitor.emit(
                LayerBounds(
                    case=number,
                    node=node.name,
                    op=node.op.onnx_type,
                    size=width.numel(),
                    lower_min=float(lower.min()),
                    upper_max=float(upper.max()),
                    width_mean=float(width.mean()),
                    width_max=float(width.max()),
                    method=f"{method}, {self._engine.name}",
                )
            )
        return [float(value) for value in found.margins]

    def excludes(self, margin: float, constraint: LinearConstraint) -> bool:
        return margin > 0

    @property
    def note(self) -> str:
        text = f"; {self._engine.name}, float32, rounding not accounted for"
        if self._rounding:
            text += f" (less {self._rounding:.3g}, an estimate of it from a second run in float64)"
        return f"{text}; {self._remark}" if self._remark else text
