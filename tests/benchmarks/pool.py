"""Times the pool of domains: rounds of branch and bound that take k domains and put 2 k back.

    python tests/benchmarks/pool.py [--waiting N] [--taken N] [--repeat N]

The peer is what is usually written: heapq over tuples (priority, number, row of each column), whose rows are stacked
again when a batch is taken. Both do the same rounds, in turns; rates are domains taken per second (as many and as many
again are put in), medians of the repetitions. "memory: a tenth" lets a tenth of the domains stay in memory, so that
nine tenths go to disk and come back.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from boundscope.search.pool import Column, DomainPool

COLUMNS = {
    "lower": Column(np.float64, (5,)),
    "upper": Column(np.float64, (5,)),
    "clause": Column(np.int32),
    "splits": Column(np.int32, (0, 2), grows=True, fill=-1),
}
DEPTH = 12
BATCHES = (1, 16, 256, 4096)

Batch = dict[str, NDArray[Any]]


class Pool(Protocol):
    def push(self, batch: Batch, priority: NDArray[np.float64]) -> None: ...

    def pop(self, count: int) -> tuple[Batch, NDArray[np.float64]]: ...


class HeapOfTuples:
    def __init__(self) -> None:
        self._heap: list[tuple[Any, ...]] = []
        self._number = itertools.count()

    def push(self, batch: Batch, priority: NDArray[np.float64]) -> None:
        columns = [batch[name] for name in COLUMNS]
        for index, value in enumerate(priority.tolist()):
            heapq.heappush(self._heap, (value, next(self._number), *(column[index] for column in columns)))

    def pop(self, count: int) -> tuple[Batch, NDArray[np.float64]]:
        taken = [heapq.heappop(self._heap) for _ in range(min(count, len(self._heap)))]
        batch = {name: np.stack([one[2 + place] for one in taken]) for place, name in enumerate(COLUMNS)}
        return batch, np.array([one[0] for one in taken])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--waiting", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--taken", type=int, default=100_000, help="domains taken in rounds, at most 2 000 rounds"
    )
    options = parser.parse_args()
    print(f"{options.waiting} domains wait; Python {sys.version.split()[0]}, numpy {np.__version__}")
    print(
        f"{'batch':>6} {'ours':>12} {'heap of tuples':>16} {'ratio':>7} {'memory: a tenth':>17}   (domains/s)"
    )
    for size in BATCHES:
        rounds = max(1, min(2000, options.taken // size))
        rates: dict[str, list[float]] = {"ours": [], "peer": [], "spilling": []}
        for _ in range(options.repeat):
            with tempfile.TemporaryDirectory() as folder:
                with DomainPool(COLUMNS, limit_bytes=None) as whole:
                    rates["ours"].append(rate(whole, options.waiting, size, rounds))
                    limit = whole.nbytes // 10
                rates["peer"].append(rate(HeapOfTuples(), options.waiting, size, rounds))
                with DomainPool(COLUMNS, limit_bytes=limit, folder=Path(folder)) as small:
                    rates["spilling"].append(rate(small, options.waiting, size, rounds))
        ours, peer, spilling = (statistics.median(found) for found in rates.values())
        print(f"{size:6} {ours:12,.0f} {peer:16,.0f} {ours / peer:7.1f} {spilling:17,.0f}")


def rate(pool: Pool, waiting: int, size: int, rounds: int) -> float:
    """Domains taken per second, in rounds over a pool in which so many wait."""
    random = np.random.default_rng(0)
    for begin in range(0, waiting, 10_000):
        count = min(10_000, waiting - begin)
        pool.push(domains(random, count), random.standard_normal(count))
    children = domains(random, 2 * size)
    steps = np.abs(random.standard_normal((rounds, 2 * size))) * 0.1
    start = time.perf_counter()
    taken = 0
    for step in steps:
        _, priority = pool.pop(size)
        pool.push(children, np.repeat(priority, 2) + step)  # bounds of parts are above those of the whole
        taken += len(priority)
    return taken / (time.perf_counter() - start)


def domains(random: np.random.Generator, count: int) -> Batch:
    return {
        "lower": random.standard_normal((count, 5)),
        "upper": random.standard_normal((count, 5)),
        "clause": random.integers(0, 9, count, np.int32),
        "splits": random.integers(0, 99, (count, DEPTH, 2), np.int32),
    }


if __name__ == "__main__":
    main()
