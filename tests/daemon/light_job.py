"""Runs behaviours.py in one process without torch: `python -m daemon.light_job FOLDER`."""

import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from boundscope.daemon.jobspec import read_spec
from boundscope.errors import CancelledError
from boundscope.worker import process
from boundscope.worker.observer import Observer
from daemon import behaviours

if __name__ == "__main__":
    process.begin()
    spec = read_spec(Path(sys.argv[1]))
    with Observer(spec, 0) as observer, suppress(CancelledError):
        observer.emit(behaviours.run(spec.job, None, observer, SimpleNamespace(rank=0, size=1)))
    process.end(0)
