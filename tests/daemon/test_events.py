"""What a client hears: everything that matters, in order, each once, however slow it is or often it comes back."""

from __future__ import annotations

import time

import pytest

from boundscope.daemon.jobs import INSPECTIONS_KEPT
from boundscope.daemon.subscriptions import BATCH, WINDOW
from boundscope.errors import DaemonError
from boundscope.protocol import (
    Cancel,
    FileRef,
    GapPoint,
    GetEvents,
    InspectJob,
    JobChanged,
    JobState,
    LogLine,
    Method,
    PropertyFile,
    StateChanged,
    Submit,
    Submitted,
    VerifyJob,
    VerifyResult,
)
from daemon import behaviours
from daemon.support import LIMIT_S, batches, job, upload_bytes, wait_for, wait_for_event, wait_until_ended


def listen(client, job_id, *, after=0, timeout_s=LIMIT_S):
    """Subscribe and gather pushed records until the job has ended and everything up to its last number came."""
    client.subscribe(job_id, after)
    records, skipped, last = [], 0, after
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for batch in batches(client.poll(0.2)):
            records += batch.records
            skipped += batch.skipped
            last = records[-1].number
        info = job(client, job_id)
        if info.state.ended and last == info.last_number:
            return records, skipped
    raise AssertionError(f"only {len(records)} records up to {last} came in time")


def test_a_follower_hears_everything_once_and_in_order(serve, job_for):
    client = serve().client()
    info = client.submit(job_for(client, behaviours.QUICK))
    records, skipped = listen(client, info.id)
    assert skipped == 0
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    assert records == client.events(info.id)
    states = [record.event.state for record in records if isinstance(record.event, StateChanged)]
    assert states == [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.FINISHED]
    assert [r.event.elapsed_s for r in records if isinstance(r.event, GapPoint)] == [
        float(n) for n in range(50)
    ]
    assert [type(record.event) for record in records].count(VerifyResult) == 1


def test_replay_from_a_number(serve, job_for):
    daemon = serve()
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.QUICK))
    whole = wait_until_ended(client, info.id).last_number
    returned = daemon.client()
    records, _ = listen(returned, info.id, after=20)
    assert [record.number for record in records] == list(range(21, whole + 1))
    assert returned.events(info.id, after=20) == records
    assert returned.events(info.id, after=whole) == []


def test_a_paused_client_loses_telemetry_only_and_can_fetch_it(serve, job_for):
    daemon = serve()
    client, other = daemon.client(), daemon.client()
    before = client.submit(job_for(client, behaviours.PATIENT))
    info = client.submit(job_for(client, behaviours.FLOOD))
    client.subscribe(info.id)  # it hears all from the beginning, for the job waits for its turn
    client.cancel(before.id, force=True)
    wait_for(lambda: batches(client.poll(0.1)), what="the first batch")
    ended = wait_until_ended(other, info.id)  # meanwhile `client` takes nothing
    records, skipped = [], 0
    first = client.events(info.id)[0].number
    while not records or records[-1].number < ended.last_number:
        for batch in batches(client.poll(5.0)):
            records += batch.records
            skipped += batch.skipped
    assert skipped > behaviours.FLOOD_POINTS / 3
    stored = other.events(info.id)
    assert len(stored) == ended.last_number
    assert [record.number for record in stored] == list(range(first, ended.last_number + 1))
    assert sum(isinstance(record.event, GapPoint) for record in stored) == behaviours.FLOOD_POINTS
    heard = {record.number for record in records}
    begin = records[0].number
    for record in stored:
        if record.number >= begin and not isinstance(record.event, GapPoint):
            assert record.number in heard, f"{record.event} may not be left out"
    assert len(heard) + skipped == ended.last_number - begin + 1
    newest = max(r.number for r in stored if isinstance(r.event, GapPoint))
    assert newest in heard, "the newest of each kind of telemetry must arrive"


def test_a_client_that_takes_nothing_is_sent_no_more_than_its_window(serve, job_for):
    daemon = serve()
    client, other = daemon.client(), daemon.client()
    info = client.submit(job_for(client, behaviours.FLOOD))
    client.subscribe(info.id)
    wait_until_ended(other, info.id)
    other.ping()
    first = batches(client.poll(5.0))
    assert sum(len(batch.records) for batch in first) <= WINDOW
    assert max(len(batch.records) for batch in first) <= BATCH


def test_a_replay_of_a_long_job_is_whole(serve, job_for):
    client = serve().client()
    info = client.submit(job_for(client, behaviours.FLOOD))
    ended = wait_until_ended(client, info.id)
    records, skipped = listen(client, info.id)
    assert skipped == 0
    assert len(records) == ended.last_number > behaviours.FLOOD_POINTS


def test_changes_of_all_jobs_are_pushed(serve, job_for):
    daemon = serve()
    watcher, client = daemon.client(), daemon.client()
    watcher.subscribe(None)
    info = client.submit(job_for(client, behaviours.QUICK), title="my title")
    states: list[JobState] = []

    def ended() -> bool:
        changes = [push for push in watcher.poll(0.2) if isinstance(push, JobChanged)]
        states.extend(change.info.state for change in changes if change.info.id == info.id)
        return JobState.FINISHED in states

    wait_for(ended, what="the change to finished")
    assert job(client, info.id).title == "my title"
    assert job(client, info.id).verdict == "unknown"
    client.delete(info.id)
    wait_for(lambda: any(getattr(push, "deleted", False) for push in watcher.poll(0.2)), what="the deletion")
    assert info.id not in [each.id for each in client.jobs(include_inspections=True)]


def test_submitting_twice_with_one_key_gives_one_job(serve, job_for):
    daemon = serve()
    client = daemon.client()
    submit = Submit(job=job_for(client, behaviours.QUICK), key="the key")
    first = client.ask(submit, Submitted).info
    assert client.ask(submit, Submitted).info.id == first.id
    wait_until_ended(client, first.id)
    daemon.kill()
    daemon.start()
    again = daemon.client()
    assert again.ask(submit, Submitted).info.id == first.id
    assert len(again.jobs()) == 1


def test_what_this_version_cannot_do_is_refused_with_its_reason(serve):
    client = serve().client()
    ref = FileRef(name="x", sha256="0" * 64, size_bytes=1)
    wanted = VerifyJob(network=ref, property=PropertyFile(file=ref), timeout_s=-1.0)
    with pytest.raises(DaemonError, match="--timeout -1: the limit must be more than 0 s"):
        client.submit(wanted)
    with pytest.raises(DaemonError, match="neither a network nor a property"):
        client.submit(InspectJob())
    assert Method.CROWN in Method


@pytest.mark.parametrize("body", [GetEvents(job_id="nothing"), Cancel(job_id="nothing")])
def test_unknown_jobs_are_named(serve, body):
    with pytest.raises(DaemonError, match="there is no job 'nothing'"):
        serve().client().request(body)


def test_a_running_job_cannot_be_deleted(serve, job_for):
    client = serve().client()
    info = client.submit(job_for(client, behaviours.PATIENT))
    wait_for_event(client, info.id, LogLine)
    with pytest.raises(DaemonError, match=r"is (starting|running); cancel it first"):
        client.delete(info.id)


def test_one_job_at_a_time_and_inspections_beside(serve, job_for, tmp_path):
    client = serve().client()
    first = client.submit(job_for(client, behaviours.PATIENT))
    wait_for_event(client, first.id, LogLine)
    second = client.submit(job_for(client, behaviours.QUICK))
    inspection = client.submit(InspectJob(network=upload_bytes(client, tmp_path, "n.onnx", b"none")))
    assert wait_until_ended(client, inspection.id).state is JobState.FAILED
    assert job(client, second.id).state is JobState.QUEUED
    assert [each.id for each in client.jobs()] == [first.id, second.id]
    client.cancel(first.id)
    assert wait_until_ended(client, second.id).state is JobState.FINISHED


def test_a_queued_job_is_cancelled_at_once(serve, job_for):
    client = serve().client()
    first = client.submit(job_for(client, behaviours.PATIENT))
    second = client.submit(job_for(client, behaviours.PATIENT))
    client.cancel(second.id)
    assert job(client, second.id).state is JobState.CANCELLED
    assert not job(client, first.id).state.ended


def test_old_inspections_make_room(serve, tmp_path):
    client = serve().client()
    ref = upload_bytes(client, tmp_path, "n.txt", b"none")
    info = [client.submit(InspectJob(property=PropertyFile(file=ref))) for _ in range(INSPECTIONS_KEPT + 2)]
    for each in reversed(info):
        wait_for(lambda each=each: each.id not in _open(client), what="the end of the inspections")
    kept = client.jobs(include_inspections=True)
    assert [each.id for each in kept] == [each.id for each in info[2:]]


def _open(client) -> set[str]:
    return {each.id for each in client.jobs(include_inspections=True) if not each.state.ended}


def test_who_hears_of_a_jobs_end_finds_all_its_events(serve, job_for):
    """A JobInfo that has ended is not told before the job's last StateChanged can be fetched; it says its number."""
    client = serve("light", "--jobs", "4").client()
    client.subscribe(None)
    asked = job_for(client, behaviours.QUICK)
    waiting = {client.submit(asked).id for _ in range(12)}
    deadline = time.monotonic() + LIMIT_S
    while waiting and time.monotonic() < deadline:
        for push in client.poll(0.5):
            if not isinstance(push, JobChanged) or not push.info.state.ended:
                continue
            last = client.events(push.info.id)[-1]
            assert last.number == push.info.last_number
            assert isinstance(last.event, StateChanged)
            assert last.event.state is push.info.state
            waiting.discard(push.info.id)
    assert not waiting
