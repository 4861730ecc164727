"""The head of a job on several nodes: starts an agent on each, brings the files and the nodes together, and ends all.

It runs in the process that launches a job (`boundscope.worker.launch`). Imports no torch.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec

from boundscope import __version__
from boundscope.client.transfer import external_data
from boundscope.daemon.jobspec import JobSpec, LaunchReport, NodePlace, RankExit, RankPulse, write_pulses
from boundscope.errors import RankFailedError
from boundscope.protocol import FileRef, Struct
from boundscope.worker import ssh, wire
from boundscope.worker.wire import Tunnel, Wire

_Message = TypeVar("_Message", bound=Struct)

GREET_S = 20.0  # from the start of ssh to the agent's first word
MEET_S = 8.0
FILES_S = (
    25.0  # for a node to look into its cache, or to write what it was sent; the sending itself takes its time
)
END_S = 3.0  # for the others, once one node has ended with an error
STDERR_BYTES = 8192


@dataclass
class Node:
    """One node as the head sees it: what started its agent, and what that has said."""

    host: str
    process: asyncio.subprocess.Process
    link: Wire
    here: wire.Here | None = None
    ended: wire.Ended | None = None
    answer_s: float = 0.0
    _stderr: bytearray = field(default_factory=bytearray)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _answers: asyncio.Queue[wire.Message | None] = field(default_factory=asyncio.Queue)

    @classmethod
    async def start(cls, host: str) -> Node:
        """Start the agent and hear its first word; RankFailedError says why that did not come."""
        began_s = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                *ssh.agent_command(host),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 20,
            )
        except OSError as error:
            raise RankFailedError(
                f"node {host}: {ssh.agent_command(host)[0]} cannot be run: {error.strerror}; install "
                "openssh-client"
            ) from error
        assert process.stdout is not None
        assert process.stdin is not None
        node = cls(host, process, Wire(process.stdout, process.stdin))
        node._tasks.append(asyncio.ensure_future(node._read_stderr()))
        try:
            await asyncio.wait_for(node.link.await_greeting(), GREET_S)
        except TimeoutError:
            await node.close()
            raise RankFailedError(
                f"node {host}: no answer within {GREET_S:g} s of the start of ssh; try `ssh -o BatchMode=yes {host} "
                "true`"
            ) from None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            cause = await node.cause_of_end()
            await node.close()
            raise RankFailedError(cause) from None
        node.answer_s = time.monotonic() - began_s
        return node

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(4096):
            self._stderr += data
            del self._stderr[:-STDERR_BYTES]

    async def cause_of_end(self) -> str:
        code = None
        with suppress(TimeoutError):
            code = await asyncio.wait_for(self.process.wait(), 2.0)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._tasks[0]), 1.0)
        return ssh.cause_of_end(self.host, code, self._stderr.decode(errors="replace"))

    async def hear(self, expected: type[_Message], timeout_s: float) -> _Message:
        """The agent's next answer; RankFailedError where it is another, or none."""
        try:
            message = await asyncio.wait_for(self._answers.get(), timeout_s)
        except TimeoutError:
            raise RankFailedError(
                f"node {self.host}: its agent did not answer within {timeout_s:g} s"
            ) from None
        if message is None:
            raise RankFailedError(await self.cause_of_end())
        if isinstance(message, wire.Trouble):
            raise RankFailedError(f"node {self.host}: {message.cause}")
        if not isinstance(message, expected):
            raise RankFailedError(f"node {self.host}: its agent said {type(message).__name__} out of turn")
        return message

    def listen(self, handle: Callable[[Node, int, bytes], wire.Message | None]) -> None:
        """Read what the agent sends from now on; `handle` gives the message of a frame that is an answer."""
        self._tasks.append(asyncio.ensure_future(self._listen(handle)))

    async def _listen(self, handle: Callable[[Node, int, bytes], wire.Message | None]) -> None:
        async for channel, payload in self.link.frames():
            answer = handle(self, channel, payload)
            if answer is not None:
                self._answers.put_nowait(answer)
        self._answers.put_nowait(None)

    async def close(self) -> None:
        """Hang up: the agent ends everything on its node. Waits for that."""
        with suppress(OSError):
            await asyncio.wait_for(self.link.say(wire.Stop()), 1.0)
        self.link.close()
        try:
            await asyncio.wait_for(self.process.wait(), 6.0)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        for task in self._tasks:
            task.cancel()


async def greet(host: str) -> Node:
    """A node whose agent is there and of our version."""
    node = await Node.start(host)
    node.listen(
        lambda each, channel, payload: wire.read_message(payload) if channel == wire.CONTROL else None
    )
    return node


@dataclass
class Head:
    """All nodes of one job."""

    spec: JobSpec
    folder: Path
    log: Callable[[str], object]
    nodes: list[Node] = field(default_factory=list)
    _tunnels: dict[str, Tunnel] = field(default_factory=dict)
    _pulses: dict[int, RankPulse] = field(default_factory=dict)
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> LaunchReport:
        """Run the job to its end on every node; the report is of all of them."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stopped.set)
        work = asyncio.ensure_future(self._work())
        stop = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return LaunchReport(cause="the job's launcher was ended by SIGTERM")
            return work.result()
        except RankFailedError as error:
            return LaunchReport(cause=str(error))
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(*(node.close() for node in self.nodes), return_exceptions=True)
            await asyncio.gather(work, stop, return_exceptions=True)

    async def _work(self) -> LaunchReport:
        await self._start_agents()
        offer = self._offer()
        await asyncio.gather(*(self._send_files(node, offer) for node in self.nodes))
        places = await self._meet()
        for node, place in zip(self.nodes, places, strict=True):
            spec = msgspec.structs.replace(self.spec, place=place, checkpoint=None)
            await node.link.say(wire.Begin(spec=spec))
        return await self._follow()

    async def _start_agents(self) -> None:
        found = await asyncio.gather(*map(Node.start, self.spec.nodes), return_exceptions=True)
        self.nodes = [each for each in found if isinstance(each, Node)]
        _raise_all(found)
        for node in self.nodes:
            self._tunnels[node.host] = Tunnel(node.link)
            node.listen(self._take)
        for node in self.nodes:
            await introduce(node)

    def _take(self, node: Node, channel: int, payload: bytes) -> wire.Message | None:
        """What an agent sent; answers are given back."""
        if channel != wire.CONTROL:
            self._carry(node, channel, payload)
            return None
        message = wire.read_message(payload)
        match message:
            case wire.Log():
                self.log("".join(f"{node.host}: {line}\n" for line in message.text.splitlines()))
            case wire.Pulse():
                self._pulses.update({pulse.rank: pulse for pulse in message.ranks})
                write_pulses(self.folder, tuple(self._pulses.values()))
            case _:
                return message
        return None

    def _carry(self, node: Node, channel: int, payload: bytes) -> None:
        tunnel = self._tunnels[node.host]
        if tunnel.known(channel):
            tunnel.take(channel, payload)
        elif payload:
            self._connect(tunnel, channel, payload)

    def _connect(self, tunnel: Tunnel, channel: int, payload: bytes) -> None:
        """A rank has opened a connection: to the daemon, on loopback here."""
        host, _, port = self.spec.address.removeprefix("tcp://").rpartition(":")
        tunnel.open(channel, payload, lambda: asyncio.open_connection(host, int(port)))

    def _offer(self) -> wire.Offer:
        assert self.spec.network is not None
        assert self.spec.property is not None
        return wire.Offer(network=_described(self.spec.network), property=_described(self.spec.property))

    async def _send_files(self, node: Node, offer: wire.Offer) -> None:
        """Send what the node lacks, and wait until it has all of it."""
        await node.link.say(offer)
        sources = dict(
            _sources(self.spec.network, offer.network) + _sources(self.spec.property, offer.property)
        )
        lacks = await node.hear(wire.Lacks, FILES_S)
        while lacks.files:
            for sha256, have in lacks.files.items():
                await _send_file(node, sha256, sources[sha256], have)
            lacks = await node.hear(wire.Lacks, FILES_S)

    async def _meet(self) -> list[NodePlace]:
        """Have every node find its way to the first one."""
        listening, routes = await find_ways(self.nodes)
        address = _common_address(self.nodes, listening, routes)
        return [
            NodePlace(
                node=number,
                nodes=len(self.nodes),
                host=node.host,
                address=address,
                port=listening.port,
                own_address=routes[number][address],
                interface="",  # which the node knows
            )
            for number, node in enumerate(self.nodes)
        ]

    async def _follow(self) -> LaunchReport:
        """Wait for every node's end; once one has ended badly, the others have END_S."""
        waiting = {asyncio.ensure_future(_end_of(node)): node for node in self.nodes}
        reports: list[LaunchReport] = []
        timeout_s: float | None = None
        while waiting:
            done, _ = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                del waiting[task]
                reports.append(task.result())
                if reports[-1].exits or reports[-1].cause:
                    timeout_s = END_S
        for task in waiting:
            task.cancel()
        return _merged(reports)


async def _end_of(node: Node) -> LaunchReport:
    """How a node ended; one whose connection is lost is a cause, not an exception: others may know a better one."""
    message = await node._answers.get()
    if message is None:
        return LaunchReport(cause=await node.cause_of_end())
    if isinstance(message, wire.Trouble):
        return LaunchReport(cause=f"node {node.host}: {message.cause}")
    if not isinstance(message, wire.Ended):
        return LaunchReport(cause=f"node {node.host}: its agent said {type(message).__name__} out of turn")
    node.ended = message
    report = message.report
    if message.code != 0 and not report.exits and not report.cause:
        how = signal.Signals(-message.code).name if message.code < 0 else f"status {message.code}"
        return msgspec.structs.replace(report, cause=f"node {node.host}: the launcher ended with {how}")
    return report


def _merged(reports: Sequence[LaunchReport]) -> LaunchReport:
    exits: list[RankExit] = [each for report in reports for each in report.exits]
    causes = [report.cause for report in reports if report.cause]
    return LaunchReport(
        exits=tuple(sorted(exits, key=lambda each: each.rank)),
        cause=causes[0] if causes else "",
        cpu_s=sum(report.cpu_s for report in reports),
    )


async def introduce(node: Node) -> wire.Here:
    """The agent's own words about its node; RankFailedError where its versions are not ours."""
    here = await node.hear(wire.Here, GREET_S)
    node.here = here
    for name, there, ours in (
        ("Boundscope", here.version, __version__),
        ("torch", here.torch.partition("+")[0], version("torch").partition("+")[0]),
    ):
        if there != ours:
            has = f"has {name} {there}" if there else f"has no {name}"
            raise RankFailedError(
                f"node {node.host} {has}, this machine {ours}: install the same version on both"
            )
    return here


async def find_ways(nodes: Sequence[Node]) -> tuple[wire.Listening, list[dict[str, str]]]:
    """Where the first node listens, and which of its addresses lead there from each node.

    Raises RankFailedError where an agent does not answer.
    """
    first = nodes[0]
    nonce = secrets.token_hex(16)
    machines = {node.here.machine for node in nodes if node.here is not None}
    await first.link.say(wire.Listen(nonce=nonce, loopback=len(machines) == 1))
    listening = await first.hear(wire.Listening, MEET_S)
    question = wire.Reach(port=listening.port, addresses=listening.addresses, nonce=nonce)
    for node in nodes:
        await node.link.say(question)
    return listening, [(await node.hear(wire.Reached, MEET_S)).routes for node in nodes]


def _raise_all(found: Sequence[object]) -> None:
    """Raise what went wrong, on all nodes in one sentence."""
    errors = [each for each in found if isinstance(each, BaseException)]
    for error in errors:
        if not isinstance(error, RankFailedError):
            raise error
    if errors:
        raise RankFailedError("; ".join(map(str, errors)))


def _common_address(
    nodes: Sequence[Node], listening: wire.Listening, routes: Sequence[dict[str, str]]
) -> str:
    """The first address of the first node that leads to it from every node."""
    for address in listening.addresses:
        if all(address in each for each in routes):
            return address
    lost = [node.host for node, each in zip(nodes, routes, strict=True) if not each] or [
        node.host for node in nodes[1:]
    ]
    tried = ", ".join(listening.addresses) or "none but loopback"
    raise RankFailedError(
        f"node {', '.join(lost)} cannot reach the ranks on {nodes[0].host} (its addresses: {tried}; port "
        f"{listening.port}): let the nodes connect to each other on ports above 1023, or name another node first"
    )


def _described(path: str) -> FileRef:
    source = Path(path)
    companions = tuple(_ref(source.parent / name, name) for name in external_data(source))
    return msgspec.structs.replace(_ref(source, source.name), companions=companions)


def _ref(path: Path, name: str) -> FileRef:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRef(name=name, sha256=digest, size_bytes=path.stat().st_size)


def _sources(path: str | None, ref: FileRef) -> list[tuple[str, Path]]:
    source = Path(path or "")
    return [(ref.sha256, source), *((each.sha256, source.parent / each.name) for each in ref.companions)]


async def _send_file(node: Node, sha256: str, source: Path, offset: int) -> None:
    total = source.stat().st_size
    with source.open("rb") as file:
        file.seek(offset)
        while True:
            data = file.read(wire.PIECE_BYTES)
            await node.link.say(wire.Piece(sha256=sha256, offset=offset, total_bytes=total, data=data))
            offset += len(data)
            if offset >= total:
                return
            if not data:
                raise RankFailedError(f"{source} became shorter while it was sent; run the job again")


def launch(spec: JobSpec, folder: Path) -> LaunchReport:
    """Run a job on its nodes; what they write goes to stdout, each line with its host."""

    def log(text: str) -> None:
        print(text, end="", flush=True)

    async def run() -> LaunchReport:
        return await Head(spec, folder, log).run()

    try:
        return asyncio.run(run())
    except OSError as error:
        return LaunchReport(cause=f"the job's files cannot be sent: {error}")
