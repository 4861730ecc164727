"""ONNX files on disk: gzip, external data, local functions; every way to be malformed becomes a sentence."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from boundscope.errors import NetworkError

GZIP_MAGIC = b"\x1f\x8b"


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
        raise NetworkError(
            f"{path}: the gzip data is damaged or cut off ({error}); fetch the file again"
        ) from error


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
    if not model.HasField("graph") or not model.ir_version or not (model.graph.node or model.graph.output):
        raise NetworkError(f"{path}: is not an ONNX network: it holds no graph")
    for tensor in _all_tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _load_external(tensor, path)
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except (RuntimeError, ValueError) as error:
            raise NetworkError(f"{path}: its local functions cannot be inlined ({error})") from error
    return model


def has_external_data(model: onnx.ModelProto) -> bool:
    """Whether some tensor's data lies in another file."""
    return any(t.data_location == onnx.TensorProto.EXTERNAL for t in _all_tensors(model.graph))


def _all_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t


def _load_external(tensor: onnx.TensorProto, path: Path) -> None:
    """Put a tensor's external data into the tensor itself."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = PurePosixPath(entries.get("location", ""))
    if not location.parts or location.is_absolute() or ".." in location.parts:
        raise NetworkError(
            f"{path}: the data of tensor '{tensor.name}' lies in '{location}'; it must lie beside the network's file"
        )
    expected = _byte_count(tensor, path)
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or expected)
        with open(path.parent / location, "rb") as file:
            file.seek(offset)
            data = file.read(length)
    except ValueError as error:
        raise NetworkError(
            f"{path}: offset or length of tensor '{tensor.name}' is not a number ({error})"
        ) from error
    except OSError as error:
        raise NetworkError(
            f"{path}: the external data file '{location}' of tensor '{tensor.name}' cannot be read: "
            f"{error.strerror or error}; put it beside the network's file"
        ) from error
    if len(data) != expected:
        raise NetworkError(
            f"{path}: tensor '{tensor.name}' needs {expected} bytes of '{location}' from offset {offset}; "
            f"there are {len(data)}"
        )
    tensor.raw_data = data
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _byte_count(tensor: onnx.TensorProto, path: Path) -> int:
    try:
        item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError as error:
        raise NetworkError(f"{path}: tensor '{tensor.name}' has an unknown element type") from error
    return int(math.prod(tensor.dims)) * int(item)
