"""Runs behaviours.py in one process without torch: `python -m light_job FOLDER`."""

import sys
from pathlib import Path
from types import SimpleNamespace

from daemon import behaviours

from boundscope.daemon.jobspec import read_spec
from boundscope.errors import CancelledError
from boundscope.worker import process
from boundscope.worker.observer import Observer

if __name__ == "__main__":
    process.begin()
    spec = read_spec(Path(sys.argv[1]))
    with Observer(spec, 0) as observer:
        try:
            observer.emit(behaviours.run(spec.job, None, observer, SimpleNamespace(rank=0, size=1)))
        except CancelledError:
            pass
    process.end(0)
