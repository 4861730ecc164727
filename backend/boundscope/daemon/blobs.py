"""Files by content: received in pieces, checked by SHA-256, laid out for a job under the names people gave."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from boundscope.errors import StoreError
from boundscope.protocol import (
    BLOB_CHUNK_BYTES,
    BlobChunk,
    BlobState,
    EpsilonBall,
    FileRef,
    InstancesJob,
    Job,
    PropertySource,
    VariabilityJob,
)

_SHA256 = re.compile(r"[0-9a-f]{64}")
_FICLONE = 0x40049409
PART_KEPT_S = 7 * 24 * 3600.0


class BlobStore:
    """Complete blobs lie in `root`/xx/SHA256 (mode 0400), unfinished ones in `root`/parts/SHA256."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parts = root / "parts"
        self._parts.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._hashes: dict[str, tuple[int, hashlib._Hash]] = {}

    def path(self, sha256: str) -> Path:
        """Where the blob lies when complete."""
        if not _SHA256.fullmatch(sha256):
            raise StoreError(f"{sha256[:80]!r} is not a SHA-256 in lower-case hexadecimal")
        return self._root / sha256[:2] / sha256

    def state(self, sha256: str) -> BlobState:
        """How many bytes are here; a broken transfer goes on from there."""
        final, part = self.path(sha256), self._parts / sha256
        if final.exists():
            return BlobState(sha256=sha256, have_bytes=final.stat().st_size, complete=True)
        have = part.stat().st_size if part.exists() else 0
        return BlobState(sha256=sha256, have_bytes=have, complete=False)

    def put(self, sha256: str, offset: int, total_bytes: int, data: bytes) -> BlobState:
        """Take one piece. The last one is checked: a blob with another hash is thrown away and refused."""
        before = self.state(sha256)
        if before.complete:
            return before
        if offset != before.have_bytes:
            raise StoreError(
                f"a piece at {offset} was sent where {before.have_bytes} bytes are here; ask, then go on from there"
            )
        if offset + len(data) > total_bytes:
            raise StoreError(f"a piece reaches byte {offset + len(data)} of a file of {total_bytes}")
        part = self._parts / sha256
        try:
            with part.open("ab") as file:
                file.write(data)
        except OSError as error:
            with suppress(OSError):
                os.truncate(part, offset)
            raise self._trouble(error) from error
        digest = self._digest(sha256, offset)
        digest.update(data)
        self._hashes[sha256] = (offset + len(data), digest)
        if offset + len(data) == total_bytes:
            self._finish(sha256, part, digest.hexdigest())
        return self.state(sha256)

    def _digest(self, sha256: str, have_bytes: int) -> hashlib._Hash:
        """The running hash of the first `have_bytes`; read anew where the daemon was restarted in between."""
        kept_bytes, digest = self._hashes.pop(sha256, (-1, hashlib.sha256()))
        if kept_bytes == have_bytes:
            return digest
        digest = hashlib.sha256()
        remaining = have_bytes
        with (self._parts / sha256).open("rb") as file:
            while remaining and (piece := file.read(min(remaining, BLOB_CHUNK_BYTES))):
                digest.update(piece)
                remaining -= len(piece)
        return digest

    def _finish(self, sha256: str, part: Path, found: str) -> None:
        del self._hashes[sha256]
        if found != sha256:
            part.unlink()
            raise StoreError(
                f"the file that arrived has SHA-256 {found}, not {sha256}; it was damaged on its way, send it again"
            )
        try:
            descriptor = os.open(part, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            part.chmod(0o400)
            final = self.path(sha256)
            final.parent.mkdir(exist_ok=True, mode=0o700)
            part.replace(final)
        except OSError as error:
            raise self._trouble(error) from error

    def get(self, sha256: str, offset: int, limit: int) -> BlobChunk:
        """One piece of a complete blob."""
        final = self.path(sha256)
        if not final.exists():
            raise StoreError(f"the daemon does not have the file with SHA-256 {sha256}")
        with final.open("rb") as file:
            file.seek(offset)
            data = file.read(max(0, min(limit, 16 * BLOB_CHUNK_BYTES)))
        return BlobChunk(sha256=sha256, offset=offset, total_bytes=final.stat().st_size, data=data)

    def require(self, ref: FileRef) -> None:
        """Refuse a job whose files are not all here."""
        for each in with_companions(ref):
            if not self.path(each.sha256).exists():
                raise StoreError(
                    f"the file {each.name} (SHA-256 {each.sha256[:12]}…) has not arrived completely; send it first"
                )

    def lay_out(self, ref: FileRef, folder: Path) -> Path:
        """Put a file and its companions into an empty folder under their names; the file's path.

        Copies (shared blocks where the file system can), not links: ONNX refuses linked external data.
        """
        names = [safe_relative_name(PurePosixPath(ref.name).name)]
        names += [safe_relative_name(companion.name) for companion in ref.companions]
        if len(set(names)) != len(names):
            raise StoreError(f"{ref.name}: two of its files have the same name")
        for each, name in zip(with_companions(ref), names, strict=True):
            target = folder / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _copy(self.path(each.sha256), target)
            except OSError as error:
                raise self._trouble(error) from error
        return folder / names[0]

    def keep_only(self, wanted: set[str]) -> None:
        """Remove complete blobs that no job names, and parts that nobody has added to for a week."""
        for final in self._root.glob("[0-9a-f][0-9a-f]/*"):
            if final.name not in wanted:
                final.unlink(missing_ok=True)
        for part in self._parts.iterdir():
            if time.time() - part.stat().st_mtime > PART_KEPT_S:
                part.unlink(missing_ok=True)

    def _trouble(self, error: OSError) -> StoreError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return StoreError(f"the disk that holds {self._root} is full; make room there and try again")
        return StoreError(f"a file under {self._root} cannot be written: {error.strerror}")


def with_companions(ref: FileRef) -> Iterator[FileRef]:
    yield ref
    yield from ref.companions


def property_file(source: PropertySource | None) -> FileRef | None:
    """The file that a property comes from: VNN-LIB, or the centre of an ε-ball."""
    if source is None:
        return None
    return source.center if isinstance(source, EpsilonBall) else source.file


def job_files(job: Job) -> tuple[FileRef, ...]:
    if isinstance(job, InstancesJob):
        return (*job.networks, *job.properties)
    points = job.inputs if isinstance(job, VariabilityJob) else ()
    return tuple(ref for ref in (job.network, property_file(job.property), *points) if ref is not None)


def hashes_of(jobs: Iterable[Job]) -> set[str]:
    """SHA-256 of every file that these jobs name."""
    return {each.sha256 for job in jobs for ref in job_files(job) for each in with_companions(ref)}


def safe_relative_name(name: str) -> str:
    """The name if it stays inside the folder it is laid out in; StoreError otherwise."""
    path = PurePosixPath(name)
    unsafe = path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name or "\0" in name
    if unsafe or any(len(part.encode()) > 255 for part in path.parts):
        raise StoreError(f"{name[:200]!r} is not a file name inside the job's own folder")
    return str(path)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("xb") as writer:
        os.fchmod(writer.fileno(), 0o600)
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:
            shutil.copyfileobj(reader, writer, BLOB_CHUNK_BYTES)
