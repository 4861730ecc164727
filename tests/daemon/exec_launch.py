"""The launcher as on a machine with GPUs, where ranks are no forks: `python -m daemon.exec_launch FOLDER`."""

import sys
from pathlib import Path

from boundscope.worker import forked, launch

if __name__ == "__main__":
    forked.can_fork = lambda: False
    launch.main(Path(sys.argv[1]))
