"""Values as people write and read them, and the line that reproduces a job."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundscope.cli import parser
from boundscope.cli.output import read_size, seconds_text, size_text
from boundscope.cli.verify import read_ranks
from boundscope.command import command_line
from boundscope.errors import UsageError
from boundscope.protocol import (
    Arithmetic,
    Engine,
    EpsilonBall,
    FileRef,
    Method,
    Norm,
    PropertyFile,
    Sharding,
    VerifyJob,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [("1048576", 1 << 20), ("512MiB", 512 << 20), ("2 GiB", 2 << 30), ("1.5k", 1500), ("3gb", 3 * 10**9)],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert read_size(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1MiB", "1 parsec", "1e9", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        read_size(text)


def test_sizes_and_times_are_written() -> None:
    assert [size_text(count) for count in (0, 1023, 1536, 3 << 20)] == ["0 B", "1023 B", "1.5 KiB", "3.0 MiB"]
    assert [seconds_text(s) for s in (0.042, 12.34, 185, 7260)] == [
        "0.042 s",
        "12.3 s",
        "3 min 05 s",
        "2 h 01 min",
    ]


NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    lambda name: not name.startswith("-") and "/" not in name
)
DECIMALS = st.decimals(0, 100, allow_nan=False, allow_infinity=False, places=4).map(str)
FILES = NAMES.map(lambda name: FileRef(name=name, sha256="0" * 64, size_bytes=1))
BALLS = st.builds(
    lambda center, epsilon, label, clip, mean, norm: EpsilonBall(
        center=center,
        epsilon=epsilon,
        label=label,
        lower=f"-{clip}" if clip else None,
        upper=clip,
        mean=mean,
        std=mean,
        norm=norm,
    ),
    FILES,
    DECIMALS,
    st.integers(0, 9),
    st.none() | DECIMALS,
    st.lists(DECIMALS, max_size=3).map(tuple),
    st.sampled_from(Norm),
)
JOBS = st.builds(
    VerifyJob,
    network=FILES,
    property=st.builds(lambda file: PropertyFile(file=file), FILES) | BALLS,
    method=st.sampled_from(Method),
    engine=st.sampled_from(Engine),
    sharding=st.sampled_from(Sharding),
    ranks=st.integers(1, 16),
    arithmetic=st.sampled_from(Arithmetic),
    timeout_s=st.floats(1e-3, 1e9),
    seed=st.integers(0, 2**31),
    chunk_rows=st.none() | st.integers(1, 64).map(lambda chunks: 16 * chunks),
    memory_budget_bytes=st.none() | st.integers(1 << 20, 1 << 40),
    memory_budget_share=st.none() | st.floats(1e-6, 1.0),
    threads_per_rank=st.none() | st.integers(1, 64),
    force_synchronous=st.booleans(),
)


@given(JOBS)
def test_the_command_line_says_the_whole_job(job: VerifyJob) -> None:
    """What `command` says, read again by the parser, is the same job: names with blanks and quotes included."""
    source = job.property
    center = source.center if isinstance(source, EpsilonBall) else source.file
    program, *words = shlex.split(command_line(job, job.network.name, center.name))
    read = parser.build().parse_args(words)
    assert program == "boundscope"
    assert (read.network, read.ball or read.property) == (Path(job.network.name), Path(center.name))
    assert (read.method, read.engine, read.sharding) == (job.method, job.engine, job.sharding)
    assert (read_ranks(read), read.arithmetic, read.seed) == (job.ranks, job.arithmetic, job.seed)
    assert read.timeout == pytest.approx(job.timeout_s, abs=0)
    assert read.chunk_rows == job.chunk_rows
    assert read.threads == job.threads_per_rank
    assert read.force_synchronous == job.force_synchronous
    if job.memory_budget_bytes is None and job.memory_budget_share is not None:
        assert read.memory_budget.share == pytest.approx(job.memory_budget_share, rel=1e-15)
    else:
        assert read.memory_budget.bytes == job.memory_budget_bytes
    if isinstance(source, EpsilonBall):
        assert (read.epsilon, read.norm, read.label) == (source.epsilon, source.norm, source.label)
        assert (read.mean, read.std) == (source.mean, source.std)
        assert tuple(read.clip or (None, None)) == (source.lower, source.upper)
