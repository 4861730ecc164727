"""`boundscope doctor`: print what `boundscope.doctor` found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import msgspec

from boundscope import capabilities, doctor
from boundscope.client import home_path
from boundscope.doctor import Check

_MARKS = {"ok": "ok", "missing": "MISSING", "note": "note"}


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 where everything that is required is there, 1 otherwise.

    Raises:
        UsageError: a node's name is none.
    """
    capabilities.check_hosts(arguments.nodes)
    home = home_path() if arguments.home is None else arguments.home.absolute()
    checks = []
    for check in _of_nodes(arguments.nodes) if arguments.nodes else doctor.examine(home):
        checks.append(check)
        if not arguments.json:
            print(f"{_MARKS[check.state]:<9}{check.name:<18}{check.found}", flush=True)
            if check.remedy:
                print(f"{'':<9}{'':<18}→ {check.remedy}", flush=True)
    missing = [check.name for check in checks if check.state == "missing"]
    if arguments.json:
        report = {"ready": not missing, "checks": checks}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
    else:
        print(f"\nmissing: {', '.join(missing)}" if missing else "\neverything that is required is there")
    return 1 if missing else 0


def _of_nodes(hosts: tuple[str, ...]) -> Iterator[Check]:
    """Each node of a job, as the job would meet it."""
    from boundscope.worker.node_checks import check_nodes

    for each in check_nodes(hosts):
        yield Check(
            name=each.host, state="ok" if each.ready else "missing", found=each.found, remedy=each.remedy
        )
