"""The base of all messages."""

from __future__ import annotations

import msgspec

PROTOCOL_VERSION = 1
PROTOCOL_OLDEST = 1


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False, gc=False):
    """Base of all messages: immutable, built by keyword.

    An immutable tree of values cannot hold itself, so the garbage collector passes it by: a window that keeps some
    hundred thousand of them does not stand still while it looks through them all.
    """


def to_json(value: Struct, *, indent: int = 2) -> str:
    """JSON text of a message, for reports and `--json`."""
    return msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()
