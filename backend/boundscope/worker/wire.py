"""What the head of a job and the agent on each of its nodes say to each other, over the agent's stdin and stdout.

Nothing else connects them: no port is forwarded and no file system shared, so that it works wherever a command can be
run on a node. The ranks' connections to the daemon pass through as they are, encrypted from end to end (CURVE).
Imports no torch.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from boundscope.daemon.jobspec import JobSpec, LaunchReport, RankPulse
from boundscope.protocol import FileRef, Struct

MAGIC = b"\x00boundscope-node 1\n"  # what a login shell prints before it is passed over
CONTROL = 0  # the channel of messages; every other one carries the bytes of one connection, and an empty frame its end
MAX_FRAME_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
PULSE_S = 1.0  # how often an agent says how its ranks are

_HEADER = struct.Struct(">II")


class Here(Struct, frozen=True, tag="here"):
    """An agent's first word. `machine` tells nodes apart: the boot and the network namespace."""

    version: str
    torch: str
    host: str
    machine: str
    cores: int
    time_s: float
    reached_at: str = ""  # the address of the node that ssh came to


class Offer(Struct, frozen=True, tag="offer"):
    """The job's files: what the node lacks of them it asks for."""

    network: FileRef
    property: FileRef


class Lacks(Struct, frozen=True, tag="lacks"):
    """The SHA-256 of what is to be sent, and how much of it is here."""

    files: dict[str, int]


class Piece(Struct, frozen=True, tag="piece"):
    sha256: str
    offset: int
    total_bytes: int
    data: bytes


class Listen(Struct, frozen=True, tag="listen"):
    """To the first node: listen for the others, who prove by `nonce` whom they have reached."""

    nonce: str
    loopback: bool  # all nodes are one machine


class Listening(Struct, frozen=True, tag="listening"):
    port: int
    addresses: tuple[str, ...]  # by which it may be reached, the likeliest first


class Reach(Struct, frozen=True, tag="reach"):
    """To every node: which of the first one's addresses lead to it from there?"""

    port: int
    addresses: tuple[str, ...]
    nonce: str


class Reached(Struct, frozen=True, tag="reached"):
    """The addresses that lead there, each with this node's own address on that way."""

    routes: dict[str, str]


class Begin(Struct, frozen=True, tag="begin"):
    spec: JobSpec


class Stop(Struct, frozen=True, tag="stop"):
    """End everything at once."""


class Pulse(Struct, frozen=True, tag="pulse"):
    ranks: tuple[RankPulse, ...]


class Log(Struct, frozen=True, tag="log"):
    text: str


class Trouble(Struct, frozen=True, tag="trouble"):
    """Why the node cannot take part."""

    cause: str


class Ended(Struct, frozen=True, tag="ended"):
    """The node's launcher and its ranks are gone."""

    code: int
    report: LaunchReport


Message = (
    Here
    | Offer
    | Lacks
    | Piece
    | Listen
    | Listening
    | Reach
    | Reached
    | Begin
    | Stop
    | Pulse
    | Log
    | Trouble
    | Ended
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Wire:
    """Frames over a pair of pipes: channel and length (4 bytes each, big-endian), then the payload."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def greet(self) -> None:
        self._writer.write(MAGIC)
        await self._writer.drain()

    async def await_greeting(self) -> None:
        """Pass over everything before the agent's first word; asyncio.IncompleteReadError where it never comes."""
        await self._reader.readuntil(MAGIC)

    async def say(self, message: Message) -> None:
        await self.send(CONTROL, _encode(message))

    async def send(self, channel: int, payload: bytes) -> None:
        """One frame; waits while the other side does not read."""
        self._writer.write(_HEADER.pack(channel, len(payload)) + payload)
        await self._writer.drain()

    async def frames(self) -> AsyncIterator[tuple[int, bytes]]:
        """Every frame until the other side hangs up, or sends what is none."""
        while True:
            try:
                channel, size = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
                if size > MAX_FRAME_BYTES:
                    return
                payload = await self._reader.readexactly(size)
            except (asyncio.IncompleteReadError, OSError):
                return
            yield channel, payload

    def close(self) -> None:
        self._writer.close()


def read_message(payload: bytes) -> Message:
    """msgspec.DecodeError where it is none."""
    return _decode(payload)


class Tunnel:
    """The connections that a wire carries, by channel."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._early: dict[int, list[bytes]] = {}  # of channels whose connection is being made
        self._pumps: set[asyncio.Task[None]] = set()

    def known(self, channel: int) -> bool:
        return channel in self._writers or channel in self._early

    def add(self, channel: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry this connection from now on."""
        self._writers[channel] = writer
        pump = asyncio.ensure_future(self._pump(channel, reader))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    def open(
        self,
        channel: int,
        first: bytes,
        connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
    ) -> None:
        """Make a connection for a channel that the other side has opened; what it sends meanwhile is kept."""
        self._early[channel] = [first]
        task = asyncio.ensure_future(self._open(channel, connect))
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _open(
        self,
        channel: int,
        connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
    ) -> None:
        try:
            reader, writer = await connect()
        except OSError:
            del self._early[channel]
            await self._wire.send(channel, b"")
            return
        early = self._early.pop(channel)
        self.add(channel, reader, writer)
        for payload in early:
            self.take(channel, payload)

    async def _pump(self, channel: int, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._wire.send(channel, data)
            await self._wire.send(channel, b"")
        except OSError:
            return  # one of the two ends has gone; the other hears of it by its own connection
        finally:
            if (writer := self._writers.pop(channel, None)) is not None:
                writer.close()

    def take(self, channel: int, payload: bytes) -> None:
        """Bytes from the other side."""
        if channel in self._early:
            self._early[channel].append(payload)
            return
        writer = self._writers.get(channel)
        if writer is None:
            return
        if payload:
            writer.write(payload)
        else:
            writer.close()

    def close(self) -> None:
        for pump in list(self._pumps):
            pump.cancel()
        for writer in self._writers.values():
            writer.close()
