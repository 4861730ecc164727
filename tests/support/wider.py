"""Properties that only branch and bound decides: an example's box, made wider."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "resources" / "examples"
DIGITS = EXAMPLES / "networks" / "digits_mlp.onnx"
ADVISOR = EXAMPLES / "networks" / "advisor.onnx"
_BOUND = re.compile(r"\(assert \((<=|>=) X_(\d+) (\S+?)\)\)")


def wider(example: str, factor: str, target: Path) -> Path:
    """Write an example's property with the box of its inputs `factor` times as wide, around the same centre.

    digits-robust is verified at 1.6 by splitting activations within seconds; at 2.5 no search of some seconds ends.
    """
    text = (EXAMPLES / example / "property.vnnlib").read_text(encoding="utf-8")
    ends: dict[tuple[str, str], Decimal] = {(i, s): Decimal(v) for s, i, v in _BOUND.findall(text)}

    def moved(match: re.Match[str]) -> str:
        sign, index, _ = match.groups()
        centre = (ends[index, "<="] + ends[index, ">="]) / 2
        return f"(assert ({sign} X_{index} {centre + (ends[index, sign] - centre) * Decimal(factor):f}))"

    target.write_text(_BOUND.sub(moved, text), encoding="utf-8")
    return target
