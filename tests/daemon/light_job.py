"""Runs behaviours.py in one process without torch: `python -m daemon.light_job FOLDER`."""

import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from boundscope.daemon.jobspec import read_spec
from boundscope.errors import BoundscopeError, CancelledError
from boundscope.worker import process
from boundscope.worker.observer import Observer
from boundscope.worker.rank import job_files
from daemon import behaviours


def agree(error: BoundscopeError | None) -> None:
    """RankGroup.agree of one rank, without torch."""
    if error is not None:
        raise error


if __name__ == "__main__":
    process.begin()
    spec = read_spec(Path(sys.argv[1]))
    with Observer(spec, 0) as observer, suppress(CancelledError):
        observer.begin(spec.job.timeout_s)
        ranks = SimpleNamespace(rank=0, size=1, agree=agree)
        observer.emit(behaviours.run(spec.job, job_files(spec), observer, ranks))
    process.end(0)
