"""The fixtures of daemon.support."""

from daemon.support import serve

__all__ = ["serve"]
