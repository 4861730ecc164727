"""Domains come out in exact order, bit for bit as they went in, whatever the memory limit and whatever is on disk."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from boundscope.errors import BoundError, BoundscopeError, OutOfMemoryError
from boundscope.search import pool_order, pool_store
from boundscope.search.pool import Column, DomainPool

COLUMNS = {
    "lower": Column(np.float64, (3,)),
    "clause": Column(np.int32),
    "open": Column(np.bool_),
    "splits": Column(np.int32, (0, 2), grows=True, fill=-1),
    "beta": Column(np.float32, (0,), grows=True),
}
SIZES = (1, 2, 3, 5, 8, 40)
PRIORITIES = [-np.inf, -1.5, -1.0, -0.0, 0.0, 0.25, 1e300, np.inf]


def domains(seed: int, count: int, depth: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    lower = random.standard_normal((count, 3))
    lower[::2, 0] = np.nan  # what is not a number keeps its bits, too
    return {
        "lower": lower,
        "clause": random.integers(0, 3, count, np.int32),
        "open": random.integers(0, 2, count).astype(np.bool_),
        "splits": random.integers(-1, 4, (count, depth, 2), np.int32),
        "beta": random.integers(0, 2, (count, depth)).astype(np.float32),
    }


def fields(batch: dict[str, np.ndarray], index: int) -> tuple[bytes, ...]:
    """One domain's bits, without padding."""
    splits, beta = batch["splits"][index], batch["beta"][index]
    while len(splits) and (splits[-1] == -1).all():
        splits = splits[:-1]
    while len(beta) and beta[-1] == 0:
        beta = beta[:-1]
    return (
        batch["lower"][index].tobytes(),
        batch["clause"][index].tobytes(),
        batch["open"][index].tobytes(),
        splits.tobytes(),
        beta.tobytes(),
    )


class PoolAgainstList(RuleBasedStateMachine):
    """A pool with room for a few domains does what a sorted list does."""

    order = "best"
    rows_in_memory = 4

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        # Small runs, read back a few rows at a time; a sorted head of a few.
        self.patch.setattr(pool_store, "FETCH_BYTES", 200)
        self.patch.setattr(pool_store, "SEGMENT_BYTES", 1000)
        self.patch.setattr(pool_order, "LEAST_HEAD", 2)
        self.folder = Path(tempfile.mkdtemp())
        self.pool = DomainPool(
            COLUMNS, limit_bytes=self.rows_in_memory * 160, folder=self.folder / "live", order=self.order
        )
        self.list: list[tuple[tuple[float, float, int], float, int, tuple[bytes, ...]]] = []
        self.number = self.pushes = self.saves = 0

    def teardown(self) -> None:
        self.pool.close()
        assert not list((self.folder / "live").glob("*"))
        shutil.rmtree(self.folder)
        self.patch.undo()

    @rule(
        seed=st.integers(0, 2**32),
        depth=st.integers(0, 6),
        priorities=st.lists(st.sampled_from(PRIORITIES), max_size=12),
    )
    def push(self, seed, depth, priorities):
        batch = domains(seed, len(priorities), depth)
        self.pool.push(batch, np.array(priorities))
        turn = -self.pushes if self.order == "depth" else 0
        for index, priority in enumerate(priorities):
            key = (turn, priority, self.number)
            self.list.append((key, priority, int(batch["clause"][index]), fields(batch, index)))
            self.number += 1
        self.pushes += bool(priorities)
        self.list.sort(key=lambda entry: entry[0])

    @rule(count=st.sampled_from(SIZES))
    def pop(self, count):
        batch, priority = self.pool.pop(count)
        expected, self.list = self.list[:count], self.list[count:]
        assert priority.tobytes() == np.array([entry[1] for entry in expected], np.float64).tobytes()
        assert [fields(batch, index) for index in range(len(priority))] == [entry[3] for entry in expected]

    @rule(values=st.sets(st.integers(0, 2), min_size=1, max_size=2))
    def filter(self, values):
        kept = [entry for entry in self.list if entry[2] not in values]
        assert self.pool.filter("clause", sorted(values)) == len(self.list) - len(kept)
        self.list = kept

    @rule(value=st.integers(0, 2), bound=st.sampled_from(PRIORITIES))
    def drop(self, value, bound):
        self.pool.drop(lambda columns, priority: ~((columns["clause"] == value) & (priority > bound)))
        self.list = [entry for entry in self.list if not (entry[2] == value and entry[1] > bound)]

    @precondition(lambda self: self.saves < 4)
    @rule(rows=st.sampled_from([1, 4, 30, None]))
    def save_and_load(self, rows):
        self.saves += 1
        file, beside = io.BytesIO(), self.folder / f"saved {self.saves}"
        names = self.pool.save(file, beside)
        assert {path.name for path in beside.glob("*")} == names
        self.pool.close()  # what was saved must not need what was left
        file.seek(0)
        limit = None if rows is None else rows * 160
        self.pool = DomainPool.load(file, beside, limit_bytes=limit, folder=self.folder / "live")
        assert self.pool.order == self.order
        assert self.pool.columns == COLUMNS

    @invariant()
    def agrees(self):
        assert len(self.pool) == len(self.list)
        least = self.pool.least()
        assert least == (min(entry[1] for entry in self.list) if self.list else None)


class DepthAgainstList(PoolAgainstList):
    order = "depth"
    rows_in_memory = 7


TestBestFirst = PoolAgainstList.TestCase
TestDepthFirst = DepthAgainstList.TestCase
TestBestFirst.settings = TestDepthFirst.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)


# ------------------------------------------------------------------ what is refused, and what happens on a full disk

NUMBERED = {"number": Column(np.int64), "padding": Column(np.float64, (8,))}


def numbered(first: int, count: int) -> dict[str, np.ndarray]:
    return {"number": np.arange(first, first + count), "padding": np.zeros((count, 8))}


@contextmanager
def disk_full():
    """Every write to a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_nan_is_no_priority():
    pool = DomainPool(NUMBERED, limit_bytes=None)
    with pytest.raises(BoundError, match="1 of the bounds of 3 domains are NaN"):
        pool.push(numbered(0, 3), np.array([0.0, np.nan, 1.0]))
    assert len(pool) == 0


@pytest.mark.parametrize(
    "batch",
    [
        {"number": np.arange(3)},
        {"number": np.arange(3), "padding": np.zeros((3, 7))},
        {"number": np.arange(3, dtype=np.int32), "padding": np.zeros((3, 8))},
        {"number": np.arange(2), "padding": np.zeros((3, 8))},
    ],
    ids=["a column is missing", "another shape", "another type", "another count"],
)
def test_a_batch_that_does_not_fit_is_refused(batch):
    pool = DomainPool(NUMBERED, limit_bytes=None)
    with pytest.raises(ValueError, match=r"batch"):
        pool.push(batch, np.zeros(3))
    assert len(pool) == 0


def test_a_full_disk_loses_nothing(tmp_path):
    with DomainPool(NUMBERED, limit_bytes=20_000, folder=tmp_path) as pool:
        count = 0
        while not pool.disk_bytes:
            pool.push(numbered(count, 10), np.arange(count, count + 10.0))
            count += 10
        with disk_full():
            with pytest.raises(OutOfMemoryError, match=r"cannot be written to .*make room there"):  # noqa: PT012
                while True:  # whichever push it is that finds no room
                    pool.push(numbered(count, 10), np.arange(count, count + 10.0))
                    count += 10
            with pytest.raises(OutOfMemoryError):
                pool.push(
                    numbered(count, 1000), np.arange(count, count + 1000.0)
                )  # more than memory may hold
            assert len(pool) == count
        batch, priority = pool.pop(count + 1)
        assert batch["number"].tolist() == list(range(count))
        assert priority.tolist() == list(range(count))


def test_domains_that_a_full_disk_keeps_from_coming_back_stay_where_they_are(tmp_path):
    with DomainPool(NUMBERED, limit_bytes=20_000, folder=tmp_path) as pool:
        pool.push(numbered(0, 500), np.arange(500.0))  # on disk
        pool.push(numbered(500, 80), np.arange(500.0, 580.0))  # fill memory
        with disk_full(), pytest.raises(OutOfMemoryError):
            pool.pop(1)
        assert pool.pop(580)[0]["number"].tolist() == list(range(580))


def test_memory_stays_within_its_limit_whatever_is_pushed():
    random = np.random.default_rng(1)
    limit = 300_000
    columns = {"number": Column(np.int64), "splits": Column(np.int32, (0,), grows=True, fill=-1)}
    with DomainPool(columns, limit_bytes=limit) as pool:
        for depth in range(1, 40):
            splits = random.integers(0, 9, (200, depth), np.int32)
            pool.push({"number": np.arange(200), "splits": splits}, random.standard_normal(200))
            assert pool.nbytes <= limit
        assert pool.disk_bytes > 0
        assert len(pool) == 39 * 200


def test_a_run_on_disk_that_is_gone_is_an_error_that_names_it(tmp_path):
    with DomainPool(NUMBERED, limit_bytes=1000, folder=tmp_path) as pool:
        pool.push(numbered(0, 500), np.arange(500.0))
        (run,) = tmp_path.glob("*/*.domains")
        run.unlink()
        with pytest.raises(BoundscopeError, match=f"{run.name}.* cannot be read back"):
            pool.pop(1)


# ------------------------------------------------------------------ nothing is left behind


FILL = """
    import os, sys, signal
    from pathlib import Path
    import numpy as np
    from boundscope.search.pool import Column, DomainPool
    pool = DomainPool({"x": Column(np.float64)}, limit_bytes=1000, folder=Path(sys.argv[1]))
    pool.push({"x": np.arange(5000.0)}, np.arange(5000.0))
    assert list(Path(sys.argv[1]).glob("*/*.domains"))
"""


def run_python(script: str, folder: Path) -> int:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)], check=False
    ).returncode


def test_files_go_with_the_interpreter(tmp_path):
    assert run_python(FILL, tmp_path) == 0
    assert not list(tmp_path.iterdir())


def test_files_of_a_killed_process_go_with_the_next_one_and_those_of_a_living_one_stay(tmp_path):
    assert run_python(FILL + "    os.kill(os.getpid(), signal.SIGKILL)\n", tmp_path) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    pools = [DomainPool({"x": Column(np.float64)}, limit_bytes=1000, folder=tmp_path) for _ in range(2)]
    for pool in pools:
        pool.push({"x": np.arange(5000.0)}, np.arange(5000.0))
    assert not left.exists()
    for pool in pools:
        assert pool.pop(5000)[0]["x"].tolist() == list(range(5000))
        pool.close()
    assert not list(tmp_path.iterdir())


def test_the_folder_is_private(tmp_path):
    with DomainPool(NUMBERED, limit_bytes=1000, folder=tmp_path) as pool:
        assert not list(tmp_path.iterdir())  # nothing before it is needed
        pool.push(numbered(0, 500), np.arange(500.0))
        (folder,) = tmp_path.iterdir()
        assert os.stat(folder).st_mode & 0o777 == 0o700
