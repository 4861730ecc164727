"""The one socket that clients and ranks connect to: a ROUTER with CURVE, and the list of keys it admits."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

MAX_MESSAGE_BYTES = 64 << 20
DRAIN_LIMIT = 1000
HEARTBEAT_MS = 5000
LINGER_MS = 5000  # that the last answers have to leave, however busy the machine; no longer than they need


@dataclass(frozen=True)
class Message:
    """One frame from a peer; `owner` is whose key the peer proved to have (see `Endpoint.admit`)."""

    peer: bytes
    owner: str
    payload: bytes


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair, Z85 text."""

    public: str
    secret: str

    @classmethod
    def new(cls) -> KeyPair:
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())


class Endpoint:
    """Binds port 0 on loopback. A key that was not admitted gets no further than the handshake (ZAP, RFC 27).

    One thread owns it: authentication is answered from `receive`, so `receive` must be called often.
    """

    def __init__(self) -> None:
        self._context = zmq.Context()
        self.keys = KeyPair.new()
        self._owners: dict[bytes, str] = {}
        self._connections: set[int] = set()
        self._wake = -1
        self._zap = self._context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind("inproc://zeromq.zap.01")
        self.router = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.ROUTER_HANDOVER, 1),
            (zmq.SNDHWM, 1000),
            (zmq.RCVHWM, 0),
            (zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, 4 * HEARTBEAT_MS),
            (zmq.CURVE_SERVER, 1),
        ):
            self.router.setsockopt(option, value)
        self.router.curve_secretkey = self.keys.secret.encode()
        self.router.curve_publickey = self.keys.public.encode()
        self.router.setsockopt_string(zmq.ZAP_DOMAIN, "boundscope")
        self._monitor = self.router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.address = f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"
        self._poller = zmq.Poller()
        for readable in (self._zap, self.router, self._monitor):
            self._poller.register(readable, zmq.POLLIN)

    @property
    def connection_count(self) -> int:
        """Connections that are open; those that authentication refuses are gone within moments."""
        return len(self._connections)

    def watch(self, fd: int) -> None:
        """Let `receive` return early when this non-blocking file descriptor becomes readable; it is emptied."""
        self._wake = fd
        self._poller.register(fd, zmq.POLLIN)

    def admit(self, public_key: str, owner: str) -> None:
        """From now on let in who has the secret key to this one; its messages carry `owner`."""
        self._owners[z85.decode(public_key)] = owner

    def expel(self, owner: str) -> None:
        """Let in nobody else with this owner's keys."""
        self._owners = {key: name for key, name in self._owners.items() if name != owner}

    def receive(self, timeout_s: float) -> Iterator[Message]:
        """Wait up to `timeout_s` for something, then yield what is there (at most DRAIN_LIMIT messages)."""
        ready = dict(self._poller.poll(max(0, math.ceil(timeout_s * 1000))))
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._monitor in ready:
            self._follow_connections()
        if self._zap in ready:
            self._authenticate()
        if self.router in ready:
            yield from self._drain()

    def _drain(self) -> Iterator[Message]:
        for _ in range(DRAIN_LIMIT):
            try:
                frames = self.router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if len(frames) == 2:
                owner = str(frames[1].get("User-Id"))
                yield Message(frames[0].bytes, owner, frames[1].bytes)

    def _authenticate(self) -> None:
        while self._zap.poll(0):
            frames = self._zap.recv_multipart()
            version, request_id, mechanism, credentials = frames[0], frames[1], frames[5], frames[6:]
            owner = self._owners.get(credentials[0]) if mechanism == b"CURVE" and credentials else None
            status, text = (b"400", b"unknown key") if owner is None else (b"200", b"OK")
            self._zap.send_multipart([version, request_id, status, text, (owner or "").encode(), b""])

    def _follow_connections(self) -> None:
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._connections.add(event["value"])
            else:
                self._connections.discard(event["value"])

    def send(self, peer: bytes, payload: bytes) -> bool | None:
        """Queue one frame: True; False where the peer's queue is full; None where the peer has gone."""
        try:
            self.router.send_multipart([peer, payload], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return None
            raise
        return True

    def close(self) -> None:
        self.router.disable_monitor()
        for sock in (self._monitor, self._zap, self.router):
            sock.close()
        self._context.term()
