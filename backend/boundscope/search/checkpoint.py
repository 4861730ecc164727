"""The state of a search on disk, from which it goes on after a kill, a cancel or a time limit.

A checkpoint is one file, a zip without compression that `numpy.load` also opens: what job it is of, what has been
proven, counters, arrays, and the domains that were in memory. Domains that were on disk stay in files of their own
in a folder beside it (`FILE.domains`), shared with the running search by hard links. It is written under another name,
synced to disk and renamed: a kill at any moment leaves the old one or the new one, whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boundscope.errors import CheckpointError
from boundscope.protocol import EpsilonBall, FileRef, VerifyJob
from boundscope.search.pool import DomainPool
from boundscope.search.spread import SpreadPool

FORMAT = "boundscope-checkpoint"
VERSION = 3
SHARE = 0.02  # of the search's time that may go into checkpoints
LEAST_INTERVAL_S = 1.0
INTERVAL_AFTER_FAILURE_S = 30.0
_NAME_OFFSET = 30  # of the first member's name in a zip

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    msgspec.MsgspecError,
    EOFError,
    KeyError,
    NotImplementedError,  # a damaged zip header can ask for anything
    OverflowError,
    RuntimeError,
    ValueError,
)


class ClauseState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the proof of one clause of one case has come: the proven lower bound of its margin, the least value that
    was seen of it, and whether it is excluded."""

    case: int
    clause: int
    lower: float | None = None
    upper: float | None = None
    proven: bool = False


@dataclass
class SearchState:
    """All that a search needs to go on. Floats and arrays come back bit for bit.

    `points` holds the attack's best inputs by (case, clause); `arrays` is for what else the search wants to find
    again; `elapsed_s` counts all runs so far.
    """

    clauses: tuple[ClauseState, ...] = ()
    counters: dict[str, int | float] = field(default_factory=dict)
    elapsed_s: float = 0.0
    points: dict[tuple[int, int], NDArray[Any]] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    pools: dict[str, DomainPool | SpreadPool] = field(default_factory=dict)


class _Head(msgspec.Struct, frozen=True):
    format: str
    version: int
    job: dict[str, str]


class _Contents(msgspec.Struct, frozen=True):
    """Arrays and pools lie in members that are named by their place in these lists."""

    clauses: tuple[ClauseState, ...]
    counters: dict[str, int | float]
    elapsed_s: float
    points: tuple[tuple[int, int], ...]
    arrays: tuple[str, ...]
    pools: tuple[str, ...]


def fingerprint(job: VerifyJob) -> dict[str, str]:
    """What decides the meaning of a search, by name; ranks, threads, memory and time limits do not."""
    return {
        "network": _content(job.network),
        "property": _property_content(job),
        "method": job.method.value,
        "engine": job.engine.value,
        "arithmetic": job.arithmetic.value,
        "precision": job.precision.value,
        "branching": job.branching.value,
        "seed": str(job.seed),
    }


def _content(ref: FileRef) -> str:
    """One hash for a file with the files that belong to it; its own name does not count."""
    if not ref.companions:
        return ref.sha256
    parts = [ref.sha256, *sorted(f"{one.name} {one.sha256}" for one in ref.companions)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _property_content(job: VerifyJob) -> str:
    source = job.property
    if not isinstance(source, EpsilonBall):
        return _content(source.file)
    unnamed = msgspec.structs.replace(source.center, name="")
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(source, center=unnamed))).hexdigest()


class Checkpoint:
    """The checkpoint of one job at `path`; `job` is its `fingerprint`.

    Only one process can use it at a time, beside those of the same job that load it only (`writes` False); it must not
    save before these have loaded.

    Every method raises CheckpointError, with what to do, where the file or its disk does not play along.
    """

    def __init__(self, path: Path, job: Mapping[str, str], *, writes: bool = True) -> None:
        self.path = path
        self._writes = writes
        self.job = dict(job)
        self.cost_s = 0.0  # of the last save
        self._next_s = time.monotonic() + LEAST_INTERVAL_S
        self._lock: int | None = None

    @property
    def domains_path(self) -> Path:
        """The folder of those domains that were on disk."""
        return self.path.with_name(f"{self.path.name}.domains")

    def due(self, now_s: float | None = None) -> bool:
        """Whether it is time to save again (`now_s`: time.monotonic()): as rarely as saving is dear."""
        return (time.monotonic() if now_s is None else now_s) >= self._next_s

    # ------------------------------------------------------------ saving

    def save(self, state: SearchState, ask: Callable[[str, int], None] | None = None) -> None:
        """Replace what is there; where that fails, what is there stays valid, and the search can go on.

        `ask(pool, rank)` makes another rank send its next domains, where pools lie on several.
        """
        if not self._writes:
            raise ValueError("this process only loads")
        self._acquire()
        start = time.monotonic()
        interval_s = INTERVAL_AFTER_FAILURE_S
        try:
            needed = self._write(state, ask or _nobody)
            self.cost_s = time.monotonic() - start
            interval_s = max(LEAST_INTERVAL_S, self.cost_s / SHARE)
        except OSError as error:
            self._temporary.unlink(missing_ok=True)
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be written: {error.strerror or error}; make room there, or choose "
                "another place for it. The search itself has lost nothing"
            ) from error
        finally:
            self._next_s = time.monotonic() + interval_s
        self._forget_others(needed)

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(f".{self.path.name}.new")

    def _write(self, state: SearchState, ask: Callable[[str, int], None]) -> set[str]:
        """Names of the files in the folder of domains that the new checkpoint needs."""
        head = _Head(FORMAT, VERSION, self.job)
        contents = _Contents(
            clauses=state.clauses,
            counters=state.counters,
            elapsed_s=state.elapsed_s,
            points=tuple(state.points),
            arrays=tuple(state.arrays),
            pools=tuple(state.pools),
        )
        needed: set[str] = set()
        with self._temporary.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                with _member(archive, FORMAT) as member:
                    member.write(msgspec.json.encode(head))
                with _member(archive, "contents") as member:
                    member.write(msgspec.msgpack.encode(contents))
                for kind, arrays in (("point", state.points), ("array", state.arrays)):
                    for at, array in enumerate(arrays.values()):
                        with _member(archive, f"{kind}-{at}.npy") as member:
                            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
                for at, (name, pool) in enumerate(state.pools.items()):
                    with _member(archive, f"pool-{at}") as member:
                        if isinstance(pool, SpreadPool):
                            needed |= pool.save(member, self.domains_path, partial(ask, name))
                        else:
                            needed |= pool.save(member, self.domains_path)
            file.flush()
            os.fsync(file.fileno())
        if needed:
            _sync_folder(self.domains_path)
        os.replace(self._temporary, self.path)
        _sync_folder(self.path.parent)
        return needed

    def _forget_others(self, needed: set[str]) -> None:
        """Remove domains that belonged to earlier checkpoints only."""
        with contextlib.suppress(OSError):  # they are in nobody's way; the next save tries again
            for path in [*self.domains_path.glob("*.domains")]:
                if path.name not in needed:
                    path.unlink()
            if not needed:
                self.domains_path.rmdir()

    # ------------------------------------------------------------ loading

    def load(self, *, limit_bytes: int | None = None, folder: Path | None = None) -> SearchState | None:
        """The state that was saved last; None where there is none yet.

        `limit_bytes` and `folder` are for each of its pools.

        Raises:
            CheckpointError: the file is no checkpoint, is damaged, is of another job, or of a newer version.
        """
        self._acquire()
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be read: {error.strerror}; choose another file"
            ) from error
        with file:
            head = file.read(_NAME_OFFSET + len(FORMAT))
            if not head[_NAME_OFFSET:] or not FORMAT.encode().startswith(head[_NAME_OFFSET:]):
                raise CheckpointError(
                    f"{self.path} is not a checkpoint of `boundscope verify`; choose another file for it"
                )
            pools: dict[str, DomainPool | SpreadPool] = {}
            try:
                return self._read(file, pools, limit_bytes, folder)
            except BaseException as error:
                for pool in pools.values():
                    pool.close()
                if isinstance(error, (*_DAMAGE, OSError)):
                    raise CheckpointError(
                        f"the checkpoint {self.path} is damaged ({error}); remove it to start afresh"
                    ) from error
                raise

    def _read(
        self,
        file: IO[bytes],
        pools: dict[str, DomainPool | SpreadPool],
        limit_bytes: int | None,
        folder: Path | None,
    ) -> SearchState:
        with zipfile.ZipFile(file) as archive:
            self._check(archive)
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"its part {damaged} has changed")
            contents = msgspec.msgpack.decode(archive.read("contents"), type=_Contents)
            points = [_read_array(archive, f"point-{at}.npy") for at in range(len(contents.points))]
            arrays = [_read_array(archive, f"array-{at}.npy") for at in range(len(contents.arrays))]
            for at, name in enumerate(contents.pools):
                with archive.open(f"pool-{at}") as member:
                    pools[name] = DomainPool.load(
                        member, self.domains_path, limit_bytes=limit_bytes, folder=folder
                    )
        return SearchState(
            clauses=contents.clauses,
            counters=contents.counters,
            elapsed_s=contents.elapsed_s,
            points=dict(zip(contents.points, points, strict=True)),
            arrays=dict(zip(contents.arrays, arrays, strict=True)),
            pools=pools,
        )

    def _check(self, archive: zipfile.ZipFile) -> None:
        head = msgspec.json.decode(archive.read(FORMAT), type=_Head)
        if head.version != VERSION:
            age, remedy = (
                ("a newer", "update this one") if head.version > VERSION else ("an older", "use that one")
            )
            raise CheckpointError(
                f"the checkpoint {self.path} was written by {age} Boundscope (format {head.version}; this one has "
                f"{VERSION}); {remedy}, or remove the file to start afresh"
            )
        differing = [name for name in {**head.job, **self.job} if head.job.get(name) != self.job.get(name)]
        if differing:
            what = "; ".join(
                f"{name}: {_short(head.job.get(name))} there, {_short(self.job.get(name))} here"
                for name in differing
            )
            raise CheckpointError(
                f"{self.path} is the checkpoint of another job ({what}); choose another file, or remove it to start "
                "afresh"
            )

    # ------------------------------------------------------------ the end

    def remove(self) -> None:
        """Take it away: there is a final answer."""
        if not self._writes:
            raise ValueError("this process only loads")
        self._acquire()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be removed: {error.strerror}; remove it by hand"
            ) from error
        self._temporary.unlink(missing_ok=True)
        shutil.rmtree(self.domains_path, ignore_errors=True)

    def close(self) -> None:
        """Let other processes use it."""
        if self._lock is not None:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.lock")

    def _acquire(self) -> None:
        while self._writes and self._lock is None:
            try:
                descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise CheckpointError(
                    f"the checkpoint {self.path} cannot be written: {error.strerror}; choose another place for it"
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise CheckpointError(
                    f"another process is using the checkpoint {self.path}; wait for its end, or choose another file"
                ) from None
            except OSError:
                pass  # a file system without locks
            if _is_at(self._lock_path, descriptor):
                self._lock = descriptor
            else:  # whoever had it removed it meanwhile
                os.close(descriptor)


def _nobody(pool: str, rank: int) -> None:
    raise ValueError(f"rank {rank} has domains of {pool!r}, and is not asked for them")


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(name) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _short(text: str | None) -> str:
    if text is None:
        return "none"
    return text if len(text) <= 20 else f"{text[:12]}…"
