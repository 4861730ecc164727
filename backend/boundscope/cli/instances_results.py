"""The results of a benchmark as a CSV file that grows row by row, so that a run goes on where another one stopped."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from boundscope import __version__
from boundscope.errors import BoundscopeError, UsageError
from boundscope.instances import InstanceLine
from boundscope.protocol import FileRef, InstanceResult, PropertyFile, Verdict, VerifyJob
from boundscope.records import one_line
from boundscope.vnncomp import counterexample_text

COLUMNS = (
    "onnx",
    "vnnlib",
    "timeout [s]",
    "verdict",
    "time [s]",
    "margin lower bound",
    "margin upper bound",
    "counterexample",
    "reason",
    "fingerprint",
)
_DIGITS = 12
_CHANGED = ("the network has changed", "the property has changed", "options or version were others")
_NOBODY = FileRef(name="", sha256="", size_bytes=0)


def fingerprint(job: VerifyJob) -> str:
    """What a row is worth: contents of network and property, and how they were verified by which version."""
    assert isinstance(job.property, PropertyFile)
    plain = msgspec.structs.replace(job, network=_NOBODY, property=PropertyFile(file=_NOBODY))
    how = msgspec.json.encode(plain) + __version__.encode()
    parts = (_content(job.network), _content(job.property.file), hashlib.sha256(how).hexdigest())
    return "-".join(part[:_DIGITS] for part in parts)


def _content(ref: FileRef) -> str:
    digest = hashlib.sha256(ref.sha256.encode())
    for companion in ref.companions:
        digest.update(f"{companion.name}\0{companion.sha256}".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Instance:
    """A line of the instances file with the names of its files in the job, and the fingerprint of its row."""

    line: InstanceLine
    network: str
    property: str
    timeout_s: float
    fingerprint: str


class ResultsFile(AbstractContextManager["ResultsFile"]):
    """`done` holds the rows that were there, by their place among the instances.

    Each new row is on disk before `add` returns; a line that a crash left half written is dropped. Counterexamples
    lie in a folder beside the file, in VNN-COMP's format.
    """

    def __init__(self, path: Path, instances: Sequence[Instance]) -> None:
        """Raises UsageError where the file is not such a file, is in use, or holds rows of other contents."""
        self.path = path
        self.folder = path.with_name(f"{path.name.removesuffix('.csv')}_counterexamples")
        self._instances = instances
        self._file = _locked(path)
        self.done: dict[int, InstanceResult] = {}
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> None:
        data = self._file.read()
        head = _encoded(COLUMNS)
        if not data.startswith(head) and not head.startswith(data):
            raise UsageError(
                f"{self.path} is not a file of results, whose columns are {', '.join(COLUMNS)}; "
                "give --results another file"
            )
        whole = data[: data.rfind(b"\n") + 1]
        self._file.seek(len(whole))
        self._file.truncate()
        if not whole:
            self._write(COLUMNS)
            return
        try:
            rows = list(csv.reader(io.StringIO(whole.decode("utf-8"))))
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{self.path} cannot be read ({error}); give --results another file") from None
        waiting: dict[tuple[str, str], list[int]] = {}
        for place, instance in enumerate(self._instances):
            waiting.setdefault((instance.line.onnx, instance.line.vnnlib), []).append(place)
        for number, cells in enumerate(rows[1:], start=2):
            self._take(number, cells, waiting)

    def _take(self, number: int, cells: list[str], waiting: Mapping[tuple[str, str], list[int]]) -> None:
        where = f"{self.path}, line {number}"
        if len(cells) != len(COLUMNS):
            raise UsageError(f"{where}: it has {len(cells)} of {len(COLUMNS)} columns; remove the line")
        row = dict(zip(COLUMNS, cells, strict=True))
        places = waiting.get((row["onnx"], row["vnnlib"]))
        if not places:
            return  # of an instance that this run does not have
        own = [each for each in places if self._instances[each].fingerprint == row["fingerprint"]]
        place = (own or places)[0]
        places.remove(place)
        instance = self._instances[place]
        if row["fingerprint"] != instance.fingerprint:
            raise UsageError(
                f"{where}: since this row was written, {_what_changed(row['fingerprint'], instance)} "
                f"({row['onnx']}, {row['vnnlib']}); give --results another file, or remove the row to run it again"
            )
        try:
            self.done[place] = InstanceResult(
                number=place,
                network=instance.network,
                property=instance.property,
                verdict=Verdict(row["verdict"]),
                reason=row["reason"],
                seconds=float(row["time [s]"]),
                margin=_number(row["margin lower bound"]),
                reached=_number(row["margin upper bound"]),
            )
        except ValueError as error:
            raise UsageError(f"{where}: {error}; remove the line to run the instance again") from None

    def add(self, place: int, result: InstanceResult) -> Path | None:
        """Write the row of one instance, and its counterexample; where that is.

        Raises BoundscopeError where the disk does not take it.
        """
        instance = self._instances[place]
        try:
            found = self._write_counterexample(place, result)
            self._write(
                (
                    instance.line.onnx,
                    instance.line.vnnlib,
                    f"{instance.timeout_s:g}",
                    result.verdict.value,
                    f"{result.seconds:.3f}",
                    "" if result.margin is None else repr(result.margin),
                    "" if result.reached is None else repr(result.reached),
                    "" if found is None else f"{self.folder.name}/{found.name}",
                    one_line(result.reason),
                    instance.fingerprint,
                )
            )
        except OSError as error:
            raise BoundscopeError(
                f"{error.filename or self.path} cannot be written: {error.strerror}; make room there and run the "
                "same command again, which goes on from the rows that are there"
            ) from None
        return found

    def _write_counterexample(self, place: int, result: InstanceResult) -> Path | None:
        if result.counterexample is None:
            return None
        self.folder.mkdir(exist_ok=True)
        stems = [_stem(name) for name in (result.network, result.property)]
        path = self.folder / f"{place + 1:04d}_{'_'.join(stems)}.counterexample"
        path.write_text(counterexample_text(result.counterexample), encoding="utf-8")
        return path

    def _write(self, cells: Iterable[str]) -> None:
        self._file.write(_encoded(cells))
        self._file.flush()
        os.fsync(self._file.fileno())

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _encoded(cells: Iterable[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue().encode()


def _locked(path: Path) -> BinaryIO:
    """The file, open for reading and writing, held by this process alone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"--results {path} cannot be written: {error.strerror}") from None
    file = os.fdopen(descriptor, "r+b")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UsageError(f"{path} is being written by another run; give --results another file") from None
    return file


def _what_changed(text: str, instance: Instance) -> str:
    before, now = text.split("-"), instance.fingerprint.split("-")
    if len(before) != len(now):
        return _CHANGED[-1]
    changed = [words for words, old, new in zip(_CHANGED, before, now, strict=True) if old != new]
    return " and ".join(changed)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _stem(name: str) -> str:
    short = name.removesuffix(".gz").rpartition(".")[0] or name
    return re.sub(r"[^A-Za-z0-9._-]+", "_", short)[:80]
