"""What a client may ask, and the answer to each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import psutil

from boundscope.daemon.blobs import BlobStore
from boundscope.daemon.jobs import Jobs
from boundscope.daemon.store import Store
from boundscope.daemon.subscriptions import Subscriptions
from boundscope.errors import BoundscopeError, StoreError, UsageError
from boundscope.protocol import (
    BlobGet,
    BlobPut,
    BlobStat,
    Cancel,
    Continue,
    DeleteJob,
    Done,
    GetEvents,
    JobChanged,
    JobInfo,
    JobList,
    ListJobs,
    Pause,
    Ping,
    Pong,
    Refused,
    ReplyBody,
    RequestBody,
    Resume,
    Shutdown,
    Struct,
    Submit,
    Submitted,
    Subscribe,
    Unsubscribe,
)

PAGE_LIMIT = 10_000


class RawPage(Struct, frozen=True, tag="event_page"):
    """EventPage as it goes on the wire, with records that are already encoded."""

    job_id: str
    records: tuple[msgspec.Raw, ...]
    last_number: int


@dataclass
class Answerer:
    """Carries requests out. `commit` makes what they changed durable before the answer goes out."""

    store: Store
    blobs: BlobStore
    jobs: Jobs
    subscriptions: Subscriptions
    commit: Callable[[], None]
    stop: Callable[[], None]
    changed: Callable[[JobChanged], None]
    started_s: float = field(default_factory=time.monotonic)

    def answer(self, peer: bytes, body: RequestBody) -> ReplyBody | RawPage:
        """The reply; Refused, with the reason, where it cannot be done."""
        try:
            return self._answer(peer, body)
        except BoundscopeError as error:
            return Refused(reason=str(error))
        except OSError as error:
            return Refused(reason=f"the daemon's files cannot be used: {error}")

    def _answer(self, peer: bytes, body: RequestBody) -> ReplyBody | RawPage:
        match body:
            case Submit():
                return self._submitted(self.jobs.submit(body.job, body.key, body.title))
            case Resume():
                return self._submitted(self.jobs.resume(body.job_id, body.key, body.timeout_s))
            case ListJobs():
                return JobList(jobs=self.jobs.listed(include_inspections=body.include_inspections))
            case GetEvents():
                return self._page(body)
            case Subscribe():
                return self._subscribe(peer, body)
            case Unsubscribe():
                self.subscriptions.unsubscribe(peer, body.job_id)
            case Cancel():
                self.jobs.cancel(body.job_id, force=body.force)
                self.commit()
            case Pause():
                self.jobs.pause(body.job_id)
                self.commit()
            case Continue():
                self.jobs.go_on(body.job_id)
                self.commit()
            case DeleteJob():
                self._delete(body.job_id)
            case BlobStat():
                return self.blobs.state(body.sha256)
            case BlobPut():
                return self.blobs.put(body.sha256, body.offset, body.total_bytes, body.data)
            case BlobGet():
                return self.blobs.get(body.sha256, body.offset, body.limit)
            case Ping():
                return self._pong()
            case Shutdown():
                self._shutdown(body)
        return Done()

    def _submitted(self, info: JobInfo) -> Submitted:
        try:
            self.commit()
        except StoreError:
            self.jobs.withdraw(info.id)
            raise
        return Submitted(info=self.jobs.info(info.id))

    def _page(self, body: GetEvents) -> RawPage:
        self.jobs.info(body.job_id)
        found = self.store.page(body.job_id, body.after, max(1, min(body.limit, PAGE_LIMIT)))
        return RawPage(
            job_id=body.job_id, records=found.records, last_number=self.store.committed(body.job_id)
        )

    def _subscribe(self, peer: bytes, body: Subscribe) -> Done:
        if body.job_id is not None:
            self.jobs.info(body.job_id)
        self.subscriptions.subscribe(peer, body.job_id, body.after)
        return Done()

    def _delete(self, job_id: str) -> None:
        info = self.jobs.delete(job_id)
        self.changed(JobChanged(info=info, deleted=True))
        self.subscriptions.forget_job(job_id)

    def _pong(self) -> Pong:
        return Pong(
            resident_bytes=psutil.Process().memory_info().rss,
            jobs_running=len(self.jobs.runs),
            uptime_s=time.monotonic() - self.started_s,
        )

    def _shutdown(self, body: Shutdown) -> None:
        if self.jobs.runs and not body.force:
            count = len(self.jobs.runs)
            raise UsageError(
                f"{count} job{'s' * (count != 1)} still running; cancel first, or force the shutdown"
            )
        self.stop()
