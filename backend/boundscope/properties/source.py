"""Reading a property file in blocks of whole lines, and finding the line of a position for errors."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from boundscope.errors import PropertyError

BLOCK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Locator:
    """Turns a position into the words "file, line n" of an error. Here a position is already a line number."""

    def __init__(self, name: str) -> None:
        self.name = name

    def line(self, position: int) -> int:
        """Line number from 1 of a position."""
        return position

    def error(self, position: int, text: str) -> PropertyError:
        """The error that says where and what."""
        return PropertyError(f"{self.name}, line {self.line(position)}: {text}")


class TextSource(Locator):
    """A property file, plain or gzipped (by its content, not its name). Positions are byte offsets.

    Text is decoded as Latin-1, so one byte is one character and comments may hold any bytes.
    """

    def __init__(self, path: Path, name: str = "") -> None:
        super().__init__(name or path.name)
        self.path = path
        self._newlines: list[np.ndarray] = []

    def blocks(self) -> Iterator[tuple[int, str]]:
        """Pairs of offset and text; every block but the last ends with a newline.

        Raises PropertyError for a file that cannot be read, is damaged, or is not text.
        """
        self._newlines.clear()
        offset, carried = 0, b""
        for piece in self._pieces():
            data = carried + piece
            if not offset and data.startswith(_BYTE_ORDER_MARK):
                offset, data = len(_BYTE_ORDER_MARK), data[len(_BYTE_ORDER_MARK) :]
            cut = data.rfind(b"\n") + 1
            if cut:
                yield offset, self._text(data[:cut], offset)
            carried = data[cut:]
            offset += cut
        if carried:
            yield offset, self._text(carried, offset)

    def line(self, position: int) -> int:
        """Line number from 1 of a byte offset that has been read."""
        return 1 + sum(int(np.searchsorted(block, position)) for block in self._newlines)

    def _text(self, data: bytes, offset: int) -> str:
        self._newlines.append(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + offset)
        if b"\0" in data:
            where = data.index(b"\0") + offset
            raise self.error(
                where, "a zero byte; this is not a text file (VNN-LIB is plain text, or its gzip)"
            )
        return data.decode("latin-1")

    def _pieces(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                start = file.read(len(_GZIP_MAGIC))
                file.seek(0)
                stream = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if start == _GZIP_MAGIC else file
                while piece := stream.read(BLOCK_BYTES):
                    yield piece
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise PropertyError(
                f"{self.name}: the gzip file is damaged or cut off ({error}); copy or download it again"
            ) from error
        except OSError as error:
            raise PropertyError(f"{self.name}: cannot be read ({error.strerror or error})") from error
