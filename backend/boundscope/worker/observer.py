"""The one way out of a rank: a Monitor whose events reach the daemon, in order, each once, without holding it up."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import zmq
from msgspec.structs import replace

from boundscope import __version__
from boundscope.daemon.jobspec import JobSpec
from boundscope.daemon.store import thinning_key
from boundscope.monitor import Monitor
from boundscope.protocol import (
    Event,
    Failure,
    FromDaemon,
    Hello,
    InstanceResult,
    LogLine,
    VariabilityResult,
    VerifyResult,
    Welcome,
    WorkerAck,
    WorkerCommand,
    WorkerEvent,
    WorkerHello,
)

HELLO_S = 1.0  # how often a rank shows that it lives
RESEND_S = 3.0  # unacknowledged for so long, events are sent again
WINDOW = 1000  # events on their way
CROWDED = 5000  # waiting events above which telemetry is thinned out
DELIVERY_S = 60.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FromDaemon).decode


class Observer(Monitor):
    """Events are queued by `emit` and sent by a thread; commands to cancel, pause and continue reach `check`.

    Sequence numbers are given when an event is first sent, so that telemetry may be thinned while it waits.
    """

    def __init__(self, spec: JobSpec, rank: int) -> None:
        super().__init__()
        self._spec = spec
        self._rank = rank
        given = (spec.network, spec.property, *spec.inputs, *spec.networks, *spec.properties)
        self._paths = sorted({path for path in given if path}, key=len, reverse=True)
        self._waiting: deque[tuple[float, Event]] = deque()
        self._sent: deque[tuple[int, bytes]] = deque()
        self._sequence = 0
        self._progress_s = time.monotonic()
        self._lock = threading.Lock()
        self._delivered = threading.Condition(self._lock)
        self._closing = False
        self._hello_due_s = time.monotonic() + HELLO_S  # after the first
        self.refusal: str | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ for the computation

    def emit(self, event: Event) -> None:
        """Queue an event; never waits for the network."""
        event = self._with_given_names(self.timed(event))
        with self._lock:
            self._waiting.append((time.time(), event))
            if len(self._waiting) > CROWDED:
                self._thin()
        self._wake()

    def _with_given_names(self, event: Event) -> Event:
        """Files are called what people called them, not by where the daemon put them."""
        match event:
            case Failure(cause=text):
                return replace(event, cause=self._named(text))
            case LogLine(text=text):
                return replace(event, text=self._named(text))
            case VerifyResult(reason=text) | VariabilityResult(reason=text) | InstanceResult(reason=text):
                return replace(event, reason=self._named(text))
        return event

    def _named(self, text: str) -> str:
        for path in self._paths:
            text = text.replace(path, Path(path).name)
        return text

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _set_standing(self, standing: bool) -> None:
        """A pause is told at once when it has come to be, and when it is over."""
        if standing is not self.standing:
            self.standing = standing
            self._hello_due_s = 0.0
            self._wake()

    def _thin(self) -> None:
        """Keep, of each kind of telemetry that waits, only the newest half of what there is room for."""
        seen: dict[str, int] = {}
        kept: deque[tuple[float, Event]] = deque()
        for item in reversed(self._waiting):
            key = thinning_key(self._rank, item[1])
            if key is not None:
                seen[key] = seen.get(key, 0) + 1
                if seen[key] > 1:
                    continue
            kept.appendleft(item)
        self._waiting = kept

    def flush(self, timeout_s: float = DELIVERY_S) -> bool:
        """Wait until the daemon has stored everything emitted so far; whether it has."""
        with self._delivered:
            return self._delivered.wait_for(lambda: not self._waiting and not self._sent, timeout_s)

    def close(self, timeout_s: float = DELIVERY_S) -> bool:
        """Deliver, then hang up; whether everything was delivered."""
        delivered = self.flush(timeout_s)
        self._closing = True
        self._wake()
        self._thread.join()
        os.close(self._wake_write)
        os.close(self._wake_read)
        return delivered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.linger = 1000
        dealer.setsockopt(zmq.SNDHWM, 0)
        dealer.routing_id = f"{self._spec.job_id} {self._rank}".encode()
        dealer.curve_serverkey = self._spec.server_public_key.encode()
        dealer.curve_publickey = self._spec.public_key.encode()
        dealer.curve_secretkey = self._spec.secret_key.encode()
        dealer.connect(self._spec.address)
        dealer.send(msgspec.json.encode(Hello(version=__version__, role="worker")))
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        dealer.send(_encode(self._hello()))
        while not self._closing:
            now = time.monotonic()
            if now >= self._hello_due_s:
                self._hello_due_s = now + HELLO_S
                hello = self._hello()
                self._send_waiting(dealer)  # who says that it stands has said before what it did until then
                dealer.send(_encode(hello))
            self._send_waiting(dealer)
            ready = dict(poller.poll(max(0, math.ceil((self._hello_due_s - now) * 1000))))
            if self._wake_read in ready:
                os.read(self._wake_read, 65536)
            while dealer.poll(0):
                self._take(dealer, dealer.recv())
            self._resend(dealer)
        dealer.close()
        context.term()

    def _hello(self) -> WorkerHello:
        return WorkerHello(
            job_id=self._spec.job_id,
            rank=self._rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            paused=self.paused,
            standing=self.standing,
        )

    def _send_waiting(self, dealer: zmq.Socket[bytes]) -> None:
        with self._lock:
            if not self._sent:
                self._progress_s = time.monotonic()
            while self._waiting and len(self._sent) < WINDOW:
                time_s, event = self._waiting.popleft()
                self._sequence += 1
                message = WorkerEvent(
                    job_id=self._spec.job_id,
                    rank=self._rank,
                    sequence=self._sequence,
                    time_s=time_s,
                    event=event,
                )
                payload = _encode(message)
                self._sent.append((self._sequence, payload))
                dealer.send(payload)

    def _resend(self, dealer: zmq.Socket[bytes]) -> None:
        """Send again what a broken connection may have lost; the daemon stores each once."""
        now = time.monotonic()
        if not self._sent or now - self._progress_s < RESEND_S:
            return
        self._progress_s = now
        dealer.send(msgspec.json.encode(Hello(version=__version__, role="worker")))
        dealer.send(_encode(self._hello()))
        for _, payload in self._sent:
            dealer.send(payload)

    def _take(self, dealer: zmq.Socket[bytes], payload: bytes) -> None:
        if payload.startswith(b"{"):
            welcome = msgspec.json.decode(payload, type=Welcome)
            if welcome.boundscope == "refused":
                self.refusal = welcome.reason
            return
        message = _decode(payload)
        if isinstance(message, WorkerCommand):
            self._obey(message.command)
        elif isinstance(message, WorkerAck):
            with self._delivered:
                while self._sent and self._sent[0][0] <= message.sequence:
                    self._sent.popleft()
                    self._progress_s = time.monotonic()
                self._delivered.notify_all()
            self._send_waiting(dealer)

    def _obey(self, command: str) -> None:
        """What is not known is of a newer daemon, and not for us."""
        match command:
            case "cancel":
                self.cancel()
            case "pause":
                self.pause()
            case "continue":
                self.go_on()
        self._hello_due_s = 0.0  # the daemon asks again until it hears that we have heard
