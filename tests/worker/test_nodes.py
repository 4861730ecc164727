"""Ranks on several machines, over real ssh: the bounds of one machine, and every failure a sentence within 30 s."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from boundscope.capabilities import check
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.errors import CancelledError, RankFailedError, UsageError
from boundscope.protocol import (
    FileRef,
    JobState,
    LogLine,
    Method,
    Progress,
    PropertyFile,
    Sharding,
    VerifyJob,
)
from boundscope.worker import node as agent
from boundscope.worker import ssh as ways
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from daemon import behaviours
from daemon.small_files import write_network, write_property
from daemon.support import environment, wait_until_ended
from support.netns import Ssh, loopback_ssh, two_namespaces

BEHAVIOURS = {**KINDS, "verify": Kind("boundscope.worker.launch", "daemon.behaviours:run")}
# Runs the command where it was asked for: the agents, their wire and their ends, without ssh.
DIRECT = """#!/bin/sh
[ "$1" = gone ] && { echo "ssh: Could not resolve hostname gone: Name or service not known" >&2; exit 255; }
shift
exec sh -c "$1"
"""


def agents() -> list[psutil.Process]:
    """Everything of a node's that runs: agents, their launchers and ranks, of this test's cache."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        ours = ways.AGENT in line or "boundscope-node-" in line
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A job's files; after the test no process of a node is left."""
    before = {process.pid for process in agents()}
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    monkeypatch.setenv(agent.CACHE_VARIABLE, str(tmp_path / "cache"))
    yield JobFiles(write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib"))
    deadline = time.monotonic() + 60
    while (left := [p for p in agents() if p.pid not in before]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


@pytest.fixture
def direct(tmp_path, monkeypatch):
    """Nodes that need no ssh."""
    script = tmp_path / "direct"
    script.write_text(DIRECT)
    script.chmod(0o755)
    monkeypatch.setenv(ways.SHELL_VARIABLE, str(script))
    return ("node-a", "node-b")


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """Chooses the hosts of a job to be reached by real ssh."""

    def choose(place: Ssh) -> tuple[str, ...]:
        monkeypatch.setenv(ways.SHELL_VARIABLE, place.shell)
        python = tmp_path / "python"
        lines = [
            f"export {agent.CACHE_VARIABLE}={tmp_path}/cache-$(cat /sys/class/net/*/address | sha256sum | cut -c1-8)"
        ]
        lines += [f"export PYTHONPATH={os.environ['PYTHONPATH']}", f'exec {sys.executable} "$@"']
        python.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
        python.chmod(0o755)
        monkeypatch.setenv(ways.PYTHON_VARIABLE, str(python))
        return place.hosts

    return choose


def job(hosts: tuple[str, ...], seed: int = 0, **changes: object) -> VerifyJob:
    ref = FileRef(name="x", sha256="0" * 64, size_bytes=1)
    fields: dict[str, object] = {
        "seed": seed,
        "ranks": 2,
        "sharding": Sharding.ROWS,
        "timeout_s": 60.0,
        "nodes": hosts,
        **changes,
    }
    return VerifyJob(network=ref, property=PropertyFile(file=ref), **fields)  # type: ignore[arg-type]


def same_as_here(hosts: tuple[str, ...], files: JobFiles, **changes: object) -> None:
    there = run_local(job(hosts, **changes), files, lambda rank, event: None)
    here = run_local(job((), **changes), files, lambda rank, event: None)
    assert there.verdict is here.verdict
    assert there.margin == here.margin
    assert [each.rank for each in there.peak_bytes] == [each.rank for each in here.peak_bytes]


def failure(hosts: tuple[str, ...], files: JobFiles, **changes: object) -> str:
    """What a job that cannot run says, within 30 s from the first word of a rank, if any speaks."""
    begin_s, heard_s = time.monotonic(), list[float]()
    with pytest.raises(RankFailedError) as caught:
        run_local(
            job(hosts, **changes),
            files,
            lambda rank, event: heard_s.append(time.monotonic()),
            kinds=BEHAVIOURS,
        )
    limit_s = heard_s[0] + 30 if heard_s else begin_s + 90
    assert time.monotonic() < limit_s
    return str(caught.value)


# ---------------------------------------------------------------- real ssh


def test_two_network_namespaces_give_the_bounds_of_one_machine(tmp_path, files, remote):
    with two_namespaces(tmp_path) as place:
        hosts = remote(place)
        for method in (Method.IBP, Method.CROWN):
            same_as_here(hosts, files, method=method)
        assert len(list(tmp_path.glob("cache-*"))) == 2  # each node received the files for itself
        same_as_here(hosts, files, method=Method.CROWN, sharding=Sharding.FSDP, ranks=4)


def test_a_rank_killed_behind_ssh_is_named_with_its_host(tmp_path, files, remote):
    def on_event(rank: int, event: object) -> None:
        if rank == 1 and isinstance(event, LogLine):
            os.kill(int(event.text.split()[-1]), signal.SIGKILL)

    with two_namespaces(tmp_path) as place:
        hosts = remote(place)
        with pytest.raises(RankFailedError, match="rank 1 on node-b was killed by SIGKILL"):
            run_local(job(hosts, behaviours.MEETS), files, on_event, kinds=BEHAVIOURS)


def test_a_killed_ssh_server_connection_is_told(tmp_path, files, remote):
    def on_event(rank: int, event: object) -> None:
        if rank == 1 and isinstance(event, LogLine):
            for process in psutil.process_iter(["cmdline"]):
                line = process.info["cmdline"] or ()
                if "node-b" in line and str(place.folder / "ssh_config") in line:
                    process.kill()

    with two_namespaces(tmp_path) as place:
        hosts = remote(place)
        with pytest.raises(RankFailedError, match="node node-b: the connection ended"):
            run_local(job(hosts, behaviours.MEETS), files, on_event, kinds=BEHAVIOURS)


def test_loopback_ssh_and_its_refusals(tmp_path, files, remote):
    with loopback_ssh(tmp_path) as place:
        hosts = remote(place)
        same_as_here(hosts, files)
        known = (tmp_path / "known_hosts").read_text()
        (tmp_path / "known_hosts").write_text("")
        assert re.search(r"node here-a: its host key is not known.*`ssh here-a`", failure(hosts, files))
        wrong = (tmp_path / "user_key.pub").read_text().split()[1]
        (tmp_path / "known_hosts").write_text(re.sub(r"AAAA\S+", wrong, known))
        assert "its host key is not the one known here" in failure(hosts, files)
        (tmp_path / "known_hosts").write_text(known)
        (tmp_path / "user_key.pub").write_text("")
        assert "refused every key" in failure(hosts, files)
    assert "no ssh server listens there" in failure(hosts, files)


# ---------------------------------------------------------------- without ssh


def test_files_are_sent_once(tmp_path, files, direct):
    same_as_here(direct, files)
    cached = {path: path.stat().st_ino for path in (tmp_path / "cache").glob("??/*")}
    assert len(cached) == 2
    same_as_here(direct, files)
    assert {path: path.stat().st_ino for path in (tmp_path / "cache").glob("??/*")} == cached


def test_a_host_that_nobody_knows(files, direct):
    assert "node gone: nobody knows this name" in failure((direct[0], "gone"), files)


def test_a_node_without_boundscope(files, direct, monkeypatch):
    monkeypatch.setenv(ways.PYTHON_VARIABLE, "/nowhere/python")
    said = failure(direct, files)
    assert "node node-a: Boundscope is not installed there under /nowhere/python" in said
    assert "node node-b" in said


def test_a_node_with_another_version(tmp_path, files, direct, monkeypatch):
    python = tmp_path / "python"
    change = (
        "import boundscope; boundscope.__version__ = '0.0.1'; from boundscope.worker import node; node.main()"
    )
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *-c*) exit 0;; esac\nexec {sys.executable} -P -c "{change}"\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv(ways.PYTHON_VARIABLE, str(python))
    assert "node node-a has Boundscope 0.0.1, this machine" in failure(direct, files)


def test_what_a_login_shell_prints_is_passed_over(tmp_path, files, direct, monkeypatch):
    script = Path(os.environ[ways.SHELL_VARIABLE])
    script.write_text(script.read_text().replace("shift", "echo Welcome to this machine; shift"))
    same_as_here(direct, files)


def test_cancel_reaches_every_node(files, direct):
    cancel = threading.Event()
    heard: set[int] = set()

    def on_event(rank: int, event: object) -> None:
        if isinstance(event, Progress):
            heard.add(rank)
            if heard == {0, 1}:
                cancel.set()

    with pytest.raises(CancelledError):
        run_local(job(direct, behaviours.PATIENT), files, on_event, cancel=cancel, kinds=BEHAVIOURS)


def test_a_rank_that_does_not_listen_is_killed_on_its_node(files, direct):
    cancel = threading.Event()

    def on_event(rank: int, event: object) -> None:
        if isinstance(event, LogLine):
            cancel.set()

    with pytest.raises(CancelledError):
        run_local(job(direct, behaviours.STUBBORN), files, on_event, cancel=cancel, kinds=BEHAVIOURS)


def test_a_stopped_rank_is_named_with_its_node(files, direct):
    stopped_s: list[float] = []

    def on_event(rank: int, event: object) -> None:
        if rank == 1 and isinstance(event, LogLine):
            os.kill(int(event.text.split()[-1]), signal.SIGSTOP)
            stopped_s.append(time.monotonic())

    with pytest.raises(RankFailedError, match=r"rank 1 on node-b was stopped \(SIGSTOP\)"):
        run_local(job(direct, behaviours.MEETS), files, on_event, kinds=BEHAVIOURS)
    assert time.monotonic() - stopped_s[0] < 30


def test_an_exception_on_a_node_is_named_with_its_node(files, direct):
    assert "rank 1 on node-b failed: ValueError" in failure(direct, files, seed=behaviours.RAISES)


def test_a_killed_command_leaves_nothing_on_the_nodes(tmp_path, files, direct):
    """kill -9 of everything here: the end of stdin ends the agents."""
    words = [sys.executable, "-m", "boundscope", "verify", str(files.network), str(files.property)]
    words += ["--nodes", ",".join(direct), "--sharding", "rows", "--timeout", "60"]
    launched: list[psutil.Process] = []
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while len(launched) < 2 and process.poll() is None and time.monotonic() < deadline:
            launched = [one for one in agents() if is_launcher_of(one, tmp_path)]
            time.sleep(0.02)
        process.kill()
    assert len(launched) >= 2  # one on each node; ranks that were forked look alike
    _, left = psutil.wait_procs(launched, timeout=60)
    assert left == []


def is_launcher_of(process: psutil.Process, folder: Path) -> bool:
    """Whether it runs ranks on a node, and has its cache below a folder."""
    with suppress(psutil.Error):
        cache = process.environ().get(agent.CACHE_VARIABLE, "")
        return agent.LAUNCHER in process.cmdline() and cache.startswith(str(folder))
    return False


def agent_in(temporary: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """An agent that waits for what it is told, and its folder below `temporary`."""
    before = set(temporary.glob(f"*/{agent.LOCK_NAME}"))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", ways.AGENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    assert process.stdout.read(1)  # it has begun to speak: the folder is locked, and what was left is swept
    (lock,) = set(temporary.glob(f"*/{agent.LOCK_NAME}")) - before
    return process, lock.parent


def test_what_a_killed_agent_leaves_is_swept_by_the_next_one(tmp_path, files):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    alive, its = agent_in(temporary)
    killed, left = agent_in(temporary)
    (left / "spec.json").write_text("a job's key")
    assert left.stat().st_mode & 0o777 == 0o700
    with killed, alive:
        killed.kill()
        killed.wait()
        assert left.exists()
        later, _ = agent_in(temporary)
        with later:
            assert not left.exists()
            assert its.exists()
            assert later.stdin is not None
            later.stdin.close()
    assert list(temporary.iterdir()) == []


def test_through_the_command_line(tmp_path, files, direct):
    words = [sys.executable, "-m", "boundscope", "verify", str(files.network), str(files.property)]
    words += ["--nodes", ",".join(direct), "--ranks-per-node", "1", "--sharding", "rows", "--json", "-"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=300)
    result = json.loads(told.stdout)
    assert told.returncode == 0, told.stderr
    assert "--sharding rows --ranks 2 --nodes node-a,node-b" in result["command"]


def test_through_the_daemon(serve, job_for, files, direct):
    """A job with nodes is launched by the daemon, on its machine."""
    daemon = serve("ranks")
    client = daemon.client()
    sent = replace(job_for(client, behaviours.QUICK, ranks=2), nodes=direct)
    ended = wait_until_ended(client, client.submit(sent).id)
    assert (ended.state, ended.cause) == (JobState.FINISHED, "")
    texts = [record.event.text for record in client.events(ended.id) if isinstance(record.event, LogLine)]
    assert sum(" pid " in text for text in texts) == 2


# ---------------------------------------------------------------- what is refused beforehand


@pytest.mark.parametrize(
    ("hosts", "ranks", "said"),
    [
        (("-oProxyCommand=x", "b"), 2, "is no host name"),
        (("a", "a"), 2, "named twice"),
        (("a", "b"), 3, "cannot be shared evenly"),
        (("a b",), 1, "is no host name"),
    ],
)
def test_nodes_that_cannot_be(hosts, ranks, said):
    with pytest.raises(UsageError, match=said):
        check(job(hosts, ranks=ranks))
