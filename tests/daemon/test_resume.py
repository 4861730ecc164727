"""A search that was cut short goes on in a new job from where it was, whatever cut it short, and only once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from msgspec.structs import replace

from boundscope.client import Client
from boundscope.errors import DaemonError
from boundscope.protocol import JobInfo, JobState, LogLine, Progress, Verdict, VerifyResult
from daemon import behaviours
from daemon.support import LIMIT_S, environment, job, wait_for, wait_for_event, wait_until_ended


def counted(client: Client, job_id: str) -> int:
    return max((r.event.done for r in client.events(job_id) if isinstance(r.event, Progress)), default=0)


def pid_of_rank_0(client: Client, job_id: str) -> int:
    lines = [r.event.text for r in client.events(job_id) if isinstance(r.event, LogLine)]
    return next(int(line.split()[3]) for line in lines if line.startswith("rank 0 pid"))


def result_of(client: Client, job_id: str) -> VerifyResult:
    return next(r.event for r in client.events(job_id) if isinstance(r.event, VerifyResult))


def check_goes_on(client: Client, old: JobInfo) -> None:
    """Resume a job that has ended: the new one counts on, to the end."""
    assert old.resumable
    reached = counted(client, old.id)
    assert 0 < reached < behaviours.COUNTED
    new = client.resume(old.id)
    assert (new.resumes, new.job, new.title) == (old.id, old.job, old.title)
    ended = wait_until_ended(client, new.id)
    assert (ended.verdict, ended.resumable) == (Verdict.VERIFIED, False)
    assert result_of(client, new.id).reason == f"counted to {behaviours.COUNTED} in 2 runs"
    first = next(r.event.done for r in client.events(new.id) if isinstance(r.event, Progress))
    assert first >= reached, "nothing that was saved is done again"
    assert any(
        "the search goes on from" in r.event.text
        for r in client.events(new.id)
        if isinstance(r.event, LogLine)
    )
    assert not job(client, old.id).resumable
    with pytest.raises(
        DaemonError, match=f"left nothing to go on from: job {new.id} has taken its search over"
    ):
        client.resume(old.id)
    with pytest.raises(DaemonError, match="it has its answer, verified"):
        client.resume(new.id)


def test_a_search_whose_time_was_up_goes_on_with_more_time(serve, job_for):
    daemon = serve()
    client = daemon.client()
    wanted = job_for(client, behaviours.COUNTS)
    old = client.submit(replace(wanted, timeout_s=0.6))
    assert wait_until_ended(client, old.id).verdict is Verdict.TIMEOUT
    reached = counted(client, old.id)
    assert 0 < reached < behaviours.COUNTED
    new = client.resume(old.id, timeout_s=60.0)
    assert new.job == replace(wanted, timeout_s=60.0)
    assert wait_until_ended(client, new.id).verdict is Verdict.VERIFIED
    assert result_of(client, new.id).reason == f"counted to {behaviours.COUNTED} in 2 runs"


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("light", "cancelled"),
        ("light", "killed"),
        pytest.param("warm", "killed", marks=pytest.mark.slow, id="one of two ranks killed"),
    ],
)
def test_a_search_that_was_cut_short_goes_on(serve, job_for, kind, how):
    daemon = serve(kind)
    client = daemon.client()
    old = client.submit(job_for(client, behaviours.COUNTS, ranks=2 if kind == "warm" else 1))
    wait_for(lambda: counted(client, old.id) >= 5, what="the first steps")
    if how == "cancelled":
        client.cancel(old.id)
    else:
        os.kill(pid_of_rank_0(client, old.id), signal.SIGKILL)
    ended = wait_until_ended(client, old.id)
    assert ended.state is (JobState.CANCELLED if how == "cancelled" else JobState.FAILED)
    check_goes_on(client, ended)


def test_a_search_goes_on_after_the_daemon_was_killed(serve, job_for):
    daemon = serve()
    client = daemon.client()
    old = client.submit(job_for(client, behaviours.COUNTS))
    wait_for(lambda: counted(client, old.id) >= 5, what="the first steps")
    daemon.kill()
    daemon.start()
    client = daemon.client()
    ended = wait_until_ended(client, old.id)
    assert ended.state is JobState.INTERRUPTED
    check_goes_on(client, ended)


def test_the_state_stays_with_the_old_job_until_the_new_one_starts(serve, job_for):
    daemon = serve()
    client = daemon.client()
    old = client.submit(replace(job_for(client, behaviours.COUNTS), timeout_s=0.5))
    wait_until_ended(client, old.id)
    blocking = client.submit(job_for(client, behaviours.PATIENT))
    wait_for_event(client, blocking.id, Progress)
    waiting = client.resume(old.id, key="once")
    assert client.resume(old.id, key="once").id == waiting.id, "asked again after a broken connection"
    with pytest.raises(
        DaemonError, match=f"job {waiting.id}, which waits for its turn, goes on with the search"
    ):
        client.resume(old.id)
    with pytest.raises(DaemonError, match="cancel that first"):
        client.delete(old.id)
    client.cancel(waiting.id)
    assert job(client, old.id).resumable
    again = client.resume(old.id, timeout_s=60.0)
    client.cancel(blocking.id)
    assert wait_until_ended(client, again.id).verdict is Verdict.VERIFIED


def test_a_job_without_a_search_has_nothing_to_go_on_from(serve, job_for):
    daemon = serve()
    client = daemon.client()
    quick = wait_until_ended(client, client.submit(job_for(client, behaviours.QUICK)).id)
    assert not quick.resumable
    with pytest.raises(
        DaemonError, match=r"only a complete search \(method complete\) that had begun can go on"
    ):
        client.resume(quick.id)
    patient = client.submit(job_for(client, behaviours.PATIENT))
    wait_for_event(client, patient.id, Progress)
    with pytest.raises(DaemonError, match=r"it is (starting|running)"):
        client.resume(patient.id)
    with pytest.raises(DaemonError, match="there is no job"):
        client.resume("20200101-000000-abcdef")
    with pytest.raises(DaemonError, match="the limit must be more than 0 s"):
        client.resume(_cut_short(client, job_for).id, timeout_s=-1.0)


def _cut_short(client: Client, job_for) -> JobInfo:
    for info in client.jobs():
        client.cancel(info.id)
    info = client.submit(replace(job_for(client, behaviours.COUNTS), timeout_s=0.4))
    return wait_until_ended(client, info.id)


def boundscope(home, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "boundscope", *map(str, words), "--home", str(home)]
    return subprocess.run(
        command, env=environment(home), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


def test_the_command_line_lists_resumes_and_follows(serve, job_for):
    daemon = serve()
    client = daemon.client()
    old = client.submit(replace(job_for(client, behaviours.COUNTS), timeout_s=0.5))
    wait_until_ended(client, old.id)
    assert "(boundscope resume goes on with it)" in boundscope(daemon.home, "jobs").stdout
    done = boundscope(daemon.home, "resume", "last", "--timeout", 60, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reason"] == f"counted to {behaviours.COUNTED} in 2 runs"
    again = boundscope(daemon.home, "resume", old.id)
    assert again.returncode == 1
    assert "has taken its search over" in again.stderr
    assert "resume goes on" not in boundscope(daemon.home, "jobs").stdout
