"""The frozen first frame of every connection."""

from __future__ import annotations

import os
import socket

import msgspec

from boundscope import __version__
from boundscope.client.connection import versions_meet
from boundscope.protocol import PROTOCOL_OLDEST, PROTOCOL_VERSION, Hello, Welcome

HOST = socket.gethostname()


def answer(payload: bytes) -> tuple[Hello | None, Welcome]:
    """Read a first frame and say what to answer; the Hello is None where the connection is refused."""
    try:
        hello = msgspec.json.decode(payload, type=Hello)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, _refused("the first frame of a connection must be a Boundscope hello in JSON")
    protocol = versions_meet(hello.protocol_min, hello.protocol_max)
    if protocol is None:
        theirs = f"{hello.protocol_min} to {hello.protocol_max}"
        ours = f"{PROTOCOL_OLDEST} to {PROTOCOL_VERSION}"
        older = "the daemon" if hello.protocol_min > PROTOCOL_VERSION else f"the {hello.role}"
        return None, _refused(
            f"the {hello.role} (boundscope {hello.version or 'of unknown version'}) speaks protocol {theirs}, "
            f"the daemon (boundscope {__version__}) speaks {ours}; update {older}"
        )
    return hello, Welcome(protocol=protocol, version=__version__, pid=os.getpid(), host=HOST)


def _refused(reason: str) -> Welcome:
    return Welcome(boundscope="refused", version=__version__, reason=reason, pid=os.getpid(), host=HOST)
