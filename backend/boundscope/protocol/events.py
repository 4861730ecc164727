"""What a running job says, and the record that a job list shows."""

from __future__ import annotations

from boundscope.protocol.base import Struct
from boundscope.protocol.choices import Branching, JobState, Verdict
from boundscope.protocol.instances import InstanceResult, InstancesResult, InstanceStarted
from boundscope.protocol.jobs import Job
from boundscope.protocol.noise import LayerMap, LayerNoise, VariabilityResult
from boundscope.protocol.results import VerifyResult
from boundscope.protocol.summaries import NetworkSummary, PropertySummary


class StateChanged(Struct, tag="state"):
    state: JobState
    reason: str = ""


class LogLine(Struct, tag="log"):
    text: str
    level: str = "info"  # debug, info, warning, error


class Progress(Struct, tag="progress"):
    """`stage` is what people read ("bounds of conv1"); done and total count its units; total 0 = unknown.

    Of a branch and bound, `done` counts domains bounded and `open` those that wait. Each may be split into more, so
    there is no total, and no share of one.
    """

    stage: str
    done: int
    total: int
    eta_s: float | None = None
    open: int | None = None


class GapPoint(Struct, tag="gap"):
    """Margin of one clause at one moment: proven lower bound, least margin seen at a concrete input."""

    elapsed_s: float
    case: int
    clause: int
    lower: float | None
    upper: float | None
    step: str = ""  # method or round that gave it: "ibp", "crown", "attack", …


class SearchPoint(Struct, tag="search"):
    """How branch and bound stood at one moment, over all searches of the run.

    `done` domains were bounded so far and `open` ones waited; `depth` is the number of splits of the deepest one.
    The margins are proven lower bounds of the clauses that were open: the least and the greatest of them, None
    where no clause had one.
    """

    elapsed_s: float
    branching: Branching
    done: int
    open: int
    depth: int
    clauses_open: int
    worst: float | None = None
    best: float | None = None


MEMORY_CATEGORIES = ("weights", "gathered", "rows", "slopes", "workspace", "other")


class MemorySample(Struct, tag="memory"):
    """Bytes held by one rank at one moment, by category of MEMORY_CATEGORIES, beside its resident size."""

    elapsed_s: float
    by_category: dict[str, int]
    resident_bytes: int
    limit_bytes: int | None = None


class LayerBounds(Struct, tag="layer"):
    """Bounds of one tensor over one case's box."""

    case: int
    node: str
    op: str
    size: int
    lower_min: float
    upper_max: float
    width_mean: float
    width_max: float
    unstable: int | None = (
        None  # neurons whose pre-activation straddles a kink; None where that has no meaning
    )
    method: str = ""


class Failure(Struct, tag="failure"):
    """Why a job, or one rank of it, ended without a result. `cause` is one sentence for people."""

    cause: str
    rank: int | None = None
    detail: str = ""


Event = (
    StateChanged
    | LogLine
    | Progress
    | GapPoint
    | SearchPoint
    | MemorySample
    | LayerBounds
    | NetworkSummary
    | PropertySummary
    | VerifyResult
    | LayerNoise
    | LayerMap
    | VariabilityResult
    | InstanceStarted
    | InstanceResult
    | InstancesResult
    | Failure
)
TELEMETRY = (
    Progress,
    GapPoint,
    SearchPoint,
    MemorySample,
    LayerNoise,
)  # may be thinned out for a slow client; all else never


class EventRecord(Struct):
    """An event as the daemon stored it: numbers count from 1 without holes within a job; rank -1 is the daemon."""

    number: int
    time_s: float  # seconds since the epoch
    rank: int
    event: Event


class JobInfo(Struct):
    id: str
    kind: str
    title: str
    state: JobState
    job: Job
    created_s: float
    started_s: float | None = None
    ended_s: float | None = None
    last_number: int = 0
    verdict: Verdict | None = None
    cause: str = ""
    host: str = ""
    progress: Progress | None = None
    paused_s: float = 0.0  # in all pauses that are over
    paused_since_s: float | None = None  # epoch, of the pause that lasts
    resumes: str | None = None  # the job whose search this one goes on with
    resumable: bool = False  # it has ended, and another job can go on with its search

    def run_s(self, now_s: float) -> float | None:
        """Seconds that the job has run, or ran, without its pauses; None before it started. `now_s`: epoch."""
        if self.started_s is None:
            return None
        end_s = now_s if self.ended_s is None else self.ended_s
        if self.paused_since_s is not None:
            end_s = min(end_s, self.paused_since_s)
        return max(0.0, end_s - self.started_s - self.paused_s)
