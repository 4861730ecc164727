"""Hello, requests, replies and pushes: what travels between client, daemon and ranks."""

from __future__ import annotations

from typing import Literal

from boundscope.protocol.base import PROTOCOL_OLDEST, PROTOCOL_VERSION, Struct
from boundscope.protocol.events import Event, EventRecord, JobInfo
from boundscope.protocol.jobs import Job

BLOB_CHUNK_BYTES = 1 << 20


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


class Submit(Struct, tag="submit"):
    """`key` makes a repeated submission harmless: the same key gives the same job."""

    job: Job
    key: str
    title: str = ""


class Resume(Struct, tag="resume"):
    """Submit a job that goes on with the search of one that has ended without a final verdict (`JobInfo.resumable`).

    It is that job again, with a time limit of its own: `timeout_s`, or as much as that one had. `key` as in Submit.
    """

    job_id: str
    key: str
    timeout_s: float | None = None


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


class Pause(Struct, tag="pause"):
    """Have a running job stand still, with all that it has in memory; its time limit does not run meanwhile.

    It is `pausing` at once and `paused` once every rank stands. Refused for a job that does not run.
    """

    job_id: str


class Continue(Struct, tag="continue"):
    """End a pause; nothing happens to a job that runs."""

    job_id: str


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
    | Resume
    | ListJobs
    | GetEvents
    | Subscribe
    | Unsubscribe
    | Cancel
    | Pause
    | Continue
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
    """From the daemon to a rank: "cancel", "pause" or "continue"."""

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
    """A rank's sign of life, every second; at once when it has heard a command, or comes to stand in a pause."""

    job_id: str
    rank: int
    pid: int
    host: str
    paused: bool = False  # has heard that it is to pause
    standing: bool = False  # waits inside a pause


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
