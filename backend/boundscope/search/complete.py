"""Which searches a property gets, and one after another until every clause is settled."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from boundscope.bounds.operators.base import rule_of
from boundscope.bounds.spans import splittable
from boundscope.errors import DeadlineError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Case
from boundscope.protocol import Branching
from boundscope.search.task import Key, SearchOutcome, SearchTask, Standing

# Boxes of so many free inputs are split themselves: neurons of such networks are many for each input.
FEW_INPUTS = 12
SOME_INPUTS = 40  # up to here splitting inputs gets a part of the time, where activations can be split too
# Parts of a network with no more are cheap: up to SOME_INPUTS of its inputs are split first, too.
FEW_NEURONS = 256
FIRST_SHARE = 0.6  # of the time, for the first of two searches


def free_inputs(case: Case) -> int:
    """Inputs that can be halved: a number lies between their ends. The ends of a fixed one are neighbours where its
    decimal is no binary fraction."""
    return int(np.count_nonzero(np.nextafter(case.box.lower, np.inf) < case.box.upper))


def splits_activations(network: Network) -> bool:
    """Whether some node of the network has pieces that a search can hold it to, or ranges that it can narrow."""
    for node in network.nodes:
        rule = rule_of(node.op)
        if rule is None:
            continue
        rule = rule.use([bool(name) and name not in network.constants for name in node.inputs])
        if rule.slope_free or splittable(rule):
            return True
    return False


def neurons(network: Network) -> int:
    """Elements that nodes with pieces compute."""
    count = 0
    for node in network.nodes:
        rule = rule_of(node.op)
        if rule is not None and rule.slope_free:
            count += sum(network.tensors[name].size for name in node.outputs if name)
    return count


def plan(branching: Branching, network: Network, cases: Sequence[Case]) -> tuple[Branching, ...]:
    """The searches to run, in order. Inputs come after activations in any case: they split whatever operator is loose
    where every neuron is held."""
    if branching is Branching.INPUT:
        return (Branching.INPUT,)
    if branching is Branching.ACTIVATION:
        return (Branching.ACTIVATION, Branching.INPUT)
    most = max((free_inputs(case) for case in cases), default=0)
    if not splits_activations(network) or len(cases) > 1:
        return (Branching.INPUT,)
    if most <= FEW_INPUTS or (most <= SOME_INPUTS and neurons(network) <= FEW_NEURONS):
        return (Branching.INPUT, Branching.ACTIVATION)
    return (Branching.ACTIVATION, Branching.INPUT)


def share_of_first(cases: Sequence[Case]) -> float:
    """Of the time, for the first of two searches: a part where inputs are few enough for the other order to win, all of
    it elsewhere."""
    most = max((free_inputs(case) for case in cases), default=0)
    return FIRST_SHARE if most <= SOME_INPUTS else 1.0


Search = Callable[[SearchTask], SearchOutcome]


class _Record:
    """What a search reported last, for when the time ends it before it can answer."""

    def __init__(self, report: Callable[[Standing], None]) -> None:
        self._report = report
        self.proven: frozenset[Key] = frozenset()
        self.lower: dict[Key, float] = {}

    def __call__(self, standing: Standing) -> None:
        self.proven |= standing.proven
        for key, value in standing.lower.items():
            self.lower[key] = max(self.lower.get(key, -math.inf), value)
        self._report(standing)


def run_searches(task: SearchTask, searches: Sequence[Search], share: float = FIRST_SHARE) -> SearchOutcome:
    """Each search on what those before it left open; all but the last get a `share` of the time.

    Raises:
        DeadlineError, CancelledError: from the monitor, after the standing was reported.
    """
    record = _Record(task.report)
    stuck: list[str] = []
    for number, search in enumerate(searches):
        last = number == len(searches) - 1
        part = dataclasses.replace(task, open=task.open - record.proven, report=record)
        try:
            with _limited(task.monitor, 1.0 if last else share):
                outcome = search(part)
        except DeadlineError:
            if last or task.ranks.of_rank_0(task.monitor.remaining_s <= 0):
                raise
            continue
        record.proven |= outcome.proven
        for key, value in outcome.lower.items():
            record.lower[key] = max(record.lower.get(key, -math.inf), value)
        if outcome.counterexample is not None:
            return SearchOutcome(record.proven, record.lower, outcome.counterexample)
        if record.proven >= task.open:
            break
        if outcome.stuck:
            stuck.append(outcome.stuck)
    return SearchOutcome(record.proven, record.lower, None, "; ".join(stuck))


@contextlib.contextmanager
def _limited(monitor: Monitor, share: float) -> Iterator[None]:
    """The monitor's deadline comes after a share of the time that is left."""
    deadline = monitor.deadline
    if deadline is not None and share < 1.0:
        monitor.deadline = monitor.now_s + share * max(0.0, deadline - monitor.now_s)
    try:
        yield
    finally:
        monitor.deadline = deadline
