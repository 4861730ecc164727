"""`python -m worker.fault_launch FOLDER`: a launcher of which rank 1 never joins the others, who wait 2 s for it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from boundscope.worker import launch, rank

WAIT_S = 2.0
_join: Callable[..., None] = rank.join


def join(size: int, **options: object) -> None:
    if rank.os.environ["RANK"] == "1":
        threading.Event().wait()
    _join(size, **options)


rank.join = join
rank.JOIN_S = WAIT_S

if __name__ == "__main__":
    launch.main(Path(sys.argv[1]))
