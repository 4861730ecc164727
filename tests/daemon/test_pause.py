"""A paused job stands still on all its ranks, for as long as it takes, and nothing takes it for dead meanwhile."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from boundscope.client import Client
from boundscope.errors import DaemonError
from boundscope.protocol import GapPoint, JobState, Progress, StateChanged, Verdict, VerifyResult
from daemon import behaviours
from daemon.serve import ONLY_ASKS
from daemon.support import job, leftovers, wait_for, wait_for_event, wait_until_ended


def paused(client: Client, job_id: str) -> None:
    """Pause a job and wait until it says that it stands."""
    client.pause(job_id)
    assert job(client, job_id).state.held
    wait_for(lambda: job(client, job_id).state is JobState.PAUSED, what="the pause")


def steps(client: Client, job_id: str) -> int:
    return sum(isinstance(record.event, Progress) for record in client.events(job_id))


def standstill(client: Client, job_id: str) -> int:
    """The steps told, once no more come: one told before the pause may be on its way still when a rank stands."""
    told = [steps(client, job_id)]

    def no_more() -> bool:
        time.sleep(0.3)
        told.append(steps(client, job_id))
        return told[-1] == told[-2]

    wait_for(no_more, what="the standstill")
    return told[-1]


def states(client: Client, job_id: str) -> list[JobState]:
    return [r.event.state for r in client.events(job_id) if isinstance(r.event, StateChanged)]


def test_a_job_pauses_is_found_paused_by_another_client_and_goes_on(serve, job_for):
    daemon = serve()
    first = daemon.client()
    info = first.submit(job_for(first, behaviours.PATIENT))
    wait_for_event(first, info.id, Progress)
    wait_for(lambda: job(first, info.id).state is JobState.RUNNING, what="the daemon to know")
    paused(first, info.id)
    first.close()
    client = daemon.client()
    seen = job(client, info.id)
    assert seen.state is JobState.PAUSED
    taken = standstill(client, info.id)
    time.sleep(0.3)
    assert steps(client, info.id) == taken, "nothing is computed in a pause"
    assert seen.run_s(time.time() + 100.0) == seen.run_s(time.time()), "nor does the run's clock go on"
    client.pause(info.id)
    client.go_on(info.id)
    wait_for(lambda: steps(client, info.id) > taken, what="another step")
    resumed = job(client, info.id)
    assert resumed.state is JobState.RUNNING
    assert resumed.paused_since_s is None
    assert resumed.paused_s > 0.5
    client.go_on(info.id)
    client.cancel(info.id)
    assert wait_until_ended(client, info.id).state is JobState.CANCELLED
    assert states(client, info.id) == [
        JobState.QUEUED,
        JobState.STARTING,
        JobState.RUNNING,
        JobState.PAUSING,
        JobState.PAUSED,
        JobState.RUNNING,
        JobState.CANCELLING,
        JobState.CANCELLED,
    ]


@pytest.mark.parametrize("start", ["ranks", "warm"])
def test_ranks_that_wait_for_each_other_pause_together(serve, job_for, start, monkeypatch):
    """One rank may be inside a collective when the other comes to stand: it waits there, and is not lost.

    From a pause too they stop when asked to.
    """
    monkeypatch.setenv(ONLY_ASKS, "1")
    daemon = serve(start)
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.IN_STEP, ranks=2))
    wait_for_event(client, info.id, Progress)
    for _ in range(3):
        paused(client, info.id)
        taken = standstill(client, info.id)
        client.go_on(info.id)
        wait_for(lambda before=taken: steps(client, info.id) > before + 2, what="more steps")
    paused(client, info.id)
    client.cancel(info.id)
    assert wait_until_ended(client, info.id).state is JobState.CANCELLED
    assert len(leftovers(daemon.home)) == 1


def test_the_time_limit_does_not_run_in_a_pause(serve, job_for):
    client = serve("ranks").client()
    limit_s = 3.0
    info = client.submit(replace(job_for(client, behaviours.TO_THE_LIMIT, ranks=2), timeout_s=limit_s))
    wait_for_event(client, info.id, Progress)
    paused(client, info.id)
    taken = standstill(client, info.id)
    time.sleep(limit_s)
    assert job(client, info.id).state is JobState.PAUSED
    client.go_on(info.id)
    ended = wait_until_ended(client, info.id)
    assert steps(client, info.id) > taken, "there was time left"
    assert ended.paused_s > limit_s
    (found,) = [r.event for r in client.events(info.id) if isinstance(r.event, VerifyResult)]
    assert float(found.reason) >= limit_s
    assert ended.run_s(0.0) == pytest.approx(ended.ended_s - ended.started_s - ended.paused_s)


def test_a_job_that_does_not_listen_is_not_ended_in_a_pause_but_after_it(serve, job_for):
    """It stays `pausing`, for it computes; the limit and the grace go on to count when the pause is over."""
    client = serve("impatient").client()
    info = client.submit(replace(job_for(client, behaviours.DEAF), timeout_s=1.5))
    wait_for_event(client, info.id, GapPoint)
    client.pause(info.id)
    time.sleep(2.5)  # longer than the limit and the grace
    assert job(client, info.id).state in (JobState.PAUSING, JobState.PAUSED)
    client.go_on(info.id)
    ended = wait_until_ended(client, info.id)
    assert (ended.state, ended.verdict) == (JobState.FINISHED, Verdict.TIMEOUT)


def test_a_job_can_be_paused_before_its_ranks_meet(serve, job_for):
    """It says a word or two before it hears of the pause, and then stands; none of that counts as time of the run."""
    daemon = serve()
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.COMES_LATE))
    folder = daemon.home / "jobs" / info.id
    wait_for(lambda: job(client, info.id).state is JobState.STARTING and folder.exists(), what="the start")
    client.pause(info.id)
    assert job(client, info.id).state is JobState.PAUSING
    (folder / behaviours.COME).touch()
    wait_for(lambda: job(client, info.id).state is JobState.PAUSED, what="the pause")
    assert job(client, info.id).run_s(time.time()) == 0.0
    taken = standstill(client, info.id)
    client.go_on(info.id)
    wait_for(lambda: steps(client, info.id) > taken, what="more steps")
    client.cancel(info.id)
    wait_until_ended(client, info.id)


def test_kill_9_of_the_daemon_ends_a_paused_job_like_one_that_runs(serve, job_for):
    daemon = serve("ranks")
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.IN_STEP, ranks=2))
    wait_for_event(client, info.id, Progress)
    paused(client, info.id)
    daemon.kill()
    wait_for(lambda: not leftovers(daemon.home), what="the end of the orphans")
    daemon.start()
    found = job(daemon.client(), info.id)
    assert found.state is JobState.INTERRUPTED
    assert found.paused_since_s is None
    assert found.paused_s > 0


def test_only_what_runs_can_be_paused(serve, job_for):
    client = serve().client()
    running = client.submit(job_for(client, behaviours.PATIENT))
    waiting = client.submit(job_for(client, behaviours.QUICK))
    wait_for_event(client, running.id, Progress)
    with pytest.raises(DaemonError, match="is queued; only a job that runs can be paused"):
        client.pause(waiting.id)
    paused(client, running.id)
    assert job(client, waiting.id).state is JobState.QUEUED, "a paused job keeps its place"
    client.cancel(running.id)
    ended = wait_until_ended(client, waiting.id)
    with pytest.raises(DaemonError, match="is finished; only a paused job can be continued"):
        client.go_on(ended.id)
