"""A job forked of the spare process is like one started anew; the spare process itself never stands in the way."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from boundscope.daemon import spare as spare_module
from boundscope.daemon.jobspec import LOG_NAME, Kind, read_report
from boundscope.daemon.processes import ProcessMark
from boundscope.daemon.spare import LOOK_S, Spare
from boundscope.protocol import JobState, LogLine, Progress
from daemon import behaviours
from daemon.support import LIMIT_S, environment, job, processes, wait_for, wait_for_event, wait_until_ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are spare processes on Linux only")

LOOK_AROUND = Kind("daemon.look_around", "", warm=True)


_looks = itertools.count()


def look(spare: Spare) -> bool:
    """Have it look after its process now; whether one stands by."""
    spare.tick(LOOK_S * next(_looks))
    return spare.ready


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Spare]]:
    """`keep()` gives a Spare whose process stands by."""
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    monkeypatch.setattr(spare_module, "code_stamp", lambda: (1, 1))
    monkeypatch.setattr(spare_module, "ANSWER_S", LIMIT_S)
    monkeypatch.setattr(spare_module, "LEAST_AVAILABLE_BYTES", 0)
    kept: list[Spare] = []

    def start(**remember: Callable[[ProcessMark], object]) -> Spare:
        spare = Spare(tmp_path, wanted=True, **remember)
        kept.append(spare)
        wait_for(lambda: look(spare), what="the spare process")
        return spare

    yield start
    for spare in kept:
        spare.close()
    assert processes(tmp_path) == []


def folder_of(tmp_path: Path, name: str = "job") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def found(folder: Path) -> dict[str, object]:
    return json.loads((folder / "found.json").read_text())


def test_a_fork_is_as_if_started_anew_but_for_its_imports(keep, tmp_path):
    """No thread, file or variable of the spare process or of another job; the exit status arrives."""
    spare = keep()
    other = folder_of(tmp_path, "other")
    (other / "wait").touch()
    waiting = spare.launch(LOOK_AROUND, other, {"ASKED": "other"})
    folder = folder_of(tmp_path)
    launched = spare.launch(LOOK_AROUND, folder, {"ASKED": "this"})
    assert launched.wait(LIMIT_S) == 7
    seen = found(folder)
    files = seen.pop("files")
    assert seen == {
        "pid": launched.pid,
        "parent": spare.pid,
        "session": launched.pid,
        "threads": 1,
        "imported": True,
        "asked": "this",
    }
    output = str(folder / LOG_NAME)
    listing = {target for target in files.values() if target in ("", f"/proc/{launched.pid}/fd")}
    assert {name: target for name, target in files.items() if target not in listing} == {
        "0": os.devnull,
        "1": output,
        "2": output,
    }
    assert (folder / LOG_NAME).read_text() == "looked around\n"
    assert waiting.poll() is None
    os.kill(waiting.pid, signal.SIGKILL)
    assert waiting.wait(LIMIT_S) == -signal.SIGKILL


def test_one_that_died_is_replaced_and_nobody_waits_for_it(keep, tmp_path):
    remembered: list[ProcessMark] = []
    spare = keep(remember=remembered.append, forget=remembered.remove)
    first = spare.pid
    assert [mark.pid for mark in remembered] == [first], "a crash of the daemon must not leave it behind"
    os.kill(first, signal.SIGKILL)
    wait_for(
        lambda: not psutil.pid_exists(first) or psutil.Process(first).status() == "zombie", what="its end"
    )
    folder = folder_of(tmp_path)
    launched = spare.launch(LOOK_AROUND, folder, {"ASKED": "this"})
    assert (launched.wait(LIMIT_S), found(folder)["parent"], found(folder)["imported"]) == (
        7,
        os.getpid(),
        False,
    )
    wait_for(lambda: look(spare), what="another one")
    assert spare.pid != first
    assert [mark.pid for mark in remembered] == [spare.pid]


def test_one_that_does_not_answer_is_ended_and_the_job_runs_once(keep, tmp_path, monkeypatch):
    spare = keep()
    monkeypatch.setattr(spare_module, "ANSWER_S", 0.5)
    stopped = spare.pid
    os.kill(stopped, signal.SIGSTOP)
    folder = folder_of(tmp_path)
    launched = spare.launch(LOOK_AROUND, folder, {})
    assert launched.wait(LIMIT_S) == 7
    assert found(folder)["parent"] == os.getpid()
    assert not psutil.pid_exists(stopped)
    assert (folder / LOG_NAME).read_text() == "looked around\n"


def test_one_of_older_code_takes_no_job_but_finishes_those_that_it_has(keep, tmp_path, monkeypatch):
    spare = keep()
    old = psutil.Process(spare.pid)
    first = folder_of(tmp_path, "first")
    (first / "wait").touch()
    running = spare.launch(LOOK_AROUND, first, {})
    wait_for((first / "found.json").exists, what="the first job")
    monkeypatch.setattr(spare_module, "code_stamp", lambda: (0, 0))
    second = folder_of(tmp_path, "second")
    assert spare.launch(LOOK_AROUND, second, {}).wait(LIMIT_S) == 7
    assert found(second)["parent"] == os.getpid()
    assert running.poll() is None
    os.kill(running.pid, signal.SIGTERM)
    assert running.wait(LIMIT_S) == -signal.SIGTERM
    wait_for(lambda: not old.is_running() or old.status() == psutil.STATUS_ZOMBIE, what="the old one's end")


def test_none_is_kept_where_memory_is_short(keep, monkeypatch):
    spare = keep()
    monkeypatch.setattr(spare_module, "LEAST_AVAILABLE_BYTES", 1 << 60)
    process = psutil.Process(spare.pid)
    look(spare)
    assert spare.pid is None
    wait_for(lambda: process.status() == psutil.STATUS_ZOMBIE, what="its end")
    look(spare)
    assert spare.pid is None
    assert not process.is_running(), "it was reaped"


def test_none_is_kept_where_none_is_wanted(serve):
    daemon = serve("warm", "--no-spare")
    daemon.client().ping()
    assert daemon.spare() is None


def test_jobs_are_forks_of_one_spare_process_and_have_their_threads(serve, job_for):
    daemon = serve("warm")
    client = daemon.client()
    spare = daemon.spare()
    for threads in (1, 2):
        asked = replace(job_for(client, behaviours.SAYS_THREADS, ranks=2), threads_per_rank=threads)
        ended = wait_until_ended(client, client.submit(asked).id)
        assert (ended.state, ended.cause) == (JobState.FINISHED, "")
        lines = {r.event.text for r in client.events(ended.id) if isinstance(r.event, LogLine)}
        assert f"{threads} threads, imported by {spare.pid}" in lines
        assert read_report(daemon.home / "jobs" / ended.id).cpu_s > 0.0
    assert daemon.spare() == spare


def test_two_jobs_at_once_do_not_touch_each_other(serve, job_for):
    daemon = serve("warm", "--jobs", "2")
    client = daemon.client()
    first, second = (client.submit(job_for(client, behaviours.PATIENT)).id for _ in range(2))
    for each in (first, second):
        wait_for_event(client, each, Progress)
    assert len(daemon.spare().children()) == 2
    line = next(r.event.text for r in client.events(first) if isinstance(r.event, LogLine))
    os.kill(int(line.split()[-1]), signal.SIGKILL)
    assert wait_until_ended(client, first).cause.startswith("rank 0 was killed by SIGKILL")
    assert job(client, second).state is JobState.RUNNING
    client.cancel(second)
    assert wait_until_ended(client, second).state is JobState.CANCELLED
    wait_for(lambda: not daemon.spare().children(), what="the end of both")


def test_a_killed_spare_process_takes_its_jobs_along_and_they_say_so(serve, job_for):
    daemon = serve("warm")
    client = daemon.client()
    info = client.submit(job_for(client, behaviours.PATIENT, ranks=2))
    wait_for_event(client, info.id, Progress)
    daemon.spare().kill()
    ended = wait_until_ended(client, info.id)
    assert ended.state is JobState.FAILED
    assert ended.cause.startswith("the job's launcher was killed by SIGKILL")
    again = client.submit(job_for(client, behaviours.QUICK))
    assert wait_until_ended(client, again.id).state is JobState.FINISHED


def test_the_spare_process_dies_with_its_daemon(serve):
    daemon = serve("warm")
    daemon.kill()
    wait_for(lambda: not processes(daemon.home), what="the end of the spare process")
