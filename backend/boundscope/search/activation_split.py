"""Complete search by splitting activations: domains are sides of neurons, bounded by β-CROWN (Wang et al. 2021,
arXiv 2103.06624), the worst first, all clauses of a case together.

Every rank keeps the keys of all domains and takes the same decisions. The slopes and multipliers of a domain lie on one
rank; they go to the rank that bounds it, which keeps those of its children.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from boundscope.protocol import Counterexample
from boundscope.search.activation_case import ACTIVE_CASES, CaseSearch, Progress
from boundscope.search.activation_settings import SplitSettings, fitted
from boundscope.search.checkpoint import SearchState
from boundscope.search.rounds import Crew
from boundscope.search.task import SearchOutcome, SearchTask, Standing

REPORT_S = 0.4


class ActivationSearch:
    """One search of one task."""

    def __init__(
        self,
        task: SearchTask,
        settings: SplitSettings | None = None,
        state: SearchState | None = None,
        between: Callable[[ActivationSearch], None] | None = None,
    ) -> None:
        """`state` is of a search of the same task, which goes on; `between` is called between rounds, when `state` may
        be asked for."""
        self._task, self._state, self._between = task, state, between
        ranks = task.ranks if task.engine.ranks.splits_rows else task.ranks.with_all_rows()
        self.crew = Crew(ranks, task.monitor, collective=task.engine.weights.collective)
        self._settings = fitted(settings or SplitSettings(), task, self.crew)
        self._progress = Progress()
        self._running: list[CaseSearch] = []
        self._reported_s = -math.inf

    def run(self) -> SearchOutcome:
        """
        Raises:
            DeadlineError, CancelledError, OutOfMemoryError: on all ranks together.
            BoundError: a margin is NaN.
        """
        for number, clause in sorted(self._task.open):
            if not self._task.cases[number].clauses[clause].constraints:
                return self._outcome(None, f"clause {clause} of case {number} has no constraint")
        if self._state is not None:
            self._go_on_from(self._state)
        waiting = sorted({case for case, _ in self._task.open - self._progress.proven})
        stuck: list[str] = []
        while waiting or self._running:
            while waiting and len(self._running) < ACTIVE_CASES:
                number = waiting.pop(0)
                case = CaseSearch(self._task, self.crew, self._settings, self._progress, self.check, number)
                if self._state is not None:
                    case.restore(self._state)
                self._running.append(case)
            for case in list(self._running):
                counterexample = case.round()
                self._report()
                if counterexample is not None:
                    return self._outcome(counterexample)
                if case.finished:
                    stuck += case.stuck
                    case.end()
                    self._running.remove(case)
                if self._between is not None:
                    self._between(self)
        return self._outcome(None, "; ".join(dict.fromkeys(stuck)))

    def state(self) -> SearchState:
        """What is left to do, between rounds; pools in it are the search's own."""
        progress = self._progress
        found = SearchState(counters={"done": progress.done, "depth": progress.depth})
        found.arrays["proven"] = np.array(sorted(progress.proven), np.int64).reshape(-1, 2)
        for case in self._running:
            case.save(found)
        return found

    def _go_on_from(self, state: SearchState) -> None:
        self._progress.done, self._progress.depth = int(state.counters["done"]), int(state.counters["depth"])
        self._progress.proven |= {(int(case), int(clause)) for case, clause in state.arrays["proven"]}

    def _outcome(self, counterexample: Counterexample | None, stuck: str = "") -> SearchOutcome:
        self._report(now=True)
        progress = self._progress
        return SearchOutcome(frozenset(progress.proven), dict(progress.lower), counterexample, stuck)

    def _report(self, *, now: bool = False) -> None:
        monitor = self._task.monitor
        if not now and monitor.now_s - self._reported_s < REPORT_S:
            return
        self._reported_s = monitor.now_s
        for case in self._running:
            case.note_bounds()
        progress = self._progress
        self._task.report(
            Standing(
                {key: low for key, low in progress.lower.items() if key not in progress.proven},
                frozenset(progress.proven),
                progress.done,
                sum(case.open for case in self._running),
                progress.depth,
            )
        )

    def check(self) -> None:
        """Stop where the monitor says so."""
        self._report()
        self.crew.check()


def split_activations(
    task: SearchTask,
    state: SearchState | None = None,
    between: Callable[[ActivationSearch], None] | None = None,
) -> SearchOutcome:
    """Search a task by splitting activations. See ActivationSearch for the arguments and for what it raises."""
    return ActivationSearch(task, None, state, between).run()
