"""Every message, event and job description, as msgspec Structs. Imports neither torch nor Qt.

The wire: client and ranks connect a DEALER to the daemon's ROUTER, with CURVE. The first frame each way is a
`Hello` / `Welcome` in JSON whose shape never changes; all later frames are msgpack of `FromClient`,
`FromWorker` or `FromDaemon`.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

PROTOCOL_VERSION = 1
PROTOCOL_OLDEST = 1
BLOB_CHUNK_BYTES = 1 << 20


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Base of all messages: immutable, built by keyword."""


# ---------------------------------------------------------------- what people choose


class Method(enum.StrEnum):
    IBP = "ibp"
    CROWN_IBP = "crown-ibp"
    CROWN = "crown"
    ALPHA_CROWN = "alpha-crown"
    COMPLETE = "complete"


class Engine(enum.StrEnum):
    NATIVE = "native"
    AUTO_LIRPA = "auto_lirpa"


class Sharding(enum.StrEnum):
    NONE = "none"
    ROWS = "rows"
    FSDP = "fsdp"
    TP = "tp"
    TP_EXACT = "tp-exact"


class Arithmetic(enum.StrEnum):
    """The arithmetic that a verdict speaks of; `label` is how reports write it."""

    REAL = "real"
    FLOAT32 = "float32"

    @property
    def label(self) -> str:
        return "real" if self is Arithmetic.REAL else "float32 (any order)"


class Norm(enum.StrEnum):
    """How far an input lies from a ball's centre: its largest change (linf), the square root of the sum of squared
    changes (l2), the sum of changes (l1), or how many inputs differ (l0)."""

    LINF = "linf"
    L2 = "l2"
    L1 = "l1"
    L0 = "l0"

    @property
    def label(self) -> str:
        return "L∞" if self is Norm.LINF else self.value.upper()


class Precision(enum.StrEnum):
    """Of the engine's own computation; its rounding is counted either way.

    `mixed` bounds hidden layers in float32 and margins in float64.
    """

    MIXED = "mixed"
    FLOAT64 = "float64"


class Verdict(enum.StrEnum):
    VERIFIED = "verified"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    ERROR = "error"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]


EXIT_CODES: dict[str, int] = {
    "verified": 0,
    "error": 1,
    "violated": 10,
    "unknown": 20,
    "timeout": 21,
    "out_of_memory": 22,
}
EXIT_USAGE = 2


class JobState(enum.StrEnum):
    """queued → starting → running → (cancelling) → one of the ended states."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    CANCELLING = "cancelling"
    FINISHED = "finished"  # the job gave a result
    FAILED = "failed"  # the job ended without a result; `JobInfo.cause` says why
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # the daemon went away while the job ran

    @property
    def ended(self) -> bool:
        return self in ENDED_STATES


ENDED_STATES = frozenset({JobState.FINISHED, JobState.FAILED, JobState.CANCELLED, JobState.INTERRUPTED})


# ---------------------------------------------------------------- job descriptions


class FileRef(Struct):
    """A file by content. `name` is what people called it; companions are ONNX external data, by relative name."""

    name: str
    sha256: str
    size_bytes: int
    companions: tuple[FileRef, ...] = ()


class PropertyFile(Struct, tag="file"):
    """A VNN-LIB file, 1.0 or 2.0, plain or gzipped."""

    file: FileRef


class EpsilonBall(Struct, tag="ball"):
    """All inputs within `epsilon` (decimal text) of `center` in the norm, clipped to [lower, upper].

    Violated where some output other than `label` is at least as large as output `label`.
    `center` is a .npy of the input's element count, or a PNG whose pixels are divided by 255, then
    (pixel - mean) / std per channel where these are given. ε and the clip range count before mean and std.
    With l0, `epsilon` is the number of inputs that may take any value of the clip range, which must be given.
    """

    center: FileRef
    epsilon: str
    label: int
    lower: str | None = None
    upper: str | None = None
    mean: tuple[str, ...] = ()
    std: tuple[str, ...] = ()
    norm: Norm = Norm.LINF


PropertySource = PropertyFile | EpsilonBall


class VerifyJob(Struct, tag="verify"):
    """Bound one network under one property and give a verdict."""

    network: FileRef
    property: PropertySource
    method: Method = Method.CROWN
    engine: Engine = Engine.NATIVE
    sharding: Sharding = Sharding.NONE
    ranks: int = 1
    arithmetic: Arithmetic = Arithmetic.REAL
    precision: Precision = Precision.MIXED
    timeout_s: float = 300.0
    seed: int = 0
    chunk_rows: int | None = None  # rows carried backward together, a multiple of 16; None: from the budget
    memory_budget_bytes: int | None = None  # per rank; None: half of what is free at the start
    threads_per_rank: int | None = None  # None: cores // ranks
    cross_check: bool = False  # also run auto_LiRPA on every case and compare


class InspectJob(Struct, tag="inspect"):
    """Read a network and/or a property back, without running anything. Emits the summaries, then ends."""

    network: FileRef | None = None
    property: PropertySource | None = None


Job = VerifyJob | InspectJob


# ---------------------------------------------------------------- summaries


class TensorSummary(Struct):
    name: str
    shape: tuple[int, ...]
    dtype: str


class NodeSummary(Struct):
    """One node of the graph as loaded: ONNX name, operator, tensor names, output shape, parameter count."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: int = 0


class NetworkSummary(Struct, tag="network_summary"):
    name: str
    opset: int
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]
    nodes: tuple[NodeSummary, ...]
    parameters: int
    weight_bytes: int
    unsupported: tuple[str, ...] = ()  # one sentence each: operator and node that have no bound rule


class InputRow(Struct):
    """One row of the input table: bounds as written in the file."""

    variable: str
    lower: str
    upper: str


class ClauseRow(Struct):
    """One row of the clause table: the conjunction that would violate the property, as text."""

    case: int
    clause: int
    text: str


class PropertySummary(Struct, tag="property_summary"):
    """A property read back. `words` are sentences; the tables hold at most the first rows, counts are whole."""

    name: str
    format: str  # "VNN-LIB 1.0", "VNN-LIB 2.0", "ε-ball"
    words: tuple[str, ...]
    input_count: int
    output_count: int
    case_count: int
    clause_count: int
    inputs: tuple[InputRow, ...]
    clauses: tuple[ClauseRow, ...]
    inputs_total: int
    clauses_total: int


# ---------------------------------------------------------------- results


class ClauseMargin(Struct):
    """Margin of one clause of one case: `lower` is proven, `upper` was reached by a concrete input (or None)."""

    case: int
    clause: int
    lower: float | None
    upper: float | None
    text: str = ""


class Margin(Struct):
    smallest: float | None
    per_clause: tuple[ClauseMargin, ...] = ()


class Seconds(Struct):
    load: float
    parse: float
    solve: float


class RankMemory(Struct):
    """Peaks of one rank: of the ledger (by category at the ledger's peak), and of resident memory above idle."""

    rank: int
    ledger_peak_bytes: int
    resident_peak_bytes: int
    by_category: dict[str, int]


class Replay(Struct):
    """What ONNX Runtime says of a counterexample, on the original file, by code apart from the solver's."""

    inside_box: bool
    violates: bool
    violates_unoptimized: bool
    outputs: tuple[float, ...]
    note: str = ""


class Counterexample(Struct):
    """`inputs` are decimal texts inside the box as written; case and clause count from 0."""

    inputs: tuple[str, ...]
    outputs: tuple[float, ...]
    case: int
    clause: int
    clause_text: str
    replay: Replay
    input_shape: tuple[int, ...] = ()


class LayerDifference(Struct):
    """How far two engines' intervals of one hidden tensor lie apart: the largest difference of an end, over all
    elements. `unlike` counts elements whose two intervals have no point in common."""

    case: int
    tensor: str
    elements: int
    difference: float
    unlike: int = 0


class CrossCheck(Struct):
    """What auto_LiRPA says of the same cases by the same method. Differences are no faults, for the engines relax
    hidden layers in their own ways; a sentence in `disagreements` is one: both cannot be right."""

    engine: str
    method: Method
    layers: tuple[LayerDifference, ...]
    margin_difference: (
        float | None
    )  # the largest, over all inequalities; None where nothing could be compared
    same_layers_difference: float | None  # with our intervals of hidden tensors given to it
    disagreements: tuple[str, ...] = ()
    left_out: str = ""  # why something was not compared


class VerifyResult(Struct, tag="verify_result"):
    verdict: Verdict
    reason: str
    arithmetic: str
    margin: Margin
    seconds: Seconds
    peak_bytes: tuple[RankMemory, ...]
    counterexample: Counterexample | None
    versions: dict[str, str]
    command: str
    cross_check: CrossCheck | None = None


# ---------------------------------------------------------------- events


class StateChanged(Struct, tag="state"):
    state: JobState
    reason: str = ""


class LogLine(Struct, tag="log"):
    text: str
    level: str = "info"  # debug, info, warning, error


class Progress(Struct, tag="progress"):
    """`stage` is what people read ("bounds of conv1"); done and total count its units; total 0 = unknown."""

    stage: str
    done: int
    total: int
    eta_s: float | None = None


class GapPoint(Struct, tag="gap"):
    """Margin of one clause at one moment: proven lower bound, least margin seen at a concrete input."""

    elapsed_s: float
    case: int
    clause: int
    lower: float | None
    upper: float | None
    step: str = ""  # method or round that gave it: "ibp", "crown", "attack", …


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
    | MemorySample
    | LayerBounds
    | NetworkSummary
    | PropertySummary
    | VerifyResult
    | Failure
)
TELEMETRY = (Progress, GapPoint, MemorySample)  # may be thinned out for a slow client; all else never


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


# ---------------------------------------------------------------- hello (frozen for ever)


class Hello(Struct):
    boundscope: Literal["hello"] = "hello"
    protocol_min: int = PROTOCOL_OLDEST
    protocol_max: int = PROTOCOL_VERSION
    version: str = ""
    role: str = "client"  # or "worker"


class Welcome(Struct):
    boundscope: Literal["welcome", "refused"] = "welcome"
    protocol: int = PROTOCOL_VERSION
    version: str = ""
    reason: str = ""
    pid: int = 0
    host: str = ""


# ---------------------------------------------------------------- requests and replies


class Submit(Struct, tag="submit"):
    """`key` makes a repeated submission harmless: the same key gives the same job."""

    job: Job
    key: str
    title: str = ""


class ListJobs(Struct, tag="list_jobs"):
    include_inspections: bool = False


class GetEvents(Struct, tag="get_events"):
    job_id: str
    after: int = 0
    limit: int = 2000


class Subscribe(Struct, tag="subscribe"):
    """Push the job's events after number `after`, and every change of a JobInfo, until told otherwise.

    `job_id` None: only the JobInfo changes of all jobs.
    """

    job_id: str | None
    after: int = 0


class Unsubscribe(Struct, tag="unsubscribe"):
    job_id: str


class Cancel(Struct, tag="cancel"):
    """Ask the job to stop; the daemon follows with SIGTERM, then SIGKILL. `force`: SIGKILL at once."""

    job_id: str
    force: bool = False


class DeleteJob(Struct, tag="delete_job"):
    job_id: str


class BlobStat(Struct, tag="blob_stat"):
    sha256: str


class BlobPut(Struct, tag="blob_put"):
    """One piece, in order; `offset` must be what the daemon says it has. The last piece is checked by hash."""

    sha256: str
    offset: int
    total_bytes: int
    data: bytes


class BlobGet(Struct, tag="blob_get"):
    sha256: str
    offset: int = 0
    limit: int = BLOB_CHUNK_BYTES


class Ping(Struct, tag="ping"):
    pass


class Shutdown(Struct, tag="shutdown"):
    """Stop the daemon; refused while jobs run unless `force`."""

    force: bool = False


RequestBody = (
    Submit
    | ListJobs
    | GetEvents
    | Subscribe
    | Unsubscribe
    | Cancel
    | DeleteJob
    | BlobStat
    | BlobPut
    | BlobGet
    | Ping
    | Shutdown
)


class Submitted(Struct, tag="submitted"):
    info: JobInfo


class JobList(Struct, tag="job_list"):
    jobs: tuple[JobInfo, ...]


class EventPage(Struct, tag="event_page"):
    job_id: str
    records: tuple[EventRecord, ...]
    last_number: int  # the newest number that the store holds


class BlobState(Struct, tag="blob_state"):
    sha256: str
    have_bytes: int
    complete: bool


class BlobChunk(Struct, tag="blob_chunk"):
    sha256: str
    offset: int
    total_bytes: int
    data: bytes


class Pong(Struct, tag="pong"):
    resident_bytes: int
    jobs_running: int
    uptime_s: float


class Done(Struct, tag="done"):
    pass


class Refused(Struct, tag="refused"):
    """The request was understood and not carried out; `reason` is a sentence for people."""

    reason: str


ReplyBody = Submitted | JobList | EventPage | BlobState | BlobChunk | Pong | Done | Refused


class Request(Struct, tag="request"):
    id: int
    body: RequestBody


class Ack(Struct, tag="ack"):
    """The client has taken all pushed events of a job up to this number; gives the daemon credit for more."""

    job_id: str
    number: int


FromClient = Request | Ack


class Reply(Struct, tag="reply"):
    id: int
    body: ReplyBody


class EventBatch(Struct, tag="event_batch"):
    """Pushed events in order. `skipped` telemetry was left out for slowness and can be had by GetEvents."""

    job_id: str
    records: tuple[EventRecord, ...]
    skipped: int = 0


class JobChanged(Struct, tag="job_changed"):
    info: JobInfo
    deleted: bool = False


class WorkerCommand(Struct, tag="worker_command"):
    """From the daemon to a rank: "cancel"."""

    command: str


class WorkerAck(Struct, tag="worker_ack"):
    """From the daemon to a rank: every event up to this `sequence` is stored; the rank need not send it again."""

    sequence: int


FromDaemon = Reply | EventBatch | JobChanged | WorkerCommand | WorkerAck


class WorkerEvent(Struct, tag="worker_event"):
    """From a rank: one event; `sequence` counts from 1 per rank so that a repeated send is stored once."""

    job_id: str
    rank: int
    sequence: int
    time_s: float
    event: Event


class WorkerHello(Struct, tag="worker_hello"):
    job_id: str
    rank: int
    pid: int
    host: str


FromWorker = WorkerEvent | WorkerHello


class ConnectionFile(Struct):
    """What a daemon writes (mode 0600) for local clients: where it listens and how to trust it."""

    address: str  # "tcp://127.0.0.1:PORT"
    server_public_key: str  # Z85
    client_public_key: str  # Z85, of the key pair below, which the daemon admits
    client_secret_key: str
    protocol_min: int
    protocol_max: int
    version: str
    pid: int
    host: str


def to_json(value: Struct, *, indent: int = 2) -> str:
    """JSON text of a message, for reports and `--json`."""
    return msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()
