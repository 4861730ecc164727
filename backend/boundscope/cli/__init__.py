"""The command line `boundscope`. Starting it imports neither torch nor Qt; a command imports what it needs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

from boundscope.cli import crash, parser
from boundscope.cli.output import complain
from boundscope.errors import BoundscopeError, CancelledError, UsageError
from boundscope.protocol import EXIT_CODES, EXIT_USAGE
from boundscope.threads import RANK_THREAD

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells say it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status. Foreseeable errors become one sentence on standard error.

    Anything else reaches the hook that `crash.install` sets: one sentence, a crash file, exit status 1. The process
    ends here where a computation that kept no time limit had to be left behind in a thread.
    """
    status = _run(argv)
    if any(thread.name == RANK_THREAD for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _run(argv: Sequence[str] | None) -> int:
    arguments = parser.build().parse_args(argv)
    if not arguments.debug:
        crash.install()
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except UsageError as error:
        complain(f"{error}\nSee `boundscope {arguments.command} --help`.")
        return EXIT_USAGE
    except (CancelledError, KeyboardInterrupt):
        complain("stopped before it gave a result")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except BoundscopeError as error:
        if arguments.debug:
            raise
        complain(str(error))
        return EXIT_CODES["error"]
    return status
