"""Runs behaviours.py in one process without torch: `python -m daemon.light_job FOLDER`."""

import sys
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
    spec = read_spec(Path(sys.argv[1]))
    with Observer(spec, 0) as observer, suppress(CancelledError):
        observer.begin(spec.job.timeout_s)
        observer.emit(behaviours.run(spec.job, job_files(spec), observer, OneRank()))
    process.end(0)
