"""A rank's events arrive once and in order, whatever is lost on the way, and never hold the rank up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from boundscope.daemon.endpoint import Endpoint, KeyPair
from boundscope.daemon.jobspec import JobSpec, Kind
from boundscope.daemon.run import JobRun
from boundscope.errors import CancelledError
from boundscope.protocol import GapPoint, InspectJob, LogLine
from boundscope.worker import observer as observer_module
from boundscope.worker.observer import Observer
from daemon.support import wait_for


class Ear:
    """The daemon's end, in a thread: an Endpoint and a JobRun. `deaf` drops what arrives; `mute` holds back acks."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = Endpoint()
        keys = KeyPair.new()
        self.endpoint.admit(keys.public, "job")
        self.spec = JobSpec(
            job_id="job",
            job=InspectJob(),
            entry="",
            ranks=1,
            network=None,
            property=None,
            address=self.endpoint.address,
            server_public_key=self.endpoint.keys.public,
            public_key=keys.public,
            secret_key=keys.secret,
        )
        self.heard: list[object] = []
        self.deaf = self.mute = False
        self.run = JobRun(
            self.spec,
            folder,
            Kind("", ""),
            lambda rank, time_s, event: self.heard.append(event),
            self.endpoint.send,
        )
        self._stop = threading.Event()
        self._wishes: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._stop.is_set():
            for message in self.endpoint.receive(0.02):
                if not self.deaf and not message.payload.startswith(b"{"):
                    self.run.hear(message.peer, message.payload)
            if not self.mute:
                self.run.acknowledge()
            while self._wishes:
                self._wishes.popleft()()
        self.endpoint.close()

    def cancel(self) -> None:
        """In the thread that has the socket: two must not use it."""
        self._wishes.append(self.run.cancel)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def ear(tmp_path):
    listener = Ear(tmp_path)
    yield listener
    listener.close()


def lines(events):
    return [event.text for event in events]


def test_everything_arrives_in_order(ear):
    with Observer(ear.spec, 0) as observer:
        for step in range(3000):
            observer.log(str(step))
    assert lines(ear.heard) == [str(step) for step in range(3000)]


def test_what_was_lost_is_sent_again_and_stored_once(ear, monkeypatch):
    monkeypatch.setattr(observer_module, "RESEND_S", 0.2)
    observer = Observer(ear.spec, 0)
    observer.log("first")
    assert observer.flush(10)
    ear.deaf = True
    observer.log("second")
    assert not observer.flush(0.5)
    ear.deaf, ear.mute = False, True
    observer.log("third")
    wait_for(lambda: len(ear.heard) == 3, 10, "the third line")
    assert not observer.flush(0.7), "without acknowledgement nothing counts as delivered"
    ear.mute = False
    assert observer.close(10)
    assert lines(ear.heard) == ["first", "second", "third"]


def test_emit_does_not_wait_for_a_daemon_that_takes_nothing(ear):
    ear.deaf = True
    observer = Observer(ear.spec, 0)
    longest = 0.0
    for step in range(20_000):
        begin = time.perf_counter()
        observer.emit(GapPoint(elapsed_s=float(step), case=0, clause=0, lower=None, upper=None))
        if step % 1000 == 0:
            observer.log(str(step))
        longest = max(longest, time.perf_counter() - begin)
    assert longest < 10.0  # one that waited would never return
    assert len(observer._waiting) <= observer_module.CROWDED + 1
    ear.deaf = False
    assert observer.close(30)
    assert lines(e for e in ear.heard if isinstance(e, LogLine)) == [
        str(step) for step in range(0, 20_000, 1000)
    ]
    assert ear.heard[-1] == LogLine(text="19000") or ear.heard[-1].elapsed_s == 19_999


def test_a_command_to_cancel_reaches_check(ear):
    with Observer(ear.spec, 0) as observer:
        wait_for(lambda: ear.run.joined, 10, "the hello")
        observer.check()
        ear.cancel()

        def cancelled() -> bool:
            try:
                observer.check()
            except CancelledError:
                return True
            return False

        wait_for(cancelled, 10, "the command")


def test_a_rank_that_joins_late_hears_of_the_wish_to_cancel(ear):
    ear.cancel()
    wait_for(lambda: ear.run.cancelling, 10, "the wish")
    with Observer(ear.spec, 0) as observer, pytest.raises(CancelledError):
        wait_for(lambda: observer.check(), 10)
