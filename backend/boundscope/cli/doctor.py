"""`boundscope doctor`: print what `boundscope.doctor` found."""

from __future__ import annotations

import argparse
import sys

import msgspec

from boundscope import doctor
from boundscope.client import home_path

_MARKS = {"ok": "ok", "missing": "MISSING", "note": "note"}


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 where everything that is required is there, 1 otherwise."""
    home = home_path() if arguments.home is None else arguments.home.absolute()
    checks = []
    for check in doctor.examine(home):
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
