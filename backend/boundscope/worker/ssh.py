"""How a command is run on a node: by the system's ssh, with the settings, agents and jumps that people have."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

SHELL_VARIABLE = "BOUNDSCOPE_REMOTE_SHELL"  # a program in the place of ssh, which is given HOST and COMMAND
PYTHON_VARIABLE = "BOUNDSCOPE_REMOTE_PYTHON"  # the interpreter on the nodes, where it is not this one
CONNECT_S = 10
AGENT = "boundscope.worker.node"
_NO_BOUNDSCOPE = 127

# -n would close stdin, by which the agent knows that we live. No terminal, no X, nobody to ask.
_OPTIONS = (
    "-T",
    "-x",
    "-oBatchMode=yes",
    f"-oConnectTimeout={CONNECT_S}",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oClearAllForwardings=yes",
    "-oEscapeChar=none",
)


def agent_command(host: str) -> list[str]:
    """What starts the agent on a host; its stdin and stdout are the wire."""
    shell = shlex.split(os.environ.get(SHELL_VARIABLE, "")) or ["ssh"]
    options = [*_OPTIONS, "--"] if Path(shell[0]).name == "ssh" else []
    return [*shell, *options, host, _remote_line()]


def _remote_line() -> str:
    """For whatever shell the login has: the interpreter as it is here, else one that has Boundscope."""
    chosen = os.environ.get(PYTHON_VARIABLE)
    candidates = " ".join(shlex.quote(each) for each in ([chosen] if chosen else [sys.executable, "python3"]))
    script = (
        f"for p in {candidates}; do "
        f'if "$p" -P -c "import boundscope.worker" 2>/dev/null; then exec "$p" -P -m {AGENT}; fi; done; '
        f"exit {_NO_BOUNDSCOPE}"
    )
    return f"exec sh -c {shlex.quote(script)}"


# What ssh writes, what it means, what to do. The first that fits counts.
_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one known here: if the host was set up anew, run `ssh-keygen -R {host}`, connect once "
        "by hand with `ssh {host}` and compare the fingerprint",
    ),
    (
        r"Host key verification failed|No .* host key is known",
        "its host key is not known here: connect once by hand with `ssh {host}` and compare the fingerprint",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "it refused every key that ssh offered: `ssh-copy-id {host}`, or load the key with `ssh-add`, until "
        "`ssh -o BatchMode=yes {host} true` works",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "nobody knows this name: check its spelling, ~/.ssh/config and the DNS",
    ),
    (
        r"Connection refused",
        "no ssh server listens there: start sshd on it, or give its Port in ~/.ssh/config",
    ),
    (
        r"timed out|No route to host|Network is unreachable|Connection timed out",
        f"it cannot be reached within {CONNECT_S} s: is it switched on, and does a firewall stand between?",
    ),
)


def cause_of_end(host: str, code: int | None, text: str) -> str:
    """Why the agent on `host` ended (or did not begin), from the status and stderr of what started it."""
    for pattern, meaning in _CAUSES:
        if re.search(pattern, text):
            return f"node {host}: {meaning.format(host=host)}"
    last = (text.strip().splitlines() or [""])[-1][:300]
    if code == _NO_BOUNDSCOPE:
        return (
            f"node {host}: Boundscope is not installed there under {_wanted()}: install the same version, or say where "
            f"its interpreter is with {PYTHON_VARIABLE}=/path/to/python"
        )
    said = f": {last}" if last else ""
    return f"node {host}: the connection ended (status {code}){said}; try `ssh -o BatchMode=yes {host} true`"


def _wanted() -> str:
    return os.environ.get(PYTHON_VARIABLE) or f"{sys.executable} or python3"
