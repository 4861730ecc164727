"""Reading a property from a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boundscope.properties import Property, read_property

Read = Callable[..., Property]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a text as p.vnnlib and reads it back as a property."""

    def from_text(text: str | bytes, **options: Any) -> Property:
        path = tmp_path / "p.vnnlib"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_property(path, **options)

    return from_text
