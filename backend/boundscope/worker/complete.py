"""The method complete inside a verify job: what bounds and attack left open goes to branch and bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from boundscope.bounds import BoundEngine
from boundscope.monitor import Monitor
from boundscope.properties.types import Property
from boundscope.protocol import (
    Branching,
    Counterexample,
    Method,
    Progress,
    SearchPoint,
    SearchSummary,
    VerifyJob,
)
from boundscope.search.checkpoint import ClauseState, SearchState
from boundscope.search.complete import Search, plan, run_searches, share_of_first
from boundscope.search.task import Key, SearchOutcome, SearchTask, Standing
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.checkpoints import JobCheckpoint
from boundscope.worker.engines import NativeCases, Step
from boundscope.worker.proof import Proof
from boundscope.worker.witness import Witnesses

SEARCH, BEFORE, OPEN = "search", "before", "open clauses"  # what is added to a search's own state
FEW_CASES = 8  # each is bounded by itself before their boxes are searched together
POOL_SHARE = 0.5  # of the memory that is free when the search begins
MOST_POOL_BYTES = 1 << 30
TELL_EVERY_S = 0.1
INTERVALS, CROWN = Step(Method.IBP, Method.IBP), Step(Method.CROWN, Method.CROWN)
SLOPES = (Step(Method.CROWN, Method.ALPHA_CROWN), Step(Method.ALPHA_CROWN, Method.ALPHA_CROWN))


class CompleteSearch:
    """Runs the searches of one job and keeps its proof up to date."""

    def __init__(
        self,
        job: VerifyJob,
        prop: Property,
        engine: BoundEngine,
        monitor: Monitor,
        ranks: RankGroup,
        proof: Proof,
        changed: Callable[[str], None],
    ) -> None:
        """`changed` is called when the proof's margins have changed, with the name of what changed them."""
        self._job, self._property, self._engine = job, prop, engine
        self._monitor, self._ranks, self._proof, self._changed = monitor, ranks, proof, changed
        self.order = plan(job.branching, engine.network, prop.cases)
        self._branching = self.order[0]
        self._before = 0  # domains of the searches that are over
        self._told_s = -math.inf
        self._untold: SearchPoint | None = None
        self._earlier_s = 0.0  # of earlier runs from which this one goes on
        self._first_least: float | None = None  # margin of the open clauses, when the search began
        self.summary: SearchSummary | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The bounds that come first. Where boxes are split, they are better spent on parts than on the whole."""
        if self.order[0] is Branching.INPUT:
            if self._swept:
                return ()
            return (INTERVALS, CROWN) if len(self._property.cases) <= FEW_CASES else ()
        return (INTERVALS, CROWN, *SLOPES)

    @cached_property
    def _swept(self) -> bool:
        """Whether the search takes sweeps of parts instead of bounds of the whole."""
        from boundscope.search.sweeps import sweeps_pay  # as `search_of`

        return sweeps_pay(self._engine, self._property.cases)

    def run(self, cases: NativeCases, witnesses: Witnesses, checkpoint: JobCheckpoint) -> SearchOutcome:
        """Raises DeadlineError, CancelledError; what is proven by then is in the proof.

        Between rounds the state of the search goes into the checkpoint, from which a later run goes on.
        """
        state = checkpoint.load(limit_bytes=self._pool_bytes())
        first = 0 if state is None else int(state.counters[SEARCH])
        open_keys = frozenset(key for key in self._keys() if key not in self._proof.proven)
        if state is not None:
            open_keys = self._go_on_from(state)

        def judge(case: int, points: NDArray[np.float64]) -> Counterexample | None:
            return witnesses.judge(case, points)

        task = SearchTask(
            engine=self._engine,
            cases=self._property.cases,
            open=open_keys,
            root=lambda number: cases.root(number, self._property.cases[number], self.steps),
            judge=judge,
            report=self._report,
            monitor=self._monitor,
            ranks=self._ranks,
            batch=self._job.batch,
            memory_bytes=self._ranks.least(self._pool_bytes()),
            folder=checkpoint.folder,
            seed=self._job.seed,
            force_synchronous=self._job.force_synchronous,
        )
        searches = [
            self._named(number, checkpoint, state if number == first else None)
            for number in range(first, len(self.order))
        ]
        self._first_least = self._least
        # Boxes of few inputs are split to the end; activations follow where that is stuck.
        share = 1.0
        if self.order[first] is Branching.ACTIVATION and not self._job.force_synchronous:
            share = share_of_first(self._property.cases)
        try:
            outcome = run_searches(task, searches, share)
            self._keep(outcome.proven, outcome.lower)
        finally:
            self._end(witnesses)
        return outcome

    @property
    def left(self) -> str:
        """What a search that was cut short leaves, as the rest of a sentence; "" where none has begun."""
        if self.summary is None:
            return ""
        least, first, count = self._least, self._first_least, self.summary.open
        text = f"; branch and bound leaves {count} domain{'' if count == 1 else 's'} open"
        if least is None or first is None:
            return text
        if least > first:
            return f"{text}, and raised the least margin from {first:.4g} to {least:.4g}"
        return f"{text}, and the least margin is {least:.4g} as before it"

    @property
    def _least(self) -> float | None:
        """The proven least margin of the clauses that are open; None where some has none yet."""
        lower = [
            self._proof.lower.get(key, -math.inf) for key in self._keys() if key not in self._proof.proven
        ]
        least = min(lower, default=-math.inf)
        return least if math.isfinite(least) else None

    def _end(self, witnesses: Witnesses) -> None:
        """Tell how everything stands now, whatever was told last."""
        if self._ranks.rank or self.summary is None:
            return
        for key, value in witnesses.margins.items():
            self._proof.upper[key] = min(self._proof.upper.get(key, math.inf), value)
        self._stand(self.summary.domains, self.summary.open, self.summary.depth)
        self._tell()

    def _keys(self) -> list[Key]:
        return [(c, k) for c, case in enumerate(self._property.cases) for k in range(len(case.clauses))]

    def _named(self, number: int, checkpoint: JobCheckpoint, state: SearchState | None) -> Search:
        """The search with this number in the order, which goes on from `state` where there is one."""
        branching = self.order[number]

        def begin(task: SearchTask) -> SearchOutcome:
            def between(running: Stateful) -> None:
                checkpoint.save_if_due(lambda: self._state(running, number, task))

            self._branching = branching
            self._before = 0 if self.summary is None else self.summary.domains
            self._monitor.log(f"branch and bound: splitting {NAMES[branching]}")
            done, waiting = 0, len({case for case, _ in task.open})
            if state is not None:
                done, waiting = int(state.counters["done"]), sum(len(pool) for pool in state.pools.values())
            depth = 0 if self.summary is None else self.summary.depth
            self._stand(self._before + done, waiting, depth)
            return search_of(branching)(task, state=state, between=between)

        return begin

    def _state(self, running: Stateful, number: int, task: SearchTask) -> SearchState:
        """Of the search that runs, with what its task was and what the job knows of every clause."""
        state = running.state()
        state.counters[SEARCH], state.counters[BEFORE] = number, self._before
        state.arrays[OPEN] = np.array(sorted(task.open), np.int64).reshape(-1, 2)
        state.elapsed_s = self._earlier_s + self._monitor.elapsed_s
        proof = self._proof
        state.clauses = tuple(
            ClauseState(
                case=case,
                clause=clause,
                lower=proof.lower.get((case, clause)),
                upper=proof.upper.get((case, clause)),
                proven=(case, clause) in proof.proven,
            )
            for case, clause in self._keys()
        )
        return state

    def _go_on_from(self, state: SearchState) -> frozenset[Key]:
        """Take over what an earlier run knew; the open clauses of the task that it left."""
        for clause in state.clauses:
            key = (clause.case, clause.clause)
            if clause.upper is not None:
                self._proof.upper[key] = min(self._proof.upper.get(key, math.inf), clause.upper)
            lower = {} if clause.lower is None else {key: clause.lower}
            self._keep(frozenset({key} if clause.proven else ()), lower)
        self._earlier_s = state.elapsed_s
        number, before = int(state.counters[SEARCH]), int(state.counters[BEFORE])
        self.summary = SearchSummary(self.order[number], before, int(state.counters["depth"]), 0)
        return frozenset((int(case), int(clause)) for case, clause in state.arrays[OPEN])

    def _pool_bytes(self) -> int:
        ledger = self._engine.ledger
        if ledger.limit_bytes is None:
            return MOST_POOL_BYTES
        return min(MOST_POOL_BYTES, int(POOL_SHARE * max(0, ledger.limit_bytes - ledger.total_bytes)))

    def _report(self, standing: Standing) -> None:
        self._keep(standing.proven, standing.lower)
        depth = max(standing.depth, 0 if self.summary is None else self.summary.depth)
        done = self._before + standing.done
        self.summary = SearchSummary(self._branching, done, depth, standing.open)
        self._stand(done, standing.open, depth)

    def _stand(self, done: int, open: int, depth: int) -> None:
        """Note how the search stands; it is told now, or with what follows soon."""
        if self._ranks.rank:
            return
        left = [key for key in self._keys() if key not in self._proof.proven]
        lower = [self._proof.lower[key] for key in left if key in self._proof.lower]
        self._untold = SearchPoint(
            elapsed_s=self._monitor.elapsed_s,
            branching=self._branching,
            done=done,
            open=open,
            depth=depth,
            clauses_open=len(left),
            worst=min(lower, default=None),
            best=max(lower, default=None),
        )
        if self._monitor.now_s - self._told_s >= TELL_EVERY_S:
            self._tell()

    def _tell(self) -> None:
        """Tell who watches how the search stands, unless they know."""
        point = self._untold
        if point is None:
            return
        self._untold, self._told_s = None, self._monitor.now_s
        step = f"splitting {NAMES[self._branching]}"
        self._monitor.emit(point)
        self._monitor.emit(Progress(stage=step, done=point.done, total=0, open=point.open))
        self._changed(step)

    def _keep(self, proven: frozenset[Key], lower: dict[Key, float]) -> None:
        for key, value in lower.items():
            if not math.isnan(value):
                self._proof.lower[key] = max(self._proof.lower.get(key, -math.inf), value)
        for key in proven:
            # Some constraint is out of reach on every domain; how far is not kept.
            self._proof.lower[key] = max(self._proof.lower.get(key, 0.0), 0.0)
        self._proof.proven |= proven


class Stateful(Protocol):
    """A running search, between two of its rounds."""

    def state(self) -> SearchState: ...


class ResumableSearch(Protocol):
    def __call__(
        self, task: SearchTask, state: SearchState | None = ..., between: Callable[[Any], None] | None = ...
    ) -> SearchOutcome: ...


def search_of(branching: Branching) -> ResumableSearch:
    # Not imported above: they take 30 ms or more to import, which a job that needs no search should not wait for.
    if branching is Branching.INPUT:
        from boundscope.search.input_split import split_inputs

        return split_inputs
    from boundscope.search.activation_split import split_activations

    return split_activations


NAMES = {Branching.INPUT: "inputs", Branching.ACTIVATION: "activations"}
