"""What is told has been committed; what could not be committed is kept and tried again."""

from __future__ import annotations

import sqlite3

import msgspec
import pytest

from boundscope.daemon.store import Store, thinning_key
from boundscope.errors import StoreError
from boundscope.protocol import (
    TELEMETRY,
    Branching,
    EventRecord,
    GapPoint,
    LayerNoise,
    LogLine,
    MemorySample,
    Progress,
    SearchPoint,
)

DECODE = msgspec.msgpack.Decoder(EventRecord).decode


def numbers(found) -> list[int]:
    return [DECODE(record).number for record in found.records]


def gap(value: float) -> GapPoint:
    return GapPoint(elapsed_s=value, case=0, clause=0, lower=value, upper=None)


def noise(layer: str) -> LayerNoise:
    return LayerNoise(
        elapsed_s=0,
        layer=layer,
        op="Conv",
        samples=2,
        elements=1,
        exact=0,
        zero_mean=0,
        nan=0,
        infinite=0,
        without=0,
        mean_bits=20.0,
        least_bits=20.0,
        q05_bits=20.0,
        median_bits=20.0,
        q95_bits=20.0,
    )


def test_numbers_count_from_one_without_holes_for_each_job(tmp_path):
    store = Store(tmp_path / "s")
    assert [store.append("a", 0, 0.0, gap(1)), store.append("b", 0, 0.0, gap(1))] == [1, 1]
    assert store.append("a", 0, 0.0, gap(2)) == 2
    store.flush()
    assert numbers(store.page("a", 0, 10)) == [1, 2]


def test_nothing_is_seen_before_it_is_committed(tmp_path):
    store = Store(tmp_path / "s")
    store.append("a", 0, 0.0, gap(1))
    assert store.committed("a") == 0
    assert numbers(store.page("a", 0, 10)) == []
    assert store.flush() == {"a"}
    assert store.committed("a") == 1


def test_numbers_go_on_after_reopening(tmp_path):
    store = Store(tmp_path / "s")
    store.append("a", 0, 0.0, gap(1))
    store.flush()
    store.close()
    assert Store(tmp_path / "s").append("a", 0, 0.0, gap(2)) == 2


def test_a_full_disk_is_a_sentence_and_loses_nothing(tmp_path):
    store = Store(tmp_path / "s")
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count={pages + 2}")
    for step in range(2000):
        store.append("a", 0, 0.0, LogLine(text=f"line {step} " * 20))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"the disk that holds .* is full"):
            store.flush()
        assert store.committed("a") == 0
    store._database.execute("PRAGMA max_page_count=1000000")
    store.flush()
    assert numbers(store.page("a", 0, 5000)) == list(range(1, 2001))


def test_a_newer_store_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "s") as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="written by a newer Boundscope"):
        Store(tmp_path / "s")


def test_thinning_keeps_all_but_telemetry_and_the_newest_of_each_kind(tmp_path):
    store = Store(tmp_path / "s")
    for step in range(100):
        store.append("a", 0, 0.0, gap(step))
        store.append("a", 1, 0.0, MemorySample(elapsed_s=step, by_category={}, resident_bytes=0))
        if step % 10 == 0:
            store.append("a", 0, 0.0, LogLine(text=str(step)))
    store.flush()
    found = store.thinned("a", 0, 500)
    events = [DECODE(record).event for record in found.records]
    assert [event.text for event in events if isinstance(event, LogLine)] == [
        str(step) for step in range(0, 100, 10)
    ]
    assert [event.elapsed_s for event in events if not isinstance(event, LogLine)] == [99, 99]
    assert found.upto == store.committed("a") == 210


def test_exactly_telemetry_may_be_thinned():
    assert thinning_key(0, LogLine(text="x")) is None
    samples = (
        gap(1.0),
        Progress(stage="", done=0, total=0),
        SearchPoint(elapsed_s=0, branching=Branching.INPUT, done=1, open=1, depth=0, clauses_open=1),
        MemorySample(elapsed_s=0, by_category={}, resident_bytes=0),
        noise("conv1"),
    )
    assert {type(sample) for sample in samples} == set(TELEMETRY)
    assert len({thinning_key(0, sample) for sample in samples}) == 5
    assert (
        thinning_key(0, noise("conv1")) != thinning_key(0, noise("conv2")) != thinning_key(1, noise("conv2"))
    )


def test_events_that_come_together_are_committed_together_and_no_disk_is_waited_for(tmp_path):
    """So that a thousand of them a second leave room; only what a job's state needs to survive waits for the disk."""
    store = Store(tmp_path / "s")
    statements: list[str] = []
    store._database.set_trace_callback(statements.append)
    for step in range(20):
        store.append("a", 0, 0.0, gap(step))
    assert statements == []
    assert store.flush() == {"a"}
    kinds = ["INSERT" if text.startswith("INSERT INTO events") else text for text in statements]
    assert kinds == ["PRAGMA synchronous=NORMAL", "BEGIN IMMEDIATE", *["INSERT"] * 20, "COMMIT"]
