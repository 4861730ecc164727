"""VNN-COMP's instances.csv: which networks, properties and time limits a benchmark has. Imports no torch."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from boundscope.errors import UsageError
from boundscope.protocol import FileRef, Instance, InstancesJob, VerifyJob

EXPECTED = "a line is NETWORK,PROPERTY,SECONDS, with paths relative to the file's own folder"
NETWORK_NAMES = (".onnx", ".onnx.gz")
PROPERTY_NAMES = (".vnnlib", ".vnnlib.gz", ".smt2", ".smt2.gz")
_HEADS = {
    "network": ("onnx", "network", "onnx_file", "onnx_path"),
    "property": ("vnnlib", "property", "vnnlib_file", "vnnlib_path"),
    "timeout": ("timeout", "timeout_s", "timeout [s]", "seconds"),
}


@dataclass(frozen=True)
class InstanceLine:
    """One instance, with files that exist; `onnx` and `vnnlib` are the paths as written."""

    line: int
    onnx: str
    vnnlib: str
    network: Path
    property: Path
    timeout_s: float


def read_instances(path: Path) -> tuple[InstanceLine, ...]:
    """All instances of a file, plain or gzipped, in its order; with a head line (which may name more columns) or none.

    A file is also found where only its .gz lies there, or where it was unpacked.

    Raises:
        UsageError: naming file and line, for the first line that is wrong.
    """
    columns: tuple[int, int, int] = (0, 1, 2)
    exact = True
    found: list[InstanceLine] = []
    reader = csv.reader(io.StringIO(_text(path)), skipinitialspace=True)
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if not found and exact and _is_head(cells):
                columns, exact = _columns(path, reader.line_num, cells), False
                continue
            found.append(_instance(path, reader.line_num, cells, columns, exact=exact))
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error}; {EXPECTED}") from None
    if not found:
        raise UsageError(f"{path} has no instances; {EXPECTED}")
    return tuple(found)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; give a benchmark's instances.csv") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; give the instances.csv in it") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file; {EXPECTED}") from None


def _is_head(cells: Sequence[str]) -> bool:
    names = (*NETWORK_NAMES, *PROPERTY_NAMES)
    return not any(cell.lower().endswith(names) for cell in cells) and cells[0].lower() in {
        name for group in _HEADS.values() for name in group
    } | {"family", "category", "instance", "number", "id"}


def _columns(path: Path, line: int, cells: Sequence[str]) -> tuple[int, int, int]:
    lowered = [cell.lower() for cell in cells]
    places = []
    for what, names in _HEADS.items():
        place = next((lowered.index(name) for name in names if name in lowered), None)
        if place is None:
            raise UsageError(f"{path}, line {line}: the head names no column for the {what}; {EXPECTED}")
        places.append(place)
    return places[0], places[1], places[2]


def _instance(
    path: Path, line: int, cells: Sequence[str], columns: tuple[int, int, int], *, exact: bool
) -> InstanceLine:
    where = f"{path}, line {line}"
    if len(cells) <= max(columns) or (exact and len(cells) != 3):
        raise UsageError(f"{where}: it has {len(cells)} of 3 columns; {EXPECTED}")
    onnx, vnnlib, timeout = (cells[column] for column in columns)
    if onnx.lower().endswith(PROPERTY_NAMES) and vnnlib.lower().endswith(NETWORK_NAMES):
        raise UsageError(f"{where}: network and property are the wrong way round; {EXPECTED}")
    return InstanceLine(
        line=line,
        onnx=onnx,
        vnnlib=vnnlib,
        network=_existing(where, path.parent, onnx, "network"),
        property=_existing(where, path.parent, vnnlib, "property"),
        timeout_s=_seconds(where, timeout),
    )


def _existing(where: str, folder: Path, text: str, what: str) -> Path:
    """The file that a line names, packed or unpacked."""
    if not text:
        raise UsageError(f"{where}: the {what} is missing; {EXPECTED}")
    named = folder / text
    other = named.with_suffix("") if named.suffix == ".gz" else named.with_name(f"{named.name}.gz")
    for each in (named, other):
        if each.is_file():
            return each
    raise UsageError(f"{where}: there is no {what} {named}, plain or .gz")


def _seconds(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"{where}: {text!r} is not a time limit; write seconds, more than 0")
    return value


def benchmark_name(path: Path) -> str:
    """What people call a benchmark: its file's name, or its folder's where the file is named as all of them are."""
    stem = path.name.removesuffix(".gz").removesuffix(".csv")
    if stem.lower() in ("instances", "instance", "benchmark", "manifest"):
        return path.absolute().parent.name or stem
    return stem


def files_of(lines: Sequence[InstanceLine]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Networks and properties, each once, in the order of their first use."""
    return (
        tuple(dict.fromkeys(line.network for line in lines)),
        tuple(dict.fromkeys(line.property for line in lines)),
    )


def instances_job(
    lines: Sequence[InstanceLine],
    verify: VerifyJob,
    refer: Callable[[Path], FileRef],
    *,
    name: str,
    timeout_s: float | None = None,
) -> InstancesJob:
    """The job that runs these lines as `verify` says; `refer` describes or sends each file, once.

    `timeout_s` stands for every line's own. Files are called by their paths below the folder that they share. Raises
    what `refer` raises.
    """
    networks, properties = files_of(lines)
    places = {path: number for group in (networks, properties) for number, path in enumerate(group)}
    job = InstancesJob(
        networks=_named(networks, refer),
        properties=_named(properties, refer),
        instances=tuple(
            Instance(
                network=places[line.network],
                property=places[line.property],
                timeout_s=line.timeout_s if timeout_s is None else timeout_s,
            )
            for line in lines
        ),
        verify=verify,
        name=name,
    )
    return with_options(job, verify)


def with_options(job: InstancesJob, verify: VerifyJob) -> InstancesJob:
    """The job run as `verify` says, which stands in it for the first instance."""
    job = msgspec.structs.replace(job, verify=verify)
    return msgspec.structs.replace(job, verify=job.verify_job(0))


def _named(paths: Sequence[Path], refer: Callable[[Path], FileRef]) -> tuple[FileRef, ...]:
    shared = os.path.commonpath([path.absolute().parent for path in paths])
    return tuple(
        msgspec.structs.replace(refer(path), name=path.absolute().relative_to(shared).as_posix())
        for path in paths
    )


def duration_limit_s(lines: Sequence[InstanceLine]) -> float:
    """How long the instances may take together."""
    return sum(line.timeout_s for line in lines)
