"""What passes between the window and its network thread: commands one way, reports the other. No Qt."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from boundscope.protocol import NetworkSummary, Progress, PropertySummary
from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.draft import Draft
from boundscope_app.noise_draft import NoiseDraft


class Phase(enum.StrEnum):
    STARTING = "starting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    REFUSED = "refused"
    CLOSED = "closed"


@dataclass(frozen=True)
class LinkState:
    """How the connection stands; `reason` is a sentence for people where it does not stand well."""

    phase: Phase = Phase.STARTING
    host: str = ""
    local: bool = True
    round_trip_s: float | None = None
    reason: str = ""
    attempt: int = 0


@dataclass(frozen=True)
class Run:
    token: int
    draft: Draft | NoiseDraft | BenchmarkDraft


@dataclass(frozen=True)
class Inspect:
    token: int
    draft: Draft


@dataclass(frozen=True)
class Watch:
    """Have a job's events after number `after` delivered, again after every reconnection."""

    job_id: str
    after: int = 0


@dataclass(frozen=True)
class Unwatch:
    job_id: str


@dataclass(frozen=True)
class CancelRun:
    job_id: str
    force: bool = False


@dataclass(frozen=True)
class PauseRun:
    """Pause a run, or with `held` false end its pause."""

    job_id: str
    held: bool = True


@dataclass(frozen=True)
class ResumeRun:
    """Submit a run that goes on with the search of one that has ended."""

    token: int
    job_id: str


@dataclass(frozen=True)
class DeleteRun:
    job_id: str


Command = Run | Inspect | Watch | Unwatch | CancelRun | PauseRun | ResumeRun | DeleteRun


@dataclass(frozen=True)
class Inspection:
    """What the daemon read of a draft: summaries as far as they came, and what was wrong."""

    token: int
    network: NetworkSummary | None = None
    property: PropertySummary | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How far the daemon is with reading a draft back."""

    token: int
    progress: Progress


@dataclass(frozen=True)
class Upload:
    """A file on its way to the daemon; done equals total at the end."""

    name: str
    done_bytes: int
    total_bytes: int
