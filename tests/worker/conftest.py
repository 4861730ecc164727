"""The fixtures of daemon.support; and patience with ranks that start."""

import pytest

from boundscope.daemon import run
from daemon.support import job_for, serve

__all__ = ["job_for", "serve"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long ranks take to start is the machine's; what must be told within a time is told from their start on."""
    monkeypatch.setattr(run, "JOIN_S", 120.0)
