"""`boundscope doctor --nodes`: every machine of a job asked beforehand, over real ssh, with what to do about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boundscope import __version__
from boundscope.worker import node as agent
from boundscope.worker import ssh as ways
from boundscope.worker.node_checks import check_nodes
from daemon.support import environment
from support.netns import Ssh, loopback_ssh, two_namespaces


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes' interpreter: ours, with the sources of this checkout."""
    script = tmp_path / "python"
    lines = [f"export PYTHONPATH={environment(tmp_path)['PYTHONPATH']}"]
    lines += [f"export {agent.CACHE_VARIABLE}={tmp_path}/cache", f'exec {sys.executable} "$@"']
    script.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    script.chmod(0o755)
    monkeypatch.setenv(ways.PYTHON_VARIABLE, str(script))


def doctor(place: Ssh, hosts: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "boundscope", "doctor", "--json", "--nodes", ",".join(hosts)]
    variables = {**os.environ, ways.SHELL_VARIABLE: place.shell}
    return subprocess.run(words, capture_output=True, text=True, timeout=200, env=variables)


@pytest.mark.usefixtures("python")
def test_nodes_that_can_share_a_job_and_one_that_cannot(tmp_path: Path) -> None:
    """Exit status 0 where all can; where one cannot, 1, its cause and remedy, and the others are still told of."""
    with loopback_ssh(tmp_path) as place:
        done = doctor(place, place.hosts)
        report = json.loads(done.stdout)
        assert done.returncode == 0, done.stderr
        assert report["ready"]
        first, second = report["checks"]
        assert (first["name"], second["name"]) == place.hosts
        assert f"Boundscope {__version__}, torch " in first["found"]
        assert ", reaches here-a at " in second["found"]
        (tmp_path / "known_hosts").write_text((tmp_path / "known_hosts").read_text().splitlines()[0] + "\n")
        done = doctor(place, place.hosts)
        first, second = json.loads(done.stdout)["checks"]
        assert done.returncode == 1
        assert (first["state"], second["state"]) == ("ok", "missing")
        assert second["found"] == "its host key is not known here"
        assert "`ssh here-b`" in second["remedy"]


@pytest.mark.usefixtures("python")
def test_two_machines_whose_ports_are_closed_to_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh leads to both, and the ways between them are tried: a route taken away is found."""
    with two_namespaces(tmp_path) as place:
        monkeypatch.setenv(ways.SHELL_VARIABLE, place.shell)
        first, second = check_nodes(place.hosts)
        assert first.ready
        assert second.ready
        assert second.found.endswith(f"reaches node-a at {place.addresses[0]}")
        space = f"bs{os.getpid() % 100000:x}2"
        block = ["ip", "netns", "exec", space, "ip", "route", "add", "blackhole", f"{place.addresses[0]}/32"]
        subprocess.run(block, check=True, capture_output=True, timeout=20)
        first, second = check_nodes(place.hosts)
        assert first.ready
        assert not second.ready
        assert second.found.startswith("cannot reach node-a (its addresses: ")
        assert "ports above 1023" in second.remedy


def test_hosts_that_cannot_be(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "boundscope", "doctor", "--nodes", "a,a"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert "named twice" in done.stderr
