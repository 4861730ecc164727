"""What people read: sentences on standard error, values on standard output, sizes and times in words."""

from __future__ import annotations

import re
import sys

from boundscope.errors import UsageError

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{prefix}ib": 1 << (10 * power) for power, prefix in enumerate("kmgt", start=1)}
_UNITS |= {f"{prefix}b": 10 ** (3 * power) for power, prefix in enumerate("kmgt", start=1)}


def complain(text: str) -> None:
    """One message on standard error, after the program's name."""
    print(f"boundscope: {text}", file=sys.stderr, flush=True)


def size_text(count: float) -> str:
    """Bytes as people read them: "512 B", "1.5 MiB"."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def read_size(text: str) -> int:
    """Bytes of "2GiB", "512M", "1.5 gb" or "1048576"; UsageError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match.group(2) not in _UNITS:
        raise UsageError(f"{text!r} is not a size; write bytes, or a number with a unit, as 512MiB or 2GiB")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


def seconds_text(seconds: float) -> str:
    """Seconds as people read them: "0.042 s", "12.3 s", "3 min 05 s"."""
    if seconds < 1:
        return f"{seconds:.3f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count_text(count: int) -> str:
    """A count with spaces between groups of three digits: "12 345"."""
    return f"{count:,}".replace(",", " ")


def number_text(value: float | None) -> str:
    """A float with six significant digits; "none" where there is none."""
    return "none" if value is None else f"{value:.6g}"
