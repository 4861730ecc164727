"""Jobs end, whatever happens to their ranks or to the daemon, with rank and cause, and leave no process behind."""

from __future__ import annotations

import os
import re
import signal
import time

import psutil
import pytest
from msgspec.structs import replace

from boundscope.client import connection_path
from boundscope.daemon.jobspec import SPEC_NAME
from boundscope.daemon.run import KILL_AFTER_S
from boundscope.protocol import Failure, GapPoint, JobState, LogLine, Progress, Verdict, VerifyResult
from daemon import behaviours
from daemon.serve import ONLY_ASKS
from daemon.support import LIMIT_S, job, leftovers, wait_for, wait_for_event, wait_until_ended

# Ranks that are forks of a launcher started anew, or of the spare process; and ranks started anew, as with GPUs.
every_start = pytest.mark.parametrize("start", ["ranks", "warm", "exec"])
cold_and_warm = pytest.mark.parametrize("start", ["ranks", "warm"])


def rank_pids(client, job_id, count):
    """rank → pid, as behaviours.py logs them."""

    def look():
        texts = [
            r.event.text
            for r in client.events(job_id)
            if isinstance(r.event, LogLine) and " pid " in r.event.text
        ]
        found = {int(text.split()[1]): int(text.split()[3]) for text in texts}
        return found if len(found) == count else None

    return wait_for(look, what=f"{count} ranks")


def failures(client, job_id):
    return [record.event for record in client.events(job_id) if isinstance(record.event, Failure)]


@every_start
def test_two_ranks_meet_and_rank_0_gives_the_result(serve, job_for, start):
    daemon = serve(start)
    client = daemon.client()
    info = wait_until_ended(client, client.submit(job_for(client, behaviours.QUICK, ranks=2)).id)
    assert (info.state, info.cause) == (JobState.FINISHED, "")
    records = client.events(info.id)
    assert [r.event.reason for r in records if isinstance(r.event, VerifyResult)] == ["rank 0"]
    points = [record for record in records if isinstance(record.event, GapPoint)]
    assert {rank: sum(r.rank == rank for r in points) for rank in (0, 1)} == {0: 50, 1: 50}
    assert (daemon.home / "jobs" / info.id / SPEC_NAME).stat().st_mode & 0o077 == 0
    wait_for(lambda: len(leftovers(daemon.home)) == 1, what="the end of the ranks")


@every_start
def test_a_rank_killed_by_sigkill_ends_the_job_with_its_name(serve, job_for, start):
    daemon = serve(start)
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.MEETS, ranks=2))
    pids = rank_pids(client, info.id, 2)
    os.kill(pids[1], signal.SIGKILL)
    ended = wait_until_ended(client, info.id)
    assert ended.state is JobState.FAILED
    assert ended.cause.startswith("rank 1 was killed by SIGKILL")
    assert [(failure.rank, failure.cause) for failure in failures(client, info.id)] == [(1, ended.cause)]
    assert len(leftovers(daemon.home)) == 1, "only the daemon is left"


@cold_and_warm
def test_a_rank_that_raises_ends_the_job_with_its_cause(serve, job_for, start):
    client = serve(start).client()
    ended = wait_until_ended(client, client.submit(job_for(client, behaviours.RAISES, ranks=2)).id)
    assert ended.state is JobState.FAILED
    assert ended.cause == "rank 1 failed: ValueError: this rank has had enough"
    assert [failure.rank for failure in failures(client, ended.id)] == [1]


@pytest.mark.slow
@cold_and_warm
def test_a_stopped_rank_ends_the_job_within_thirty_seconds(serve, job_for, start):
    """Of silence, as the daemon counts them."""
    daemon = serve(start)
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.MEETS, ranks=2))
    pids = rank_pids(client, info.id, 2)
    os.kill(pids[1], signal.SIGSTOP)
    ended = wait_until_ended(client, info.id)
    assert ended.cause.startswith("rank 1 was stopped (SIGSTOP)")
    assert int(re.search(r"for (\d+) s", ended.cause)[1]) < 30
    assert len(leftovers(daemon.home)) == 1


@every_start
def test_a_killed_launcher_takes_its_ranks_along(serve, job_for, start):
    daemon = serve(start)
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.MEETS, ranks=2))
    launcher = psutil.Process(rank_pids(client, info.id, 2)[0]).parent()
    assert launcher.pid != daemon.spare().pid if start == "warm" else launcher.ppid() == daemon.pid
    launcher.kill()
    ended = wait_until_ended(client, info.id)
    assert ended.cause.startswith("the job's launcher was killed by SIGKILL")
    assert len(leftovers(daemon.home)) == 1


@cold_and_warm
def test_cancel_is_heard_by_the_ranks(serve, job_for, start, monkeypatch):
    """Asking is enough for ranks that listen."""
    monkeypatch.setenv(ONLY_ASKS, "1")
    daemon = serve(start)
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.PATIENT, ranks=2))
    wait_for_event(client, info.id, Progress)
    client.cancel(info.id)
    assert job(client, info.id).state is JobState.CANCELLING
    ended = wait_until_ended(client, info.id)
    assert ended.state is JobState.CANCELLED
    assert failures(client, info.id) == []


@pytest.mark.slow
def test_who_does_not_listen_is_killed_after_a_while(serve, job_for):
    client = serve().client()
    info = client.submit(job_for(client, behaviours.STUBBORN))
    wait_for_event(client, info.id, LogLine)
    begin = time.monotonic()
    client.cancel(info.id)
    assert wait_until_ended(client, info.id).state is JobState.CANCELLED
    assert time.monotonic() - begin > KILL_AFTER_S


def test_force_kills_without_asking_for_long(serve, job_for, monkeypatch):
    monkeypatch.setenv(ONLY_ASKS, "1")
    client = serve().client()
    info = client.submit(job_for(client, behaviours.STUBBORN))
    wait_for_event(client, info.id, LogLine)
    client.cancel(info.id, force=True)
    assert wait_until_ended(client, info.id).state is JobState.CANCELLED


def test_a_job_beyond_its_time_limit_is_ended_as_a_timeout(serve, job_for):
    """The ranks never ask whether to go on: the daemon ends them, not before the limit and the grace have passed."""
    client = serve("impatient").client()
    asked = replace(job_for(client, behaviours.DEAF), timeout_s=0.5)
    info = client.submit(asked)
    began_s = wait_for_event(client, info.id, LogLine).time_s
    ended = wait_until_ended(client, info.id)
    assert (ended.state, ended.verdict) == (JobState.FINISHED, Verdict.TIMEOUT)
    assert ended.ended_s - began_s >= 1.0
    (result,) = [r.event for r in client.events(info.id) if isinstance(r.event, VerifyResult)]
    assert "the time limit of 0.5 s passed" in result.reason
    assert result.margin.per_clause[0].lower == 0.25


@cold_and_warm
def test_kill_9_of_the_daemon_loses_nothing(serve, job_for, start):
    daemon = serve(start)
    client = daemon.client()
    done = wait_until_ended(client, client.submit(job_for(client, behaviours.QUICK)).id)
    done_events = client.events(done.id)
    running = client.submit(job_for(client, behaviours.PATIENT, ranks=2))
    waiting = client.submit(job_for(client, behaviours.QUICK))
    rank_pids(client, running.id, 2)
    wait_for_event(client, running.id, Progress)
    streamed = client.events(running.id)
    daemon.kill()
    wait_for(lambda: not leftovers(daemon.home), what="the end of the orphans")

    daemon.start()
    again = daemon.client()
    interrupted = job(again, running.id)
    assert interrupted.state is JobState.INTERRUPTED
    assert "daemon went away" in interrupted.cause
    kept = again.events(running.id)
    assert kept[: len(streamed)] == streamed
    assert [record.number for record in kept] == list(range(1, len(kept) + 1))
    assert again.events(done.id) == done_events
    assert job(again, done.id) == done
    assert job(again, waiting.id).state in (
        JobState.QUEUED,
        JobState.STARTING,
        JobState.RUNNING,
        JobState.FINISHED,
    )
    again.cancel(waiting.id, force=True)


@cold_and_warm
def test_sigterm_to_the_daemon_cancels_and_records(serve, job_for, start):
    daemon = serve(start)
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.PATIENT, ranks=2))
    wait_for_event(client, info.id, Progress)
    daemon.process.terminate()
    assert daemon.process.wait(LIMIT_S) == 0
    assert not connection_path(daemon.home).exists()
    assert leftovers(daemon.home) == []
    daemon.start()
    assert job(daemon.client(), info.id).state is JobState.CANCELLED


def test_a_launcher_that_does_not_start_is_told_with_its_last_line(serve, job_for, monkeypatch):
    daemon = serve("broken")
    client = daemon.client()
    ended = wait_until_ended(client, client.submit(job_for(client, behaviours.QUICK)).id)
    assert ended.state is JobState.FAILED
    assert "No module named no_such_module" in ended.cause
