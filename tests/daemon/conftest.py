"""The fixtures of daemon.support."""

from daemon.support import job_for, serve

__all__ = ["job_for", "serve"]
