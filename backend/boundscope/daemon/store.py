"""The daemon's memory: jobs and their events in SQLite (WAL). Nothing is told before it is committed here.

Changes are staged, then committed together by `flush`. A commit that fails (a full disk) keeps what was staged,
so that the next `flush` tries again. A commit that changes a job's state or holds a result waits for the disk;
others survive the end of the process, and may lose their last moments in a power cut.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from boundscope.daemon.processes import ProcessMark
from boundscope.errors import StoreError
from boundscope.protocol import (
    TELEMETRY,
    Event,
    EventRecord,
    Failure,
    GapPoint,
    InstanceResult,
    InstancesResult,
    JobInfo,
    LayerNoise,
    MemorySample,
    SearchPoint,
    StateChanged,
    VariabilityResult,
    VerifyResult,
)

SCHEMA_VERSION = 1
LASTING = StateChanged | VerifyResult | VariabilityResult | InstanceResult | InstancesResult | Failure
SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, key TEXT UNIQUE NOT NULL, info BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    job_id TEXT NOT NULL, number INTEGER NOT NULL, thin TEXT, record BLOB NOT NULL,
    PRIMARY KEY (job_id, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS processes (job_id TEXT NOT NULL, pid INTEGER NOT NULL, birth TEXT NOT NULL,
    PRIMARY KEY (pid, birth)) WITHOUT ROWID;
"""

_encode = msgspec.msgpack.Encoder().encode
_decode_info = msgspec.msgpack.Decoder(JobInfo).decode


@dataclass
class _Staged:
    jobs: dict[str, tuple[str, JobInfo]] = field(default_factory=dict)
    events: list[tuple[str, int, str | None, bytes]] = field(default_factory=list)
    processes: list[tuple[str, int, str]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)  # jobs whose processes may be forgotten
    durable: bool = False
    since: float = 0.0


@dataclass(frozen=True)
class Slice:
    """Stored records in order, still encoded; `upto` is the number that the slice reaches."""

    records: tuple[msgspec.Raw, ...]
    upto: int


class Store:
    """One thread owns it. Every method raises StoreError, with what to do, where the disk does not play along."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._staged = _Staged()
        self._numbers: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._infos: dict[str, JobInfo] = {}
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            raise self._trouble(error) from error

    def _prepare(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by a newer Boundscope; update this one, or choose another --home"
            )
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.executescript(SCHEMA + f"PRAGMA user_version={SCHEMA_VERSION};")
        for job_id, number in self._database.execute(
            "SELECT job_id, MAX(number) FROM events GROUP BY job_id"
        ):
            self._numbers[job_id] = self._committed[job_id] = number

    def _trouble(self, error: sqlite3.Error) -> StoreError:
        text = str(error)
        if "full" in text or "I/O" in text:
            return StoreError(f"the disk that holds {self.path} is full or failing ({text}); make room there")
        if "not a database" in text or "malformed" in text:
            return StoreError(
                f"the store {self.path} is damaged ({text}); move it away (the blobs and job folders beside it "
                "stay useful) and start the daemon again"
            )
        return StoreError(f"the store {self.path} cannot be used: {text}; check its permissions and its disk")

    # ------------------------------------------------------------ reading (only what is committed)

    def jobs(self) -> list[tuple[str, JobInfo]]:
        """Every job with its submission key, in order of creation."""
        try:
            rows = self._database.execute("SELECT key, info FROM jobs").fetchall()
            found = [(key, _decode_info(info)) for key, info in rows]
        except sqlite3.Error as error:
            raise self._trouble(error) from error
        except msgspec.DecodeError as error:
            raise StoreError(
                f"the store {self.path} holds a job that cannot be read ({error}); move it away"
            ) from error
        self._infos.update((info.id, info) for _, info in found)
        return sorted(found, key=lambda pair: (pair[1].created_s, pair[1].id))

    def job(self, job_id: str) -> JobInfo | None:
        """A job as it was last committed."""
        info = self._infos.get(job_id)
        return None if info is None else msgspec.structs.replace(info, last_number=self.committed(job_id))

    def committed(self, job_id: str) -> int:
        """The newest committed number of a job; 0 before its first event."""
        return self._committed.get(job_id, 0)

    def page(self, job_id: str, after: int, limit: int) -> Slice:
        """The records after a number, at most `limit`."""
        return self._slice(
            "SELECT number, record FROM events WHERE job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (job_id, after, limit),
            after,
        )

    def thinned(self, job_id: str, after: int, limit: int) -> Slice:
        """The same, but of each kind of telemetry only its newest record; all else is there."""
        found = self._slice(
            "SELECT number, record FROM events WHERE job_id = ?1 AND number > ?2 AND (thin IS NULL OR number IN "
            "(SELECT MAX(number) FROM events WHERE job_id = ?1 AND number > ?2 AND thin IS NOT NULL GROUP BY thin)) "
            "ORDER BY number LIMIT ?3",
            (job_id, after, limit),
            after,
        )
        return found if len(found.records) >= limit else Slice(found.records, self.committed(job_id))

    def _slice(self, query: str, values: tuple[str | int, ...], after: int) -> Slice:
        try:
            rows = self._database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._trouble(error) from error
        return Slice(tuple(msgspec.Raw(row[1]) for row in rows), rows[-1][0] if rows else after)

    def processes(self) -> list[tuple[str, ProcessMark]]:
        """Processes that a running job had when it was last written, with its id."""
        rows = self._database.execute("SELECT job_id, pid, birth FROM processes").fetchall()
        return [(job_id, ProcessMark(pid, birth)) for job_id, pid, birth in rows]

    # ------------------------------------------------------------ staging

    @property
    def staged_since(self) -> float | None:
        """When (monotonic) the oldest uncommitted change was staged; None where all is committed."""
        return self._staged.since or None

    def _touch(self, *, durable: bool = False) -> None:
        self._staged.since = self._staged.since or time.monotonic()
        self._staged.durable |= durable

    def put_job(self, key: str, info: JobInfo) -> None:
        self._staged.jobs[info.id] = (key, info)
        self._touch(durable=True)

    def append(self, job_id: str, rank: int, time_s: float, event: Event) -> int:
        """Number an event and stage it."""
        number = self._numbers.get(job_id, 0) + 1
        self._numbers[job_id] = number
        record = EventRecord(number=number, time_s=time_s, rank=rank, event=event)
        self._staged.events.append((job_id, number, thinning_key(rank, event), _encode(record)))
        self._touch(durable=isinstance(event, LASTING))
        return number

    def remember_process(self, job_id: str, mark: ProcessMark) -> None:
        self._staged.processes.append((job_id, mark.pid, mark.birth))
        self._touch()

    def forget_processes(self, job_id: str) -> None:
        self._staged.finished.append(job_id)
        self._touch()

    def unstage(self, job_id: str) -> None:
        """Forget what has not been committed about a job that is to be no more."""
        self._staged.jobs.pop(job_id, None)
        self._staged.events = [event for event in self._staged.events if event[0] != job_id]
        self._numbers.pop(job_id, None)

    def flush(self) -> set[str]:
        """Commit what is staged; the jobs that have new events."""
        staged = self._staged
        if not staged.since:
            return set()
        try:
            self._database.execute(f"PRAGMA synchronous={'FULL' if staged.durable else 'NORMAL'}")
            self._database.execute("BEGIN IMMEDIATE")
            self._write(staged)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise self._trouble(error) from error
        self._staged = _Staged()
        self._infos.update((info.id, info) for _, info in staged.jobs.values())
        for job_id, number, _, _ in staged.events:
            self._committed[job_id] = number
        return {event[0] for event in staged.events}

    def _write(self, staged: _Staged) -> None:
        database = self._database
        for key, info in staged.jobs.values():
            database.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", (info.id, key, _encode(info)))
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", staged.events)
        database.executemany("INSERT OR REPLACE INTO processes VALUES (?, ?, ?)", staged.processes)
        database.executemany(
            "DELETE FROM processes WHERE job_id = ?", [(job_id,) for job_id in staged.finished]
        )

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        """Remove jobs with all their events, at once."""
        keys = [(job_id,) for job_id in job_ids]
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for table, column in (("events", "job_id"), ("processes", "job_id"), ("jobs", "id")):
                self._database.executemany(f"DELETE FROM {table} WHERE {column} = ?", keys)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise self._trouble(error) from error
        for (job_id,) in keys:
            self.unstage(job_id)
            self._committed.pop(job_id, None)
            self._infos.pop(job_id, None)

    def close(self) -> None:
        self._database.close()


def thinning_key(rank: int, event: Event) -> str | None:
    """What a newer event replaces this one for a slow client; None where it must not be left out."""
    if not isinstance(event, TELEMETRY):
        return None
    match event:
        case GapPoint():
            return f"gap {event.case} {event.clause}"
        case SearchPoint():
            return "search"
        case MemorySample():
            return f"memory {rank}"
        case LayerNoise():
            return f"noise {rank} {event.layer}"
    return f"progress {rank}"
