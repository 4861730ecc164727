"""`boundscope open`: start the workbench, with files if given."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec

from boundscope.cli import inputs
from boundscope.client import RemoteHost
from boundscope.errors import BoundscopeError, UsageError
from boundscope.examples import example


def run(arguments: argparse.Namespace) -> int:
    """Become the window."""
    network, source = arguments.network, arguments.property
    if arguments.example is not None:
        if network is not None:
            raise UsageError("give --example NAME or files, not both")
        chosen = example(arguments.example)
        network, source = chosen.network, chosen.property
    elif network is not None:
        inputs.check_order(network, source)
        inputs.describe(network, "NET")
        if source is not None:
            inputs.describe(source, "PROPERTY")
    if find_spec("boundscope_app") is None or find_spec("PySide6") is None:
        raise BoundscopeError("the workbench needs PySide6: pip install 'boundscope[app]'")
    words = [str(path.absolute()) for path in (network, source) if path is not None]
    if arguments.run_now:
        words.append("--run")
    environment = dict(os.environ)
    if isinstance(arguments.home, RemoteHost):
        words += ["--host", arguments.home.text]
    elif arguments.home is not None:
        environment["BOUNDSCOPE_HOME"] = str(arguments.home.absolute())
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "boundscope_app", *words], environment)
