"""Gathers the events of a run into a JobRecord, as the daemon's store would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from boundscope.protocol import Event, EventRecord
from boundscope.records import JobRecord

Listener = Callable[[EventRecord], None]


class Recorder:
    """Numbers events in the order in which they come, from any thread, and applies them to `record`."""

    def __init__(self, listener: Listener | None = None) -> None:
        self.record = JobRecord()
        self._listener = listener
        self._lock = threading.Lock()

    def add(self, rank: int, event: Event) -> None:
        """Take one event of a rank of this process tree."""
        with self._lock:
            number = self.record.last_number + 1
            self._apply(EventRecord(number=number, time_s=time.time(), rank=rank, event=event))

    def take(self, record: EventRecord) -> None:
        """Take one record that a daemon has numbered."""
        with self._lock:
            self._apply(record)

    def _apply(self, record: EventRecord) -> None:
        if self.record.apply(record) and self._listener is not None:
            self._listener(record)
