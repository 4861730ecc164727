"""Runs behaviours.py in one process without torch: `python -m daemon.light_job FOLDER`."""

import importlib
import sys
import time
from contextlib import suppress
from pathlib import Path

from boundscope.daemon.jobspec import read_spec
from boundscope.errors import BoundscopeError, CancelledError
from boundscope.worker import process
from boundscope.worker.observer import Observer
from boundscope.worker.rank import job_files
from daemon import behaviours


class OneRank:
    """What a RankGroup of one rank does, without torch."""

    rank, size = 0, 1

    def agree(self, error: BoundscopeError | None, *, final: bool = False) -> None:
        if error is not None:
            raise error

    def of_rank_0(self, value: object) -> object:
        return value


if __name__ == "__main__":
    process.begin()
    folder = Path(sys.argv[1])
    spec = read_spec(folder)
    if spec.job.seed == behaviours.COUNTS:
        importlib.import_module("daemon.counting")  # not within its time limit
    while spec.job.seed == behaviours.COMES_LATE and not (folder / behaviours.COME).exists():
        time.sleep(0.02)
    with Observer(spec, 0) as observer, suppress(CancelledError):
        observer.begin(spec.job.timeout_s)
        observer.emit(behaviours.run(spec.job, job_files(spec), observer, OneRank()))
    process.end(0)
