"""Bounds of a property's cases without splitting: what is cheap for all of them first, the dearest for those left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from boundscope.errors import BoundError
from boundscope.properties.types import Case, Property
from boundscope.protocol import GapPoint, Method, VerifyJob
from boundscope.worker.engines import CaseEngine, Step
from boundscope.worker.proof import Proof
from boundscope.worker.steps import Steps

ROOT_SHARE = 0.25  # of the time, for the best bounds without splitting, before branch and bound


class CaseBounds:
    """Takes what an engine proves of a property into the job's proof, and tells how the gap closes. `cut_short`: a
    search for better bounds ended for want of time."""

    def __init__(self, job: VerifyJob, prop: Property, proof: Proof, steps: Steps) -> None:
        self._job, self._property, self._proof, self._steps = job, prop, proof, steps
        self._monitor = steps.monitor
        self._told_open: set[int] = set()  # cases, by the margins told last in a search
        self.cut_short = False

    def run(self, engine: CaseEngine, steps: Sequence[Step]) -> None:
        """What is cheap for every case first; then the last step for those that are still open, each with its share
        of the time."""
        if not steps:
            return
        *first, last = steps
        complete = self._job.method is Method.COMPLETE
        cases = self._property.cases
        for number, case in enumerate(cases):
            self._tell("cases", number, len(cases) if first else 0)
            for step in first:
                engine.allow(self._monitor.remaining_s)
                self._bound(engine, number, case, step)
        waiting = [number for number in range(len(cases)) if self._proof.open(self._property, number)]
        for done, number in enumerate(waiting):
            self._tell("open cases", done, len(waiting))
            left_s = self._monitor.remaining_s * (
                ROOT_SHARE if complete and not self._job.force_synchronous else 1.0
            )
            engine.allow(left_s / (len(waiting) - done))
            self._bound(engine, number, cases[number], last, decisive=not complete)
            if not complete:
                self.cut_short |= engine.cut_short and bool(self._proof.open(self._property, number))

    def tell_gap(self, number: int, step: str) -> None:
        """The margins of a case as they are now."""
        if self._steps.ranks.rank:
            return
        for clause in range(len(self._property.cases[number].clauses)):
            self._monitor.emit(
                GapPoint(
                    elapsed_s=self._monitor.elapsed_s,
                    case=number,
                    clause=clause,
                    lower=self._proof.lower.get((number, clause)),
                    upper=self._proof.upper.get((number, clause)),
                    step=step,
                )
            )

    def tell_open_gaps(self, step: str) -> None:
        """The margins, as they are now, of every case that is open, or was when they were told last."""
        for number in range(len(self._property.cases)):
            is_open = bool(self._proof.open(self._property, number))
            if is_open or number in self._told_open:
                self.tell_gap(number, step)
            (self._told_open.add if is_open else self._told_open.discard)(number)

    def _tell(self, stage: str, done: int, total: int) -> None:
        """How many cases are done, where there are several."""
        if total > 1:
            self._steps.tell(stage, done, total)

    def _bound(
        self, engine: CaseEngine, number: int, case: Case, step: Step, *, decisive: bool = False
    ) -> None:
        """Bounds of a case's open clauses. Where there are none, a step that is not decisive only says so.

        Raises:
            BoundError: a decisive step gave no bounds.
        """
        open_clauses = self._proof.open(self._property, number)
        if not open_clauses:
            return
        try:
            self._margins(engine, number, case, open_clauses, step)
        except BoundError as error:
            if decisive:
                raise
            self._monitor.log(f"no {step.margins} bounds of case {number}: {error}", "warning")
        self.tell_gap(number, str(step.margins))

    def _margins(
        self, engine: CaseEngine, number: int, case: Case, open_clauses: list[int], step: Step
    ) -> None:
        constraints = [
            constraint for clause in open_clauses for constraint in case.clauses[clause].constraints
        ]
        margins = engine.margins(number, case, constraints, step)
        position = 0
        for clause in open_clauses:
            own = case.clauses[clause].constraints
            values = margins[position : position + len(own)]
            position += len(own)
            if wrong := [value for value in values if not value < math.inf]:
                raise BoundError(f"the margin of clause {clause} of case {number} is {wrong[0]}")
            key = (number, clause)
            if values:
                self._proof.lower[key] = max(self._proof.lower.get(key, float("-inf")), *values)
            if any(engine.excludes(value, one) for value, one in zip(values, own, strict=True)):
                self._proof.proven.add(key)
