"""What ranks of one machine do with memory that they share, each in its own process, for tests."""

from __future__ import annotations

import os

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.operators.linear import both_products, product
from boundscope.errors import BoundError, BoundscopeError
from boundscope.network import load_network
from boundscope.properties.types import Box
from boundscope.protocol import Method, Sharding
from boundscope.sharding.host import HostMemory
from boundscope.sharding.matrices import LentMatrix
from boundscope.sharding.place import place
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.weights import RowShardedWeights

ROWS, COLUMNS = 2600, 600  # blocks of 256, 256 and 88 columns; more rows than are read at a time


def matrix() -> NDArray[np.float32]:
    return np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def store(ranks: RankGroup) -> tuple[RowShardedWeights, MemoryLedger]:
    ledger = MemoryLedger()
    constants = {"w": matrix(), "filter": np.arange(5000.0).reshape(5, 10, 100), "bias": np.ones(3)}
    return RowShardedWeights(constants, ledger, torch.device("cpu"), torch.float64, ranks), ledger


def indices() -> list[tuple[slice | Tensor, slice | Tensor]]:
    some = torch.tensor([3, 4, 5, 255, 256, 599])
    mixed = torch.cat([torch.arange(0, 600, 7), torch.arange(1, 600, 100)])  # twice rising, over all blocks
    far = torch.tensor([0, 1, 2599, 2])
    none = torch.zeros(0, dtype=torch.int64)
    return [
        (slice(0, 512), slice(256, 512)),
        (slice(2560, 2600), slice(512, 600)),
        (slice(10, 20), slice(200, 600)),
        (far, slice(0, 600)),
        (slice(0, 2600), some),
        (far, mixed),
        (none, slice(0, 600)),
        (slice(0, 3), none),
    ]


def parts(ranks: RankGroup) -> tuple[list[Tensor], list[Tensor], Tensor, bool, int]:
    """What a rank reads; each asks for the parts in an order of its own, and as often as it likes."""
    weights, ledger = store(ranks)
    with weights.use(("w", "filter"), tiled=("w",)) as lent:
        stored = lent["w"].stored
        wanted = indices()[ranks.rank :] + indices()[: ranks.rank]
        found = list(stored.gather(wanted))
        found = found[len(found) - ranks.rank :] + found[: len(found) - ranks.rank]
        few = LentMatrix(stored, columns=torch.arange(0, 600, 2)).T.taken(torch.tensor([ranks.rank, 299]))
        held = ledger.peaks(ranks.rank).by_category["weights"]
        return found, [few], lent["filter"].clone(), weights.collective, held


def bounds_alone(ranks: RankGroup, path: str) -> list[tuple[Tensor, Tensor]]:
    """The bounds of a network by rank 0 alone, in several chunks of rows, while the others wait; then by all ranks."""
    network = load_network(path)
    ledger = MemoryLedger()
    placed = place(network, Sharding.ROWS, ledger, torch.device("cpu"), ranks)
    engine = BoundEngine(placed.network, placed.weights, ledger, ranks=placed.ranks)
    ends = [np.full(network.input_count, end) for end in (-0.05, 0.05)]
    box = Box(("-0.05",) * len(ends[0]), ("0.05",) * len(ends[0]), *ends)
    every = [engine.alone()] if ranks.rank == 0 else []
    contexts = [one.context(box, Method.CROWN) for one in every]
    ranks.barrier()
    contexts.append(engine.context(box, Method.CROWN))
    name = network.outputs[0].name
    return [(one.intervals[name].lower, one.intervals[name].upper) for one in contexts]


def factors() -> dict[bool, tuple[Tensor, Tensor]]:
    """Rows to multiply with |w| and w transposed, or as it is."""
    generator = torch.Generator().manual_seed(0)
    return {
        transposed: tuple(
            torch.rand(rows, ROWS if transposed else COLUMNS, dtype=torch.float64, generator=generator) - 0.5
            for rows in (1, 3)
        )
        for transposed in (False, True)
    }


def products(ranks: RankGroup) -> tuple[list[Tensor], int]:
    """Products that all ranks take together, with a matrix of six bands of outputs, and of two; bytes that a rank read
    of the others' parts for the former."""
    weights, _ = store(ranks)
    found: list[Tensor] = []
    assert ranks.frames is not None
    with weights.in_step(True), weights.use(("w",), tiled=("w",)) as lent:
        for transposed, (rows, others) in factors().items():
            matrix = lent["w"].T if transposed else lent["w"]
            found += [*both_products(rows, others, matrix), product(rows, matrix)]
            if not transposed:
                read_bytes = ranks.frames.traffic.read_bytes
    return found, read_bytes


def one_fails(ranks: RankGroup) -> tuple[str, str]:
    """What a rank meets where rank 1 fails and the others take a product together; and what all agree on."""
    weights, _ = store(ranks)
    met: BoundscopeError | None = None
    try:
        with weights.in_step(True), weights.use(("w",), tiled=("w",)) as lent:
            if ranks.rank == 1:
                raise BoundError("rank 1 has had enough")
            product(factors()[False][0], lent["w"])
    except BoundscopeError as error:
        met = error
    try:
        ranks.agree(met)
    except BoundscopeError as error:
        return type(met).__name__, str(error)
    return type(met).__name__, ""


def opened_files(ranks: RankGroup) -> tuple[int, int]:
    """Open files before, and after a store has come and gone."""
    before = len(os.listdir("/proc/self/fd"))
    weights, _ = store(ranks)
    assert len(os.listdir("/proc/self/fd")) > before
    ranks.barrier()
    del weights
    return before, len(os.listdir("/proc/self/fd"))


def without_memory(ranks: RankGroup) -> tuple[list[Tensor], str, bool]:
    """Rank 1 cannot open what rank 0 has made."""
    if ranks.rank == 1:
        opened = os.open

        def refuse(path: str, *given: int, **named: int) -> int:
            if str(path).startswith("/proc/"):
                raise PermissionError(13, "Permission denied")
            return opened(path, *given, **named)

        os.open = refuse  # type: ignore[assignment]
    weights, _ = store(ranks)
    with weights.use(("w",), tiled=("w",)) as lent:
        return list(lent["w"].stored.gather(indices()[:6])), weights.apart, weights.collective


def too_little(ranks: RankGroup) -> str:
    memory, why = HostMemory.shared(ranks, 1 << 62)
    assert memory is None
    return why
