"""A batch of parts bounded on the ranks: each bounds some slices of it, and all learn what every rank has to know."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.errors import BoundscopeError, OutOfMemoryError
from boundscope.search.input_clauses import Bounded
from boundscope.search.input_group import Batch, Group
from boundscope.search.input_layout import HIDDEN, Rows, without_hidden
from boundscope.search.task import SearchTask


@dataclass(frozen=True)
class Found:
    """What every rank knows of parts; hidden bounds of those that this rank has, in order. `made` is the rank of each
    part that has them; None: every rank has all."""

    bounded: Bounded
    hidden: Rows
    made: NDArray[np.int64] | None


def bound_batch(task: SearchTask, group: Group, batch: Batch, report: Callable[[], None]) -> Found:
    """Bounds of all parts of a batch, equal on every rank; fewer parts at a time from when memory runs short.

    All ranks call together; `report` is called between slices.

    Raises:
        OutOfMemoryError: not even one part fits, or a rank has given up.
    """
    while True:
        try:
            return _bound_at_once(task, group, batch, report)
        except OutOfMemoryError as error:
            if error.final or task.force_synchronous or not group.take_less():
                raise
        gc.collect()  # what the failed attempt's frames hold


def _bound_at_once(task: SearchTask, group: Group, batch: Batch, report: Callable[[], None]) -> Found:
    ranks, count = task.ranks, len(batch)
    slices = [np.arange(first, min(first + group.slice, count)) for first in range(0, count, group.slice)]
    together = ranks.size == 1 or task.engine.weights.collective
    dealt = np.arange(len(slices)) % ranks.size
    wanted = [np.arange(count)] * ranks.size
    if not together:
        wanted = [np.concatenate([wanted[0][:0], *slices[rank :: ranks.size]]) for rank in range(ranks.size)]
    hidden = group.hidden(batch, wanted)
    mine: list[tuple[int, Bounded]] = []
    first = 0
    for number in range(0, len(slices), 1 if together else ranks.size):
        chosen = number if together else number + ranks.rank
        error: BoundscopeError | None = None
        try:
            task.monitor.check()
            if chosen < len(slices):
                rows = {name: array[slices[chosen]] for name, array in batch.rows.items()}
                last = first + len(slices[chosen])
                rows |= {name: array[first:last] for name, array in hidden.items()}
                first = last
                mine.append((chosen, group.bound(rows)))
        except BoundscopeError as caught:
            error = caught
        except (torch.OutOfMemoryError, MemoryError) as caught:
            error = OutOfMemoryError(str(caught))
        ranks.agree(error)
        report()
    wide = {name: np.concatenate([hidden[name][:0], *(one.rows[name] for _, one in mine)]) for name in HIDDEN}
    known = [(chosen, dataclasses.replace(one, rows=without_hidden(one.rows))) for chosen, one in mine]
    every = [known] if together else ranks.gather(known)
    bounded = _joined([one for _, one in sorted((p for part in every for p in part), key=lambda p: p[0])])
    made = None if together else np.repeat(dealt, [len(one) for one in slices])
    return Found(bounded, wide, made)


def _joined(parts: Sequence[Bounded]) -> Bounded:
    return Bounded(
        {name: np.concatenate([part.rows[name] for part in parts]) for name in parts[0].rows},
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("open", "lower", "score", "worst")
        ),
    )
