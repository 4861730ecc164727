"""Who wants to hear what, and how fast each can take it.

A client gets events in batches and acknowledges them; no more than WINDOW records are on their way to it. One
that had caught up and then falls more than WINDOW behind gets its telemetry thinned out (only the newest of each
kind) and the number left out; everything else reaches it in full. A replay from the past is never thinned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from boundscope.daemon.store import Slice, Store
from boundscope.protocol import Struct

BATCH = 500
WINDOW = 1000

Send = Callable[[bytes, bytes], bool | None]
_encode = msgspec.msgpack.Encoder().encode


class _RawBatch(Struct, frozen=True, tag="event_batch"):
    """EventBatch as it goes on the wire, with records that are already encoded."""

    job_id: str
    records: tuple[msgspec.Raw, ...]
    skipped: int = 0


@dataclass
class _Subscription:
    """`sent` and `acknowledged` are numbers of the job; `live` once the client had everything there was."""

    sent: int
    acknowledged: int
    live: bool = False
    on_the_way: list[tuple[int, int]] = field(default_factory=list)  # (last number, records) a batch

    @property
    def credit(self) -> int:
        return WINDOW - sum(count for _, count in self.on_the_way)


class Subscriptions:
    def __init__(self, store: Store, send: Send) -> None:
        self._store = store
        self._send = send
        self._events: dict[bytes, dict[str, _Subscription]] = {}
        self._all_jobs: set[bytes] = set()
        self._unsent_changes: dict[bytes, set[str]] = {}

    def subscribe(self, peer: bytes, job_id: str | None, after: int) -> None:
        if job_id is None:
            self._all_jobs.add(peer)
            return
        self._events.setdefault(peer, {})[job_id] = _Subscription(after, after)

    def unsubscribe(self, peer: bytes, job_id: str) -> None:
        self._events.get(peer, {}).pop(job_id, None)

    def forget_peer(self, peer: bytes) -> None:
        self._events.pop(peer, None)
        self._all_jobs.discard(peer)
        self._unsent_changes.pop(peer, None)

    def forget_job(self, job_id: str) -> None:
        for wanted in self._events.values():
            wanted.pop(job_id, None)

    def acknowledge(self, peer: bytes, job_id: str, number: int) -> None:
        """The client has taken everything up to `number`; send what it has credit for."""
        subscription = self._events.get(peer, {}).get(job_id)
        if subscription is None:
            return
        subscription.on_the_way = [batch for batch in subscription.on_the_way if batch[0] > number]
        self.push(job_id, only=peer)

    def push(self, job_id: str, *, only: bytes | None = None) -> None:
        """Send committed events of a job to those who want them and can take them."""
        for peer in [only] if only is not None else list(self._events):
            subscription = self._events.get(peer, {}).get(job_id)
            if subscription is not None:
                self._push_to(peer, job_id, subscription)

    def _push_to(self, peer: bytes, job_id: str, subscription: _Subscription) -> None:
        while (
            behind := self._store.committed(job_id) - subscription.sent
        ) > 0 and subscription.credit >= BATCH:
            found = self._next(job_id, subscription, behind)
            skipped = found.upto - subscription.sent - len(found.records)
            batch = _RawBatch(job_id=job_id, records=found.records, skipped=skipped)
            sent = self._send(peer, _encode(batch))
            if sent is None:
                self.forget_peer(peer)
            if not sent:
                return
            subscription.sent = found.upto
            subscription.on_the_way.append((found.upto, len(found.records)))
        if behind <= 0:
            subscription.live = True

    def _next(self, job_id: str, subscription: _Subscription, behind: int) -> Slice:
        if subscription.live and behind > WINDOW:
            return self._store.thinned(job_id, subscription.sent, BATCH)
        return self._store.page(job_id, subscription.sent, BATCH)

    # ------------------------------------------------------------ changes of jobs

    def job_changed(self, job_id: str, payload: bytes) -> None:
        """Send an encoded JobChanged to those who follow this job or all jobs; later to whom it cannot be sent now."""
        followers = self._all_jobs | {peer for peer, wanted in self._events.items() if job_id in wanted}
        for peer in followers:
            sent = self._send(peer, payload)
            if sent is None:
                self.forget_peer(peer)
            elif not sent:
                self._unsent_changes.setdefault(peer, set()).add(job_id)

    def retry(self, encode_change: Callable[[str], bytes | None]) -> None:
        """Send again what a full queue had refused, in its newest state."""
        for peer, job_ids in list(self._unsent_changes.items()):
            del self._unsent_changes[peer]
            for job_id in job_ids:
                payload = encode_change(job_id)
                if payload is not None and self._send(peer, payload) is False:
                    self._unsent_changes.setdefault(peer, set()).add(job_id)
        for wanted in list(self._events.values()):
            for job_id in list(wanted):
                self.push(job_id)
