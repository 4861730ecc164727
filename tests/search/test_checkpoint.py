"""A search goes on from its checkpoint with the same bits, or is told why it cannot; a kill never costs more than what
came after the last one."""

from __future__ import annotations

import os
import random
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from boundscope.errors import CheckpointError
from boundscope.protocol import Arithmetic, EpsilonBall, FileRef, Method, PropertyFile, VerifyJob
from boundscope.search import checkpoint as checkpoint_module
from boundscope.search import pool_disk
from boundscope.search.checkpoint import Checkpoint, ClauseState, SearchState, fingerprint
from boundscope.search.pool import Column, DomainPool

JOB = {"network": "a" * 64, "method": "complete", "seed": "0"}
COLUMNS = {"lower": Column(np.float64, (4,)), "splits": Column(np.int32, (0,), grows=True, fill=-1)}
ODD_FLOATS = [
    float("nan"),
    struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf4\x7f")[0],  # a NaN with a payload
    -0.0,
    5e-324,
    float("-inf"),
    0.1,
]


def a_state(folder: Path, *, limit_bytes: int | None = None, domains: int = 100) -> SearchState:
    pool = DomainPool(COLUMNS, limit_bytes=limit_bytes, folder=folder)
    values = np.random.default_rng(3)
    lower = values.standard_normal((domains, 4))
    lower[0] = ODD_FLOATS[:4]
    pool.push(
        {"lower": lower, "splits": values.integers(-1, 9, (domains, 5), np.int32)}, values.random(domains)
    )
    return SearchState(
        clauses=(
            ClauseState(case=0, clause=0, lower=ODD_FLOATS[5], upper=None, proven=True),
            ClauseState(case=3, clause=1, lower=float("-inf"), upper=5e-324),
        ),
        counters={"domains": 2**40, "share": 0.1 + 0.2},
        elapsed_s=1 / 3,
        points={(3, 1): np.array(ODD_FLOATS), (0, 0): np.zeros((2, 0), np.float32)},
        arrays={"slopes/1": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1], "step": np.array(7)},
        pools={"input": pool, "none": DomainPool({}, limit_bytes=None)},
    )


def bits(state: SearchState) -> tuple[object, ...]:
    """Everything in a state; its pools are empty afterwards."""
    return (
        [(one.case, one.clause, _bits(one.lower), _bits(one.upper), one.proven) for one in state.clauses],
        {name: _bits(value) for name, value in state.counters.items()},
        _bits(state.elapsed_s),
        {key: _bits(point) for key, point in state.points.items()},
        {name: _bits(array) for name, array in state.arrays.items()},
        {name: _taken(pool) for name, pool in state.pools.items()},
    )


def _bits(value):
    if isinstance(value, float):
        return struct.pack("<d", value)
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def _taken(pool: DomainPool):
    batch, priority = pool.pop(len(pool))
    return priority.tobytes(), {name: _bits(array) for name, array in batch.items()}


# ------------------------------------------------------------------ there and back


@pytest.mark.parametrize("limit_bytes", [None, 3000], ids=["in memory", "mostly on disk"])
@pytest.mark.parametrize("later_limit_bytes", [None, 2000], ids=["to memory", "mostly to disk"])
def test_everything_comes_back_bit_for_bit(tmp_path, limit_bytes, later_limit_bytes):
    state = a_state(tmp_path / "spill", limit_bytes=limit_bytes)
    assert bool(state.pools["input"].disk_bytes) == (limit_bytes is not None)
    with Checkpoint(tmp_path / "here.checkpoint", JOB) as mine:
        mine.save(state)
    expected = bits(state)
    for pool in state.pools.values():
        pool.close()
    with Checkpoint(tmp_path / "here.checkpoint", JOB) as mine:
        found = mine.load(limit_bytes=later_limit_bytes, folder=tmp_path / "later")
        assert found is not None
        assert bits(found) == expected
        found.pools["input"].close()


def test_there_is_nothing_to_load_before_the_first_save_and_after_the_last_answer(tmp_path):
    with Checkpoint(tmp_path / "c", JOB) as mine:
        assert mine.load() is None
        mine.save(a_state(tmp_path / "spill", limit_bytes=3000))
        assert (tmp_path / "c.domains").is_dir()
        mine.remove()
        assert mine.load() is None
    assert [path.name for path in tmp_path.iterdir()] == ["spill"]


def test_domains_on_disk_are_shared_not_copied_and_go_with_the_checkpoint_that_needs_them(tmp_path):
    state = a_state(tmp_path / "spill", limit_bytes=3000)
    with Checkpoint(tmp_path / "c", JOB) as mine:
        mine.save(state)
        shared = {path.stat().st_ino for path in (tmp_path / "spill").glob("*/*.domains")}
        assert {path.stat().st_ino for path in (tmp_path / "c.domains").iterdir()} == shared
        state.pools["input"].pop(100)
        mine.save(state)
        assert not (tmp_path / "c.domains").exists()


def test_where_files_cannot_be_shared_they_are_copied_whole(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError("the file system has no hard links")

    def killed(source, target):
        Path(target).write_bytes(Path(source).read_bytes()[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", no_links)
    state = a_state(tmp_path / "spill", limit_bytes=3000)
    with Checkpoint(tmp_path / "c", JOB) as mine:
        with monkeypatch.context() as patch:
            patch.setattr(pool_disk.shutil, "copyfile", killed)
            with pytest.raises(KeyboardInterrupt):
                mine.save(state)
        mine.save(state)
        expected = bits(state)
        state.pools["input"].close()
        found = mine.load(folder=tmp_path / "later")
        assert found is not None
        assert bits(found) == expected


# ------------------------------------------------------------------ what cannot be loaded says so


def test_the_checkpoint_of_another_job_is_refused_with_what_differs(tmp_path):
    with Checkpoint(tmp_path / "c", JOB) as mine:
        mine.save(SearchState())
    other = JOB | {"method": "crown", "network": "b" * 64}
    message = (
        r"c is the checkpoint of another job \(network: a{12}… there, b{12}… here; "
        r"method: complete there, crown here\); choose another file"
    )
    with Checkpoint(tmp_path / "c", other) as theirs, pytest.raises(CheckpointError, match=message):
        theirs.load()


@pytest.mark.parametrize(("step", "said"), [(1, "newer .*; update this one"), (-1, "older .*; use that one")])
def test_another_format_is_refused(tmp_path, monkeypatch, step, said):
    """An older one lacks what the search has come to need."""
    version = checkpoint_module.VERSION
    with Checkpoint(tmp_path / "c", JOB) as mine:
        monkeypatch.setattr(checkpoint_module, "VERSION", version + step)
        mine.save(SearchState())
        monkeypatch.undo()
        with pytest.raises(CheckpointError, match=rf"format {version + step}; this one has {version}\)"):
            mine.load()
        with pytest.raises(CheckpointError, match=said):
            mine.load()


@pytest.mark.parametrize(
    "content", [b"", b"# results\n", b"PK\x03\x04" + bytes(100)], ids=["empty", "text", "zip"]
)
def test_another_file_is_neither_read_nor_overwritten(tmp_path, content):
    (tmp_path / "notes.txt").write_bytes(content)
    with (
        Checkpoint(tmp_path / "notes.txt", JOB) as mine,
        pytest.raises(CheckpointError, match=r"notes\.txt is not a checkpoint"),
    ):
        mine.load()
    assert (tmp_path / "notes.txt").read_bytes() == content


def test_a_changed_bit_is_told_or_without_consequence(tmp_path):
    state = a_state(tmp_path / "spill", domains=5)
    with Checkpoint(tmp_path / "c", JOB) as mine:
        mine.save(state)
        whole = (tmp_path / "c").read_bytes()
        expected = bits(state)
        told = []
        values = random.Random(5)
        for place in values.sample(range(len(whole)), 400):
            changed = bytearray(whole)
            changed[place] ^= 1 << values.randrange(8)
            (tmp_path / "c").write_bytes(changed)
            try:
                found = mine.load()
            except CheckpointError as error:
                told.append(str(error))
            else:
                assert found is not None
                assert bits(found) == expected  # a date or an attribute in the zip
        assert len(told) > 200
        assert all(str(tmp_path / "c") in text for text in told)


def test_a_shortened_file_is_told(tmp_path):
    with Checkpoint(tmp_path / "c", JOB) as mine:
        mine.save(a_state(tmp_path / "spill", domains=5))
        whole = (tmp_path / "c").read_bytes()
        for length in range(60, len(whole), 97):
            (tmp_path / "c").write_bytes(whole[:length])
            with pytest.raises(CheckpointError, match=r"c is damaged .*remove it to start afresh"):
                mine.load()


@pytest.mark.parametrize("harm", ["gone", "changed", "shortened"])
def test_harm_to_domains_on_disk_is_told_with_the_name_of_the_file(tmp_path, harm):
    with Checkpoint(tmp_path / "c", JOB) as mine:
        mine.save(a_state(tmp_path / "spill", limit_bytes=3000))
        run = min((tmp_path / "c.domains").iterdir())
        content = bytearray(run.read_bytes())
        run.unlink()
        if harm != "gone":
            content[40] ^= 4
            run.write_bytes(content if harm == "changed" else content[:-8])
        with pytest.raises(CheckpointError, match=f"c is damaged .*{run.name}"):
            mine.load()


# ------------------------------------------------------------------ saving


def test_saving_takes_at_most_a_fiftieth_of_the_time(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(checkpoint_module.time, "monotonic", lambda: now[0])
    with Checkpoint(tmp_path / "c", JOB) as mine:
        assert not mine.due()
        assert mine.due(now[0] + checkpoint_module.LEAST_INTERVAL_S)
        write = mine._write
        costs = [0.001, 0.5, 4.0]

        def slow_write(state, ask):
            needed = write(state, ask)
            now[0] += cost
            return needed

        monkeypatch.setattr(mine, "_write", slow_write)
        for cost in costs:
            mine.save(SearchState())
            interval = max(checkpoint_module.LEAST_INTERVAL_S, 50 * cost)
            assert mine.cost_s == pytest.approx(cost)
            assert not mine.due(now[0] + interval - 0.01)
            assert mine.due(now[0] + interval + 0.01)


def test_a_full_disk_keeps_the_old_one(tmp_path):
    old, new = SearchState(counters={"domains": 1}), SearchState(counters={"domains": 2})
    with Checkpoint(tmp_path / "c", JOB) as mine:
        mine.save(old)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
        try:
            with pytest.raises(CheckpointError, match=r"c cannot be written: .*make room there"):
                mine.save(new)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert not mine.due()
        assert mine.load() == old
        mine.save(new)
        assert mine.load() == new


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with (
        Checkpoint(tmp_path / "no" / "c", JOB) as mine,
        pytest.raises(CheckpointError, match="choose another place"),
    ):
        mine.save(SearchState())


def test_only_one_process_uses_it(tmp_path):
    script = """
        import sys
        from pathlib import Path
        from boundscope.search.checkpoint import Checkpoint
        mine = Checkpoint(Path(sys.argv[1]), {})
        mine.load()
        print("has it", flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "c")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        mine = Checkpoint(tmp_path / "c", {})
        with pytest.raises(CheckpointError, match="another process is using the checkpoint"):
            mine.save(SearchState())
        other.kill()
    mine.save(SearchState())
    mine.close()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


# ------------------------------------------------------------------ a kill at any moment


SEARCH = """
    import sys
    from pathlib import Path
    import numpy as np
    from boundscope.search.checkpoint import Checkpoint, SearchState
    from boundscope.search.pool import Column, DomainPool

    folder = Path(sys.argv[1])
    columns = {"number": Column(np.int64, (6,))}
    with Checkpoint(folder / "c", {}) as mine:
        state = mine.load(limit_bytes=40_000, folder=folder / "spill")
        if state is None:
            state = SearchState(pools={"p": DomainPool(columns, limit_bytes=40_000, folder=folder / "spill")})
        pool = state.pools["p"]
        while True:
            step = int(state.counters.get("step", 0)) + 1
            numbers = np.arange(300 * step, 300 * step + 300)
            pool.push({"number": np.repeat(numbers[:, None], 6, axis=1)}, -numbers.astype(float))
            pool.pop(200)
            state.counters["step"] = step
            state.arrays["step"] = np.full(1000, step)
            mine.save(state)
            print(step, flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_checkpoint_from_which_the_search_goes_on(tmp_path):
    """Each step adds 300 domains and takes the newest 200; the saved pool must be that of the saved step."""
    moments = random.Random(7)
    told = 0
    for _ in range(8):
        command = [sys.executable, "-c", textwrap.dedent(SEARCH), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = max(told, int(process.stdout.readline()))
            # The moment of the kill is what is random here, nothing is waited for.
            time.sleep(moments.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
            told = max([told, *(int(line) for line in process.stdout.read().split("\n")[:-1] if line)])
        assert process.returncode == -signal.SIGKILL
        with Checkpoint(tmp_path / "c", {}) as mine:
            state = mine.load(limit_bytes=40_000, folder=tmp_path / "mine")
        assert state is not None
        step = int(state.counters["step"])
        assert told <= step <= told + 1
        assert state.arrays["step"].tolist() == [step] * 1000
        batch, priority = state.pools["p"].pop(100 * step + 1)
        expected = [300 * one + place for one in range(step, 0, -1) for place in range(99, -1, -1)]
        assert batch["number"][:, 0].tolist() == expected
        assert (-priority).tolist() == expected
        state.pools["p"].close()
    assert told > 8


# ------------------------------------------------------------------ whose it is


def a_job(**changes) -> VerifyJob:
    job = VerifyJob(
        network=FileRef(name="net.onnx", sha256="a" * 64, size_bytes=1),
        property=PropertyFile(file=FileRef(name="p.vnnlib", sha256="b" * 64, size_bytes=1)),
        method=Method.COMPLETE,
    )
    return msgspec.structs.replace(job, **changes)


WEIGHTS = FileRef(name="w.bin", sha256="c" * 64, size_bytes=1)
BALL = EpsilonBall(center=FileRef(name="x.npy", sha256="b" * 64, size_bytes=1), epsilon="0.1", label=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": 2},
        {"timeout_s": 1.0},
        {"threads_per_rank": 3},
        {"memory_budget_bytes": 1 << 30},
        {"chunk_rows": 16},
        {"network": FileRef(name="other name.onnx", sha256="a" * 64, size_bytes=1)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_changes_only_speed_leaves_the_fingerprint(changes):
    assert fingerprint(a_job(**changes)) == fingerprint(a_job())


@pytest.mark.parametrize(
    "changes",
    [
        {"network": FileRef(name="net.onnx", sha256="d" * 64, size_bytes=1)},
        {"network": FileRef(name="net.onnx", sha256="a" * 64, size_bytes=1, companions=(WEIGHTS,))},
        {"property": PropertyFile(file=FileRef(name="p.vnnlib", sha256="d" * 64, size_bytes=1))},
        {"property": BALL},
        {"method": Method.CROWN},
        {"arithmetic": Arithmetic.FLOAT32},
        {"seed": 1},
    ],
    ids=str,
)
def test_what_changes_the_meaning_changes_the_fingerprint(changes):
    assert fingerprint(a_job(**changes)) != fingerprint(a_job())


def test_every_part_of_a_ball_and_every_companion_counts():
    balls = [
        BALL,
        msgspec.structs.replace(BALL, epsilon="0.2"),
        msgspec.structs.replace(BALL, label=1),
        msgspec.structs.replace(BALL, lower="0", upper="1"),
        msgspec.structs.replace(BALL, center=FileRef(name="x.npy", sha256="e" * 64, size_bytes=1)),
    ]
    assert len({str(fingerprint(a_job(property=ball))) for ball in balls}) == len(balls)
    renamed = msgspec.structs.replace(BALL, center=msgspec.structs.replace(BALL.center, name="y.npy"))
    assert fingerprint(a_job(property=renamed)) == fingerprint(a_job(property=BALL))
    others = [WEIGHTS, msgspec.structs.replace(WEIGHTS, sha256="f" * 64)]
    networks = [msgspec.structs.replace(a_job().network, companions=(other,)) for other in others]
    assert len({str(fingerprint(a_job(network=network))) for network in networks}) == 2


def test_numpy_opens_it(tmp_path):
    """So that a checkpoint can be looked into."""
    with Checkpoint(tmp_path / "c", JOB) as mine:
        mine.save(a_state(tmp_path / "spill"))
    assert zipfile.is_zipfile(tmp_path / "c")
    with np.load(tmp_path / "c") as found:
        assert found["array-0"].tolist() == [[2, 1, 0], [5, 4, 3]]
    assert os.stat(tmp_path / "c").st_size < 20_000
