"""`boundscope daemon`: start, stop, status, run."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import msgspec
import psutil

from boundscope import client
from boundscope.cli.execution import connect
from boundscope.cli.output import complain, seconds_text, size_text
from boundscope.errors import DaemonError
from boundscope.protocol import ConnectionFile, Done, Shutdown

STOP_TIMEOUT_S = 30.0


def run(arguments: argparse.Namespace) -> int:
    home = client.home_path() if arguments.home is None else arguments.home.absolute()
    action = {"start": _start, "stop": _stop, "status": _status, "run": _run}[arguments.action]
    return action(home, arguments)


def _start(home: Path, arguments: argparse.Namespace) -> int:
    connection = client.ensure_local_daemon(home, spare=not arguments.no_spare)
    print(msgspec.json.encode(connection).decode() if arguments.connection else _where(connection, home))
    return 0


def _status(home: Path, arguments: argparse.Namespace) -> int:
    """Exit status 0 where the daemon answers, 1 where none does."""
    if not client.connection_path(home).exists():
        complain(f"no daemon runs for {home}")
        return 1
    connection = client.read_connection_file(client.connection_path(home))
    talker = connect(home, start=False)
    try:
        pong = talker.ping()
        jobs = talker.jobs()
    finally:
        talker.close()
    print(_where(connection, home))
    print(
        f"up for {seconds_text(pong.uptime_s)}, {size_text(pong.resident_bytes)} resident, "
        f"{pong.jobs_running} of {len(jobs)} jobs running"
    )
    return 0


def _stop(home: Path, arguments: argparse.Namespace) -> int:
    if not client.connection_path(home).exists():
        complain(f"no daemon runs for {home}")
        return 0
    connection = client.read_connection_file(client.connection_path(home))
    talker = connect(home, start=False)
    try:
        reply = talker.request(Shutdown(force=arguments.force))
    finally:
        talker.close()
    if not isinstance(reply, Done):
        raise DaemonError(f"the daemon answered {type(reply).__name__} to the request to stop")
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while client.connection_path(home).exists() or _lives(connection.pid):
        if time.monotonic() > deadline:
            raise DaemonError(f"the daemon (pid {connection.pid}) still runs after {STOP_TIMEOUT_S:g} s")
        time.sleep(0.02)
    print(f"stopped (pid {connection.pid})")
    return 0


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _run(home: Path, arguments: argparse.Namespace) -> int:
    """Become the daemon, in this terminal or under a service manager."""
    sys.stdout.flush()
    options = ["--no-spare"] if arguments.no_spare else []
    os.execv(sys.executable, [sys.executable, "-m", "boundscope.daemon", "--home", str(home), *options])


def _where(connection: ConnectionFile, home: Path) -> str:
    return f"daemon {connection.version} at {connection.address}, pid {connection.pid}, home {home}"
