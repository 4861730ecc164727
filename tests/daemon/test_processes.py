"""Only the processes that were started are ended, all of them, and never one that merely has the same pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from boundscope.daemon.processes import ProcessMark, is_runnable, is_stopped, signal_trees
from boundscope.daemon.store import Store
from daemon.support import LIMIT_S, leftovers, wait_for

TREE = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()', sys.argv[1]], start_new_session=True)"


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def test_a_reused_pid_is_not_killed(sleeper):
    mark = ProcessMark.of(sleeper.pid)
    other = ProcessMark(mark.pid, mark.birth + "0")
    assert signal_trees([other], signal.SIGKILL) == 0
    assert not other.send(signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_marked_process_is_killed(sleeper):
    assert signal_trees([ProcessMark.of(sleeper.pid)], signal.SIGKILL) == 1
    assert sleeper.wait(LIMIT_S) == -signal.SIGKILL


def test_descendants_in_sessions_of_their_own_are_ended_too(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", TREE, str(tmp_path)], stdin=subprocess.PIPE)
    wait_for(lambda: psutil.Process(parent.pid).children(), what="the child")
    child = psutil.Process(parent.pid).children()[0]
    signal_trees([ProcessMark.of(parent.pid)], signal.SIGKILL)
    parent.wait(LIMIT_S)
    parent.stdin.close()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, what="the child's end")


def test_stopped_processes_are_recognised(sleeper):
    sleeper.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(sleeper.pid), what="the stop")
    sleeper.send_signal(signal.SIGCONT)
    wait_for(lambda: not is_stopped(sleeper.pid), what="the continuation")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells")
def test_one_that_computes_is_told_from_one_that_waits_however_little_time_it_gets(sleeper):
    code = "print(flush=True)\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        busy.stdout.readline()
        os.setpriority(os.PRIO_PROCESS, busy.pid, 19)
        wait_for(lambda: not is_runnable(sleeper.pid), what="the end of its start")
        assert all(is_runnable(busy.pid) for _ in range(1000))
    finally:
        busy.kill()
        busy.communicate()
    assert not is_runnable(busy.pid)


def test_at_start_up_the_daemon_ends_what_a_crash_left(serve, sleeper, tmp_path):
    innocent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    home = tmp_path / "crashed"
    home.mkdir(mode=0o700)
    store = Store(home / "store.sqlite3")
    store.remember_process("job", ProcessMark.of(sleeper.pid))
    store.remember_process("job", ProcessMark(innocent.pid, "an earlier process of this pid"))
    store.flush()
    store.close()
    serve(home=home)
    assert sleeper.wait(LIMIT_S) == -signal.SIGKILL
    assert innocent.poll() is None
    innocent.kill()
    innocent.wait()
    innocent.stdin.close()
    assert len(leftovers(home)) == 1
