"""Files to and from a daemon, by content."""

from __future__ import annotations

import gzip
import hashlib
import mmap
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol, TypeVar

from boundscope.errors import DaemonError
from boundscope.protocol import (
    BLOB_CHUNK_BYTES,
    BlobChunk,
    BlobGet,
    BlobPut,
    BlobStat,
    BlobState,
    FileRef,
    RequestBody,
    Struct,
)

if TYPE_CHECKING:
    import onnx

_Body = TypeVar("_Body", bound=Struct)


class Ask(Protocol):
    """`Client.ask`."""

    def __call__(self, body: RequestBody, expected: type[_Body], timeout_s: float = ...) -> _Body: ...


def upload(ask: Ask, path: Path, name: str | None, progress: Callable[[int, int], None] | None) -> FileRef:
    """Send what the daemon does not have of a file and its ONNX external data."""
    try:
        companions = [(location, path.parent / location) for location in external_data(path)]
        parts = [(name or path.name, path), *companions]
        refs = [
            FileRef(name=each, sha256=_sha256(source), size_bytes=source.stat().st_size)
            for each, source in parts
        ]
        total = sum(ref.size_bytes for ref in refs)
        before = 0
        for ref, (_, source) in zip(refs, parts, strict=True):
            for sent in _send(ask, ref, source):
                if progress is not None:
                    progress(before + sent, total)
            before += ref.size_bytes
    except OSError as error:
        raise DaemonError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    main = refs[0]
    return FileRef(name=main.name, sha256=main.sha256, size_bytes=main.size_bytes, companions=tuple(refs[1:]))


def _send(ask: Ask, ref: FileRef, source: Path) -> Iterator[int]:
    """Send one file from where the daemon stands; yields how many bytes it has."""
    state = ask(BlobStat(sha256=ref.sha256), BlobState)
    with source.open("rb") as file:
        while not state.complete:
            file.seek(state.have_bytes)
            data = file.read(BLOB_CHUNK_BYTES)
            if not data and ref.size_bytes:
                raise DaemonError(f"{source} became shorter while it was sent; send it again")
            put = BlobPut(sha256=ref.sha256, offset=state.have_bytes, total_bytes=ref.size_bytes, data=data)
            state = ask(put, BlobState, 60.0)
            yield state.have_bytes
    yield ref.size_bytes


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(ask: Ask, ref: FileRef, path: Path) -> Path:
    """Write `ref` to `path` and its companions beside it, each atomically and checked by hash."""
    targets = [(ref, path)]
    for companion in ref.companions:
        relative = PurePosixPath(companion.name)
        if relative.is_absolute() or ".." in relative.parts:
            raise DaemonError(f"the daemon names a file outside the folder: {companion.name}")
        targets.append((companion, path.parent / relative))
    for each, target in targets:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch_one(ask, each, target)
        except OSError as error:
            raise DaemonError(f"{target} cannot be written: {error.strerror}") from error
    return path


def _fetch_one(ask: Ask, ref: FileRef, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    digest = hashlib.sha256()
    offset = 0
    try:
        with temporary.open("wb") as file:
            while True:
                chunk = ask(BlobGet(sha256=ref.sha256, offset=offset), BlobChunk, 60.0)
                file.write(chunk.data)
                digest.update(chunk.data)
                offset += len(chunk.data)
                if offset >= chunk.total_bytes or not chunk.data:
                    break
        if digest.hexdigest() != ref.sha256:
            raise DaemonError(f"{ref.name} arrived damaged (SHA-256 differs); fetch it again")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def external_data(path: Path) -> tuple[str, ...]:
    """Relative names of the files that hold an ONNX file's weights outside it; () for every other file.

    The file is parsed only where it may have some: ONNX writes the key "location" beside each.
    """
    if not path.name.endswith((".onnx", ".onnx.gz")) or not _mentions_location(path):
        return ()
    # Late: onnx takes a while to import, and most networks have no external data.
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.ModelProto()
        model.ParseFromString(_content(path))
    except DecodeError:
        return ()  # whoever reads the network says what is wrong with it
    names = {
        entry.value
        for tensor in _tensors(model.graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for name in sorted(names):
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise DaemonError(f"{path} keeps weights in {name}, outside its own folder; put them beside it")
        if not (path.parent / relative).is_file():
            raise DaemonError(f"{path} keeps weights in {name}, which is not beside it; put it there")
    return tuple(sorted(names))


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    if not path.name.endswith(".gz"):
        return data
    try:
        return gzip.decompress(data)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return b""


def _mentions_location(path: Path) -> bool:
    if path.name.endswith(".gz"):
        return b"location" in _content(path)
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return view.find(b"location") >= 0


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph, those of its subgraphs and attributes included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(subgraph)
