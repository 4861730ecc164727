"""Weights taken from a network's file where they lie, past protobuf, which would copy them several times.

Of a large file all is read but the data of large tensors: these are found by a walk over the file's fields (protobuf's
wire format; the numbers are those of onnx.proto) and left out of what protobuf parses. A file that the walk does not
understand is parsed whole, so that what is wrong with it is said in one place.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from boundscope.errors import NetworkError
from boundscope.network.arrays import Array, FileState, MappedFile

LARGE_BYTES = 1 << 16  # of a tensor's data, from which on it is taken from where it lies
_WINDOW_BYTES = 1 << 12
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
_DTYPES: Mapping[int, np.dtype[np.floating]] = {
    onnx.TensorProto.FLOAT: np.dtype("<f4"),
    onnx.TensorProto.DOUBLE: np.dtype("<f8"),
}


class _NotUnderstoodError(Exception):
    """The bytes are no message, or one that is put together in a way that exporters do not use."""


class _Field(NamedTuple):
    number: int
    wire_type: int
    start: int  # with its key
    data: int
    stop: int


@dataclass
class DataFile:
    """An open file, or what was unpacked of one, and where its content is taken from.

    `mapped`: arrays are views of the file, not copies. `own`: nobody else can write to it.
    """

    path: Path
    file: BinaryIO
    mapped: bool
    own: bool = False
    state: FileState = field(init=False)
    size: int = field(init=False)
    _map: MappedFile | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.state = FileState.of(self.path, self.file)
        self.size = os.fstat(self.file.fileno()).st_size

    def read(self, start: int, stop: int) -> bytes:
        self.file.seek(start)
        data = self.file.read(stop - start)
        if len(data) < stop - start:
            raise _NotUnderstoodError
        return data

    def array(self, place: Place) -> Array:
        """
        Raises:
            NetworkError: the file cannot be read, or has become shorter.
        """
        try:
            if self.mapped:
                self._map = self._map or MappedFile(self.file)
                return self._map.array(place.dtype, place.shape, place.offset)
            count = math.prod(place.shape)
            self.file.seek(place.offset)
            found: Array = np.fromfile(self.file, place.dtype, count)
        except OSError as error:
            raise NetworkError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if found.size < count:
            raise NetworkError(f"{self.path}: became shorter while it was read; run again")
        return found.reshape(place.shape)


@dataclass(frozen=True)
class Place:
    """Where a tensor's values lie in a file, one after another, little-endian."""

    source: DataFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.floating]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def array(self) -> Array:
        return self.source.array(self)


def place_of(tensor: onnx.TensorProto, source: DataFile, offset: int, length: int) -> Place | None:
    """The place of a large tensor of float32 or float64 numbers whose data have the size that its shape asks for; None
    for any other, which the onnx package reads."""
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None or length < LARGE_BYTES or sys.byteorder != "little":
        return None
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 1 or math.prod(shape) * dtype.itemsize != length:
        return None
    if tensor.HasField("segment") or tensor.float_data or tensor.double_data:
        return None
    return Place(source, offset, shape, dtype)


def read_skeleton(source: DataFile) -> tuple[onnx.ModelProto, dict[int, Place]] | None:
    """The model without the data of large initializers, and where those lie, by the initializer's number; None where
    the file is not understood."""
    walk = _Walk(source)
    try:
        data = b"".join(walk.model())
        model = onnx.ModelProto.FromString(data)
    except (_NotUnderstoodError, DecodeError, OSError):
        return None
    if len(model.graph.initializer) != walk.initializers:
        return None
    return model, walk.places


class _Walk:
    def __init__(self, source: DataFile) -> None:
        self._source = source
        self._window, self._from = b"", 0
        self.places: dict[int, Place] = {}
        self.initializers = 0

    def model(self) -> Iterator[bytes]:
        graphs = 0
        kept = 0
        for one in self._fields(0, self._source.size):
            if one.number == _MODEL_GRAPH and one.wire_type == _LENGTH:
                graphs += 1
                if graphs > 1:  # protobuf would merge them
                    raise _NotUnderstoodError
                yield self._source.read(kept, one.start)
                graph = b"".join(self._graph(one.data, one.stop))
                yield _key(_MODEL_GRAPH) + _varint(len(graph))
                yield graph
                kept = one.stop
        yield self._source.read(kept, self._source.size)

    def _graph(self, start: int, stop: int) -> Iterator[bytes]:
        kept = start
        for one in self._fields(start, stop):
            if one.number != _GRAPH_INITIALIZER or one.wire_type != _LENGTH:
                continue
            number = self.initializers
            self.initializers += 1
            if one.stop - one.data < LARGE_BYTES:
                continue
            found = self._tensor(one.data, one.stop)
            if found is not None:
                tensor, self.places[number] = found
                yield self._source.read(kept, one.start)
                yield _key(_GRAPH_INITIALIZER) + _varint(len(tensor)) + tensor
                kept = one.stop
        yield self._source.read(kept, stop)

    def _tensor(self, start: int, stop: int) -> tuple[bytes, Place] | None:
        """A tensor without its raw data, and where these lie; None where it has no large ones."""
        fields = list(self._fields(start, stop))
        raw = [one for one in fields if one.number == _TENSOR_RAW_DATA]
        if len(raw) != 1 or raw[0].wire_type != _LENGTH or raw[0].stop - raw[0].data < LARGE_BYTES:
            return None
        (data,) = raw
        rest = self._source.read(start, data.start) + self._source.read(data.stop, stop)
        tensor = onnx.TensorProto.FromString(rest)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        place = place_of(tensor, self._source, data.data, data.stop - data.data)
        return None if place is None else (rest, place)

    def _fields(self, start: int, stop: int) -> Iterator[_Field]:
        position = start
        while position < stop:
            key, data = self._number(position, stop)
            wire_type, end = key & 7, data
            if wire_type == _VARINT:
                _, end = self._number(data, stop)
            elif wire_type == _LENGTH:
                length, data = self._number(data, stop)
                end = data + length
            elif wire_type in (_FIXED32, _FIXED64):
                end = data + (4 if wire_type == _FIXED32 else 8)
            else:
                raise _NotUnderstoodError
            if end > stop or not key >> 3:
                raise _NotUnderstoodError
            yield _Field(key >> 3, wire_type, position, data, end)
            position = end

    def _number(self, position: int, stop: int) -> tuple[int, int]:
        """A varint, and the position behind it."""
        value = 0
        for shift in range(0, 70, 7):
            if position >= stop:
                break
            byte = self._byte(position)
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
        raise _NotUnderstoodError

    def _byte(self, position: int) -> int:
        if not self._from <= position < self._from + len(self._window):
            self._from = position
            self._window = self._source.read(position, min(position + _WINDOW_BYTES, self._source.size))
        return self._window[position - self._from]


def _key(number: int) -> bytes:
    return _varint(number << 3 | _LENGTH)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
