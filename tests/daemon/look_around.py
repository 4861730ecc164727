"""A job's process that writes down what it finds, and ends with status 7: `python -m daemon.look_around FOLDER`."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from boundscope.worker import process


def main(folder: Path) -> NoReturn:
    process.begin()
    print("looked around")
    found = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "threads": process.thread_count(),
        "imported": "torch" in sys.modules,
        "asked": os.environ.get("ASKED"),
        "files": {name: _target(name) for name in os.listdir("/proc/self/fd")},
    }
    (folder / "found.json").write_text(json.dumps(found))
    if (folder / "wait").exists():
        signal.pause()
    process.end(7)


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""  # that of the listing itself


if __name__ == "__main__":
    main(Path(sys.argv[1]))
