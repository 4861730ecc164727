"""How a search by activations goes about it, and how large its chunks are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from boundscope.bounds.ascent import BetaSettings
from boundscope.bounds.spans import parameters_of
from boundscope.search.rounds import Crew
from boundscope.search.task import SearchTask

LEAST_ROWS = 4
KEPT_BYTES = 16  # an element and row of a search pass, with its gradient
LINES = 4  # as many more for an element whose lines are each row's own
FIXED_CHUNKS = 4  # of a round that is the same for any number of ranks
ROOT = BetaSettings(steps=30, least_steps=30, alpha_rate=0.25)
DOMAIN = BetaSettings()
IDLE = BetaSettings(steps=1, least_steps=1)
LEAF = BetaSettings(steps=400, least_steps=400, decay=0.99)


@dataclass(frozen=True)
class SplitSettings:
    """Of the search: `root` before anything is split, `domain` of each domain, `leaf` where nothing is left to split.

    `candidates` neurons of each domain are compared by bounds of their children; `chunk_rows` rows are carried
    together, and `batch_chunks` chunks make a round.
    """

    root: BetaSettings = ROOT
    domain: BetaSettings = DOMAIN
    leaf: BetaSettings = LEAF
    candidates: int = 6
    chunk_rows: int = 64
    batch_chunks: int = 2


def fitted(settings: SplitSettings, task: SearchTask, crew: Crew) -> SplitSettings:
    """Chunks as small as the memory budget asks for: autograd keeps the coefficients of a pass."""
    engine, ranks = task.engine, task.ranks
    if task.force_synchronous:
        return dataclasses.replace(settings, batch_chunks=FIXED_CHUNKS)
    if crew.apart:
        settings = dataclasses.replace(settings, batch_chunks=max(settings.batch_chunks, ranks.size))
    limit = engine.ledger.limit_bytes
    if limit is None:
        return settings
    tensors = engine.network.tensors.items()
    elements = sum(info.size for name, info in tensors if name not in engine.network.constants)
    # Lines of each row's own.
    elements += LINES * sum(parameters_of(node, engine.network) for node in engine.network.nodes)
    free = (limit - engine.ledger.total_bytes) // 2
    rows = max(LEAST_ROWS, free // (KEPT_BYTES * max(1, elements)) // 2 * 2)
    return dataclasses.replace(settings, chunk_rows=ranks.least(min(settings.chunk_rows, rows)))
