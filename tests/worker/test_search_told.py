"""What a complete search tells while it runs: how it stands, seldom enough to be stored, and how it ended."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from boundscope.monitor import Monitor
from boundscope.protocol import (
    Branching,
    Event,
    EventRecord,
    JobInfo,
    JobState,
    Method,
    Progress,
    PropertyFile,
    SearchPoint,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.records import JobRecord
from boundscope.report.events import events_of
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.complete import TELL_EVERY_S
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify
from support.jobs import ref
from support.wider import DIGITS, wider

SECONDS = 60.0
POINTS = 4  # of a search with several open domains, after which its time is up


@pytest.fixture(scope="module", params=[Branching.INPUT, Branching.ACTIVATION])
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[VerifyJob, list[Event]]:
    """The events of a search that its time limit ends once it has come somewhere; the result is the last of them."""
    prop = wider("digits-robust", "2.5", tmp_path_factory.mktemp("told") / "wide.vnnlib")
    job = VerifyJob(
        network=ref(DIGITS),
        property=PropertyFile(file=ref(prop)),
        method=Method.COMPLETE,
        branching=request.param,
        timeout_s=SECONDS,
    )
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, SearchPoint) and sum(one.open > 1 for one in points(events)) == POINTS:
            monitor.leave_out(-SECONDS)  # the clock leaps to the end

    monitor = Monitor(listen, SECONDS)
    result = run_verify(job, JobFiles(DIGITS, prop), monitor, RankGroup())
    return job, [*events, result]


def points(events: list[Event]) -> list[SearchPoint]:
    return [event for event in events if isinstance(event, SearchPoint)]


def test_the_standing_grows_from_the_whole_box_and_ends_as_the_result_says(
    told: tuple[VerifyJob, list[Event]],
) -> None:
    job, events = told
    result, seen = events[-1], points(events)
    assert isinstance(result, VerifyResult)
    assert result.search is not None, result
    assert len(seen) > 2
    assert (seen[0].done, seen[0].open, seen[0].depth) == (0, 1, 0)
    last, summary = seen[-1], result.search
    assert (last.done, last.open, last.depth) == (summary.domains, summary.open, summary.depth)
    assert last.done > 0
    assert last.open > 0
    for before, after in itertools.pairwise(seen):
        assert before.done <= after.done
        assert before.depth <= after.depth
        assert before.clauses_open >= after.clauses_open
    assert {point.branching for point in seen} == {job.branching}


def test_margins_of_open_clauses_are_those_of_the_result(told: tuple[VerifyJob, list[Event]]) -> None:
    result, last = told[1][-1], points(told[1])[-1]
    assert isinstance(result, VerifyResult)
    left = [each.lower for each in result.margin.per_clause if not each.excluded]
    known = [lower for lower in left if lower is not None]
    assert last.clauses_open == len(left) == len(known) > 0
    assert (last.worst, last.best) == (min(known), max(known))
    excluded = [each.lower for each in result.margin.per_clause if each.excluded]
    assert all(lower is not None and lower >= 0 for lower in excluded)


def test_the_reason_of_a_timeout_says_how_far_the_search_has_come(
    told: tuple[VerifyJob, list[Event]],
) -> None:
    result, seen = told[1][-1], points(told[1])
    assert isinstance(result, VerifyResult)
    assert result.search is not None
    assert result.verdict is Verdict.TIMEOUT, result
    first, last = seen[0].worst, seen[-1].worst
    assert first is not None
    assert last is not None
    assert last > first
    assert result.reason == (
        f"the time limit of {SECONDS:g} s passed before an answer; branch and bound leaves {result.search.open} "
        f"domains open, and raised the least margin from {first:.4g} to {last:.4g}"
    )


def test_at_most_ten_a_second_but_for_the_last(told: tuple[VerifyJob, list[Event]]) -> None:
    times = [point.elapsed_s for point in points(told[1])]
    assert all(b - a >= 0.9 * TELL_EVERY_S for a, b in itertools.pairwise(times[:-1]))


def test_progress_claims_no_share_of_an_end_that_nobody_knows(told: tuple[VerifyJob, list[Event]]) -> None:
    progress = [event for event in told[1] if isinstance(event, Progress) and event.open is not None]
    assert [(p.done, p.open) for p in progress] == [(p.done, p.open) for p in points(told[1])]
    assert {(p.total, p.eta_s) for p in progress} == {(0, None)}


def test_a_record_gives_the_table_back_after_its_way_to_the_process_that_draws(
    told: tuple[VerifyJob, list[Event]],
) -> None:
    job, events = told
    record = JobRecord()
    record.apply_all(EventRecord(i, 0.0, 0, event) for i, event in enumerate(events, start=1))
    info = JobInfo(id="j", kind="verify", title="", state=JobState.FINISHED, job=job, created_s=0.0)
    again = JobRecord()
    sent = msgspec.msgpack.encode(events_of(record, info))
    again.apply_all(msgspec.msgpack.decode(sent, type=tuple[EventRecord, ...]))
    table = record.search_table()
    assert again.search_table() == table
    assert table in record.tables()
    assert len(table.rows) == len(points(events))
    assert all(len(row) == len(table.columns) for row in table.rows)
