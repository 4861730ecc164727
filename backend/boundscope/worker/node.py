"""The agent on one node of a job: `python -m boundscope.worker.node`, started there over ssh.

It takes the job's files, finds the way to the first node, runs the node's launcher, and carries the ranks' connections
to the daemon. When its stdin ends, whatever the cause, everything that it started is killed. Imports no torch.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Coroutine
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

import msgspec
import platformdirs
import psutil

from boundscope import __version__
from boundscope.daemon.blobs import BlobStore, with_companions
from boundscope.daemon.jobspec import JobSpec, RankPulse, read_report, write_spec
from boundscope.daemon.processes import (
    ProcessMark,
    child_environment,
    is_stopped,
    python_command,
    signal_trees,
)
from boundscope.errors import BoundscopeError
from boundscope.threads import core_count, thread_variables
from boundscope.worker import process, wire
from boundscope.worker.wire import Tunnel, Wire

CACHE_VARIABLE = "BOUNDSCOPE_NODE_CACHE"
UNUSED_S = 30 * 24 * 3600.0  # after which a file of the cache is removed
REACH_S = 2.0
FOLDER_PREFIX, LOCK_NAME = "boundscope-node-", "lock"
LAUNCHER = "boundscope.worker.launch"


def main() -> NoReturn:
    process.begin()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of stdin says it
    answers = os.dup(1)
    os.dup2(2, 1)  # what something prints is no answer
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))  # mode 0700: it will hold the job's key
    try:
        lock = _locked(folder)
        asyncio.run(_serve(answers, folder))
        os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    process.end(0)


def _locked(folder: Path) -> int:
    """Mark a folder as ours while this process lives: a lock ends with its holder, whatever ends that."""
    lock = os.open(folder / "new-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "new-lock").rename(folder / LOCK_NAME)  # nobody sees it before it is locked
    return lock


def _sweep(temporary: Path) -> None:
    """Remove the folders of agents that were killed; they hold a job's key and its files."""
    for folder in temporary.glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):  # somebody else's, or without a lock: not known to be left over
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


async def _serve(answers: int, folder: Path) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(answers, "wb", buffering=0)
    )
    agent = _Agent(Wire(reader, asyncio.StreamWriter(transport, protocol, None, loop)), folder)
    try:
        await agent.run()
    except OSError:
        return  # nobody reads us any more
    finally:
        await agent.end()


class _Agent:
    def __init__(self, link: Wire, folder: Path) -> None:
        self._wire = link
        self._folder = folder
        self._tunnel = Tunnel(link)
        self._files: wire.Offer | None = None
        self._listener: socket.socket | None = None
        self._launcher: asyncio.subprocess.Process | None = None
        self._mark: ProcessMark | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._channels = 0
        self._cache = BlobStore(_cache_path())
        self._wanted: set[str] = set()
        self._lock: int | None = None

    async def run(self) -> None:
        """Answer until the head hangs up or says to stop."""
        await self._wire.greet()
        await self._wire.say(_here())
        async for channel, payload in self._wire.frames():
            if channel != wire.CONTROL:
                self._tunnel.take(channel, payload)
                continue
            message = wire.read_message(payload)
            if isinstance(message, wire.Stop):
                return
            try:
                await self._obey(message)
            except (BoundscopeError, OSError) as error:
                await self._wire.say(wire.Trouble(cause=str(error)))

    async def _obey(self, message: wire.Message) -> None:
        match message:
            case wire.Offer():
                await self._offered(message)
            case wire.Piece():
                self._cache.put(message.sha256, message.offset, message.total_bytes, message.data)
                await self._check_complete()
            case wire.Listen():
                await self._listen(message)
            case wire.Reach():
                own = () if self._listener is None else message.addresses
                self._start(self._reach(message, own))
            case wire.Begin():
                await self._begin(message.spec)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ files

    async def _offered(self, offer: wire.Offer) -> None:
        """Say what is missing. Another job's agent that receives just now is waited for: it may bring the same."""
        self._files = offer
        refs = [*with_companions(offer.network), *with_companions(offer.property)]
        self._wanted = {ref.sha256 for ref in refs}
        self._lock = os.open(_cache_path() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        await asyncio.get_running_loop().run_in_executor(None, fcntl.flock, self._lock, fcntl.LOCK_EX)
        _forget_unused(_cache_path(), keep=self._wanted)
        states = {sha256: self._cache.state(sha256) for sha256 in self._wanted}
        lacks = {sha256: state.have_bytes for sha256, state in states.items() if not state.complete}
        await self._wire.say(wire.Lacks(files=lacks))
        self._release_when_complete()

    async def _check_complete(self) -> None:
        if self._release_when_complete():
            await self._wire.say(wire.Lacks(files={}))

    def _release_when_complete(self) -> bool:
        complete = all(self._cache.state(sha256).complete for sha256 in self._wanted)
        if complete and self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return complete

    # ------------------------------------------------------------ the way to the first node

    async def _listen(self, message: wire.Listen) -> None:
        """Open the port that the store will be at; until it is, who connects is told the nonce."""
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() and _has_ipv6() else socket.AF_INET
        self._listener = socket.create_server(
            ("", 0), family=family, backlog=1024, dualstack_ipv6=family == socket.AF_INET6
        )
        self._listener.setblocking(False)
        self._start(self._answer_visitors(self._listener, message.nonce.encode()))
        port = self._listener.getsockname()[1]
        await self._wire.say(wire.Listening(port=port, addresses=_addresses(loopback=message.loopback)))

    async def _answer_visitors(self, listener: socket.socket, nonce: bytes) -> None:
        loop = asyncio.get_running_loop()
        while self._launcher is None:
            visitor, _ = await loop.sock_accept(listener)
            with visitor, suppress(OSError):
                visitor.setblocking(False)
                await loop.sock_sendall(visitor, nonce)

    async def _reach(self, message: wire.Reach, own: tuple[str, ...]) -> None:
        """Which addresses lead to the first node; on that node itself all do."""
        if own:
            await self._wire.say(wire.Reached(routes={address: address for address in own}))
            return
        tries = (_visit(address, message.port, message.nonce.encode()) for address in message.addresses)
        found = await asyncio.gather(*tries)
        routes = {
            address: mine for address, mine in zip(message.addresses, found, strict=True) if mine is not None
        }
        await self._wire.say(wire.Reached(routes=routes))

    # ------------------------------------------------------------ the ranks

    async def _begin(self, spec: JobSpec) -> None:
        assert self._files is not None
        assert spec.place is not None
        for task in list(self._tasks):
            task.cancel()
        place = spec.place
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        given = {} if self._listener is None else {"listener": self._listener.fileno()}
        interface = place.interface or _interface_of(place.own_address)
        spec = msgspec.structs.replace(
            spec,
            network=str(self._cache.lay_out(self._files.network, self._folder / "network")),
            property=str(self._cache.lay_out(self._files.property, self._folder / "property")),
            address=f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            place=msgspec.structs.replace(place, interface=interface, **given),
        )
        write_spec(self._folder, spec)
        here = spec.ranks // place.nodes
        threads = getattr(spec.job, "threads_per_rank", None) or max(1, core_count() // here)
        self._launcher = await asyncio.create_subprocess_exec(
            *python_command(LAUNCHER, str(self._folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=child_environment(**thread_variables(threads)),
            pass_fds=tuple(given.values()),
        )
        self._mark = ProcessMark.of(self._launcher.pid)
        if self._listener is not None:
            self._listener.close()
        self._start(self._follow(self._launcher))
        self._start(self._watch_ranks())

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A rank connects to the daemon."""
        self._channels += 1
        self._tunnel.add(self._channels, reader, writer)

    async def _follow(self, launcher: asyncio.subprocess.Process) -> None:
        assert launcher.stdout is not None
        while data := await launcher.stdout.read(1 << 14):
            await self._wire.say(wire.Log(text=data.decode(errors="replace")))
        code = await launcher.wait()
        self._kill()  # whatever a killed launcher left
        await self._wire.say(wire.Ended(code=code, report=read_report(self._folder)))

    async def _watch_ranks(self) -> None:
        """Say how the ranks are, since only here can one look at them."""
        while True:
            pulses = []
            for path in self._folder.glob("rank-*.pid"):
                pid = int(path.read_text(encoding="ascii") or 0)
                if (times := _cpu_s(pid)) is not None:
                    rank = int(path.stem.removeprefix("rank-"))
                    pulses.append(RankPulse(rank=rank, stopped=is_stopped(pid), cpu_s=times))
            await self._wire.say(wire.Pulse(ranks=tuple(pulses)))
            await asyncio.sleep(wire.PULSE_S)

    def _kill(self) -> None:
        marks = [self._mark, *(ProcessMark.of(_read_pid(path)) for path in self._folder.glob("rank-*.pid"))]
        signal_trees([mark for mark in marks if mark is not None], signal.SIGKILL)

    async def end(self) -> None:
        """Kill what runs and wait for its end."""
        for task in list(self._tasks):
            task.cancel()
        self._tunnel.close()
        if self._launcher is not None:
            self._kill()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._launcher.wait(), 5.0)


def _read_pid(path: Path) -> int:
    text = path.read_text(encoding="ascii")
    return int(text) if text else 0


def _cpu_s(pid: int) -> float | None:
    with suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return None


async def _visit(address: str, port: int, nonce: bytes) -> str | None:
    """Our own address on the way there, where the first node of this job is what answers."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(address, port), REACH_S)
    except (OSError, TimeoutError):
        return None
    try:
        told = await asyncio.wait_for(reader.readexactly(len(nonce)), REACH_S)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None
    finally:
        own = str(writer.get_extra_info("sockname")[0])
        writer.close()
    return own if secrets.compare_digest(told, nonce) else None


def _addresses(*, loopback: bool) -> tuple[str, ...]:
    """Addresses of this machine, the one that ssh came to first. Host names are not asked: theirs may be loopback."""
    found = [_reached_at()]
    for family in (socket.AF_INET, socket.AF_INET6):
        for name, addresses in psutil.net_if_addrs().items():
            state = psutil.net_if_stats().get(name)
            if state is not None and state.isup:
                found += [
                    each.address for each in addresses if each.family == family and "%" not in each.address
                ]
    real = [each for each in dict.fromkeys(found) if each and not _is_loopback(each)]
    return (*real, "127.0.0.1") if loopback else tuple(real)


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _has_ipv6() -> bool:
    return any(each.family == socket.AF_INET6 for found in psutil.net_if_addrs().values() for each in found)


def _interface_of(address: str) -> str:
    """The interface that has an address; "" where none has."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return str(name)
    return ""


def _reached_at() -> str:
    """The address that ssh came to, by sshd's word: "client port server port"."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2].partition("%")[0] if len(words) == 4 else ""


def _here() -> wire.Here:
    try:
        torch: str = version("torch")
    except PackageNotFoundError:
        torch = ""
    return wire.Here(
        version=__version__,
        torch=torch,
        host=socket.gethostname(),
        machine=_machine(),
        cores=core_count(),
        time_s=time.time(),
        reached_at=_reached_at(),
    )


def _machine() -> str:
    """The same for two agents exactly where loopback connects them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def _cache_path() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    path = Path(chosen) if chosen else platformdirs.user_cache_path("boundscope") / "files"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _forget_unused(root: Path, *, keep: set[str]) -> None:
    """Remove what no job has used for long; what is used now is marked as such."""
    for path in root.glob("[0-9a-f][0-9a-f]/*"):
        if path.name in keep:
            os.utime(path)
        elif time.time() - path.stat().st_mtime > UNUSED_S:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
