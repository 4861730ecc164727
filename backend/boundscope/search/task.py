"""What a complete search is asked, and what it answers, whatever it splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boundscope.bounds import BoundEngine
from boundscope.bounds.context import BoxContext
from boundscope.monitor import Monitor
from boundscope.properties.types import Case
from boundscope.protocol import Counterexample
from boundscope.sharding.ranks import RankGroup

Key = tuple[int, int]  # (case, clause)


@dataclass(frozen=True)
class Standing:
    """How a search stands after a round: told to who watches, equal on every rank.

    `lower` is proven now for each clause that is still open: the least bound over its domains. `done` counts
    domains bounded so far, `open` those that wait.
    """

    lower: dict[Key, float]
    proven: frozenset[Key]
    done: int
    open: int
    depth: int = 0


@dataclass(frozen=True)
class SearchTask:
    """The clauses that cheap bounds and the attack left open, and what the search works with.

    Attributes:
        engine: of the network; every rank has one.
        cases: of the property, all of them.
        open: the clauses to exclude.
        root: the context of a case's box, as tight as bounds without splitting made it. A search calls it once for a
            case and keeps what it needs.
        judge: points [N, inputs] float64 of a case's box that may violate (minimisers, centres): a replayed
            counterexample, or None. Cheap for points that do not violate. Called on rank 0 only.
        report: told the standing at least twice a second, on every rank.
        batch: domains bounded together; None: as many as the budget allows.
        memory_bytes: what pools and batches of this rank may hold together; what does not fit goes to `folder`.
        folder: where a pool may write; None: a temporary one.
        force_synchronous: rounds and chunks are of sizes of the task's alone, whatever the ranks and their memory.
    """

    engine: BoundEngine
    cases: tuple[Case, ...]
    open: frozenset[Key]
    root: Callable[[int], BoxContext]
    judge: Callable[[int, NDArray[np.float64]], Counterexample | None]
    report: Callable[[Standing], None]
    monitor: Monitor
    ranks: RankGroup
    batch: int | None = None
    memory_bytes: int = 1 << 30
    folder: Path | None = None
    seed: int = 0
    force_synchronous: bool = False


@dataclass(frozen=True)
class SearchOutcome:
    """What a search found, equal on every rank.

    `stuck` says why clauses are neither proven nor violated though time was left: what cannot be split further.
    """

    proven: frozenset[Key]
    lower: dict[Key, float] = field(default_factory=dict)
    counterexample: Counterexample | None = None
    stuck: str = ""
