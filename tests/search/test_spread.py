"""A pool over ranks: new domains go where there is room, none is lost, and none is held twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from boundscope.errors import BoundscopeError
from boundscope.search.pool import Column, DomainPool
from boundscope.search.spread import SLACK_ROWS, SLACK_SHARE, SpreadPool, Taken, placed
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import process

SMALL = {"depth": Column(np.int32)}
WIDE = {"state": Column(np.int8, (50,)), "value": Column(np.float16, (50,))}


@given(st.data(), st.integers(1, 6))
def test_no_rank_grows_beyond_its_part_and_a_slack(data: st.DataObject, size: int) -> None:
    counts = np.array(data.draw(st.lists(st.integers(0, 300), min_size=size, max_size=size)))
    made = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=400)), np.int64)
    owner = placed(counts, made)
    after = counts + np.bincount(owner, minlength=size)
    assert len(owner) == len(made)
    assert after.sum() == counts.sum() + len(made)
    fair = -(-int(after.sum()) // size)
    slack = max(SLACK_ROWS, int(SLACK_SHARE * fair))
    assert (after <= np.maximum(counts, fair + slack)).all()
    if len(made) > counts.max() * size:  # enough of them to even everything out
        assert after.max() <= fair + slack


def _domains(
    rng: np.random.Generator, count: int
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    priority = rng.integers(-20, 0, count).astype(np.float64)  # with many ties
    wide = {
        "state": rng.integers(-1, 2, (count, 50)).astype(np.int8),
        "value": rng.random((count, 50)).astype(np.float16),
    }
    return {"depth": rng.integers(0, 99, count).astype(np.int32)}, priority, wide


def _ranked(rank: int, size: int, folder: Path) -> None:
    """One rank: whatever it takes and saves is compared with what one pool of all columns would give."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    ranks = RankGroup.of_process_group()
    limit = 60_000  # a part of the domains goes to disk
    pool = SpreadPool(ranks, SMALL, WIDE, limit_bytes=limit, folder=folder / str(rank))
    whole = DomainPool({**SMALL, **WIDE}, limit_bytes=None)
    rng = np.random.default_rng(0)
    for turn in range(12):
        small, priority, wide = _domains(rng, 150)
        whole.push({**small, **wide}, priority)
        if turn == 0:
            pool.push(small, priority, wide)
        else:
            made = rng.choice(size, 150, p=[0.8, *[0.2 / (size - 1)] * (size - 1)])
            pool.push(small, priority, {name: array[made == rank] for name, array in wide.items()}, made)
        _compare(ranks, pool, whole, 40)
        assert np.ptp(pool.counts) <= 100 + 2 * max(SLACK_ROWS, SLACK_SHARE * len(pool))
    _not_to_be_saved(ranks, pool, folder)
    again = _through_a_file(ranks, pool, folder)
    for one in (pool, again):
        assert one.counts.sum() == len(one) == len(whole)
    rest = whole
    while len(rest):
        rows, priority = rest.pop(90)
        for one in (pool, again):
            _same(ranks, one.pop(90), rows, priority)
    dist.barrier()
    dist.destroy_process_group()


def _compare(ranks: RankGroup, pool: SpreadPool, whole: DomainPool, count: int) -> None:
    rows, priority = whole.pop(count)
    _same(ranks, pool.pop(count), rows, priority)
    assert pool.least() == whole.least()


def _same(ranks: RankGroup, taken: Taken, rows: dict[str, np.ndarray], priority: np.ndarray) -> None:
    """Each rank gets the domains that it wants, in its own order; some are wanted by several."""
    assert (taken.priority == priority).all()
    assert all((taken.small[name] == rows[name]).all() for name in SMALL)
    count = len(taken)
    wanted = [np.arange(count)[:: -1 if rank % 2 else 1][rank::2] for rank in range(ranks.size)]
    wide = taken.bring(wanted)
    assert all((wide[name] == rows[name][wanted[ranks.rank]]).all() for name in WIDE)


def _serve(ranks: RankGroup, pool: SpreadPool, write: Callable[[Callable[[int], None]], None]) -> None:
    """Rank 0 writes, and asks the others for what they have until it has done."""
    done = -1

    def ask(rank: int) -> None:
        ranks.of_rank_0(rank)

    pool.begin_save()
    if ranks.rank == 0:
        write(ask)
        ask(done)
    else:
        while (wish := ranks.of_rank_0(done)) != done:
            if wish == ranks.rank:
                pool.send()


def _not_to_be_saved(ranks: RankGroup, pool: SpreadPool, folder: Path) -> None:
    """A rank that cannot read its domains back for a checkpoint: that is not written, and nobody waits."""

    def write(ask: Callable[[int], None]) -> None:
        with (
            pytest.raises(OSError, match="rank 1 cannot read back domains"),
            (folder / "no").open("wb") as file,
        ):
            pool.save(file, folder, ask)

    blocks = DomainPool.blocks
    if ranks.rank == 1:
        DomainPool.blocks = _unreadable  # type: ignore[method-assign]
    _serve(ranks, pool, write)
    DomainPool.blocks = blocks  # type: ignore[method-assign]


def _unreadable(pool: DomainPool) -> Iterator[dict[str, np.ndarray]]:
    raise BoundscopeError(f"the file of {len(pool)} domains is gone")
    yield {}


def _through_a_file(ranks: RankGroup, pool: SpreadPool, folder: Path) -> SpreadPool:
    """The pool that rank 0 wrote, read by every rank."""
    path = folder / "saved"

    def write(ask: Callable[[int], None]) -> None:
        with path.open("wb") as file:
            pool.save(file, folder, ask)

    _serve(ranks, pool, write)
    with path.open("rb") as file:
        loaded = DomainPool.load(file, folder, limit_bytes=50_000, folder=folder / f"loaded{ranks.rank}")
    return SpreadPool.of(loaded, ranks, SMALL, WIDE, limit_bytes=None)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_take_what_one_pool_would_give(tmp_path: Path, size: int) -> None:
    """In the same order, with ties and domains on disk, and from a file as well."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(size), str(tmp_path)], env=environment)
        for rank in range(size)
    ]
    assert [worker.wait(200) for worker in workers] == [0] * size


if __name__ == "__main__":
    _ranked(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    process.end(0)  # as a rank of a job: the interpreter's own way out may meet threads of gloo
