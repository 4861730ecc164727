"""The list of operators in docs/bounds.md is the list that the engine has."""

from __future__ import annotations

import re
from pathlib import Path

from boundscope.bounds import supported_operators


def test_the_page_lists_the_operators() -> None:
    text = (Path(__file__).parents[2] / "docs" / "bounds.md").read_text(encoding="utf-8")
    quoted = " ".join(line[2:] for line in text.splitlines() if line.startswith("> "))
    assert set(re.findall(r"[A-Za-z]+", quoted)) == supported_operators()
    assert f"{len(supported_operators())} ONNX operators" in text
