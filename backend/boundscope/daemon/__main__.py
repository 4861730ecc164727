"""`python -m boundscope.daemon [--home DIR] [--idle-exit S] [--jobs N] [--no-spare]`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from boundscope.client.connection import home_path
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.daemon.server import Daemon
from boundscope.errors import BoundscopeError, DaemonError

NO_SPARE_VARIABLE = "BOUNDSCOPE_NO_SPARE"
EXIT_HELD = 3  # another daemon serves this home


def main(argv: Sequence[str] | None = None, *, kinds: Mapping[str, Kind] = KINDS) -> int:
    """Serve until told to stop. Exit status 0; 1 where it cannot start; EXIT_HELD where another one serves."""
    parser = argparse.ArgumentParser(prog="boundscope daemon", description="Takes jobs and runs them.")
    parser.add_argument(
        "--home",
        type=Path,
        default=None,
        help="the daemon's folder (default: $BOUNDSCOPE_HOME, else the user's state directory)",
    )
    parser.add_argument("--idle-exit", type=float, default=None, metavar="S", help="end after S idle seconds")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="run up to N jobs at once (default 1)"
    )
    parser.add_argument(
        "--no-spare",
        action="store_true",
        default=bool(os.environ.get(NO_SPARE_VARIABLE)),
        help=f"keep no process that stands by for the next job (also ${NO_SPARE_VARIABLE}=1)",
    )
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        daemon = Daemon(
            (options.home or home_path()).expanduser().absolute(),
            idle_exit_s=options.idle_exit,
            jobs_at_once=max(1, options.jobs),
            kinds=kinds,
            spare=not options.no_spare,
        )
        daemon.run()
    except BoundscopeError as error:
        print(f"boundscope daemon: {error}", file=sys.stderr)
        return EXIT_HELD if isinstance(error, DaemonError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
