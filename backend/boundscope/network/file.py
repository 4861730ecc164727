"""ONNX files on disk: gzip, external data, local functions; every way to be malformed becomes a sentence."""

from __future__ import annotations

import gzip
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from boundscope.errors import NetworkError
from boundscope.network.arrays import FileState
from boundscope.network.stored import LARGE_BYTES, DataFile, Place, place_of, read_skeleton

GZIP_MAGIC = b"\x1f\x8b"
UNPACKED_IN_MEMORY = 16 << 20  # bytes of a gzip file; more go to a temporary file
_COPIED_BYTES = 1 << 20


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a network file, unpacked where it is gzip data.

    Raises:
        NetworkError: it cannot be read or unpacked.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NetworkError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not data.startswith(GZIP_MAGIC):
        if path.suffix == ".gz":
            raise NetworkError(f"{path}: is named .gz, but it is not gzip data; unpack or rename it")
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged_gzip(path, error) from error


def _damaged_gzip(path: Path, error: Exception) -> NetworkError:
    return NetworkError(f"{path}: the gzip data is damaged or cut off ({error}); fetch the file again")


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read a network whole: external data is loaded from beside the file, local functions are inlined.

    Raises:
        NetworkError: the file is not an ONNX network, or its external data is missing or too short.
    """
    path = Path(path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(read_bytes(path))
    except DecodeError as error:
        raise NetworkError(
            f"{path}: is not an ONNX network, or it is cut off ({error}); export or fetch it again"
        ) from error
    _require_graph(model, path)
    for tensor in _all_tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _load_external(tensor, path)
    return _inlined(model, path)


def _require_graph(model: onnx.ModelProto, path: Path) -> None:
    if not model.HasField("graph") or not model.ir_version or not (model.graph.node or model.graph.output):
        raise NetworkError(f"{path}: is not an ONNX network: it holds no graph")


def _inlined(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except (RuntimeError, ValueError) as error:
        raise NetworkError(f"{path}: its local functions cannot be inlined ({error})") from error


@dataclass(frozen=True)
class OpenModel:
    """A network whose large initializers are still in its files: `places` by name; in `model` they have no data.

    `files` are those that others may write to while arrays are views of them.
    """

    model: onnx.ModelProto
    places: Mapping[str, Place]
    files: tuple[FileState, ...] = ()


@contextmanager
def open_model(
    path: str | os.PathLike[str], *, mapped: bool = False, unpacked: BinaryIO | None = None
) -> Iterator[OpenModel]:
    """Read a network but for the data of its large tensors, which can be read, or mapped, as long as it is open.
    `unpacked`: of a gzip file, what `unpack` gave; it stays the caller's.

    Raises:
        NetworkError: as `read_model`.
    """
    path = Path(path)
    with ExitStack() as stack:
        source = _content(path, stack, mapped, unpacked)
        skeleton = None if source is None else read_skeleton(source)
        if skeleton is None or source is None or skeleton[0].functions or _holds_little(source, skeleton[0]):
            yield OpenModel(read_model(path), {})
            return
        model, numbered = skeleton
        _require_graph(model, path)
        files: dict[Path, DataFile] = {path: source}
        places: dict[str, Place] = {}
        for number, tensor in enumerate(model.graph.initializer):
            place = numbered.get(number)
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                place = _external_place(tensor, path, files, stack, mapped)
            places.pop(tensor.name, None)
            if place is not None:
                places[tensor.name] = place
        for tensor in _all_tensors(model.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL and tensor.name not in places:
                _load_external(tensor, path)
        watched = tuple(one.state for one in files.values() if mapped and not one.own)
        yield OpenModel(model, places, watched if places else ())


def _holds_little(source: DataFile, model: onnx.ModelProto) -> bool:
    """Whether a file is small, and so is what it needs: its data do not lie in another."""
    return source.size < LARGE_BYTES and not has_external_data(model)


def _content(path: Path, stack: ExitStack, mapped: bool, unpacked: BinaryIO | None) -> DataFile | None:
    """A network's file, or what was unpacked of it; None where `read_bytes` is to say what is wrong, or it is small."""
    if unpacked is not None:
        return DataFile(path, unpacked, mapped, own=True)
    try:
        file = stack.enter_context(path.open("rb"))
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    except OSError:
        return None
    if not packed:
        return None if path.suffix == ".gz" else DataFile(path, file, mapped)
    found = _unpacked(path, file)
    return None if found is None else DataFile(path, stack.enter_context(found), mapped, own=True)


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as gzip data do; of one that cannot be read, False."""
    try:
        with open(path, "rb") as file:
            return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    except OSError:
        return False


def unpack(path: str | os.PathLike[str]) -> BinaryIO | None:
    """The content of a large gzip file as a temporary file without a name; None of a small one.

    Raises:
        NetworkError: it is damaged, or there is no room for it.
    """
    try:
        with open(path, "rb") as file:
            return _unpacked(Path(path), file)
    except OSError as error:
        raise NetworkError(f"{path}: cannot be read: {error.strerror or error}") from error


def _unpacked(path: Path, file: BinaryIO) -> BinaryIO | None:
    file.seek(0)
    start = b""
    with gzip.open(file) as content:
        try:
            start = content.read(UNPACKED_IN_MEMORY)
            if len(start) < UNPACKED_IN_MEMORY:
                return None
            part = content.read(_COPIED_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged_gzip(path, error) from error
        target = tempfile.TemporaryFile(prefix="boundscope-")  # noqa: SIM115 the caller closes it
        try:
            target.write(start)
            del start
            while part:
                target.write(part)
                part = content.read(_COPIED_BYTES)
            target.flush()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            target.close()
            raise _damaged_gzip(path, error) from error
        except OSError as error:
            target.close()
            raise NetworkError(
                f"{path}: cannot be unpacked into {tempfile.gettempdir()}: {error.strerror or error}; make room there, "
                "or set TMPDIR"
            ) from error
    return target


def has_external_data(model: onnx.ModelProto) -> bool:
    """Whether some tensor's data lies in another file."""
    return any(t.data_location == onnx.TensorProto.EXTERNAL for t in _all_tensors(model.graph))


def _all_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t


@dataclass(frozen=True)
class _External:
    """Where a tensor says that its data lies, and how many bytes it needs and names."""

    file: Path
    location: PurePosixPath
    offset: int
    length: int
    expected: int

    @classmethod
    def of(cls, tensor: onnx.TensorProto, path: Path) -> _External:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = PurePosixPath(entries.get("location", ""))
        if not location.parts or location.is_absolute() or ".." in location.parts:
            raise NetworkError(
                f"{path}: the data of tensor '{tensor.name}' lies in '{location}'; it must lie beside the network's "
                "file"
            )
        expected = _byte_count(tensor, path)
        try:
            offset = int(entries.get("offset") or 0)
            length = int(entries.get("length") or expected)
        except ValueError as error:
            raise _no_number(tensor, path, error) from error
        return cls(path.parent / location, location, offset, length, expected)

    def unreadable(self, tensor: onnx.TensorProto, path: Path, error: OSError) -> NetworkError:
        return NetworkError(
            f"{path}: the external data file '{self.location}' of tensor '{tensor.name}' cannot be read: "
            f"{error.strerror or error}; put it beside the network's file"
        )

    def require(self, tensor: onnx.TensorProto, path: Path, found: int) -> None:
        if found != self.expected:
            raise NetworkError(
                f"{path}: tensor '{tensor.name}' needs {self.expected} bytes of '{self.location}' from offset "
                f"{self.offset}; there are {found}"
            )


def _no_number(tensor: onnx.TensorProto, path: Path, error: ValueError) -> NetworkError:
    return NetworkError(f"{path}: offset or length of tensor '{tensor.name}' is not a number ({error})")


def _external_place(
    tensor: onnx.TensorProto, path: Path, files: dict[Path, DataFile], stack: ExitStack, mapped: bool
) -> Place | None:
    """Where the data of a large tensor lies; None for what `_load_external` reads."""
    external = _External.of(tensor, path)
    if external.offset < 0 or external.length < 0:
        return None
    try:
        if external.file not in files:
            file = stack.enter_context(external.file.open("rb"))
            files[external.file] = DataFile(external.file, file, mapped)
    except OSError as error:
        raise external.unreadable(tensor, path, error) from error
    source = files[external.file]
    external.require(tensor, path, max(0, min(external.length, source.size - external.offset)))
    return place_of(tensor, source, external.offset, external.expected)


def _load_external(tensor: onnx.TensorProto, path: Path) -> None:
    """Put a tensor's external data into the tensor itself."""
    external = _External.of(tensor, path)
    try:
        with open(external.file, "rb") as file:
            file.seek(external.offset)
            data = file.read(external.length)
    except ValueError as error:
        raise _no_number(tensor, path, error) from error
    except OSError as error:
        raise external.unreadable(tensor, path, error) from error
    external.require(tensor, path, len(data))
    tensor.raw_data = data
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _byte_count(tensor: onnx.TensorProto, path: Path) -> int:
    try:
        item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError as error:
        raise NetworkError(f"{path}: tensor '{tensor.name}' has an unknown element type") from error
    return int(math.prod(tensor.dims)) * int(item)
